"""Bootstrap intervals of metrics: how far chance moves a value that few links give."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from linkcal._core.maths import FloatArray, bernoulli_nll, logit
from linkcal._core.validation import (
    check_binary_labels,
    check_fraction,
    check_positive_int,
    check_probabilities,
    check_sample_weight,
    check_scores,
)
from linkcal.exceptions import InputError
from linkcal.metrics.calibration import bin_index, generator_of, uniform_edges

# Counts per chunk of resamples: 8 MB of float64.
_CHUNK = 1 << 20
# Test links from which on fewer resamples are drawn.
_MANY = 20_000
_HITS = {"hits@20": 20, "hits@50": 50}

#: Coverage of the intervals of a run.
LEVEL = 0.95

#: Ends of the interval of each metric, by predictor.
Intervals = dict[str, dict[str, tuple[float, float]]]


def bootstrap_intervals(
    y_true: Any,
    y_prob: Mapping[str, Any],
    score: Mapping[str, Any] | None = None,
    *,
    sample_weight: Any = None,
    level: float = 0.95,
    n_bins: int = 15,
    n_resamples: int = 1000,
    random_state: int | np.random.Generator | None = 0,
) -> Intervals:
    """Intervals of the metrics of several predictors, over the draw of the test links.

    They hold for one trained model and one calibrator: another training or other calibration links move a
    value too.

    Parameters
    ----------
    y_true : array-like (L,), values 0 and 1
    y_prob : mapping of str to array-like (L,), in [0, 1]
        Link probabilities of each predictor.
    score : mapping of str to array-like (L,), finite, optional
        Logits for the ranking metrics; default: the probabilities.
    sample_weight : array-like (L,), >= 0, optional
        For metrics of probabilities; ranking metrics count each link once.
    level : float in (0, 1)
    n_bins, n_resamples, random_state
        Bins of the ECEs; resamples, the same for every predictor; their generator.

    Returns
    -------
    dict of dict of (float, float)
        By predictor and metric, of ``ece``, ``ece_top_label``, ``nll``, ``brier``, ``acc``; with both classes
        ``auc``; with at least K negatives ``hits@20`` and ``hits@50``.

    Notes
    -----
    Links and negatives are resampled separately, each class with replacement to its own size, as a test set
    is made with a fixed number of both. The ends are percentiles of the resampled values (Efron and
    Tibshirani 1993, chapter 13), with one exception: resampling adds noise to every bin, so the resampled
    ECE is too large. Its lower end is ``ECE - q``, q the `level` quantile of ``sum_b |S*_b - S_b| / W``, with
    ``S_b`` the sum of ``w (y - p)`` in a bin and W the total weight. By the triangle inequality no ECE of the
    population differs from the measured one by more than that sum: 0 is inside the interval where the ECE is
    within its noise.

    Examples
    --------
    >>> y, p = [1] * 60 + [0] * 60, {"a": [0.75] * 80 + [0.25] * 40}
    >>> low, high = bootstrap_intervals(y, p)["a"]["brier"]
    >>> round(low, 2), round(high, 2)  # the value is 0.15
    (0.12, 0.17)
    """
    label = check_binary_labels(y_true)
    if not label.size:
        raise InputError("y_true must hold at least one link, got 0")
    weight = check_sample_weight(sample_weight, label.size)
    tail = (1.0 - check_fraction(level, "level")) / 2.0
    n_bins, rows = check_positive_int(n_bins, "n_bins"), check_positive_int(n_resamples, "n_resamples")
    rng, order = generator_of(random_state), np.argsort(-label, kind="stable")  # links first
    classes = int(label.sum()), int((1.0 - label).sum())
    predictors = {}
    for name, given in y_prob.items():
        p, s = check_probabilities(given), check_scores(given if score is None else score[name])
        if (sizes := [p.size, s.size]) != [label.size] * 2:
            text = f"y_prob and score must have one value per link, {label.size}"
            raise InputError(f"{text}, got {sizes} for {name}")
        predictors[name] = _predictor(label[order], p[order], s[order], n_bins, classes)
    weight, once = weight[order], np.ones((1, label.size))
    measured = [_values(each, once, weight, classes) for each in predictors.values()]
    chunks: list[list[dict[str, FloatArray]]] = []
    size = max(1, _CHUNK // label.size)
    for first in range(0, rows, size):
        number = min(size, rows - first)
        counts = np.concatenate([_resampled(rng, number, each) for each in classes], axis=1)
        chunks.append([_values(each, counts, weight, classes) for each in predictors.values()])
    found: Intervals = {}
    for place, name in enumerate(predictors):
        drawn = {key: np.concatenate([chunk[place][key] for chunk in chunks]) for key in chunks[0][place]}
        found[name] = {}
        for key, values in drawn.items():
            if key.startswith("ece"):
                found[name][key] = _ece_interval(measured[place][key][0], values, level)
            else:
                low, high = np.quantile(values[:, 0], [tail, 1.0 - tail])
                found[name][key] = float(low), float(high)
    return found


def intervals_record(
    label: FloatArray, p: Mapping[str, FloatArray], logit: Mapping[str, FloatArray], weight: FloatArray | None
) -> dict[str, Any]:
    """What ``metrics.json`` records: ``intervals`` and their ``interval_level``."""
    # The ends of an interval of many links are close, and a percentile of 200 is good enough for them.
    draws = 1000 if label.size <= _MANY else 200
    found = bootstrap_intervals(label, p, logit, sample_weight=weight, level=LEVEL, n_resamples=draws)
    return {"interval_level": LEVEL, "intervals": found}


def _ece_interval(sums: FloatArray, drawn: FloatArray, level: float) -> tuple[float, float]:
    """Ends from the residuals of each bin, measured (B,) and resampled (R, B)."""
    ece, errors = float(np.abs(sums).sum()), np.abs(drawn).sum(axis=1)
    noise = float(np.quantile(np.abs(drawn - sums).sum(axis=1), level))
    upper = min(ece + noise, float(np.quantile(errors, (1.0 + level) / 2.0)))
    return max(ece - noise, 0.0), max(upper, ece)


class _Predictor(NamedTuple):
    """What does not change from resample to resample, links first (L = P + Q links and negatives)."""

    columns: FloatArray  # (L, 3 + 2 B): loss, squared error, right or not; residuals by bin, of both ECEs
    order: tuple[Any, Any]  # increasing order of the links' scores and of the negatives'
    below: tuple[Any, Any]  # negatives strictly below each link, and at most at it
    links_below: Any  # links at most at each negative, negatives in increasing order


def _predictor(
    label: FloatArray, p: FloatArray, score: FloatArray, n_bins: int, classes: tuple[int, int]
) -> _Predictor:
    right = label == (p > 0.5)
    columns = [bernoulli_nll(logit(p), label), (p - label) ** 2, right.astype(np.float64)]
    edges = uniform_edges(n_bins)
    binned = []
    for happened, confidence in ((label, p), (right, np.maximum(p, 1.0 - p))):
        in_bin = bin_index(confidence, edges)[:, None] == np.arange(n_bins)
        binned.append(in_bin * (happened - confidence)[:, None])
    links, negatives = np.split(score, [classes[0]])
    order = np.argsort(links, kind="stable"), np.argsort(negatives, kind="stable")
    ordered = negatives[order[1]]
    below = np.searchsorted(ordered, links, "left"), np.searchsorted(ordered, links, "right")
    at_most = np.searchsorted(links[order[0]], ordered, "right")
    return _Predictor(np.hstack([np.stack(columns, axis=1), *binned]), order, below, at_most)


def _values(
    predictor: _Predictor, counts: FloatArray, weight: FloatArray, classes: tuple[int, int]
) -> dict[str, FloatArray]:
    """Metrics (R, 1), and signed bins of the ECEs (R, B), of R resamples with each link so many times."""
    weighted, (links, negatives) = counts * weight, classes
    means = weighted @ predictor.columns / weighted.sum(axis=1, keepdims=True)
    half = (means.shape[1] - 3) // 2
    found = {key: means[:, [place]] for place, key in enumerate(("nll", "brier", "acc"))}
    found |= {"ece": means[:, 3 : 3 + half], "ece_top_label": means[:, 3 + half :]}
    if not links or not negatives:
        return found

    def sums(values: FloatArray, order: Any) -> FloatArray:
        """Sums of the first 0, 1, ... values of each row in that order."""
        total = np.zeros((len(values), len(order) + 1))
        np.cumsum(values[:, order], axis=1, out=total[:, 1:])
        return total

    of_links = sums(counts[:, :links], predictor.order[0])
    of_negatives = sums(counts[:, links:], predictor.order[1])
    twice = of_negatives[:, predictor.below[0]] + of_negatives[:, predictor.below[1]]
    won = np.einsum("rl,rl->r", counts[:, :links], twice)
    found["auc"] = won[:, None] / (2.0 * links * negatives)
    for key, k in _HITS.items():
        if negatives >= k:
            # The K-th highest negative: the last one with at least K from it on.
            place = (of_negatives <= negatives - k).sum(axis=1) - 1
            missed = np.take_along_axis(of_links, predictor.links_below[place][:, None], axis=1)
            found[key] = 1.0 - missed / links
    return found


def _resampled(rng: np.random.Generator, rows: int, size: int) -> FloatArray:
    """How often each of `size` links is drawn in each of `rows` draws of as many, with replacement."""
    drawn = rng.integers(size, size=(rows, size)) if size else np.empty((rows, 0), dtype=np.int64)
    places = (drawn + size * np.arange(rows)[:, None]).ravel()
    return np.bincount(places, minlength=rows * size).reshape(rows, size).astype(np.float64)
