"""Thread counts of the libraries in this process, put back as they were, also when threads overlap."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class _Shared:
    """What overlapping blocks of this process share; a forked child begins with its own."""

    def __init__(self) -> None:
        #: Held while parallel compiled code runs. It uses all cores anyway, and Numba's ``workqueue`` layer
        #: aborts the process when two threads run parallel code at once.
        self.kernels = threading.RLock()
        #: Guards the counts below.
        self.lock = threading.Lock()
        self.torch_users, self.torch_before = 0, 0
        self.blas_users = 0
        self.blas_before: Any = None
        #: Counts of the torch blocks that this thread is in, innermost last.
        self.own = threading.local()


_shared = _Shared()
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork

    def _renew() -> None:
        global _shared
        _shared = _Shared()

    os.register_at_fork(after_in_child=_renew)


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Run NumPy's and SciPy's linear algebra with at most `count` threads for a block.

    One thread where numbers must not depend on the machine's cores: BLAS cuts sums over the threads it has,
    so that a product of the same matrices differs in its last bits. The limit is the process's: when blocks
    overlap, the last one to end restores what the first one found.
    """
    from threadpoolctl import threadpool_limits

    shared = _shared
    with shared.lock:
        limits: Any = threadpool_limits(count, user_api="blas")
        shared.blas_before = limits if not shared.blas_users else shared.blas_before
        shared.blas_users += 1
    try:
        yield
    finally:
        with shared.lock:
            shared.blas_users -= 1
            if not shared.blas_users:
                shared.blas_before.restore_original_limits()


@contextmanager
def numba_threads(count: int) -> Iterator[None]:
    """Run compiled parallel code with at most `count` threads for a block; one thread at a time may be in it.

    torch and Numba may run on one OpenMP runtime, whose thread count a parallel function sets and leaves so:
    torch's count is put back as well as Numba's.
    """
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
    """Run torch with `count` threads for a block, and put its setting back.

    For loops over tiny tensors: handing out work that takes microseconds costs more than it saves, and many
    times more when the cores are shared with other programs. Part of torch's count belongs to the thread and
    part to the process, so that each thread sets it, to what the first of overlapping blocks found.
    """
    import torch

    shared, own = _shared, _own_counts()
    with shared.lock:
        if not shared.torch_users:
            shared.torch_before = torch.get_num_threads()
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
    """Count of torch for this thread outside other threads' blocks; None where torch is not imported."""
    if "torch" not in sys.modules:
        return None
    own = _own_counts()
    if own:
        return own[-1]
    with _shared.lock:
        return _shared.torch_before if _shared.torch_users else int(sys.modules["torch"].get_num_threads())


# Messages of large graphs without fresh pages.
#
# The C library takes a block of more than 32 MB from the system anew each time, and gives it back when it is
# freed. Its pages of 4 KB are then mapped and cleared one by one at the first write, which costs more than
# what message passing does with them: where the messages of a layer are larger than that, an operation waits
# for the system more than half of its time.

# Options of mallopt (malloc.h of the GNU C library).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
#: While pages are kept: no block is mapped on its own, and the heap gives back only what is free beyond 2 GB.
_KEPT = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1))
#: Arcs whose messages are worth it: with fewer they stay below 32 MB, at 256 bytes each. With more, the gaps
#: of the heap (free blocks that the next ones do not quite fit into) would cost gigabytes.
_FEW_ARCS, _MANY_ARCS = 1 << 17, 1 << 23
#: Afterwards: where the library's own adaptation ends, which it does once a block of 32 MB was freed.
_USUAL = ((_MMAP_MAX, 1 << 16), (_MMAP_THRESHOLD, 1 << 25), (_TRIM_THRESHOLD, 1 << 26))
#: Environment variables by which a user sets the same options: they cannot be read back to restore them.
_CHOSEN = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
_TUNABLES = "GLIBC_TUNABLES"

_lock = threading.Lock()
_users = 0


@contextmanager
def kept_pages(device: torch.device, num_arcs: int) -> Iterator[None]:
    """Let the process keep the memory of freed tensors for the next ones, while messages are passed.

    Whatever is free is given back at the end of the block. The peak grows by the gaps between tensors.
    Nothing is done for other devices than the CPU, for other C libraries than GNU's, where the user has set
    the library's options in the environment, or where it is not worth it. Blocks may be nested and run in
    several threads: the setting is the process's.

    Parameters
    ----------
    device : torch.device
        Where the work is done.
    num_arcs : int
        How many messages a layer passes at once.

    Examples
    --------
    >>> import torch
    >>> with kept_pages(torch.device("cpu"), num_arcs=2_000_000):
    ...     float(torch.ones(1000, 1000).mul(2.0).sum())
    2000000.0
    """
    worth = device.type == "cpu" and _FEW_ARCS <= num_arcs <= _MANY_ARCS
    library = _gnu_library() if worth else None
    if library is None:
        yield
        return
    _enter(library)
    try:
        yield
    finally:
        _leave(library)


def _gnu_library() -> ctypes.CDLL | None:
    """The C library of this process if it is GNU's and nobody has set how it takes memory."""
    chosen = any(name in os.environ for name in _CHOSEN) or "glibc.malloc." in os.environ.get(_TUNABLES, "")
    if chosen or not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


def _enter(library: ctypes.CDLL) -> None:
    global _users
    with _lock:
        if not _users:
            _set(library, _KEPT)
        _users += 1


def _leave(library: ctypes.CDLL) -> None:
    global _users
    with _lock:
        _users -= 1
        if not _users:
            _set(library, _USUAL)
            library.malloc_trim(ctypes.c_size_t(0))


def _set(library: ctypes.CDLL, options: tuple[tuple[int, int], ...]) -> None:
    for option, value in options:
        library.mallopt(option, value)
