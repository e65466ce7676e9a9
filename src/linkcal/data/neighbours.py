"""Sorted neighbour lists of a graph as compressed rows, and the search in one row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["neighbour_rows", "place_in_row", "row_starts", "rows_of_keys"]

IntArray = NDArray[np.int64]
Array = Any  # NumPy arrays of int64; Numba specialises the code on it


def neighbour_rows(edge_index: Tensor, num_nodes: int) -> tuple[IntArray, IntArray]:
    """Neighbours of each node in any direction, once each and in increasing order, without the node itself.

    Parameters
    ----------
    edge_index : Tensor [2, E], int64
        Direction, repeats and self-loops are ignored.
    num_nodes : int

    Returns
    -------
    starts : int64 (N + 1,)
    neighbours : int64 (A,)
        Those of node u are ``neighbours[starts[u] : starts[u + 1]]``.
    """
    row, col = edge_index.cpu().numpy()
    row, col = row[row != col], col[row != col]
    return rows_of_keys(np.unique(np.concatenate([row * num_nodes + col, col * num_nodes + row])), num_nodes)


def rows_of_keys(keys: IntArray, num_nodes: int) -> tuple[IntArray, IntArray]:
    """Row starts (N + 1,) and columns of sorted keys ``row N + column``."""
    row, column = np.divmod(keys, num_nodes)
    return row_starts(row, num_nodes), column


def row_starts(row: IntArray, num_nodes: int) -> IntArray:
    """Where each row starts, (N + 1,), in a list that is sorted by row."""
    starts = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=num_nodes), out=starts[1:])
    return starts


@njit(inline="always")
def place_in_row(values: Array, low: int, high: int, wanted: int) -> int:
    """Place of `wanted` in the increasing ``values[low:high]``, or -1; by bisection."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < end and values[low] == wanted else -1
