"""Thread counts of the libraries in this process, put back as they were, also when threads overlap."""

from __future__ import annotations

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
        #: Guards the counts below.
        self.lock = threading.Lock()
        self.torch_users, self.torch_before = 0, 0
        #: Limits of the BLAS blocks that are open, and how to undo the first.
        self.blas_counts: list[int] = []
        self.blas_before: Any = None
        #: Counts of the torch blocks that this thread is in, innermost last.
        self.own = threading.local()


_shared = _Shared()
_process = os.getpid()
#: Locks of objects that a child inherits; a thread that the child does not have may hold them.
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def fork_safe_lock() -> Any:
    """A lock that is free in a forked child, whatever another thread of the parent was doing."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def in_forked_child() -> bool:
    """Whether this process was forked after linkcal was imported: OpenMP's and Numba's threads are gone."""
    return os.getpid() != _process


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


@contextmanager
def numba_threads(count: int) -> Iterator[None]:
    """Run compiled parallel code with at most `count` threads for a block; one thread at a time may be in it.

    torch and Numba may share an OpenMP runtime, so torch's thread count is restored as well as Numba's. In a
    forked child compiled code is serial (:mod:`linkcal._core.compiled`), and Numba's threads are not touched.
    """
    if in_forked_child():
        with _shared.kernels:
            yield
        return
    import numba  # slow to import, and not needed where only torch's threads are set

    with _shared.kernels:
        torch_count, numba_count = _torch_count(), numba.get_num_threads()
        numba.set_num_threads(max(1, min(count, numba.config.NUMBA_NUM_THREADS)))
        try:
            yield
        finally:
            numba.set_num_threads(numba_count)
            if torch_count is not None:
                sys.modules["torch"].set_num_threads(torch_count)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run torch with `count` threads for a block, and put its setting back; faster for tiny tensors.

    Part of torch's count belongs to the thread and part to the process, so each thread sets it, to what the
    first of overlapping blocks found.
    """
    import torch

    shared, own = _shared, _own_counts()
    with shared.lock:
        # Asked first: a thread takes over the process's count when it first asks, also after it has set one.
        found = torch.get_num_threads()
        if not shared.torch_users:
            shared.torch_before = found
        shared.torch_users += 1
        own.append(count)
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with shared.lock:
            shared.torch_users -= 1
            own.pop()
            torch.set_num_threads(own[-1] if own else shared.torch_before)


def _own_counts() -> list[int]:
    counts: list[int] = _shared.own.__dict__.setdefault("counts", [])
    return counts


def _torch_count() -> int | None:
    """Count of torch for this thread; None where torch is not imported."""
    torch, own = sys.modules.get("torch"), _own_counts()
    if torch is None:
        return None
    return own[-1] if own else int(torch.get_num_threads())
