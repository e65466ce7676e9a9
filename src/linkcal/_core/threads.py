"""Thread counts of a call, put back as they were afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["blas_threads", "numba_threads", "torch_threads"]


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
