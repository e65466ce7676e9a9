"""An offset on calibrated logits: its fit to labels, and what it does to probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from linkcal._math import sigmoid
from linkcal.exceptions import InputError

__all__ = ["fit_offset", "shifted"]

FloatArray = NDArray[np.float64]

# Bisection halves a bracket whose ends are the largest logits; float64 tells no more apart.
_MAX_ITER = 200


def fit_offset(z: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Maximum-likelihood b of ``sigmoid(z + b)`` and its standard error.

    Parameters
    ----------
    z : ndarray of shape (n,)
        Finite logits.
    y : ndarray of shape (n,)
        0 or 1.
    weight : ndarray of shape (n,)

    Returns
    -------
    offset : float
    standard_error : float
        ``1 / sqrt(sum_i w_i p_i (1 - p_i))``.

    Raises
    ------
    InputError
        If only one class has weight, or the labels say nothing about b.

    Notes
    -----
    The derivative ``sum_i w_i (p_i - y_i)`` rises with b. Newton steps are kept inside a bracket that each
    step narrows, so that logits of any size cannot throw it off.
    """
    positive, total = float(weight @ y), float(weight.sum())
    if not 0.0 < positive < total:
        only = 1 if positive else 0
        raise InputError(f"y must hold both classes to fit an offset, got only {only}")
    share = np.log(positive) - np.log(total - positive)
    low, high = float(share - z.max()), float(share - z.min())
    b = 0.5 * (low + high)
    for _ in range(_MAX_ITER):
        p = sigmoid(z + b)
        slope, curvature = float(weight @ (p - y)), float(weight @ (p * (1.0 - p)))
        low, high = (b, high) if slope < 0.0 else (low, b)
        step = slope / curvature if curvature > 0.0 else np.inf
        following = b - step if low < b - step < high else 0.5 * (low + high)
        if following == b or abs(following - b) <= 1e-14 * max(1.0, abs(b)):
            break
        b = following
    if curvature <= 0.0:
        raise InputError(
            "y must leave room for an offset, got labels that the logits separate beyond float64"
        )
    return b, float(1.0 / np.sqrt(curvature))


def shifted(p: FloatArray, offset: float) -> FloatArray:
    """Probabilities whose logit is `offset` larger; 0 and 1 stay, the order too."""
    # Every step is monotone under rounding, so that no two links change places. Beyond 700 the factor would
    # be 0 or infinite, and its product with the odds of 1 or 0 no number.
    factor = np.exp(-np.clip(offset, -700.0, 700.0))
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(1.0 / (1.0 + (1.0 - p) / p * factor))
