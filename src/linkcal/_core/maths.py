"""Numerically safe maps between logits and probabilities (float64 arrays). Clipping happens only here."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit
from scipy.special import logit as _scipy_logit

FloatArray = NDArray[np.float64]

#: Smallest distance of a clipped probability from 0 and 1, as in ``sklearn.metrics.log_loss``.
PROBABILITY_EPS = float(np.finfo(np.float64).eps)


def sigmoid(s: FloatArray) -> FloatArray:
    """``1 / (1 + exp(-s))`` without overflow."""
    return np.asarray(expit(s), dtype=np.float64)


def clip_probability(p: FloatArray) -> FloatArray:
    """Move probabilities into ``[eps, 1 - eps]``."""
    return np.clip(p, PROBABILITY_EPS, 1.0 - PROBABILITY_EPS)


def logit(p: FloatArray) -> FloatArray:
    """``log(p / (1 - p))`` of clipped probabilities: always finite."""
    return np.asarray(_scipy_logit(clip_probability(p)), dtype=np.float64)


def bernoulli_nll(s: FloatArray, y: FloatArray) -> FloatArray:
    """``-y log sigmoid(s) - (1 - y) log sigmoid(-s)`` of labels `y` in {0, 1}, per element, unclipped."""
    return np.asarray(-y * log_expit(s) - (1.0 - y) * log_expit(-s), dtype=np.float64)
