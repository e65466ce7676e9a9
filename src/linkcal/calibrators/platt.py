"""Platt scaling: logistic regression on the logit."""

from __future__ import annotations

import warnings
from typing import ClassVar, final

import numpy as np

from linkcal.calibrators._logistic import SLOPE_BOUND, LogisticFit, fit_logistic, separated
from linkcal.calibrators._said_name import said_name
from linkcal.calibrators.base import Calibrator, FloatArray, StateKind
from linkcal.exceptions import BoundReachedWarning, ConvergenceWarning

__all__ = ["Platt", "step_fit", "warn_not_converged", "warn_separated"]


@final
class Platt(Calibrator):
    """Platt scaling, ``p = sigmoid(a s + b)``, by maximum likelihood.

    Two parameters; unlike a temperature it can move the base rate. Columns 1.. of X are ignored.

    Attributes
    ----------
    slope_ : float
        a; negative if links have the lower logits. 0 if all logits are equal.
    intercept_ : float
        b.
    n_iter_ : int
        Newton steps.
    converged_ : bool
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Warns
    -----
    BoundReachedWarning
        If a threshold on the logit separates the classes: the likelihood then has no maximum, and the slope
        is stopped at 1e4 per standard deviation of the logit.

    Notes
    -----
    Plain maximum likelihood, equal to ``sklearn.linear_model.LogisticRegression(C=inf)``; Platt's smoothed
    targets, meant for the outputs of a classifier on its own training data, are not used.

    References
    ----------
    Platt: Probabilistic Outputs for Support Vector Machines, in Advances in Large Margin Classifiers, 1999.

    Examples
    --------
    >>> X, y = [[0.0]] * 10, [1] + [0] * 9
    >>> Platt().fit(X, y).predict_proba([[0.0]]).round(6)
    array([[0.9, 0.1]])
    """

    _state: ClassVar[dict[str, StateKind]] = {
        "slope_": float,
        "intercept_": float,
        "n_iter_": int,
        "converged_": bool,
    }

    slope_: float
    intercept_: float
    n_iter_: int
    converged_: bool

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        s = X[:, 0]
        direction = separated(s, y)
        if direction:
            fit = step_fit(s, y, weight, direction)
            warn_separated(said_name(self))
        else:
            fit = fit_logistic(s[:, None], y, weight)
        self.slope_, self.intercept_ = float(fit.slope[0]), fit.intercept
        self.n_iter_, self.converged_ = fit.n_iter, fit.converged
        if not fit.converged:
            warn_not_converged(said_name(self), fit.n_iter)

    def _decision(self, X: FloatArray) -> FloatArray:
        return self.slope_ * X[:, 0] + self.intercept_


def step_fit(s: FloatArray, y: FloatArray, weight: FloatArray, direction: int) -> LogisticFit:
    """Best intercept at the steepest allowed slope, for classes that a threshold separates."""
    upper_class = s[y == (1.0 if direction > 0 else 0.0)]
    lower_class = s[y == (0.0 if direction > 0 else 1.0)]
    threshold = 0.5 * (lower_class.max() + upper_class.min())
    mean = np.average(s, weights=weight)
    deviation = np.sqrt(np.average((s - mean) ** 2, weights=weight))
    bound = direction * SLOPE_BOUND
    start = (-bound * (threshold - mean) / deviation, bound)
    return fit_logistic(s[:, None], y, weight, lower=bound, upper=bound, start=start)


def warn_separated(name: str) -> None:
    """Say that a likelihood has no maximum and where the fit was stopped."""
    warnings.warn(
        f"a threshold on the logit separates the classes, so the likelihood has no maximum; "
        f"the slope of {name} was stopped at its bound, {SLOPE_BOUND:g} per standard deviation of the logit",
        BoundReachedWarning,
        stacklevel=5,
    )


def warn_not_converged(name: str, n_iter: int) -> None:
    """Say that Newton steps ended before the tolerance."""
    warnings.warn(f"{name} did not converge in {n_iter} steps", ConvergenceWarning, stacklevel=5)
