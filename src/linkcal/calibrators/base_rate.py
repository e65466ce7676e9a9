"""Probabilities at another share of links than the one they were calibrated with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from linkcal._validation import check_fraction, check_probabilities, in_container_of
from linkcal.calibrators._offset import shifted

__all__ = ["base_rate_offset", "shift_base_rate"]


def base_rate_offset(from_rate: float, to_rate: float) -> float:
    """What to add to calibrated logits when the share of links changes.

    Parameters
    ----------
    from_rate : float in (0, 1)
        Share of links where the probabilities are right: 0.5 for one non-link per link.
    to_rate : float in (0, 1)
        Share of links where they are to be used.

    Returns
    -------
    float
        ``log(to / (1 - to)) - log(from / (1 - from))``.

    Raises
    ------
    InputError
        If a rate is not in (0, 1).

    Examples
    --------
    >>> round(base_rate_offset(0.5, 0.001), 6)
    -6.906755
    """
    before = check_fraction(from_rate, "from_rate")
    after = check_fraction(to_rate, "to_rate")
    return float(np.log(after) - np.log1p(-after) - np.log(before) + np.log1p(-before))


def shift_base_rate(prob: Any, *, from_rate: float, to_rate: float) -> Any:
    """Move link probabilities from one share of links to another.

    Calibrators are fitted on sampled non-links, one per link by default, while real graphs have hundreds of
    non-links per link: probabilities that are right on the sample are then far too high. The order of links
    does not change.

    Parameters
    ----------
    prob : Tensor, ndarray or list, of shape (n,)
        In [0, 1].
    from_rate : float in (0, 1)
        Share of links among those that the probabilities were calibrated on.
    to_rate : float in (0, 1)
        Share of links where they are used.

    Returns
    -------
    Tensor, ndarray or list
        Of the same kind, dtype and device; computed in float64.

    Raises
    ------
    InputError
        If a probability is not in [0, 1] or a rate is not in (0, 1).

    Notes
    -----
    Odds are multiplied by the ratio of the prior odds (Bayes: the likelihood ratio of a link's features does
    not depend on the share of links), that is, a constant is added to the logit. 0 and 1 stay. Calibrated
    logits keep more digits near 1: add :func:`base_rate_offset` to ``decision_function`` where you have them.

    References
    ----------
    Elkan: The Foundations of Cost-Sensitive Learning, IJCAI 2001 (theorem 2).

    Examples
    --------
    >>> [round(p, 8) for p in shift_base_rate([0.5, 0.9, 0.999], from_rate=0.5, to_rate=0.001)]
    [0.001, 0.00892857, 0.5]
    """
    offset = base_rate_offset(from_rate, to_rate)
    # bfloat16 has no NumPy type; it must be widened first.
    values = prob.detach().double() if isinstance(prob, torch.Tensor) else prob
    p = check_probabilities(values, "prob")
    return in_container_of(prob, shifted(p, offset))
