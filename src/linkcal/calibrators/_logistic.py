"""Logistic regression with few parameters and box constraints, to machine precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linkcal._math import bernoulli_nll, sigmoid

__all__ = ["SLOPE_BOUND", "LogisticFit", "fit_logistic", "separated"]

FloatArray = NDArray[np.float64]

#: Slope per standard deviation of the logit at which a fit is stopped whose likelihood has no maximum.
SLOPE_BOUND = 1e4

# Largest absolute derivative of the mean loss, in units of standardised features, at the solution.
_TOLERANCE = 1e-12
_MAX_ITER = 200

# Below this Newton decrement the loss no longer resolves a step in float64; full steps are then taken.
_RESOLUTION = 1e-13


@dataclass(frozen=True)
class LogisticFit:
    """``intercept + features @ slope`` and how the solver got there."""

    slope: FloatArray
    intercept: float
    n_iter: int
    converged: bool


def separated(s: FloatArray, y: FloatArray) -> int:
    """Whether a threshold on `s` separates the classes: 1 (y = 1 above), -1 (y = 1 below) or 0.

    Links of either class may lie on the threshold; 0 also if all `s` are equal. Where it is not 0, logistic
    regression on `s` has no maximum-likelihood estimate.
    """
    positive, negative = s[y == 1.0], s[y == 0.0]
    if s.min() == s.max():
        return 0
    if negative.max() <= positive.min():
        return 1
    return -1 if positive.max() <= negative.min() else 0


def fit_logistic(
    features: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    *,
    lower: float = -np.inf,
    upper: float = np.inf,
    start: tuple[float, float] | None = None,
) -> LogisticFit:
    """Maximum-likelihood logistic regression by projected Newton steps.

    Parameters
    ----------
    features : ndarray of shape (n, m)
        Few columns. They are standardised inside; a constant column gets slope 0.
    y : ndarray of shape (n,)
        0 or 1, both present.
    weight : ndarray of shape (n,)
    lower, upper : float
        Bounds of every slope, in units of the feature's standard deviation.
    start : (intercept, slope), optional
        Where to start, in standardised units; else the intercept that fits the share of links, slopes 0.

    Returns
    -------
    LogisticFit

    Notes
    -----
    The loss is convex. A step solves the Newton system of the parameters that are not held at a bound by
    their derivative and is shortened until the loss falls (Bertsekas, Projected Newton Methods, 1982).
    """
    weight = weight / weight.sum()
    mean = weight @ features
    scale = np.sqrt(weight @ (features - mean) ** 2)
    scale[scale == 0.0] = 1.0
    design = np.column_stack((np.ones(len(y)), (features - mean) / scale))
    share = float(weight @ y)
    theta = np.zeros(design.shape[1])
    theta[0] = np.log(share) - np.log1p(-share)
    if start is not None:
        theta[0], theta[1:] = start
    low = np.r_[-np.inf, np.full(len(mean), lower)]
    high = np.r_[np.inf, np.full(len(mean), upper)]
    theta, n_iter, converged = _projected_newton(design, y, weight, np.clip(theta, low, high), low, high)
    slope = theta[1:] / scale
    return LogisticFit(slope, float(theta[0] - slope @ mean), n_iter, converged)


def _projected_newton(
    design: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    theta: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> tuple[FloatArray, int, bool]:
    def loss(t: FloatArray) -> float:
        return float(weight @ bernoulli_nll(design @ t, y))

    for n_iter in range(_MAX_ITER):
        p = sigmoid(design @ theta)
        gradient = design.T @ (weight * (p - y))
        held = ((theta <= low) & (gradient > 0.0)) | ((theta >= high) & (gradient < 0.0)) | (low == high)
        free = np.flatnonzero(~held)
        if np.abs(gradient[free]).max(initial=0.0) <= _TOLERANCE:
            return theta, n_iter, True
        columns = design[:, free]
        hessian = columns.T @ ((weight * p * (1.0 - p))[:, None] * columns)
        # Constant columns and saturated links make the Hessian singular; the shift only bends the step.
        hessian[np.diag_indices_from(hessian)] += 1e-12 * np.trace(hessian) + np.finfo(np.float64).tiny
        step = np.zeros_like(theta)
        step[free] = -np.linalg.solve(hessian, gradient[free])
        following = _shortened(loss, theta, step, gradient, low, high)
        if following is None:
            return theta, n_iter, False
        theta = following
    return theta, _MAX_ITER, False


def _shortened(
    loss: Callable[[FloatArray], float],
    theta: FloatArray,
    step: FloatArray,
    gradient: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> FloatArray | None:
    """First of ``theta + step, theta + step / 2, ...`` (clipped to the box) that lowers the loss enough."""
    if -gradient @ step < _RESOLUTION:
        return np.clip(theta + step, low, high)
    now = loss(theta)
    for halvings in range(60):
        candidate = np.clip(theta + step * 0.5**halvings, low, high)
        if loss(candidate) <= now + 1e-4 * float(gradient @ (candidate - theta)):
            return candidate
    return None
