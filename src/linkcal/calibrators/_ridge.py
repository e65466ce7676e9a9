"""Ridge logistic regression with lower bounds, along a path of penalties, with cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from linkcal._math import bernoulli_nll, sigmoid

__all__ = ["HeldOutPath", "RidgeProblem", "RidgeSolution", "cross_validated", "fit_ridge"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_MAX_ITER = 100
_MAX_HALVINGS = 40

# Newton decrements per unit of weight: of a final fit, and inside cross-validation, where the error in the
# held-out loss is of the same order and far below the differences between penalties.
FINAL_TOLERANCE = 1e-20
PATH_TOLERANCE = 1e-8

# Below this share of the loss, rounding hides whether a step lowers it; full steps are then taken.
_RESOLUTION = 1e-13


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

    for n_iter in range(_MAX_ITER):
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
    return RidgeSolution(theta, _MAX_ITER, False)


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
