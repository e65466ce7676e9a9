"""The list of all metrics with their direction, and the set that every method is measured by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from linkcal._core.validation import check_probabilities, check_scores
from linkcal.exceptions import InputError
from linkcal.metrics._inputs import labelled_links
from linkcal.metrics.calibration import debiased_calibration_error, expected_calibration_error
from linkcal.metrics.floor import calibration_floor
from linkcal.metrics.pattern import calibration_pattern
from linkcal.metrics.proper import accuracy, brier_score, negative_log_likelihood
from linkcal.metrics.ranking import average_precision, hits_at_k, roc_auc

__all__ = ["EVALUATION_KEYS", "EXTENDED_KEYS", "METRICS", "MetricSpec", "evaluate_links"]


@dataclass(frozen=True)
class MetricSpec:
    """What a program needs to know about a metric to call it, compare by it and print it.

    Parameters
    ----------
    name : str
        Key in ``METRICS`` and in result tables.
    function : callable
        ``function(y_true, values, *, sample_weight=None) -> float``.
    range : tuple of float
        Smallest and largest possible value.
    higher_is_better : bool
    proper : bool
        Whether the true probabilities are, in expectation, the only best ones.
    input : {"probability", "score"}
        What `values` are: probabilities in [0, 1], or scores of any scale of which only the order counts.
    description : str
        One line for tables and help texts.

    Examples
    --------
    >>> spec = METRICS["brier"]
    >>> spec.function([1, 0], [0.5, 0.5]), spec.higher_is_better, spec.proper
    (0.25, False, True)
    """

    name: str
    function: Callable[..., float]
    range: tuple[float, float]
    higher_is_better: bool
    proper: bool
    input: Literal["probability", "score"]
    description: str


def _probability(
    name: str, function: Callable[..., float], description: str, *, high: float = 1.0, proper: bool = False
) -> MetricSpec:
    return MetricSpec(name, function, (0.0, high), False, proper, "probability", description)


def _ranking(name: str, function: Callable[..., float], description: str) -> MetricSpec:
    return MetricSpec(name, function, (0.0, 1.0), True, False, "score", description)


_SPECS = (
    _probability("ece", expected_calibration_error, "ECE, positive class, equal-width bins"),
    _probability(
        "ece_top_label",
        partial(expected_calibration_error, variant="top-label"),
        "ECE of the predicted class, equal-width bins",
    ),
    _probability(
        "ece_quantile",
        partial(expected_calibration_error, strategy="quantile"),
        "ECE, positive class, equal-mass bins",
    ),
    MetricSpec(
        "ece_debiased",
        debiased_calibration_error,
        (-1.0, 1.0),
        False,
        False,
        "probability",
        "Squared calibration error without label-noise bias",
    ),
    # -log of the clipping distance 2.2e-16, a little more for 1 - (1 - eps).
    _probability("nll", negative_log_likelihood, "Negative log-likelihood (nats)", high=36.05, proper=True),
    _probability("brier", brier_score, "Brier score", proper=True),
    _ranking("auc", roc_auc, "Area under the ROC curve"),
    _ranking("ap", average_precision, "Average precision"),
    _ranking("hits@20", partial(hits_at_k, k=20), "Share of links above the 20th highest negative"),
    _ranking("hits@50", partial(hits_at_k, k=50), "Share of links above the 50th highest negative"),
    MetricSpec("acc", accuracy, (0.0, 1.0), True, False, "probability", "Accuracy at p > 0.5"),
)

#: Every metric by name, read-only.
METRICS: Mapping[str, MetricSpec] = MappingProxyType({spec.name: spec for spec in _SPECS})

#: Keys of the result of :func:`evaluate_links`, in this order.
EVALUATION_KEYS: tuple[str, ...] = (
    "ece",
    "ece_top_label",
    "ece_floor",
    "ece_floor_q95",
    "nll",
    "brier",
    "auc",
    "hits@20",
    "hits@50",
    "acc",
)

#: What ``evaluate_links(extended=True)`` adds, in this order.
EXTENDED_KEYS: tuple[str, ...] = ("ece_top_label_floor", "ece_top_label_floor_q95", "pattern")


def evaluate_links(
    y_true: Any,
    y_prob: Any,
    score: Any = None,
    *,
    sample_weight: Any = None,
    n_bins: int = 15,
    n_resamples: int = 1000,
    random_state: int | np.random.Generator | None = 0,
    extended: bool = False,
) -> dict[str, float]:
    """Measure link probabilities by every metric of a result table.

    Parameters
    ----------
    y_true : array-like (L,), values 0 and 1
    y_prob : array-like (L,), (L, 1) or (L, 2), in [0, 1]
        Calibrated probability.
    score : array-like (L,), finite, optional
        Calibrated logit, for the ranking metrics; `y_prob` without it. Probabilities that round to 0 or 1
        make ties that the logits do not have.
    sample_weight : array-like (L,), >= 0, optional
        Weight k counts a link k times; weight 0 leaves it out. ``ece_floor`` takes each link as one
        observation.
    n_bins : int
        Bins of both ECEs and of the floor.
    n_resamples : int
    random_state : int, Generator or None
        Draws and seed of the floor; see :func:`linkcal.metrics.calibration_floor`.
    extended : bool
        Add what result tables need beside: the floor of the top-label ECE, and the integer of the
        :class:`linkcal.metrics.CalibrationPattern`, which takes every link once, whatever its weight.

    Returns
    -------
    dict of float
        Fractions, not percent, with the keys ``EVALUATION_KEYS`` (and ``EXTENDED_KEYS``). With a single class
        ``auc`` and ``hits@K`` are NaN: they do not exist there, while the calibration of such links does, and
        a table should keep the rest of the row. (The single metrics raise.)

    Raises
    ------
    InputError
        If an argument has the wrong shape, range or content, or there is no link.

    Warns
    -----
    FewNegativesWarning
        If there are fewer than 50 (20) negatives; the Hits are then 1.0 and say nothing.

    Examples
    --------
    >>> result = evaluate_links([1] * 60 + [0] * 60, [0.75] * 80 + [0.25] * 40, n_resamples=100)
    >>> round(result["ece"], 4), round(result["brier"], 4), round(result["auc"], 4)
    (0.0833, 0.1458, 0.8333)
    """
    label = labelled_links(y_true, y_prob, sample_weight).label
    prob = check_probabilities(y_prob)
    ranking = prob if score is None else check_scores(score)
    if ranking.size != prob.size:
        raise InputError(f"score must have one value per link, {prob.size}, got {ranking.size}")
    options: dict[str, Any] = {"n_bins": n_bins, "sample_weight": sample_weight}
    floor = calibration_floor(y_prob, n_resamples=n_resamples, random_state=random_state, **options)
    result = {
        "ece": METRICS["ece"].function(y_true, y_prob, **options),
        "ece_top_label": METRICS["ece_top_label"].function(y_true, y_prob, **options),
        "ece_floor": floor.mean,
        "ece_floor_q95": floor.q95,
    }
    one_class = label.min() == label.max()
    for key in EVALUATION_KEYS[len(result) :]:
        spec = METRICS[key]
        if spec.input == "probability":
            result[key] = spec.function(y_true, y_prob, sample_weight=sample_weight)
        else:
            result[key] = (
                float("nan") if one_class else spec.function(y_true, ranking, sample_weight=sample_weight)
            )
    if extended:
        top = calibration_floor(
            y_prob, n_resamples=n_resamples, random_state=random_state, variant="top-label", **options
        )
        known = floor.q95 if sample_weight is None else None
        pattern = calibration_pattern(y_true, y_prob, n_bins=n_bins, floor_q95=known)
        result.update(zip(EXTENDED_KEYS, (top.mean, top.q95, float(pattern)), strict=True))
    return result
