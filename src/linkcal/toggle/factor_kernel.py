"""Compiled factors ``a(d)`` and ``b(d)`` of :mod:`.algebra`, of one node."""

from __future__ import annotations

import numpy as np
from numba import njit

from linkcal.toggle.kernel_arrays import GCN, MEAN

__all__ = ["receive", "send"]


@njit(forceinline=True)
def receive(kind: int, degree: float) -> float:
    """``a(d)`` of the receiving node."""
    if kind == GCN:
        return 1.0 / np.sqrt(degree) if degree > 0.0 else 0.0
    if kind == MEAN:
        return 1.0 / max(degree, 1.0)
    return 1.0


@njit(forceinline=True)
def send(kind: int, degree: float) -> float:
    """``b(d)`` of the sending node."""
    return receive(GCN, degree) if kind == GCN else 1.0
