"""Thread counts of the libraries in this process, put back as they were, also when threads overlap."""

import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Shared:
    """What overlapping blocks of this process share; a forked child begins with its own."""

    def __init__(self) -> None:
        #: Held while parallel compiled code runs. It uses all cores anyway, and Numba's ``workqueue`` layer
        #: aborts the process when two threads run parallel code at once.
        self.kernels = threading.RLock()
        #: Guards what follows.
        self.lock = threading.Lock()
        #: Limits of the BLAS blocks that are open, and how to undo the first.
        self.blas_counts: list[int] = []
        self.blas_before: Any = None


_shared = _Shared()
_process = os.getpid()
#: Locks of objects that a child inherits; a thread that the child does not have may hold them.
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def fork_safe_lock() -> Any:
    """A lock that is free in a forked child, whatever another thread of the parent was doing."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def _renew() -> None:
    global _shared
    _shared = _Shared()
    for lock in list(_locks):
        lock._at_fork_reinit()  # as the standard library does with its own
    # torch would wait for ever for threads that the child does not have; its own data loaders do the same.
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Run NumPy's and SciPy's linear algebra with at most `count` threads for a block.

    With one thread numbers do not depend on the machine's cores, over which BLAS cuts its sums. The limit is
    the process's: where blocks overlap the smallest holds, and the last to end restores what the first found.
    """
    from threadpoolctl import threadpool_limits

    shared = _shared
    with shared.lock:
        limits: Any = threadpool_limits(min([count, *shared.blas_counts]), user_api="blas")
        shared.blas_before = shared.blas_before if shared.blas_counts else limits
        shared.blas_counts.append(count)
    try:
        yield
    finally:
        with shared.lock:
            shared.blas_counts.remove(count)
            if shared.blas_counts:
                threadpool_limits(min(shared.blas_counts), user_api="blas")
            else:
                shared.blas_before.restore_original_limits()


# Pairs that are worth a thread: to wake one costs as much as tens of pairs, and more on a busy machine.
_PAIRS_PER_THREAD = 64


def useful_threads(available: int, num_pairs: int) -> int:
    """Threads for so many pairs, of those available; few pairs are left to the calling one."""
    return min(available, 1 + num_pairs // _PAIRS_PER_THREAD)


@contextmanager
def numba_threads(count: int) -> Iterator[None]:
    """Run compiled parallel code with at most `count` threads for a block; one thread at a time may be in it.

    torch and Numba may share an OpenMP runtime, so torch's thread count is restored as well as Numba's. In a
    forked child compiled code is serial (:mod:`linkcal._core.compiled`), and Numba's threads are not touched.
    """
    if os.getpid() != _process:
        with _shared.kernels:
            yield
        return
    import numba  # slow to import, and not needed where only torch's threads are set

    with _shared.kernels:
        torch = sys.modules.get("torch")
        # Before Numba is asked: its first answer starts its threads, which may change torch's count.
        torch_count = None if torch is None else torch.get_num_threads()
        numba_count = numba.get_num_threads()
        numba.set_num_threads(max(1, min(count, numba.config.NUMBA_NUM_THREADS)))
        try:
            yield
        finally:
            numba.set_num_threads(numba_count)
            if torch is not None:
                torch.set_num_threads(torch_count)
