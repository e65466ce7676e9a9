"""Logistic regression by damped, projected Newton steps: penalised, bounded, along a path of penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from linkcal._core.maths import bernoulli_nll, sigmoid

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

#: Slope per standard deviation of the logit at which a fit is stopped whose likelihood has no maximum.
SLOPE_BOUND = 1e4

_MAX_ITER, _MAX_HALVINGS = 200, 60

# Newton decrement per unit of weight inside cross-validation.
PATH_TOLERANCE = 1e-8
# Largest derivative of the mean loss without a penalty, in units of standardised features.
_FLAT = 1e-12
# Below this share of the loss, rounding hides whether a step lowers it; full steps are then taken.
_RESOLUTION = 1e-13


@dataclass(frozen=True)
class RidgeProblem:
    """Minimise ``sum_i w_i nll_i(theta) + 1/2 sum_j penalty_j theta_j^2`` with lower <= theta <= upper.

    `design` (n, m) has the intercept in column 0. An upper bound (m,) is infinite or equal to the lower one.
    """

    design: FloatArray
    y: FloatArray
    weight: FloatArray
    lower: FloatArray
    upper: FloatArray

    def take(self, rows: IntArray) -> RidgeProblem:
        return replace(self, design=self.design[rows], y=self.y[rows], weight=self.weight[rows])

    def nll(self, theta: FloatArray) -> float:
        """Weighted sum of the negative log-likelihood."""
        return float(self.weight @ bernoulli_nll(self.design @ theta, self.y))


class Solution(NamedTuple):
    """Coefficients (m,), Newton steps, and whether the tolerance was reached."""

    theta: FloatArray
    n_iter: int
    converged: bool


def fit_ridge(
    problem: RidgeProblem,
    penalty: FloatArray,
    start: FloatArray,
    *,
    tolerance: float = 1e-20,
    flat: float = 0.0,
) -> Solution:
    """Solve by damped, projected Newton steps (Bertsekas, Projected Newton Methods, 1982).

    The fit ends when the Newton decrement per unit of weight is below `tolerance`, or when no derivative
    exceeds `flat`.
    """
    design, y, weight, low, high = problem.design, problem.y, problem.weight, problem.lower, problem.upper
    theta, total = start, float(weight.sum())

    def loss(t: FloatArray) -> float:
        return problem.nll(t) + 0.5 * float(penalty @ t**2)

    for n_iter in range(_MAX_ITER):
        p = sigmoid(design @ theta)
        gradient = design.T @ (weight * (p - y)) + penalty * theta
        held = ((theta <= low) & (gradient >= 0.0)) | ((theta >= high) & (gradient <= 0.0))
        free = np.flatnonzero(~held)
        if np.abs(gradient[free]).max(initial=0.0) <= flat:
            return Solution(theta, n_iter, True)
        columns = design if len(free) == len(theta) else design[:, free]
        # One square root on both sides of the product lets BLAS use the symmetric kernel.
        rooted = np.sqrt(weight * p * (1.0 - p))[:, None] * columns
        hessian = rooted.T @ rooted
        # Constant columns and saturated links make it singular.
        hessian[np.diag_indices_from(hessian)] += penalty[free] + 1e-12 * total
        step = np.zeros_like(theta)
        step[free] = -cho_solve(cho_factor(hessian, check_finite=False), gradient[free], check_finite=False)
        decrement = -float(gradient @ step)
        if decrement <= tolerance * total:
            return Solution(theta, n_iter, True)
        now = loss(theta)
        if decrement < _RESOLUTION * max(now, 1.0):
            theta = np.clip(theta + step, low, high)
            if flat:
                continue
            return Solution(theta, n_iter + 1, True)
        for halvings in range(_MAX_HALVINGS):
            candidate = np.clip(theta + step * 0.5**halvings, low, high)
            if loss(candidate) <= now + 1e-4 * float(gradient @ (candidate - theta)):
                break
        else:
            return Solution(theta, n_iter, False)
        theta = candidate
    return Solution(theta, _MAX_ITER, False)


def fit_logistic(
    features: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    lower: float = -np.inf,
    start: tuple[float, float] | None = None,
) -> Solution:
    """Maximum-likelihood intercept and slopes on few columns (n, m), to machine precision.

    Columns are standardised inside; a constant one gets slope 0. `lower` bounds every slope, and `start`
    (intercept, slope) fixes the slopes and starts the intercept, both in standardised units.
    """
    weight = weight / weight.sum()
    mean = weight @ features
    scale = np.sqrt(weight @ (features - mean) ** 2)
    scale[scale == 0.0] = 1.0
    design = np.column_stack((np.ones(len(y)), (features - mean) / scale))
    share = float(weight @ y)
    theta = np.zeros(design.shape[1])
    theta[0] = np.log(share) - np.log1p(-share)
    low, high = np.full(len(theta), lower), np.full(len(theta), np.inf)
    low[0] = -np.inf
    if start is not None:
        theta[0], theta[1:] = start
        low[1:] = high[1:] = theta[1:]
    problem = RidgeProblem(design, y, weight, low, high)
    fit = fit_ridge(problem, np.zeros(len(theta)), np.clip(theta, low, high), tolerance=0.0, flat=_FLAT)
    slope = fit.theta[1:] / scale
    return fit._replace(theta=np.concatenate(([fit.theta[0] - slope @ mean], slope)))


def separated(s: FloatArray, y: FloatArray) -> int:
    """Whether a threshold on `s`, where both classes may lie, separates them: 1 (y = 1 above), -1 or 0.

    Where it is not 0, the likelihood of logistic regression on `s` has no maximum.
    """
    positive, negative = s[y == 1.0], s[y == 0.0]
    if s.min() == s.max():
        return 0
    return int(negative.max() <= positive.min()) - int(positive.max() <= negative.min())


def step_fit(s: FloatArray, y: FloatArray, weight: FloatArray, direction: int) -> Solution:
    """Best intercept at the steepest allowed slope, for classes that a threshold separates."""
    upper_class, lower_class = s[y == (direction > 0)], s[y == (direction < 0)]
    threshold = 0.5 * (lower_class.max() + upper_class.min())
    mean = np.average(s, weights=weight)
    deviation = np.sqrt(np.average((s - mean) ** 2, weights=weight))
    bound = direction * SLOPE_BOUND
    return fit_logistic(s[:, None], y, weight, start=(-bound * (threshold - mean) / deviation, bound))


class HeldOutPath(NamedTuple):
    """Summed held-out loss of each penalty, and the best of them with its held-out logits."""

    losses: FloatArray  # infinite where the path had ended
    best: int
    logit: FloatArray  # (n,) of each row by the fit that had not seen it


def cross_validated(
    problem: RidgeProblem, penalties: Sequence[FloatArray], fold: IntArray, start: FloatArray
) -> HeldOutPath:
    """Held-out losses and logits along a path of penalties (m,), from strong to weak.

    `fold` (n,) numbers the fold in which a row is held out. Each fit starts at the solution before it; a path
    ends once the summed loss has risen for two penalties in a row: it has one minimum in practice.
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
