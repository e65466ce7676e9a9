"""Proper scores (best in expectation only for the true probabilities) and accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import log_loss, mean_squared_error

from linkcal._core.maths import clip_probability
from linkcal.metrics._inputs import probability_links

__all__ = ["accuracy", "brier_score", "negative_log_likelihood"]


def negative_log_likelihood(y_true: Any, y_prob: Any, *, sample_weight: Any = None) -> float:
    """Mean negative log-likelihood (log loss) of link probabilities, in nats.

    ``-sum_i w_i [y_i log p_i + (1 - y_i) log(1 - p_i)] / sum_i w_i``, a strictly proper score, p clipped to
    ``[eps, 1 - eps]``, eps = 2.2e-16: p = 0 for a link, as binning and isotonic maps give, costs 36.04.

    Parameters
    ----------
    y_true, y_prob, sample_weight
        As in :func:`reliability_curve`.

    Returns
    -------
    float in [0, 36.05], smaller is better; 0.693 for the constant 0.5

    Examples
    --------
    >>> round(negative_log_likelihood([1, 0], [0.8, 0.4]), 4)  # -(log 0.8 + log 0.6) / 2
    0.367
    """
    links = probability_links(y_true, y_prob, sample_weight)
    prob = clip_probability(links.value)
    return float(log_loss(links.label, prob, sample_weight=links.weight, labels=[0.0, 1.0]))


def brier_score(y_true: Any, y_prob: Any, *, sample_weight: Any = None) -> float:
    """Brier score, ``sum_i w_i (p_i - y_i)^2 / sum_i w_i``: a strictly proper score that stays bounded.

    Parameters
    ----------
    y_true, y_prob, sample_weight
        As in :func:`reliability_curve`.

    Returns
    -------
    float in [0, 1], smaller is better; 0.25 for the constant 0.5

    Examples
    --------
    >>> round(brier_score([1, 0], [0.8, 0.4]), 4)
    0.1
    """
    links = probability_links(y_true, y_prob, sample_weight)
    return float(mean_squared_error(links.label, links.value, sample_weight=links.weight))


def accuracy(y_true: Any, y_prob: Any, *, sample_weight: Any = None) -> float:
    """Share of links predicted right, where p > 0.5 predicts a link, as ``predict`` of every calibrator.

    Parameters
    ----------
    y_true, y_prob, sample_weight
        As in :func:`reliability_curve`.

    Returns
    -------
    float in [0, 1], larger is better; not a proper score, as only the side of 0.5 matters

    Examples
    --------
    >>> accuracy([1, 0, 0], [0.7, 0.5, 0.6])
    0.6666666666666666
    """
    links = probability_links(y_true, y_prob, sample_weight)
    right = (links.value > 0.5) == (links.label == 1.0)
    return float(np.sum(links.weight[right]) / np.sum(links.weight))
