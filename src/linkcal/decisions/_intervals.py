"""How well a probability is known: intervals from the calibration links, exact binomial bounds."""

from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import Tags

from linkcal._core.maths import FloatArray, sigmoid
from linkcal._core.validation import check_binary_labels, check_fraction, check_scores, to_float64, to_numpy
from linkcal.calibrators.base import Calibrator, unchanged_if_refused
from linkcal.exceptions import InputError, NotFittedError

# Lengths in units of n^(2/3), where a window's width and the slope of the curve across it cost the same.
_WINDOWS = (0.5, 1.0, 2.0)


def clopper_pearson(successes: Any, trials: Any, tail: float) -> tuple[FloatArray, FloatArray]:
    """Exact bounds of a binomial probability (Clopper, Pearson 1934), each missed with at most `tail`."""
    k, n = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    # Where a parameter would be 0 the bound is known; 1 only keeps the quantile defined.
    lower = np.where(k > 0, beta.ppf(tail, np.maximum(k, 1), n - k + 1), 0.0)
    upper = np.where(k < n, beta.ppf(1.0 - tail, k + 1, np.maximum(n - k, 1)), 1.0)
    return np.asarray(lower), np.asarray(upper)


def monotone_interval(
    score: Any, label: Any, query: Any, *, level: float = 0.9
) -> tuple[FloatArray, FloatArray]:
    """Both ends (n,) for the probability of a link at `query` (n,), if it does not fall with the score.

    Let ``r(s) = P(link | score = s)`` be non-decreasing and the labels independent given the scores. Links of
    a window that ends at s have probabilities of at most r(s), so the exact lower bound of Clopper and
    Pearson for that window stays below r(s) with its nominal probability; likewise above. Three windows on
    each side, of ``n^(2/3)`` times 1/2, 1 and 2 links, share the error by Bonferroni. So for every sample
    size the interval covers r(s) with probability at least `level`: for one score, not for all at once. It is
    widened to the bounds of a window around the score, which saves most of the coverage where r falls.
    """
    s, q = check_scores(score), check_scores(query, "query")
    y = check_binary_labels(label, len(s), "label")
    if not len(s):
        raise InputError("score must hold at least one calibration link, got none")
    tail = (1.0 - check_fraction(level, "level")) / (2 * len(_WINDOWS))
    order = np.argsort(s, kind="stable")
    s, upto = s[order], np.concatenate(([0.0], np.cumsum(y[order])))
    # Windows end where groups of equal scores do: the order of the links then means nothing.
    group, after = np.searchsorted(s, s, side="left"), np.searchsorted(s, s, side="right")
    # Links at the very score belong to both sides.
    end, start = np.searchsorted(s, q, side="right"), np.searchsorted(s, q, side="left")
    low, high = np.zeros(len(q)), np.ones(len(q))
    for factor in _WINDOWS:
        width = max(1, round(factor * len(s) ** (2.0 / 3.0)))
        first, last = group[np.maximum(end - width, 0)], after[np.minimum(start + width, len(s)) - 1]
        low = np.maximum(low, clopper_pearson(upto[end] - upto[first], end - first, tail)[0])
        high = np.minimum(high, clopper_pearson(upto[last] - upto[start], last - start, tail)[1])
    # Where the curve falls after all, windows on one side lie beyond it; one around the score does not.
    half = max(1, round(len(s) ** (2.0 / 3.0) / 2.0))
    first, last = group[np.maximum(start - half, 0)], after[np.minimum(end + half, len(s)) - 1]
    around = clopper_pearson(upto[last] - upto[first], last - first, tail)
    return np.minimum(low, around[0]), np.maximum(high, around[1])


def ranking_scores(calibrator: Calibrator, X: Any, y: Any) -> FloatArray:
    """Calibration links' raw logits (m,), or cross-fitted calibrated logits if features are read.

    A link's own label has no part in its score, which it would pull towards itself.
    """
    array, label = to_float64(X), to_numpy(y)
    if calibrator.link_features == "none":
        return array[:, 0].copy()
    rarest = int(np.unique(label, return_counts=True)[1].min())
    if rarest < 2:
        raise InputError(f"y must hold at least 2 links of each class for an interval, got {rarest}")
    scores = np.empty(len(label))
    folds = StratifiedKFold(min(5, rarest), shuffle=True, random_state=0)
    for train, held_out in folds.split(array, label):
        part = calibrator.refitted(array[train], label[train])
        scores[held_out] = part.decision_function(array[held_out])
    return scores


@final
class IntervalCalibrator(ClassifierMixin, BaseEstimator):
    """A calibrator with an interval for each probability.

    Parameters
    ----------
    calibrator : Calibrator
        Unfitted; it is cloned.

    Attributes
    ----------
    calibrator_ : Calibrator
        The fitted clone, which makes the predictions.
    score_, label_ : ndarray of shape (m,)
        Of the calibration links: raw logits, or cross-fitted calibrated logits; labels 0 or 1.

    Notes
    -----
    What is covered: the share of links among pairs like the calibration links that have the query pair's
    SCORE (its raw logit, or its calibrated logit where the calibrator reads features), with probability at
    least `level` over the draw of the calibration links; see :func:`monotone_interval`. It is no interval for
    the label, nor for the probability given other features than the score. Intervals are widened to hold the
    calibrator's own probability. Links have no weights. After ``calibrator_.refresh`` half of the error is
    spent on the interval of the offset (normal, by its standard error). For feature calibrators the coverage
    is measured, not proved (docs/decisions.md).

    Examples
    --------
    >>> import numpy as np
    >>> from linkcal.calibrators import Platt
    >>> s = np.random.default_rng(0).normal(size=(2000, 1))
    >>> y = np.random.default_rng(1).random(2000) < 1 / (1 + np.exp(-s[:, 0]))
    >>> low, high = IntervalCalibrator(Platt()).fit(s, y).predict_interval([[0.0]], level=0.9)[0]
    >>> bool(low < 0.5 < high < low + 0.3)
    True
    """

    calibrator_: Calibrator

    def __init__(self, calibrator: Calibrator) -> None:
        self.calibrator = calibrator

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the calibrator on X (m, 1 + k) and y (m,); a fit that raises changes nothing."""
        if not isinstance(self.calibrator, Calibrator):
            raise InputError(f"calibrator must be a Calibrator, got {type(self.calibrator).__name__}")
        with unchanged_if_refused(self):
            self.calibrator_ = clone(self.calibrator).fit(X, y)
            self.classes_, self.n_features_in_ = self.calibrator_.classes_, self.calibrator_.n_features_in_
            self.score_ = ranking_scores(self.calibrator_, X, y)
            self.label_ = np.asarray(to_numpy(y) == self.classes_[1], dtype=np.float64)
        return self

    def predict_interval(self, X: Any, *, level: float = 0.9) -> FloatArray:
        """Ends (n, 2), in [0, 1], of the interval for the probability of each link X (n, 1 + k)."""
        return calibrated_interval(self._fitted(), X, self.score_, self.label_, level=level)

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities (n, 2) of the fitted calibrator."""
        return self._fitted().predict_proba(X)

    def decision_function(self, X: Any) -> FloatArray:
        """Calibrated logits (n,) of the fitted calibrator."""
        return self._fitted().decision_function(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Classes (n,) of the fitted calibrator."""
        return self._fitted().predict(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class, tags.classifier_tags.poor_score = False, True
        return tags

    def _fitted(self) -> Calibrator:
        if not hasattr(self, "label_"):
            raise NotFittedError("IntervalCalibrator must be fitted first, call fit")
        return self.calibrator_


def calibrated_interval(
    calibrator: Calibrator, X: Any, score: FloatArray, label: FloatArray, *, level: float, shift: float = 0.0
) -> FloatArray:
    """Ends (n, 2) of intervals, from :func:`ranking_scores` and labels; `shift` is added to all logits."""
    level = check_fraction(level, "level")
    z = calibrator.decision_function(X)
    offset, margin = 0.0, 0.0
    if hasattr(calibrator, "offset_"):
        # Half of the error is spent on the offset.
        level, tail = 1.0 - (1.0 - level) / 2.0, (1.0 - level) / 4.0
        offset, margin = calibrator.offset_, float(norm.isf(tail)) * calibrator.offset_standard_error_
    # On the scale of `ranking_scores`, without an offset of ``refresh``.
    query = to_float64(X)[:, 0] if calibrator.link_features == "none" else z - offset
    low, high = monotone_interval(score, label, query, level=level)
    with np.errstate(divide="ignore"):
        below, above = (np.log(end) - np.log1p(-end) + offset + shift for end in (low, high))
    p = sigmoid(z + shift)
    return np.column_stack((np.minimum(sigmoid(below - margin), p), np.maximum(sigmoid(above + margin), p)))
