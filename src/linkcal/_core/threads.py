"""Threads and memory of a call, put back as they were afterwards."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["blas_threads", "kept_pages", "numba_threads", "torch_threads"]


# Thread counts of the libraries that share this process.
#
# torch and Numba may run on one OpenMP runtime. Numba sets that runtime's thread count when a parallel
# function starts and leaves it so: afterwards torch would use as many threads, whatever it was told.


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Run NumPy's and SciPy's linear algebra with at most `count` threads for a block.

    One thread where numbers must not depend on the machine's cores: BLAS cuts sums over the threads it has,
    so that a product of the same matrices differs in its last bits.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(count, user_api="blas"):
        yield


@contextmanager
def numba_threads(count: int) -> Iterator[None]:
    """Run Numba with at most `count` threads for a block, and put both libraries' settings back."""
    import numba  # slow to import, and not needed where only torch's threads are set

    torch_count, numba_count = torch.get_num_threads(), numba.get_num_threads()
    numba.set_num_threads(max(1, min(count, numba.config.NUMBA_NUM_THREADS)))
    try:
        yield
    finally:
        numba.set_num_threads(numba_count)
        torch.set_num_threads(torch_count)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run torch with `count` threads for a block, and put its setting back.

    For loops over tiny tensors: handing out work that takes microseconds costs more than it saves, and many
    times more when the cores are shared with other programs.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
