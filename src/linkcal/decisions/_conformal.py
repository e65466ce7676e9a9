"""Which pairs to call links, with a bound on the share of false ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from linkcal._core.maths import FloatArray
from linkcal._core.validation import check_fraction, check_scores
from linkcal.exceptions import InputError


def conformal_p_values(score: Any, null_score: Any) -> FloatArray:
    """Conformal p-value of each pair: the rank of its score among the scores of known negatives.

    Parameters
    ----------
    score : array-like of shape (n,)
        Logits of the query pairs, calibrated or raw (any score that is higher for links).
    null_score : array-like of shape (m,)
        Scores of m >= 1 negatives, drawn as the negatives among the query pairs are. Neither the predictor
        nor the calibrator may have been fitted on them.

    Returns
    -------
    ndarray of shape (n,)
        ``(1 + number of null scores >= s) / (m + 1)``, in (0, 1].

    Notes
    -----
    If a negative's score is exchangeable with the null scores, its p-value is at most t with probability at
    most t, for any predictor (Marandon: Conformal link prediction for false discovery rate control, arXiv
    2306.14693). No p-value is below ``1 / (m + 1)``.

    Examples
    --------
    >>> conformal_p_values([0.0, 2.5, 9.0], [1.0, 2.0, 3.0])
    array([1.  , 0.5 , 0.25])
    """
    query, null = check_scores(score), np.sort(check_scores(null_score, "null_score"))
    if not null.size:
        raise InputError("null_score must hold at least one score of a negative, got none")
    at_least = null.size - np.searchsorted(null, query, side="left")
    return np.asarray((1.0 + at_least) / (null.size + 1.0))


def select_links(score: Any, null_score: Any, *, fdr: float = 0.1) -> NDArray[np.bool_]:
    """Pairs to call links, so that on average at most a share `fdr` of them are none.

    Parameters
    ----------
    score, null_score : array-like of shape (n,) and (m,)
        As in :func:`conformal_p_values`.
    fdr : float in (0, 1)
        Bound on the false discovery rate: the expected share of negatives among selected pairs (0 if none).

    Returns
    -------
    ndarray of shape (n,), bool
        A selected pair's score is higher than that of any pair that is not.

    Notes
    -----
    Benjamini-Hochberg on the conformal p-values. Their dependence through the shared null scores is positive,
    so the rate stays below `fdr` times the share of negatives among the query pairs (Bates, Candes, Lei,
    Romano, Sesia: Testing for outliers with conformal p-values, arXiv 2104.08279).

    Examples
    --------
    >>> select_links([5.0, 0.5, 7.0], range(1, 5), fdr=0.3).tolist()
    [True, False, True]
    """
    level, p = check_fraction(fdr, "fdr"), conformal_p_values(score, null_score)
    if p.size:
        p = false_discovery_control(p, method="bh")
    # Rounding must not undo an equality such as 2 / 10 <= 0.2.
    return np.asarray(p <= level * (1.0 + 1e-12))
