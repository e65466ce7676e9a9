"""No calibration: the baseline of every table."""

from __future__ import annotations

from typing import final

from linkcal.calibrators.base import Calibrator, FloatArray

__all__ = ["Identity"]


@final
class Identity(Calibrator):
    """The uncalibrated probability ``p = sigmoid(s)``.

    Columns 1.. of X are ignored.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Examples
    --------
    >>> Identity().fit([[-1.0], [1.0]], [0, 1]).decision_function([[3.0]])
    array([3.])
    """

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        """Nothing to learn beyond the labels' names."""

    def _decision(self, X: FloatArray) -> FloatArray:
        return X[:, 0].copy()
