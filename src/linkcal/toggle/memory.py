"""Memory for arrays that are read or written in no order.

NumPy asks the system for huge pages for large arrays; torch and compiled code do not. With ordinary pages of
4 KB nearly every read of a large array at a place that cannot be foreseen has to look up its page in memory
first, in tables that are large themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["HUGE", "at_hand", "empty_rows"]

#: Bytes from which NumPy asks for huge pages.
HUGE = 1 << 22


def empty_rows(number: int, width: int, like: Tensor) -> Tensor:
    """A new tensor [number, width] of the dtype and on the device of `like`, not filled."""
    if like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return like.new_empty(number, width)
    dtype = np.float32 if like.dtype == torch.float32 else np.float64
    return torch.from_numpy(np.empty((number, width), dtype))


def at_hand(values: NDArray[Any]) -> NDArray[Any]:
    """A contiguous copy in NumPy's own memory; the array itself where it is small or not to be moved."""
    return np.array(values, order="C") if values.nbytes >= HUGE else np.ascontiguousarray(values)
