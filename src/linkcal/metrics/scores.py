"""Proper scores (best in expectation only for the true probabilities), accuracy, and ranking metrics.

Do links score higher than negatives? Increasing maps of the score change no ranking metric. Prefer logits
there: as a probability every logit above 37 is 1.0, and ties count against the predictor.
"""

import warnings
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, log_loss, mean_squared_error, roc_auc_score

from linkcal._core.maths import clip_probability
from linkcal._core.validation import check_positive_int, check_sample_weight, check_scores
from linkcal.exceptions import FewNegativesWarning, InputError
from linkcal.metrics._inputs import probability_links, ranked_links


def negative_log_likelihood(y_true: Any, y_prob: Any, *, sample_weight: Any = None) -> float:
    """Mean negative log-likelihood (log loss) of link probabilities, in nats.

    ``-sum_i w_i [y_i log p_i + (1 - y_i) log(1 - p_i)] / sum_i w_i``, a strictly proper score, p clipped to
    ``[eps, 1 - eps]``, eps = 2.2e-16: p = 0 for a link, as binning and isotonic maps give, costs 36.04.

    Returns
    -------
    float in [0, 36.05], smaller is better; 0.693 for the constant 0.5

    Examples
    --------
    >>> round(negative_log_likelihood([1, 0], [0.8, 0.4]), 4)  # -(log 0.8 + log 0.6) / 2
    0.367
    """
    label, prob, weight = probability_links(y_true, y_prob, sample_weight)
    return float(log_loss(label, clip_probability(prob), sample_weight=weight, labels=[0.0, 1.0]))


def brier_score(y_true: Any, y_prob: Any, *, sample_weight: Any = None) -> float:
    """Brier score, ``sum_i w_i (p_i - y_i)^2 / sum_i w_i``: a strictly proper score that stays bounded.

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


def roc_auc(y_true: Any, score: Any, *, sample_weight: Any = None) -> float:
    """Area under the ROC curve: probability that a link scores higher than a negative, ties counting half.

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
    y_true, score, sample_weight
        As in :mod:`linkcal.metrics`.
    k : int
        K, at least 1.

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
        text = f"Hits@{k} needs at least {k} negatives, got {reached[-1]:g}; the value 1.0 is meaningless"
        warnings.warn(text, FewNegativesWarning, stacklevel=2)
        return 1.0
    threshold = links.value[negative][::-1][np.searchsorted(reached, k)]
    positive_weight = links.weight[~negative]
    return float(positive_weight[links.value[~negative] > threshold].sum() / positive_weight.sum())


def mean_reciprocal_rank(y_true: Any, score: Any, groups: Any = None, *, sample_weight: Any = None) -> float:
    """Mean over links of one over their rank among the negatives (MRR).

    ``rank = 1 + (negatives that score higher) + (negatives with the same score) / 2``: the mean of optimistic
    and pessimistic rank, as in the Open Graph Benchmark. It falls as more negatives are sampled.

    Parameters
    ----------
    y_true, score, sample_weight
        As in :mod:`linkcal.metrics`; a negative of weight 2 counts as two.
    groups : array-like (L,), optional
        A link is ranked among the negatives of its group: of its source node, or drawn for it. Each group
        with a link needs a negative. Default: one group.

    Returns
    -------
    float in (0, 1], larger is better

    Examples
    --------
    >>> mean_reciprocal_rank([1, 0, 0, 1, 0], [3.0, 1.0, 2.0, 0.5, 0.5], groups=[0, 0, 0, 1, 1])  # 1, 1 / 1.5
    0.8333333333333333
    """
    ranked_links(y_true, score, sample_weight)  # checks them
    value, label = check_scores(score), np.asarray(y_true, dtype=np.float64)
    weight = check_sample_weight(sample_weight, value.size)
    group: Any = np.zeros(value.size) if groups is None else np.asarray(groups)
    if group.shape != value.shape:
        raise InputError(f"groups must have one value per link, {value.size}, got shape {list(group.shape)}")
    group = np.unique(group, return_inverse=True)[1]
    order = np.lexsort((weight, label, value, group))
    value, label, weight, group = value[order], label[order], weight[order], group[order]
    counted = np.concatenate([[0.0], np.cumsum(np.where(label == 0.0, weight, 0.0))])
    link, new = (label == 1.0) & (weight > 0.0), (np.diff(group) != 0) | (np.diff(value) != 0)
    run = np.concatenate([[0], np.cumsum(new)])  # numbers the distinct scores of each group
    first, last, start, end = (
        counted[np.searchsorted(key, key[link], side)] for key in (run, group) for side in ("left", "right")
    )
    if bool((end == start).any()):
        raise InputError("groups must have a negative in every group with a link, got one without")
    return float(np.average(1.0 / (1.0 + (end - last) + (last - first) / 2.0), weights=weight[link]))
