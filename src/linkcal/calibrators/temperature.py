"""Temperature scaling: one convex parameter, found by bracketing."""

from __future__ import annotations

import warnings
from typing import ClassVar, final

import numpy as np
from scipy.optimize import brentq

from linkcal._math import sigmoid
from linkcal.calibrators._base_rate_warning import warn_base_rate
from linkcal.calibrators._said_name import said_name
from linkcal.calibrators.base import Calibrator, FloatArray, StateKind
from linkcal.exceptions import BoundReachedWarning, ConvergenceWarning

__all__ = ["Temperature"]

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
