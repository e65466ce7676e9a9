"""What every metric does first: check its arguments, drop links of weight zero, sort the rest.

Sums depend on the order of their terms; sorted by value, they are the same in whatever order the links come.
"""

from typing import Any, NamedTuple

import numpy as np

from linkcal._core.maths import FloatArray
from linkcal._core.validation import (
    check_binary_labels,
    check_probabilities,
    check_sample_weight,
    check_scores,
)
from linkcal.exceptions import InputError


class Links(NamedTuple):
    """Sorted float64 arrays (L,): labels 0 and 1, probabilities or scores, weights above 0."""

    label: FloatArray
    value: FloatArray
    weight: FloatArray


def probability_links(y_true: Any, y_prob: Any, sample_weight: Any = None) -> Links:
    """Links sorted by probability; one class is enough."""
    prob = check_probabilities(y_prob)
    return _sorted(check_binary_labels(y_true, prob.size), prob, sample_weight, "y_prob")


def ranked_links(y_true: Any, score: Any, sample_weight: Any = None) -> Links:
    """Links sorted by score; both classes are required."""
    value = check_scores(score)
    links = _sorted(check_binary_labels(y_true, value.size), value, sample_weight, "score")
    positives, size = int(links.label.sum()), links.label.size
    if positives in (0, size):
        raise InputError(f"y_true must hold both classes for a ranking metric, got {positives} of {size}")
    return links


def _sorted(label: FloatArray, value: FloatArray, sample_weight: Any, name: str) -> Links:
    weight = check_sample_weight(sample_weight, value.size)
    if not value.size:
        raise InputError(f"{name} must hold at least one link, got 0")
    keep = weight > 0.0
    label, value, weight = label[keep], value[keep], weight[keep]
    order = np.lexsort((weight, label, value))
    return Links(label[order], value[order], weight[order])
