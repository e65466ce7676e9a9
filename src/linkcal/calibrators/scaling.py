"""Calibrators with at most three parameters: identity, temperature, Platt, beta."""

from typing import ClassVar, final

import numpy as np
from scipy.optimize import brentq

from linkcal._core.maths import sigmoid
from linkcal.calibrators._newton import SLOPE_BOUND, Solution, fit_logistic, separated, step_fit
from linkcal.calibrators.base import Calibrator, FloatArray, StateKind, warn_caller
from linkcal.exceptions import BaseRateWarning, BoundReachedWarning, ConvergenceWarning

_SOLVED: dict[str, StateKind] = {"n_iter_": int, "converged_": bool}


@final
class Identity(Calibrator):
    """The uncalibrated probability ``p = sigmoid(s)``, the baseline of every table.

    Examples
    --------
    >>> Identity().fit([[-1.0], [1.0]], [0, 1]).decision_function([[3.0]])
    array([3.])
    """

    name = "uncalibrated"
    description = "the predictor's own probability, sigmoid(s)"

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        """Nothing to learn beyond the labels' names."""

    def _decision(self, X: FloatArray) -> FloatArray:
        return X[:, 0].copy()


def warn_base_rate(name: str, p: FloatArray, y: FloatArray, weight: FloatArray) -> None:
    """Warn if mean p and base rate differ by over 0.05 and 4 standard errors of the mean of ``y - p``."""
    # Shares of the weight: squares of huge or tiny weights would leave the range of float64.
    weight = weight / weight.max()
    mean_p, share = np.average(p, weights=weight), np.average(y, weights=weight)
    effective_n = weight.sum() ** 2 / (weight**2).sum()  # Kish
    standard_error = np.sqrt(np.average((y - p) ** 2, weights=weight) / effective_n)
    if abs(mean_p - share) > max(0.05, 4.0 * standard_error):
        warn_caller(
            f"the average probability {mean_p:.3g} differs from the observed share of links {share:.3g}: "
            f"{name} divides the logit by a temperature, which keeps its sign and cannot move the base rate; "
            "those with an intercept or bins can (platt, beta, isotonic, histogram, bbq, in-n-out-plus)",
            BaseRateWarning,
        )


# Bounds of mean |s| / T, beyond which the logit is uninformative or reversed, or separates the classes.
_SHARPNESS_BOUNDS = (1e-4, 1e4)


@final
class Temperature(Calibrator):
    """Temperature scaling, ``p = sigmoid(s / T)``.

    One parameter, so it needs few links. It keeps the order of links and the sign of each logit, so it cannot
    repair a wrong base rate (``BaseRateWarning`` if mean p and base rate differ clearly after the fit).
    Columns 1.. of X are ignored.

    Maximum likelihood (Guo, Pleiss, Sun, Weinberger, arXiv 1706.04599); T = 1 if every logit is 0. If no
    finite T > 0 is optimal, T stands where mean |s| / T is 1e-4 or 1e4 (``BoundReachedWarning``).

    Attributes
    ----------
    temperature_ : float
        T > 0 (not 1/T).
    n_iter_, converged_ : int, bool
        Steps of the root search, and whether it reached its tolerance (True also for an optimum at a bound).

    Examples
    --------
    >>> X = [[2.0]] * 100 + [[-2.0]] * 100
    >>> y = [1] * 75 + [0] * 25 + [1] * 25 + [0] * 75
    >>> round(Temperature().fit(X, y).temperature_, 6)  # 2 / log 3
    1.820478
    """

    name = "temperature"
    description = "sigmoid(s / T), one temperature for all links"
    _state: ClassVar[dict[str, StateKind]] = {"temperature_": float, **_SOLVED}

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        # Scaling by mean |s| makes the search independent of units.
        scale = float(np.average(np.abs(X[:, 0]), weights=weight))
        self.temperature_, self.n_iter_, self.converged_ = 1.0, 0, True
        if scale > 0.0:
            self.temperature_ = scale / self._best_sharpness(X[:, 0] / scale, y, weight / weight.sum())
        warn_base_rate(self._shown_name, self._bounded_probability(X), y, weight)

    def _best_sharpness(self, s: FloatArray, y: FloatArray, weight: FloatArray) -> float:
        """Maximum-likelihood 1/T of logits with mean |s| = 1, within the bounds."""

        def slope(log_b: float) -> float:
            return float(weight @ (s * (sigmoid(np.exp(log_b) * s) - y)))

        low, high = np.log(_SHARPNESS_BOUNDS)
        if slope(low) >= 0.0:
            _warn_bound("large", "the logit carries no information on the label, or the reverse")
            return _SHARPNESS_BOUNDS[0]
        if slope(high) <= 0.0:
            _warn_bound("small", "the sign of the logit separates the classes")
            return _SHARPNESS_BOUNDS[1]
        # Tolerances on log T.
        root, result = brentq(slope, low, high, xtol=1e-14, rtol=1e-14, full_output=True, disp=False)
        self.n_iter_, self.converged_ = int(result.iterations), bool(result.converged)
        if not self.converged_:
            warn_caller(f"the temperature did not converge in {self.n_iter_} steps", ConvergenceWarning)
        return float(np.exp(root))

    def _decision(self, X: FloatArray) -> FloatArray:
        return X[:, 0] / self.temperature_


def _warn_bound(which: str, cause: str) -> None:
    low, high = _SHARPNESS_BOUNDS
    warn_caller(
        f"no finite temperature is optimal: {cause}; T was stopped at a {which} value "
        f"(mean |logit| / T must be in [{low:g}, {high:g}])",
        BoundReachedWarning,
    )


def _logistic(
    name: str, s: FloatArray, features: FloatArray, y: FloatArray, weight: FloatArray, lower: float = -np.inf
) -> Solution:
    """Maximum-likelihood fit on features that increase with s; warns of a bound and of no convergence."""
    direction = separated(s, y)
    # No slope below `lower` = 0 separates classes the wrong way round.
    if direction > 0 or (direction < 0 and lower < 0.0):
        fit = step_fit(s, y, weight, direction)
        warn_caller(
            "a threshold on the logit separates the classes, so the likelihood has no maximum; the slope of "
            f"{name} was stopped at its bound, {SLOPE_BOUND:g} per standard deviation of the logit",
            BoundReachedWarning,
        )
    else:
        fit = fit_logistic(features, y, weight, lower=lower)
    if not fit.converged:
        warn_caller(f"{name} did not converge in {fit.n_iter} steps", ConvergenceWarning)
    return fit


@final
class Platt(Calibrator):
    """Platt scaling, ``p = sigmoid(a s + b)``, by maximum likelihood.

    Two parameters; unlike a temperature it can move the base rate. Columns 1.. of X are ignored.
    Equal to ``LogisticRegression(C=inf)``, without the smoothed targets of Platt (Advances in Large Margin
    Classifiers, 1999). If a threshold on the logit separates the classes, the likelihood has no maximum, and
    the slope is stopped at 1e4 per standard deviation of the logit (``BoundReachedWarning``).

    Attributes
    ----------
    slope_, intercept_ : float
        a (negative if links have the lower logits, 0 if all logits are equal) and b.
    n_iter_, converged_ : int, bool
        Newton steps, and whether the solver converged.

    Examples
    --------
    >>> X, y = [[0.0]] * 10, [1] + [0] * 9
    >>> Platt().fit(X, y).predict_proba([[0.0]]).round(6)
    array([[0.9, 0.1]])
    """

    name = "platt"
    description = "sigmoid(a s + b)"
    _state: ClassVar[dict[str, StateKind]] = {"slope_": float, "intercept_": float, **_SOLVED}

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        fit = _logistic(self._shown_name, X[:, 0], X[:, :1], y, weight)
        self.intercept_, self.slope_ = float(fit.theta[0]), float(fit.theta[1])
        self.n_iter_, self.converged_ = fit.n_iter, fit.converged

    def _decision(self, X: FloatArray) -> FloatArray:
        return self.slope_ * X[:, 0] + self.intercept_


@final
class Beta(Calibrator):
    """Beta calibration, ``logit p = a log q - b log(1 - q) + c`` with ``q = sigmoid(s)`` and a, b >= 0.

    Platt scaling is the case a = b; here the two tails may be stretched by different amounts. The map never
    decreases. Columns 1.. of X are ignored. The constrained maximum of the likelihood (Kull, Silva Filho,
    Flach, AISTATS 2017, PMLR 54:623-631). If a threshold on the logit separates the classes, links above,
    a = b is stopped as the slope in :class:`Platt` (``BoundReachedWarning``).

    Attributes
    ----------
    a_, b_, c_, n_iter_, converged_ : float, float, float, int, bool
        a, b and c; the others are as in :class:`Platt`.

    Examples
    --------
    >>> X, y = [[0.0]] * 10, [1] + [0] * 9
    >>> Beta().fit(X, y).predict_proba([[0.0]]).round(6)
    array([[0.9, 0.1]])
    """

    name = "beta"
    description = "beta calibration: both tails stretched, three parameters"
    _state: ClassVar[dict[str, StateKind]] = {"a_": float, "b_": float, "c_": float, **_SOLVED}

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        fit = _logistic(self._shown_name, X[:, 0], _log_odds_parts(X[:, 0]), y, weight, lower=0.0)
        # A step has a single slope, a = b.
        self.c_, self.a_, self.b_ = float(fit.theta[0]), float(fit.theta[1]), float(fit.theta[-1])
        self.n_iter_, self.converged_ = fit.n_iter, fit.converged

    def _decision(self, X: FloatArray) -> FloatArray:
        parts = _log_odds_parts(X[:, 0])
        return self.a_ * parts[:, 0] + self.b_ * parts[:, 1] + self.c_


def _log_odds_parts(s: FloatArray) -> FloatArray:
    """``(log q, -log(1 - q))`` of ``q = sigmoid(s)``, shape (n, 2); their sum is s."""
    return np.column_stack((-np.logaddexp(0.0, -s), np.logaddexp(0.0, s)))
