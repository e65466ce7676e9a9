"""What a model adds to what is known of links without it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm, t

from linkcal._core.maths import FloatArray, bernoulli_nll, logit
from linkcal._core.validation import (
    check_binary_labels,
    check_fraction,
    check_probabilities,
    check_sample_weight,
    to_numpy,
)
from linkcal.exceptions import InputError

#: The same map with and without the model: what their difference shows.
WITH_MODEL, WITHOUT_MODEL = "in-n-out-plus", "structure-only"


@dataclass(frozen=True)
class ModelValue:
    """How far a model lowers the NLL, and the interval of that difference; ``str`` says it in a sentence.

    Parameters
    ----------
    gain, half_width : float
        Mean NLL without less with the model, in nats, and half of its interval.
    level : float
        Coverage of the interval.
    num_links : int
    num_groups : int or None
        Groups of dependent links, if they were given.
    """

    gain: float
    half_width: float
    level: float
    num_links: int
    num_groups: int | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.gain > self.half_width

    def __str__(self) -> str:
        beyond = "Beyond degrees, paths and feature similarity the model"
        groups = "" if self.num_groups is None else f" in {self.num_groups:,} groups"
        by = f"{abs(self.gain):.4f} +- {self.half_width:.4f}"
        over = f"{by} (paired over {self.num_links:,} test links{groups})"
        if self.is_shown:
            return f"{beyond} lowers NLL by {over}."
        falls = "falls" if self.gain >= 0.0 else "rises"
        return f"{beyond} adds nothing that these links can show: with it NLL {falls} by {over}."


def model_value(
    y_true: ArrayLike,
    p_with: ArrayLike,
    p_without: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    level: float = 0.95,
) -> ModelValue:
    """Whether a link predictor adds anything to structure and features: a paired difference of NLL.

    Parameters
    ----------
    y_true : array-like (L,)
        Labels of links that neither map was fitted on, 0 and 1.
    p_with, p_without : array-like (L,)
        Probabilities with the model (``in-n-out-plus``) and without it (``structure-only``).
    groups : array-like (L,), optional
        Group of each link, if links of a group are no independent evidence (splits, graphs).
    sample_weight : array-like (L,), optional
    level : float
        Coverage of the interval.

    Returns
    -------
    ModelValue
        InputError if an argument has the wrong shape, range or content, or fewer than two links or groups.

    Notes
    -----
    ``d_i = nll(y_i, p_without_i) - nll(y_i, p_with_i)``, with probabilities clipped as in
    ``sklearn.metrics.log_loss``. The interval is ``mean d +- q s``, where s is the standard error of the mean
    over links with the normal quantile q, or over groups, whose deviations are summed first, with that of
    Student's t. It holds for the drawn links of one trained model, not for another training.

    Examples
    --------
    >>> y = [0, 0, 0, 1] * 100 + [0, 1, 1, 1] * 100
    >>> value = model_value(y, [0.25] * 400 + [0.75] * 400, [0.5] * 800)
    >>> round(value.gain, 4), round(value.half_width, 4), str(value)[:65]
    (0.1308, 0.033, 'Beyond degrees, paths and feature similarity the model lowers NLL')
    """
    with_model = logit(check_probabilities(p_with, "p_with"))
    without = logit(check_probabilities(p_without, "p_without"))
    y = check_binary_labels(y_true, with_model.size)
    if without.size != with_model.size:
        raise InputError(f"p_without must have length {with_model.size}, as p_with, got {without.size}")
    weight = check_sample_weight(sample_weight, y.size)
    check_fraction(level, "level")
    cluster = np.arange(y.size) if groups is None else to_numpy(groups)
    if cluster.shape != y.shape:
        raise InputError(f"groups must have shape ({y.size},), got {cluster.shape}")
    kept = weight > 0.0
    group = np.unique(cluster[kept], return_inverse=True)[1]
    count = int(group.max(initial=-1)) + 1
    if count < 2:
        what = "links" if groups is None else "groups of links"
        raise InputError(f"y_true must hold at least two {what} for an interval, got {count}")
    difference, share = (bernoulli_nll(without, y) - bernoulli_nll(with_model, y))[kept], weight[kept]
    share = share / share.sum()
    gain = float(share @ difference)
    deviation = np.bincount(group, share * (difference - gain))
    error = float(np.sqrt(count / (count - 1) * (deviation @ deviation)))
    at = (1.0 + level) / 2.0
    quantile = float(norm.ppf(at) if groups is None else t.ppf(at, count - 1))
    return ModelValue(gain, quantile * error, level, len(difference), None if groups is None else count)


def value_record(
    label: FloatArray, probability: Mapping[str, FloatArray], weight: FloatArray | None
) -> dict[str, Any]:
    """What ``metrics.json`` records of :func:`model_value`, where both calibrators are among these."""
    if not {WITH_MODEL, WITHOUT_MODEL} <= probability.keys() or len(label) < 2:
        return {}
    value = model_value(label, probability[WITH_MODEL], probability[WITHOUT_MODEL], sample_weight=weight)
    return {"model_value": {**asdict(value), "sentence": str(value)}}
