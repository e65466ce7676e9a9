"""What every metric does first: check its arguments, drop links of weight zero, put the rest into one order.

The order is a function of the rows' values alone. Floating-point sums depend on the order of their terms, so
this is what makes every metric *exactly* the same whatever order the links come in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linkcal._core.validation import (
    check_binary_labels,
    check_probabilities,
    check_sample_weight,
    check_scores,
)
from linkcal.exceptions import InputError

__all__ = ["Links", "check_generator", "labelled_links", "ranked_links", "unlabelled_links"]


FloatArray = NDArray[np.float64]


class Links(NamedTuple):
    """Checked links in canonical order, each array float64 of shape (L,).

    `value` is a probability or a score. `label` holds 0 and 1, `weight` is greater than 0.
    """

    label: FloatArray
    value: FloatArray
    weight: FloatArray


def _canonical(label: FloatArray, value: FloatArray, weight: FloatArray, name: str) -> Links:
    if not value.size:
        raise InputError(f"{name} must hold at least one link, got 0")
    keep = weight > 0.0
    if not keep.all():
        label, value, weight = label[keep], value[keep], weight[keep]
    order = np.lexsort((weight, label, value))
    return Links(label[order], value[order], weight[order])


def labelled_links(y_true: Any, y_prob: Any, sample_weight: Any = None) -> Links:
    """Links with labels and probabilities, sorted by probability; one class is enough."""
    prob = check_probabilities(y_prob)
    label = check_binary_labels(y_true, prob.size)
    return _canonical(label, prob, check_sample_weight(sample_weight, prob.size), "y_prob")


def unlabelled_links(y_prob: Any, sample_weight: Any = None) -> Links:
    """Links with probabilities alone (labels are zeros), sorted by probability."""
    prob = check_probabilities(y_prob)
    return _canonical(np.zeros(prob.size), prob, check_sample_weight(sample_weight, prob.size), "y_prob")


def ranked_links(y_true: Any, score: Any, sample_weight: Any = None) -> Links:
    """Links with labels and scores, sorted by score; both classes must be there."""
    value = check_scores(score)
    label = check_binary_labels(y_true, value.size)
    links = _canonical(label, value, check_sample_weight(sample_weight, value.size), "score")
    positives = int(links.label.sum())
    if positives in (0, links.label.size):
        raise InputError(
            "y_true must hold both classes for a ranking metric, "
            f"got {positives} positives and {links.label.size - positives} negatives"
        )
    return links


def check_generator(random_state: Any) -> np.random.Generator:
    """NumPy generator from a seed (whole number >= 0), a generator, or None (a fresh seed)."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None:
        return np.random.default_rng()
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)) or random_state < 0:
        raise InputError(
            f"random_state must be a whole number >= 0, a numpy Generator or None, got {random_state!r}"
        )
    return np.random.default_rng(int(random_state))
