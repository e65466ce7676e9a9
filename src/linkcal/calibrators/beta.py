"""Beta calibration: three convex parameters."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from linkcal.calibrators._logistic import fit_logistic, separated
from linkcal.calibrators._said_name import said_name
from linkcal.calibrators.base import Calibrator, FloatArray, StateKind
from linkcal.calibrators.platt import step_fit, warn_not_converged, warn_separated

__all__ = ["Beta"]


@final
class Beta(Calibrator):
    """Beta calibration, ``logit p = a log q - b log(1 - q) + c`` with ``q = sigmoid(s)`` and a, b >= 0.

    Platt scaling is the case a = b; here the two tails may be stretched by different amounts. The map never
    decreases. Columns 1.. of X are ignored.

    Attributes
    ----------
    a_, b_, c_ : float
        a, b >= 0.
    n_iter_ : int
        Newton steps.
    converged_ : bool
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Warns
    -----
    BoundReachedWarning
        If a threshold on the logit separates the classes (links above): the likelihood has no maximum, and
        a = b is stopped at 1e4 per standard deviation of the logit.

    Notes
    -----
    ``log q = -softplus(-s)`` and ``-log(1 - q) = softplus(s)`` are taken from the logit, so saturated
    probabilities lose nothing. The constrained optimum is found, not the unconstrained one with a negative
    parameter set to zero afterwards.

    References
    ----------
    Kull, Silva Filho, Flach: Beta calibration, AISTATS 2017, PMLR 54:623-631.

    Examples
    --------
    >>> X, y = [[0.0]] * 10, [1] + [0] * 9
    >>> Beta().fit(X, y).predict_proba([[0.0]]).round(6)
    array([[0.9, 0.1]])
    """

    _state: ClassVar[dict[str, StateKind]] = {
        "a_": float,
        "b_": float,
        "c_": float,
        "n_iter_": int,
        "converged_": bool,
    }

    a_: float
    b_: float
    c_: float
    n_iter_: int
    converged_: bool

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        s = X[:, 0]
        # The map increases with s, so it can separate the classes exactly where a threshold on s can.
        if separated(s, y) > 0:
            fit = step_fit(s, y, weight, 1)
            warn_separated(said_name(self))
        else:
            fit = fit_logistic(_log_odds_parts(s), y, weight, lower=0.0)
        self.a_, self.b_ = float(fit.slope[0]), float(fit.slope[-1])
        self.c_, self.n_iter_, self.converged_ = fit.intercept, fit.n_iter, fit.converged
        if not fit.converged:
            warn_not_converged(said_name(self), fit.n_iter)

    def _decision(self, X: FloatArray) -> FloatArray:
        parts = _log_odds_parts(X[:, 0])
        return self.a_ * parts[:, 0] + self.b_ * parts[:, 1] + self.c_


def _log_odds_parts(s: FloatArray) -> FloatArray:
    """``(log q, -log(1 - q))`` of ``q = sigmoid(s)``, shape (n, 2); their sum is s."""
    return np.column_stack((-np.logaddexp(0.0, -s), np.logaddexp(0.0, s)))
