"""Memory for arrays that are read or written in no order.

NumPy asks the system for huge pages for large arrays; torch and compiled code do not. With ordinary pages of
4 KB nearly every read of a large array at a place that cannot be foreseen has to look up its page in memory
first, in tables that are large themselves.

NumPy's large arrays start 16 bytes into a cache line, so that a row of 128 bytes lies in three lines where
two would hold it. Arrays whose rows are read one by one start at a line here.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["CACHE_LINE", "HUGE", "at_hand", "empty_array", "empty_rows"]

#: Bytes that the processor fetches at once.
CACHE_LINE = 64

#: Bytes from which NumPy asks for huge pages.
HUGE = 1 << 22


def empty_rows(number: int, width: int, like: Tensor) -> Tensor:
    """A new tensor [number, width] of the dtype and on the device of `like`, not filled."""
    if like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return like.new_empty(number, width)
    dtype = np.float32 if like.dtype == torch.float32 else np.float64
    return torch.from_numpy(empty_array((number, width), np.dtype(dtype)))


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A new contiguous array, not filled, that starts at a cache line."""
    size = prod(shape) * dtype.itemsize
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def at_hand(values: NDArray[Any]) -> NDArray[Any]:
    """A contiguous copy in NumPy's own memory; the array itself where it is small or not to be moved."""
    return np.array(values, order="C") if values.nbytes >= HUGE else np.ascontiguousarray(values)
