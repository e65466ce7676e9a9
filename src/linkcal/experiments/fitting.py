"""Fit one kind of calibrator for several calibration seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from linkcal.calibrators import Calibrator

__all__ = ["fit_together"]

Array = NDArray[Any]


def fit_together(
    calibrators: Sequence[Calibrator],
    X: Sequence[NDArray[np.float64]],
    y: Sequence[NDArray[np.int64]],
    validation: Sequence[tuple[Array, Array] | None],
) -> list[Calibrator]:
    """Fit a clone of each calibrator on its own links, one after the other.

    Parameters
    ----------
    calibrators : sequence of Calibrator
        Of one class; they may differ in their random state.
    X : sequence of ndarray (n, 1 + k)
    y : sequence of ndarray (n,)
    validation : sequence of (ndarray, ndarray) or None
        For calibrators that choose something on validation data.

    Returns
    -------
    list of Calibrator
        Fitted.
    """
    fitted = []
    for calibrator, links, label, held_out in zip(calibrators, X, y, validation, strict=True):
        fresh: Any = clone(calibrator)
        if held_out is not None and has_fit_parameter(fresh, "X_val"):
            fitted.append(fresh.fit(links, label, X_val=held_out[0], y_val=held_out[1]))
        else:
            fitted.append(fresh.fit(links, label))
    return fitted
