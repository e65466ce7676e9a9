"""One table of everything that result tables hold: name, label, unit, direction; and how to compute it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from linkcal._core.maths import FloatArray
from linkcal._core.validation import check_probabilities, check_scores
from linkcal.exceptions import InputError
from linkcal.metrics import scores
from linkcal.metrics._inputs import probability_links
from linkcal.metrics.calibration import (
    calibration_floor,
    debiased_calibration_error,
    expected_calibration_error,
)


@dataclass(frozen=True)
class ResultColumn:
    """How a value of a result table is named, compared and printed.

    `unit` is "%" (values are fractions, printed times 100), "nats", "s" or ""; `digits` are decimal places.
    """

    name: str
    label: str
    unit: str
    digits: int
    higher_is_better: bool | None
    description: str

    def text(self, value: float | None) -> str:
        """A value as printed, without its unit; ``n/a`` for None and NaN."""
        if value is None or not math.isfinite(value):
            return "n/a"
        return f"{100 * value if self.unit == '%' else value:.{self.digits}f}"


@dataclass(frozen=True)
class MetricSpec(ResultColumn):
    """A column that a function of labels and probabilities computes.

    Parameters
    ----------
    name, label, unit, digits, higher_is_better, description
        As in a result table.
    function : callable
        ``function(y_true, values, *, sample_weight=None) -> float``.
    input : {"probability", "score"}
        What `values` are: probabilities in [0, 1], or scores of which only the order counts.
    range, proper : tuple of float, bool
        Smallest and largest value; whether only the true probabilities are best in expectation.
    """

    higher_is_better: bool
    function: Callable[..., float]
    input: Literal["probability", "score"] = "probability"
    range: tuple[float, float] = (0.0, 1.0)
    proper: bool = False


_UP, _DOWN = True, False
#: Name, label, unit, printed decimal places, direction, description; in the order in which tables show them.
_COLUMNS: tuple[tuple[Any, ...], ...] = (
    ("ece", "ECE", "%", 2, _DOWN, "expected calibration error of the link probability, equal-width bins"),
    ("ece_floor", "ECE floor", "%", 2, None, "mean ECE if the probabilities were right"),
    ("ece_floor_q95", "ECE floor 95 %", "%", 2, None, "95 % quantile of the ECE if they were right"),
    ("ece_top_label", "ECE top-label", "%", 2, _DOWN, "ECE of the predicted class, link or not"),
    ("ece_top_label_floor", "ECE top-label floor", "%", 2, None, "its mean if the probabilities were right"),
    ("ece_top_label_floor_q95", "ECE top-label floor 95 %", "%", 2, None, "its 95 % quantile if they were"),
    ("ece_quantile", "ECE equal-mass", "%", 2, _DOWN, "ECE of the link probability, equal-mass bins"),
    ("ece_debiased", "Debiased ECE²", "", 4, _DOWN, "squared calibration error without label-noise bias"),
    ("pattern", "Pattern", "", 0, None, "shape of the reliability curve"),
    ("true_error", "True error", "%", 2, _DOWN, "mean distance to the true probability, where it is known"),
    ("nll", "NLL", "nats", 4, _DOWN, "negative log-likelihood, a proper score"),
    ("brier", "Brier", "", 4, _DOWN, "mean squared error of the probability, a proper score"),
    ("auc", "AUC", "%", 2, _UP, "probability that a link scores above a negative"),
    ("ap", "AP", "%", 2, _UP, "average precision"),
    ("hits@20", "Hits@20", "%", 1, _UP, "share of links above the 20th highest negative"),
    ("hits@50", "Hits@50", "%", 1, _UP, "share of links above the 50th highest negative"),
    ("mrr", "MRR", "%", 2, _UP, "mean reciprocal rank of a link among all negatives"),
    ("acc", "Accuracy", "%", 1, _UP, "share of correct predictions, where p > 0.5 predicts a link"),
    ("group_z", "Group z", "", 1, _DOWN, "largest deviation of a segment of links, in standard deviations"),
    ("group_bound", "Group z 95 %", "", 1, None, "its 95 % quantile if the probabilities were right"),
    ("seconds_fit", "Fit time", "s", 2, None, "seconds to fit the calibrator"),
)
#: The metrics among them.
_METRICS: dict[str, dict[str, Any]] = {
    "ece": {"function": expected_calibration_error},
    "ece_top_label": {"function": partial(expected_calibration_error, variant="top-label")},
    "ece_quantile": {"function": partial(expected_calibration_error, strategy="quantile")},
    "ece_debiased": {"function": debiased_calibration_error, "range": (-1.0, 1.0)},
    # -log of the clipping distance 2.2e-16, a little more for 1 - (1 - eps).
    "nll": {"function": scores.negative_log_likelihood, "range": (0.0, 36.05), "proper": True},
    "brier": {"function": scores.brier_score, "proper": True},
    "auc": {"function": scores.roc_auc, "input": "score"},
    "ap": {"function": scores.average_precision, "input": "score"},
    "hits@20": {"function": partial(scores.hits_at_k, k=20), "input": "score"},
    "hits@50": {"function": partial(scores.hits_at_k, k=50), "input": "score"},
    "mrr": {"function": scores.mean_reciprocal_rank, "input": "score"},
    "acc": {"function": scores.accuracy},
}


#: Every column of result tables by name, read-only.
COLUMNS: Mapping[str, ResultColumn] = MappingProxyType(
    {
        row[0]: MetricSpec(*row, **_METRICS[row[0]]) if row[0] in _METRICS else ResultColumn(*row)
        for row in _COLUMNS
    }
)

#: Every metric by name, read-only.
METRICS: Mapping[str, MetricSpec] = MappingProxyType(
    {name: column for name, column in COLUMNS.items() if isinstance(column, MetricSpec)}
)

#: Keys of the result of :func:`evaluate_links`, in this order.
EVALUATION_KEYS: tuple[str, ...] = (
    "ece", "ece_top_label", "ece_floor", "ece_floor_q95", "nll", "brier", "auc", "hits@20", "hits@50", "mrr",
    "acc",
)  # fmt: skip


def evaluate_links(
    y_true: Any,
    y_prob: Any,
    score: Any = None,
    *,
    sample_weight: Any = None,
    n_bins: int = 15,
    n_resamples: int = 1000,
    random_state: int | np.random.Generator | None = 0,
) -> dict[str, float]:
    """Measure link probabilities by every metric of a result table.

    Parameters
    ----------
    y_true, y_prob
        As in :func:`reliability_curve`.
    score : array-like (L,), finite, optional
        Logits for the ranking metrics; default: `y_prob`, where values that round to 0 or 1 are ties.
    sample_weight : array-like (L,), >= 0, optional
        ``ece_floor`` counts each link as one observation, whatever its weight.
    n_bins, n_resamples, random_state
        Bins of the ECEs, and draws of the floor, as in :func:`calibration_floor`.

    Returns
    -------
    dict of float
        Fractions, not percent, with the keys ``EVALUATION_KEYS``. With a single class
        ``auc``, ``hits@K``, ``mrr`` are NaN; with fewer than K negatives Hits@K is a meaningless 1.0, with a
        warning.

    Examples
    --------
    >>> result = evaluate_links([1] * 60 + [0] * 60, [0.75] * 80 + [0.25] * 40, n_resamples=100)
    >>> round(result["ece"], 4), round(result["brier"], 4), round(result["auc"], 4)
    (0.0833, 0.1458, 0.8333)
    """
    label = probability_links(y_true, y_prob, sample_weight).label
    prob = check_probabilities(y_prob)
    ranking = prob if score is None else check_scores(score)
    if ranking.size != prob.size:
        raise InputError(f"score must have one value per link, {prob.size}, got {ranking.size}")
    one_class = label.min() == label.max()
    draws: dict[str, Any] = {
        "n_bins": n_bins, "sample_weight": sample_weight,
        "n_resamples": n_resamples, "random_state": random_state,
    }  # fmt: skip
    result = dict.fromkeys(EVALUATION_KEYS, math.nan)
    result["ece_floor"], result["ece_floor_q95"] = calibration_floor(y_prob, **draws)
    for key in (key for key in EVALUATION_KEYS if key in METRICS):
        spec = METRICS[key]
        bins = {"n_bins": n_bins} if key.startswith("ece") else {}
        if spec.input == "probability":
            result[key] = spec.function(y_true, y_prob, sample_weight=sample_weight, **bins)
        elif not one_class:
            result[key] = spec.function(y_true, ranking, sample_weight=sample_weight)
    return result


def evaluate_at_base_rate(
    label: FloatArray, prob: FloatArray, score: FloatArray, weight: FloatArray | None
) -> dict[str, float]:
    """:func:`evaluate_links` with weights that state a base rate: the ranking counts each link once."""
    result = evaluate_links(label, prob, score, sample_weight=weight)
    for name, spec in METRICS.items():
        # Hits@K counts negatives, not weights.
        if weight is not None and name in result and spec.input == "score":
            result[name] = math.nan if label.min() == label.max() else spec.function(label, score)
    return result
