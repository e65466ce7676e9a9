"""Threads of compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba

__all__ = ["numba_threads"]


@contextmanager
def numba_threads(count: int) -> Iterator[None]:
    """Let Numba use so many threads in a block, and put its own setting back.

    Examples
    --------
    >>> with numba_threads(1):
    ...     numba.get_num_threads()
    1
    """
    before = numba.get_num_threads()
    numba.set_num_threads(max(1, min(count, numba.config.NUMBA_NUM_THREADS)))
    try:
        yield
    finally:
        numba.set_num_threads(before)
