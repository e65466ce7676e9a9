"""Penalised and bounded logistic regression by Newton's method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from linkcal._core.maths import bernoulli_nll, sigmoid

__all__ = [
    "SLOPE_BOUND",
    "HeldOutPath",
    "LogisticFit",
    "RidgeProblem",
    "RidgeSolution",
    "cross_validated",
    "fit_logistic",
    "fit_ridge",
    "separated",
]


# Logistic regression with few parameters and box constraints, to machine precision.

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


# Ridge logistic regression with lower bounds, along a path of penalties, with cross-validation.

IntArray = NDArray[np.intp]

_RIDGE_MAX_ITER = 100
_MAX_HALVINGS = 40

# Newton decrements per unit of weight: of a final fit, and inside cross-validation, where the error in the
# held-out loss is of the same order and far below the differences between penalties.
FINAL_TOLERANCE = 1e-20
PATH_TOLERANCE = 1e-8

# Below this share of the loss, rounding hides whether a step lowers it; full steps are then taken.


@dataclass(frozen=True)
class RidgeProblem:
    """Minimise ``sum_i w_i nll_i(theta) + 1/2 sum_j penalty_j (theta_j - centre_j)^2``, theta >= lower.

    Parameters
    ----------
    design : ndarray of shape (n, m)
        Column 0 is the intercept's.
    y, weight : ndarray of shape (n,)
    lower : ndarray of shape (m,)
        0 or -inf; bounds of 0 make signs.
    centre : ndarray of shape (m,)
        What the penalty pulls to.
    """

    design: FloatArray
    y: FloatArray
    weight: FloatArray
    lower: FloatArray
    centre: FloatArray

    def take(self, rows: IntArray) -> RidgeProblem:
        """The problem on some of the rows."""
        return RidgeProblem(self.design[rows], self.y[rows], self.weight[rows], self.lower, self.centre)

    def nll(self, theta: FloatArray) -> float:
        """Weighted sum of the negative log-likelihood."""
        return float(self.weight @ bernoulli_nll(self.design @ theta, self.y))


@dataclass(frozen=True)
class RidgeSolution:
    """Coefficients (m,), Newton steps, and whether the tolerance was reached."""

    theta: FloatArray
    n_iter: int
    converged: bool


def fit_ridge(
    problem: RidgeProblem, penalty: FloatArray, start: FloatArray, *, tolerance: float = FINAL_TOLERANCE
) -> RidgeSolution:
    """Solve by damped, projected Newton steps (Bertsekas, Projected Newton Methods, 1982).

    Parameters
    ----------
    problem : RidgeProblem
    penalty : ndarray of shape (m,)
        Non-negative.
    start : ndarray of shape (m,)
        Within the bounds.
    tolerance : float
        Stop when the Newton decrement per unit of weight falls below it.

    Returns
    -------
    RidgeSolution
    """
    design, y, weight = problem.design, problem.y, problem.weight
    theta, total = start, float(weight.sum())

    def loss(t: FloatArray) -> float:
        return problem.nll(t) + 0.5 * float(penalty @ (t - problem.centre) ** 2)

    for n_iter in range(_RIDGE_MAX_ITER):
        p = sigmoid(design @ theta)
        gradient = design.T @ (weight * (p - y)) + penalty * (theta - problem.centre)
        free = np.flatnonzero((theta > problem.lower) | (gradient < 0.0))
        columns = design if len(free) == len(theta) else design[:, free]
        # One square root on both sides of the product lets BLAS use the symmetric kernel.
        rooted = np.sqrt(weight * p * (1.0 - p))[:, None] * columns
        hessian = rooted.T @ rooted
        hessian[np.diag_indices_from(hessian)] += penalty[free] + 1e-12 * total
        step = np.zeros_like(theta)
        step[free] = -cho_solve(cho_factor(hessian, check_finite=False), gradient[free], check_finite=False)
        decrement = -float(gradient @ step)
        if decrement <= tolerance * total:
            return RidgeSolution(theta, n_iter, True)
        now = loss(theta)
        for halvings in range(_MAX_HALVINGS):
            candidate = np.maximum(theta + step * 0.5**halvings, problem.lower)
            if decrement < _RESOLUTION * max(now, 1.0):
                return RidgeSolution(candidate, n_iter + 1, True)
            if loss(candidate) <= now + 1e-4 * float(gradient @ (candidate - theta)):
                break
        else:
            return RidgeSolution(theta, n_iter, False)
        theta = candidate
    return RidgeSolution(theta, _RIDGE_MAX_ITER, False)


@dataclass(frozen=True)
class HeldOutPath:
    """Summed held-out loss of each penalty, and what was held out at the best.

    Parameters
    ----------
    losses : ndarray of shape (number of penalties,)
        Infinite where the path had ended.
    best : int
    logit : ndarray of shape (n,)
        Of each row, by the fit at ``best`` that had not seen it.
    """

    losses: FloatArray
    best: int
    logit: FloatArray


def cross_validated(
    problem: RidgeProblem, penalties: Sequence[FloatArray], fold: IntArray, start: FloatArray
) -> HeldOutPath:
    """Held-out losses and logits along a path of penalties, from strong to weak.

    Parameters
    ----------
    problem : RidgeProblem
    penalties : sequence of ndarray of shape (m,)
    fold : ndarray of shape (n,), int
        Number of the fold in which a row is held out.
    start : ndarray of shape (m,)

    Returns
    -------
    HeldOutPath

    Notes
    -----
    Each fit starts at the solution for the stronger penalty before it. A path ends early once the summed loss
    has risen for two penalties in a row: it has one minimum in practice.
    """
    rows = [np.flatnonzero(fold == k) for k in np.unique(fold)]
    inside = [problem.take(np.setdiff1d(np.arange(len(fold)), outside)) for outside in rows]
    theta = [start] * len(rows)
    losses = np.full(len(penalties), np.inf)
    best, best_logit = 0, np.zeros(len(fold))
    for i, penalty in enumerate(penalties):
        logit = np.empty(len(fold))
        for k, outside in enumerate(rows):
            theta[k] = fit_ridge(inside[k], penalty, theta[k], tolerance=PATH_TOLERANCE).theta
            logit[outside] = problem.design[outside] @ theta[k]
        losses[i] = problem.weight @ bernoulli_nll(logit, problem.y)
        if i == 0 or losses[i] < losses[best]:
            best, best_logit = i, logit
        if i >= 2 and losses[i] > losses[i - 1] > losses[i - 2]:
            break
    return HeldOutPath(losses, best, best_logit)
