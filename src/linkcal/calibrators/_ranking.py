"""Ties of a step function, broken by the logit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ties_broken"]

FloatArray = NDArray[np.float64]

# Together they stay below the promised 1e-6. Away from 0 and 1 there is room for both directions.
_MARGIN = 5e-7
_SPREAD = 4e-7


def ties_broken(p: FloatArray, s: FloatArray) -> FloatArray:
    """Probabilities (n,) within 1e-6 of `p` that rise with the logit `s` where `p` is the same.

    ``clip(p, 5e-7, 1 - 5e-7) + 4e-7 s / (1 + |s|)``. Float64 tells two logits apart that differ by more than
    about ``1e-9 (1 + |s|)^2``: all distinct float32 logits up to 100, say.
    """
    return np.clip(p, _MARGIN, 1.0 - _MARGIN) + _SPREAD * (s / (1.0 + np.abs(s)))
