"""Which pairs to call links: by a false discovery rate, expected precision or recall, or a tested one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, false_discovery_control

from linkcal._core.maths import FloatArray, logit, sigmoid
from linkcal._core.validation import check_binary_labels, check_fraction, check_sample_weight, check_scores
from linkcal.calibrators.base_rate import base_rate_offset
from linkcal.decisions._intervals import clopper_pearson
from linkcal.exceptions import InputError

# Candidates: logits from 3 above the wanted precision's own down to 20 below it.
_STEPS_ABOVE, _STEPS_BELOW, _STEP = 30, 200, 0.1
# Where a chain of tests begins, and its share of the error; higher ones serve overconfident probabilities.
_CHAINS = ((30, 0.8), (15, 0.1), (0, 0.1))
# Share of the error spent on the bound of the recall; the rate of false links, which are few, gets the rest.
_RECALL_SHARE = 0.2


@dataclass(frozen=True)
class LinkThreshold:
    """Call a pair a link if its calibrated logit is at least `logit`.

    Parameters
    ----------
    probability, logit : float
        The threshold on the probability, and on the calibrated logit, which is never rounded to 0 or 1.
    precision, recall : float
        Share of links among the pairs at or above it, and share of all links that lie there: expected, or a
        lower bound if `confidence` is given.
    base_rate : float or None
        Share of links for which this holds; None if it is that of the pairs' own probabilities.
    confidence : float or None
        Probability, over the draw of the labelled links, that the wanted value is reached; None for expected
        values, which are as good as the calibration.
    """

    probability: float
    logit: float
    precision: float
    recall: float
    base_rate: float | None = None
    confidence: float | None = None


def expected_threshold(
    decision: Any, *, precision: float | None = None, recall: float | None = None, sample_weight: Any = None
) -> LinkThreshold:
    """Threshold from which on pairs have the wanted precision or recall by their own probabilities.

    Parameters
    ----------
    decision : array-like of shape (n,)
        Calibrated logits of n >= 1 pairs, at the share of links that they have.
    precision, recall : float in (0, 1)
        One of the two. The smallest threshold with that expected precision, or the largest with that recall.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    LinkThreshold
        If no threshold reaches the precision, InputError names the highest one.

    Notes
    -----
    Expected precision at t is the mean of p over pairs with ``p >= t``; it never rises when t falls. Expected
    recall is the sum of p above t over the sum of all p. Both are right only if the probabilities are
    calibrated for these pairs.

    Examples
    --------
    >>> found = expected_threshold([3.0, 1.0, 0.0, -2.0], precision=0.8)
    >>> round(found.probability, 4), round(found.precision, 4)
    (0.7311, 0.8418)
    """
    _one_wanted(precision, recall)
    z = check_scores(decision, "decision")
    if not z.size:
        raise InputError("decision must hold at least one pair, got none")
    weight = check_sample_weight(sample_weight, z.size)
    order = np.argsort(-z, kind="stable")
    z, weight = z[order], weight[order]
    # Pairs of equal logit are called together.
    last = np.flatnonzero(np.append(z[1:] != z[:-1], True))
    links, pairs = np.cumsum(weight * sigmoid(z))[last], np.cumsum(weight)[last]
    reached = links / np.maximum(pairs, np.finfo(np.float64).tiny)
    if not links[-1]:  # all probabilities round to 0; in units of the largest they are exp(z - z_max)
        links = np.cumsum(weight * np.exp(np.minimum(z - z[weight > 0.0][0], 0.0)))[last]
    found = links / links[-1]
    if precision is not None:
        wanted = check_fraction(precision, "precision")
        good = np.flatnonzero(reached >= wanted)
        if not good.size:
            raise InputError(
                f"precision must be at most {reached.max():.4g}, the highest expected one among these "
                f"{z.size} pairs, got {wanted:g}"
            )
        at = int(good[-1])
    else:
        at = int(np.flatnonzero(found >= check_fraction(recall, "recall"))[0])
    threshold = float(z[last[at]])
    return LinkThreshold(float(sigmoid(np.array(threshold))), threshold, float(reached[at]), float(found[at]))


def certified_threshold(
    decision: Any,
    y: Any,
    *,
    precision: float | None = None,
    recall: float | None = None,
    base_rate: float | None = None,
    confidence: float = 0.95,
) -> LinkThreshold:
    """Threshold whose precision (or recall) among new pairs reaches the wanted value, by a test on labels.

    Parameters
    ----------
    decision : array-like of shape (n,)
        Calibrated logits of labelled links that nothing was fitted on, at THEIR share of links.
    y : array-like of shape (n,), values 0 and 1
    precision, recall, confidence : float in (0, 1)
        One of precision and recall.
    base_rate : float in (0, 1), optional
        Share of links among future query pairs; by default the share in `y`.

    Returns
    -------
    LinkThreshold
        On the logit at `base_rate`. `precision` and `recall` are lower bounds, each by itself with
        probability `confidence`; InputError if no threshold can be shown to reach the wanted value.

    Notes
    -----
    With TPR and FPR the shares of links and negatives at or above t, the precision at base rate pi is
    ``pi TPR / (pi TPR + (1 - pi) FPR)``. Links and negatives in `y` must be independent draws from those of
    future query pairs; then the exact bounds of Clopper and Pearson (1934) for TPR (a fifth of the error) and
    FPR bound the precision at a fixed threshold. A fixed grid of logits is tested from high to low until one
    fails (fixed-sequence testing; Angelopoulos, Bates, Candes, Jordan, Lei: Learn then Test, arXiv
    2110.01052), in three chains that begin 0, 1.5 and 3 above the logit of the wanted precision, with 80, 10
    and 10 % of the error. The precision of the smallest threshold that passed is too low with probability at
    most ``1 - confidence``, for every sample size and whether or not the logits are calibrated. That is
    proved for the wanted value; for the slightly higher bound in the result it is measured by simulation.

    For a recall the threshold is an order statistic of the links' logits: the share of links above the r-th
    smallest of m is Beta(m - r + 1, r) distributed (Wilks: Sample sizes for setting tolerance limits, 1941).

    Examples
    --------
    >>> found = certified_threshold([3.0] * 90 + [-3.0] * 90, [1] * 90 + [0] * 90, precision=0.9)
    >>> found.precision > 0.9, -3.0 < found.logit <= 3.0
    (True, True)
    """
    _one_wanted(precision, recall)
    z = check_scores(decision, "decision")
    label = check_binary_labels(y, z.size, "y")
    error = 1.0 - check_fraction(confidence, "confidence")
    positives = int(label.sum())
    if positives in (0, z.size):
        raise InputError(f"y must hold both classes, got {positives} links among {z.size} labels")
    share = positives / z.size
    rate = share if base_rate is None else check_fraction(base_rate, "base_rate")
    z = z + base_rate_offset(share, rate)
    links, others = np.sort(z[label == 1.0]), np.sort(z[label == 0.0])
    if precision is not None:
        threshold = _by_precision(links, others, check_fraction(precision, "precision"), rate, error)
        proved = 0.0
    else:
        threshold, proved = _by_recall(links, check_fraction(recall, "recall"), error)
    lower, found = _bounds(links, others, np.array([threshold]), rate, error)
    return LinkThreshold(
        float(sigmoid(np.array(threshold))),
        threshold,
        float(lower[0]),
        # `found` has a fifth of the error only, `proved` all of it.
        max(float(found[0]), proved),
        rate,
        1.0 - error,
    )


def conformal_p_values(score: Any, null_score: Any) -> FloatArray:
    """Conformal p-value of each pair: the rank of its score among the scores of known negatives.

    Parameters
    ----------
    score : array-like of shape (n,)
        Logits of the query pairs, calibrated or raw (any score that is higher for links).
    null_score : array-like of shape (m,)
        Scores of m >= 1 negatives, drawn as the negatives among the query pairs are. Neither the predictor
        nor the calibrator may have been fitted on them.

    Returns
    -------
    ndarray of shape (n,)
        ``(1 + number of null scores >= s) / (m + 1)``, in (0, 1].

    Notes
    -----
    If a negative's score is exchangeable with the null scores, its p-value is at most t with probability at
    most t, for any predictor (Marandon: Conformal link prediction for false discovery rate control, arXiv
    2306.14693). No p-value is below ``1 / (m + 1)``.

    Examples
    --------
    >>> conformal_p_values([0.0, 2.5, 9.0], [1.0, 2.0, 3.0])
    array([1.  , 0.5 , 0.25])
    """
    query, null = check_scores(score), np.sort(check_scores(null_score, "null_score"))
    if not null.size:
        raise InputError("null_score must hold at least one score of a negative, got none")
    at_least = null.size - np.searchsorted(null, query, side="left")
    return np.asarray((1.0 + at_least) / (null.size + 1.0))


def select_links(score: Any, null_score: Any, *, fdr: float = 0.1) -> NDArray[np.bool_]:
    """Pairs to call links, so that on average at most a share `fdr` of them are none.

    Parameters
    ----------
    score, null_score : array-like of shape (n,) and (m,)
        As in :func:`conformal_p_values`.
    fdr : float in (0, 1)
        Bound on the false discovery rate: the expected share of negatives among selected pairs (0 if none).

    Returns
    -------
    ndarray of shape (n,), bool
        A selected pair's score is higher than that of any pair that is not.

    Notes
    -----
    Benjamini-Hochberg on the conformal p-values. Their dependence through the shared null scores is positive,
    so the rate stays below `fdr` times the share of negatives among the query pairs (Bates, Candes, Lei,
    Romano, Sesia: Testing for outliers with conformal p-values, arXiv 2104.08279).

    Examples
    --------
    >>> select_links([5.0, 0.5, 7.0], range(1, 5), fdr=0.3).tolist()
    [True, False, True]
    """
    level, p = check_fraction(fdr, "fdr"), conformal_p_values(score, null_score)
    if p.size:
        p = false_discovery_control(p, method="bh")
    # Rounding must not undo an equality such as 2 / 10 <= 0.2.
    return np.asarray(p <= level * (1.0 + 1e-12))


def weights_at_base_rate(y: FloatArray, rate: float) -> FloatArray:
    """Weights (n,) under which labels have the share `rate` of links."""
    share = float(y.mean())
    return np.where(y == 1.0, rate / share, (1.0 - rate) / (1.0 - share))


def _one_wanted(precision: float | None, recall: float | None) -> None:
    if (precision is None) == (recall is None):
        raise InputError(f"precision or recall must be given, one of them, got {precision!r} and {recall!r}")


def _bounds(
    links: FloatArray, others: FloatArray, at: FloatArray, rate: float, error: float
) -> tuple[FloatArray, FloatArray]:
    """Lower bounds of precision and recall at each threshold, jointly missed with probability `error`."""
    above = [scores.size - np.searchsorted(scores, at, side="left") for scores in (links, others)]
    tpr = clopper_pearson(above[0], np.full(at.size, links.size), _RECALL_SHARE * error)[0]
    fpr = clopper_pearson(above[1], np.full(at.size, others.size), (1.0 - _RECALL_SHARE) * error)[1]
    return rate * tpr / (rate * tpr + (1.0 - rate) * fpr), tpr


def _by_precision(links: FloatArray, others: FloatArray, wanted: float, rate: float, error: float) -> float:
    grid = logit(np.array([wanted])) - _STEP * np.arange(-_STEPS_ABOVE, _STEPS_BELOW, dtype=np.float64)
    lowest, first = -1, 0.0
    for start, part in _CHAINS:
        bound, _ = _bounds(links, others, grid[start:], rate, part * error)
        first = max(first, float(bound[0]))
        passed = int(np.logical_and.accumulate(bound >= wanted).sum())
        if passed:
            lowest = max(lowest, start + passed - 1)
    if lowest < 0:
        every = np.concatenate((links, others))
        best = float(_bounds(links, others, every, rate, _CHAINS[0][1] * error)[0].max())
        high, low = grid[_CHAINS[-1][0]], grid[_CHAINS[0][0]]
        raise InputError(
            f"precision must be one that the labels can show, {first:.3g} at logits of {low:.3g} to "
            f"{high:.3g}, where tests begin, and elsewhere at best about {best:.3g} with {links.size} links "
            f"and {others.size} negatives at a base rate of {rate:.4g}, got {wanted:g}"
        )
    return float(grid[lowest])


def _by_recall(links: FloatArray, wanted: float, error: float) -> tuple[float, float]:
    """Largest logit of a link that proves the recall, and the recall that it proves."""
    rank = np.arange(1, links.size + 1)
    enough = np.flatnonzero(beta.cdf(wanted, links.size - rank + 1, rank) <= error)
    if not enough.size:
        needed = int(np.ceil(np.log(error) / np.log(wanted)))
        raise InputError(f"recall = {wanted:g} must be shown with at least {needed} links, got {links.size}")
    r = int(rank[enough[-1]])
    return float(links[r - 1]), float(beta.ppf(error, links.size - r + 1, r))
