"""What labels prove about probabilities: exact binomial bounds, at one score or along a rising curve."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from linkcal._validation import check_binary_labels, check_fraction, check_scores
from linkcal.exceptions import InputError

__all__ = ["clopper_pearson", "monotone_interval"]

FloatArray = NDArray[np.float64]

# Lengths of the windows in units of n^(2/3), the rate at which the width of a window and the slope of the
# curve across it cost the same. Chosen on simulated curves, before any graph was looked at.
_WINDOWS = (0.5, 1.0, 2.0)


def clopper_pearson(successes: Any, trials: Any, tail: float) -> tuple[FloatArray, FloatArray]:
    """One-sided exact bounds of a binomial probability, each missed with probability at most `tail`.

    Parameters
    ----------
    successes, trials : array-like of whole numbers, of one shape
        With no trial the bounds are 0 and 1.
    tail : float in (0, 1)

    Returns
    -------
    lower, upper : ndarray
        In [0, 1].

    References
    ----------
    Clopper, Pearson: The use of confidence or fiducial limits, Biometrika 26, 1934.

    Examples
    --------
    >>> lower, upper = clopper_pearson([0, 29], [29, 29], 0.05)
    >>> lower.round(3).tolist(), upper.round(3).tolist()
    ([0.0, 0.902], [0.098, 1.0])
    """
    k, n = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    # Where a parameter would be 0 the bound is known; 1 only keeps the quantile defined.
    lower = np.where(k > 0, beta.ppf(tail, np.maximum(k, 1), n - k + 1), 0.0)
    upper = np.where(k < n, beta.ppf(1.0 - tail, k + 1, np.maximum(n - k, 1)), 1.0)
    return np.asarray(lower), np.asarray(upper)


def monotone_interval(
    score: Any, label: Any, asked: Any, *, level: float = 0.9
) -> tuple[FloatArray, FloatArray]:
    """Interval for the probability of a link at a score, if that does not fall with the score.

    Parameters
    ----------
    score : array-like of shape (m,)
        Of the calibration links.
    label : array-like of shape (m,), values 0 and 1
    asked : array-like of shape (n,)
        Scores asked about.
    level : float in (0, 1)

    Returns
    -------
    low, high : ndarray of shape (n,)
        In [0, 1].

    Raises
    ------
    InputError
        If an argument has the wrong shape or content, or there is no calibration link.

    Notes
    -----
    Let ``r(s) = P(link | score = s)`` be non-decreasing and the labels independent given the scores. Links of
    a window that ends at s have probabilities of at most r(s), so the links counted in it are stochastically
    fewer than a binomial number with r(s), and the exact lower bound of Clopper and Pearson stays below r(s)
    with its nominal probability; likewise above. Three windows on each side, of ``n^(2/3)`` times 1/2, 1 and
    2 links, share the error by Bonferroni; at the ends of the scores a window is what there is. So for every
    sample size each asked score's interval covers r(s) with probability at least `level`: for one score, not
    for all at once. It is widened to the bounds of a window around the score, which changes little where r
    rises and saves most of the coverage where it does not. Two binary searches and eight counts for each
    score.

    Examples
    --------
    >>> low, high = monotone_interval(range(100), [0] * 50 + [1] * 50, [10, 90], level=0.9)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.0, 0.82], [0.17, 1.0])
    """
    s, q = check_scores(score), check_scores(asked, "asked")
    y = check_binary_labels(label, len(s), "label")
    if not len(s):
        raise InputError("score must hold at least one calibration link, got none")
    tail = (1.0 - check_fraction(level, "level")) / (2 * len(_WINDOWS))
    order = np.argsort(s, kind="stable")
    s, upto = s[order], np.concatenate(([0.0], np.cumsum(y[order])))
    # Windows end where groups of equal scores do: the order of the links then means nothing.
    group, after = np.searchsorted(s, s, side="left"), np.searchsorted(s, s, side="right")
    # Links at the very score belong to both sides.
    end, start = np.searchsorted(s, q, side="right"), np.searchsorted(s, q, side="left")
    low, high = np.zeros(len(q)), np.ones(len(q))
    for factor in _WINDOWS:
        width = max(1, round(factor * len(s) ** (2.0 / 3.0)))
        first, last = group[np.maximum(end - width, 0)], after[np.minimum(start + width, len(s)) - 1]
        low = np.maximum(low, clopper_pearson(upto[end] - upto[first], end - first, tail)[0])
        high = np.minimum(high, clopper_pearson(upto[last] - upto[start], last - start, tail)[1])
    # Where the curve falls after all, windows on one side lie beyond it; one around the score does not.
    half = max(1, round(len(s) ** (2.0 / 3.0) / 2.0))
    first, last = group[np.maximum(start - half, 0)], after[np.minimum(end + half, len(s)) - 1]
    around = clopper_pearson(upto[last] - upto[first], last - first, tail)
    return np.minimum(low, around[0]), np.maximum(high, around[1])
