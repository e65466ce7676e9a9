"""Probabilities at another base rate than the calibration links'."""

from typing import Any

import numpy as np
from scipy.optimize import brentq

from linkcal._core.maths import FloatArray, sigmoid
from linkcal._core.validation import check_fraction, check_probabilities, in_container_of
from linkcal.exceptions import InputError


def fit_offset(z: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Maximum-likelihood b of ``sigmoid(z + b)``, and its error ``1 / sqrt(sum_i w_i p_i (1 - p_i))``.

    The root of the derivative ``sum_i w_i (p_i - y_i)``: comparing losses would lose the digits that
    determine b. InputError if the labels do not determine it.
    """
    positive, total = float(weight @ y), float(weight.sum())
    if not 0.0 < positive < total:
        raise InputError(f"y must hold both classes to fit an offset, got only {1 if positive else 0}")

    def slope(b: float) -> float:
        return float(weight @ (sigmoid(z + b) - y))

    share = np.log(positive) - np.log(total - positive)
    # At the outer ends all p lie on one side of the share of links, clear of rounding.
    b = brentq(slope, share - z.max() - 1.0, share - z.min() + 1.0, xtol=1e-14, rtol=1e-14, maxiter=10_000)
    p = sigmoid(z + b)
    curvature = float(weight @ (p * (1.0 - p)))
    if curvature <= 0.0:
        raise InputError("y must leave room for an offset, got labels that the logits separate: give more")
    return float(b), float(1.0 / np.sqrt(curvature))


def base_rate_offset(from_rate: float, to_rate: float) -> float:
    """What to add to calibrated logits when the base rate changes.

    Parameters
    ----------
    from_rate, to_rate : float in (0, 1)
        Base rates of the calibration links (0.5 for one negative per link) and where predictions are used.

    Returns
    -------
    float
        ``log(to / (1 - to)) - log(from / (1 - from))``. InputError if a rate is not in (0, 1).

    Examples
    --------
    >>> round(base_rate_offset(0.5, 0.001), 6)
    -6.906755
    """
    before = check_fraction(from_rate, "from_rate")
    after = check_fraction(to_rate, "to_rate")
    return float(np.log(after) - np.log1p(-after) - np.log(before) + np.log1p(-before))


def shift_base_rate(prob: Any, *, from_rate: float, to_rate: float) -> Any:
    """Move link probabilities from one base rate to another.

    Probabilities calibrated on sampled negatives, one per link by default, are far too high in a graph with
    hundreds of negatives per link. Odds are multiplied by the ratio of the prior odds, assuming that the
    likelihood ratio of a link does not depend on the base rate (Elkan, IJCAI 2001, theorem 2). The order of
    links does not change; 0 and 1 stay. Adding :func:`base_rate_offset` to ``decision_function`` keeps more
    digits near 1.

    Parameters
    ----------
    prob : Tensor, ndarray or list, of shape (n,), in [0, 1]
    from_rate, to_rate : float in (0, 1)
        As in :func:`base_rate_offset`.

    Returns
    -------
    Tensor, ndarray or list
        Of the same kind, dtype and device; computed in float64. InputError if a value is out of range.

    Examples
    --------
    >>> [round(p, 8) for p in shift_base_rate([0.5, 0.9, 0.999], from_rate=0.5, to_rate=0.001)]
    [0.001, 0.00892857, 0.5]
    """
    # Every step is monotone under rounding: links keep their order. Beyond 700 the factor is 0 or infinite.
    factor = np.exp(-np.clip(base_rate_offset(from_rate, to_rate), -700.0, 700.0))
    p = check_probabilities(prob, "prob")
    with np.errstate(divide="ignore", over="ignore"):
        return in_container_of(prob, np.asarray(1.0 / (1.0 + (1.0 - p) / p * factor)))
