"""Calibrators with at most three parameters: identity, temperature, Platt, beta."""

from __future__ import annotations

import warnings
from typing import ClassVar, final

import numpy as np
from scipy.optimize import brentq

from linkcal._core.maths import sigmoid
from linkcal.calibrators._newton import SLOPE_BOUND, LogisticFit, fit_logistic, separated
from linkcal.calibrators.base import Calibrator, FloatArray, StateKind, said_name
from linkcal.exceptions import BaseRateWarning, BoundReachedWarning, ConvergenceWarning

__all__ = [
    "Beta",
    "Identity",
    "Platt",
    "Temperature",
    "step_fit",
    "warn_base_rate",
    "warn_not_converged",
    "warn_separated",
]


# No calibration: the baseline of every table.


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


# The warning of calibrators that cannot move the base rate.


# Gap between mean probability and share of links from which on the warning is given; the gap must also exceed
# this many standard errors, so that small calibration sets stay silent.
_GAP = 0.05
_STANDARD_ERRORS = 4.0


def warn_base_rate(name: str, p: FloatArray, y: FloatArray, weight: FloatArray) -> None:
    """Name a base-rate error that a temperature cannot repair, if there clearly is one.

    Clearly: mean p and the share of links differ by more than 0.05 and by more than four standard errors of
    the mean of ``y - p``; with weights n is Kish's effective number of rows.

    Parameters
    ----------
    name : str
        Of the calibrator, as users know it.
    p, y, weight : ndarray (n,)
        Calibrated probabilities, labels and weights of the calibration links.
    """
    # Shares of the weight: squares of huge or tiny weights would leave the range of float64.
    weight = weight / weight.max()
    mean_p, share = np.average(p, weights=weight), np.average(y, weights=weight)
    effective_n = weight.sum() ** 2 / (weight**2).sum()
    standard_error = np.sqrt(np.average((y - p) ** 2, weights=weight) / effective_n)
    gap = abs(mean_p - share)
    if gap > _GAP and gap > _STANDARD_ERRORS * standard_error:
        warnings.warn(
            f"the average probability {mean_p:.3g} differs from the observed share of links {share:.3g}: "
            f"{name} divides the logit by a temperature, which keeps its sign and cannot move the base rate; "
            "those with an intercept or bins can (platt, beta, isotonic, histogram, bbq, in-n-out-plus)",
            BaseRateWarning,
            stacklevel=4,
        )


# Temperature scaling: one convex parameter, found by bracketing.

# The search interval of mean |s| / T. An optimum outside means that the likelihood has no maximum for finite
# T > 0: the logit says nothing or the reverse (lower end), or separates the classes (upper end).
_SHARPNESS_BOUNDS = (1e-4, 1e4)

# Tolerance on log T; a few units in the last place.
_TOLERANCE = 1e-14


@final
class Temperature(Calibrator):
    """Temperature scaling, ``p = sigmoid(s / T)``.

    One parameter, so it needs few links. It changes neither the order of links nor the sign of a logit, so
    it cannot move a wrong base rate (``BaseRateWarning``). Columns 1.. of X are ignored.

    Attributes
    ----------
    temperature_ : float
        T > 0 (not 1/T).
    n_iter_ : int
        Steps of the root search.
    converged_ : bool
        Whether the search reached its tolerance; True also where the optimum lies at a bound.
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Warns
    -----
    BoundReachedWarning
        If no finite T > 0 maximises the likelihood. T then stands where mean |s| / T is 1e-4 or 1e4.
    BaseRateWarning
        If mean p and the share of links differ clearly after the fit.

    Notes
    -----
    The negative log-likelihood is convex in ``b = 1/T``. The root of its derivative,
    ``sum_i w_i s_i (sigmoid(b s_i) - y_i)``, is bracketed and found by Brent's method in log b, in float64,
    to 1e-14. If all logits are 0, every T is optimal and T = 1 is taken.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, arXiv 1706.04599.

    Examples
    --------
    >>> X = [[2.0]] * 100 + [[-2.0]] * 100
    >>> y = [1] * 75 + [0] * 25 + [1] * 25 + [0] * 75
    >>> round(Temperature().fit(X, y).temperature_, 6)  # 2 / log 3
    1.820478
    """

    _state: ClassVar[dict[str, StateKind]] = {"temperature_": float, "n_iter_": int, "converged_": bool}

    temperature_: float
    n_iter_: int
    converged_: bool

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        # Zero logits have no influence on T; scaling by mean |s| makes the search independent of units.
        scale = float(np.average(np.abs(X[:, 0]), weights=weight))
        if scale == 0.0:
            self.temperature_, self.n_iter_, self.converged_ = 1.0, 0, True
        else:
            sharpness = self._best_sharpness(X[:, 0] / scale, y, weight / weight.sum())
            self.temperature_ = scale / sharpness
        warn_base_rate(said_name(self), self._bounded_probability(X), y, weight)

    def _best_sharpness(self, s: FloatArray, y: FloatArray, weight: FloatArray) -> float:
        """Maximum-likelihood 1/T of logits with mean |s| = 1, within the bounds."""

        def slope(log_b: float) -> float:
            return float(weight @ (s * (sigmoid(np.exp(log_b) * s) - y)))

        low, high = np.log(_SHARPNESS_BOUNDS)
        self.n_iter_, self.converged_ = 0, True
        if slope(low) >= 0.0:
            _warn_bound("large", "the logit carries no information on the label, or the reverse")
            return _SHARPNESS_BOUNDS[0]
        if slope(high) <= 0.0:
            _warn_bound("small", "the sign of the logit separates the classes")
            return _SHARPNESS_BOUNDS[1]
        root, result = brentq(
            slope, low, high, xtol=_TOLERANCE, rtol=_TOLERANCE, full_output=True, disp=False
        )
        self.n_iter_, self.converged_ = int(result.iterations), bool(result.converged)
        if not self.converged_:
            warnings.warn(
                f"the temperature did not converge in {self.n_iter_} steps", ConvergenceWarning, stacklevel=5
            )
        return float(np.exp(root))

    def _decision(self, X: FloatArray) -> FloatArray:
        return X[:, 0] / self.temperature_


def _warn_bound(which: str, cause: str) -> None:
    low, high = _SHARPNESS_BOUNDS
    warnings.warn(
        f"no finite temperature is optimal: {cause}; T was stopped at a {which} value "
        f"(mean |logit| / T must be in [{low:g}, {high:g}])",
        BoundReachedWarning,
        stacklevel=6,
    )


# Platt scaling: logistic regression on the logit.


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


# Beta calibration: three convex parameters.


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
