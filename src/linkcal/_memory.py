"""Messages of large graphs without fresh pages.

The C library takes a block of more than 32 MB from the system anew each time, and gives it back when it is
freed. Its pages of 4 KB are then mapped and cleared one by one at the first write, which costs more than what
message passing does with them: where the messages of a layer are larger than that, an operation waits for the
system more than half of its time.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["kept_pages"]

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
