"""Ranking metrics: do links score higher than negatives? Increasing maps of the score change none of them.

Prefer logits: as a probability every logit above 37 is 1.0, and ties count against the predictor.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from linkcal._core.validation import check_positive_int
from linkcal.exceptions import FewNegativesWarning
from linkcal.metrics._inputs import ranked_links

__all__ = ["average_precision", "hits_at_k", "roc_auc"]


def roc_auc(y_true: Any, score: Any, *, sample_weight: Any = None) -> float:
    """Area under the ROC curve: probability that a link scores higher than a negative, ties counting half.

    Parameters
    ----------
    y_true : array-like (L,), values 0 and 1, both present
    score : array-like (L,), finite
    sample_weight : array-like (L,), >= 0, optional

    Returns
    -------
    float in [0, 1], larger is better; 0.5 for a score without information

    Examples
    --------
    >>> roc_auc([1, 1, 0, 0], [2.0, -1.0, 0.0, -3.0])
    0.75
    """
    links = ranked_links(y_true, score, sample_weight)
    return float(roc_auc_score(links.label, links.value, sample_weight=links.weight))


def average_precision(y_true: Any, score: Any, *, sample_weight: Any = None) -> float:
    """Average precision, ``sum_n (R_n - R_{n-1}) P_n`` over distinct scores, without interpolation.

    It depends on the ratio of links to negatives; :func:`roc_auc` does not.

    Parameters
    ----------
    y_true, score, sample_weight
        As in :func:`roc_auc`.

    Returns
    -------
    float in (0, 1], larger is better; the base rate for a score without information

    Examples
    --------
    >>> round(average_precision([1, 0, 1, 0], [3.0, 2.0, 1.0, 0.0]), 4)  # (1/1 + 2/3) / 2
    0.8333
    """
    links = ranked_links(y_true, score, sample_weight)
    return float(average_precision_score(links.label, links.value, sample_weight=links.weight))


def hits_at_k(y_true: Any, score: Any, k: int, *, sample_weight: Any = None) -> float:
    """Hits@K: share of links that score strictly above the K-th highest negative.

    Ties count against the predictor, as in the Open Graph Benchmark (Hu et al., arXiv 2005.00687): a constant
    score has 0. The value falls as more negatives are sampled, so compare it only at equal numbers of them.

    Parameters
    ----------
    y_true, score
        As in :func:`roc_auc`.
    k : int
        K, at least 1.
    sample_weight : array-like (L,), >= 0, optional
        Weight w counts a link or negative w times.

    Returns
    -------
    float in [0, 1]
        Larger is better. 1.0, meaningless, with a ``FewNegativesWarning`` for fewer than K negatives.

    Examples
    --------
    >>> y = [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    >>> hits_at_k(y, [0.8, 0.9, 0.4, 0.5, 0.3, 0.7, 0.45, 0.2, 0.1, 0.6], 3)
    0.6
    """
    k = check_positive_int(k, "k")
    links = ranked_links(y_true, score, sample_weight)
    negative = links.label == 0.0
    # Scores ascend; from the top down, the first negative at which the weight of negatives reaches K.
    reached = np.cumsum(links.weight[negative][::-1])
    if reached[-1] < k:
        warnings.warn(
            f"Hits@{k} needs at least {k} negatives, got {reached[-1]:g}; the value 1.0 is meaningless",
            FewNegativesWarning,
            stacklevel=2,
        )
        return 1.0
    threshold = links.value[negative][::-1][np.searchsorted(reached, k)]
    positive_weight = links.weight[~negative]
    return float(positive_weight[links.value[~negative] > threshold].sum() / positive_weight.sum())
