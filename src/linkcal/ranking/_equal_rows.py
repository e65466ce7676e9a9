"""Nodes with the same embedding: what they score against each other is known without looking at each pair."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["EqualRows"]

FloatArray = NDArray[np.float64]

#: Of a block with more pairs of different rows than this share, the pairs themselves are looked at.
_FEW = 1 / 16


class EqualRows:
    """Largest score of a block of pairs, where most of its rows are copies of each other.

    Parameters
    ----------
    left, right : array (N, d)
        Rows in the order in which blocks take them; a pair scores ``sum(left_u * right_v)`` or the same with
        u and v exchanged. Rows that are equal in `left` are equal in `right`.

    Examples
    --------
    >>> z = np.array([[2.0], [1.0], [1.0]]).repeat(100, axis=0)
    >>> EqualRows(z, z).largest(slice(0, 300), slice(100, 200))
    2.0
    """

    def __init__(self, left: FloatArray, right: FloatArray) -> None:
        self._left, self._right = left, right
        width = left.shape[1] * left.itemsize
        if width:
            rows = np.ascontiguousarray(left).view(np.dtype((np.void, width)))[:, 0]
            _, self._first, self._number = np.unique(rows, return_index=True, return_inverse=True)
        else:
            self._first, self._number = np.zeros(1, np.int64), np.zeros(left.shape[0], np.int64)

    def largest(self, row: slice, col: slice) -> float:
        """Largest score of the block, known edges included; inf where that takes as long as all pairs do."""
        first, second = (self._first[np.unique(self._number[side])] for side in (row, col))
        size = (row.stop - row.start) * (col.stop - col.start)
        if first.size * second.size > _FEW * size:
            return np.inf
        u, v = (grid.ravel() for grid in np.meshgrid(first, second))
        # As single pairs are scored, so that the sums are the same to the last bit.
        return max(float((self._left[a] * self._right[b]).sum(axis=1).max()) for a, b in ((u, v), (v, u)))
