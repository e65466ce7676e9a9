"""How well a calibrated probability is known: intervals from the calibration links alone."""

from __future__ import annotations

from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import Tags

from linkcal._math import sigmoid
from linkcal._validation import check_fraction, to_float64, to_numpy
from linkcal.calibrators._state import unchanged_if_refused
from linkcal.calibrators.base import Calibrator
from linkcal.calibrators.bounds import monotone_interval
from linkcal.exceptions import InputError, NotFittedError

__all__ = [
    "IntervalCalibrator",
    "asked_scores",
    "calibrated_interval",
    "ranking_scores",
]

FloatArray = NDArray[np.float64]

_FOLDS = 5


def ranking_scores(calibrator: Calibrator, X: Any, y: Any) -> FloatArray:
    """Scores of calibration links that their own labels had no part in, (m,).

    The raw logit for calibrators of the logit alone. For those that read link features the calibrated logit,
    from clones fitted on the other four of five folds: a link's own label would otherwise pull its score
    towards itself.

    Raises
    ------
    InputError
        If folds are needed and a class has fewer than two links.
    """
    array, label = to_float64(X), to_numpy(y)
    if calibrator.link_features == "none":
        return array[:, 0].copy()
    rarest = int(np.unique(label, return_counts=True)[1].min())
    if rarest < 2:
        raise InputError(f"y must hold at least 2 links of each class for an interval, got {rarest}")
    scores = np.empty(len(label))
    folds = StratifiedKFold(min(_FOLDS, rarest), shuffle=True, random_state=0)
    for train, held_out in folds.split(array, label):
        part = calibrator.refitted(array[train], label[train])
        scores[held_out] = part.decision_function(array[held_out])
    return scores


@final
class IntervalCalibrator(ClassifierMixin, BaseEstimator):
    """A calibrator that also says how well each probability is known.

    Parameters
    ----------
    calibrator : Calibrator
        Unfitted; it is cloned.

    Attributes
    ----------
    calibrator_ : Calibrator
        The fitted clone; ``predict_proba`` and ``decision_function`` are its own.
    score_ : ndarray of shape (m,)
        See :func:`ranking_scores`.
    label_ : ndarray of shape (m,)
        0 or 1.
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Notes
    -----
    What is covered: the share of links among pairs like the calibration links that have the asked pair's
    SCORE (its raw logit, or its calibrated logit where the calibrator reads features), with probability at
    least `level` over the draw of the calibration links; see :func:`monotone_interval`. It is not an interval
    for the label, nor for what would be known about the pair with other features than the score. Intervals
    are widened to hold the calibrator's own probability. Links have no weights here: the bounds are those of
    counts. After ``calibrator_.refresh`` half of the error pays for the interval of the offset (normal, by
    its standard error). With feature calibrators the scores come from
    cross-fitting, whose coverage is measured, not proved (docs/decisions.md).

    Examples
    --------
    >>> import numpy as np
    >>> from linkcal.calibrators import Platt
    >>> rng = np.random.default_rng(0)
    >>> s = rng.normal(size=(2000, 1))
    >>> y = rng.random(2000) < 1 / (1 + np.exp(-s[:, 0]))
    >>> low, high = IntervalCalibrator(Platt()).fit(s, y).predict_interval([[0.0]], level=0.9)[0]
    >>> bool(low < 0.5 < high < low + 0.3)
    True
    """

    calibrator_: Calibrator
    score_: FloatArray
    label_: FloatArray
    classes_: NDArray[Any]
    n_features_in_: int

    def __init__(self, calibrator: Calibrator) -> None:
        self.calibrator = calibrator

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the calibrator and keep its calibration links.

        Parameters
        ----------
        X : array-like of shape (m, 1 + k)
        y : array-like of shape (m,)

        Returns
        -------
        self

        Raises
        ------
        InputError
            As the calibrator, or if `calibrator` is none. A fit that raises changes nothing.
        """
        if not isinstance(self.calibrator, Calibrator):
            raise InputError(f"calibrator must be a Calibrator, got {type(self.calibrator).__name__}")
        with unchanged_if_refused(self):
            self.calibrator_ = clone(self.calibrator).fit(X, y)
            self.classes_, self.n_features_in_ = self.calibrator_.classes_, self.calibrator_.n_features_in_
            self.score_ = ranking_scores(self.calibrator_, X, y)
            self.label_ = np.asarray(to_numpy(y) == self.classes_[1], dtype=np.float64)
        return self

    def predict_interval(self, X: Any, *, level: float = 0.9) -> FloatArray:
        """Ends of the interval for each link's probability.

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)
        level : float in (0, 1)

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper end, in [0, 1]; the calibrated probability lies between them.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If X does not fit or `level` is not in (0, 1).
        """
        self._require_fitted()
        return calibrated_interval(self.calibrator_, X, self.score_, self.label_, level=level)

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities (n, 2) of the fitted calibrator."""
        self._require_fitted()
        return self.calibrator_.predict_proba(X)

    def decision_function(self, X: Any) -> FloatArray:
        """Calibrated logits (n,) of the fitted calibrator."""
        self._require_fitted()
        return self.calibrator_.decision_function(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Classes (n,) of the fitted calibrator."""
        self._require_fitted()
        return self.calibrator_.predict(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags

    def _require_fitted(self) -> None:
        if not hasattr(self, "label_"):
            raise NotFittedError("IntervalCalibrator must be fitted first, call fit")


def calibrated_interval(
    calibrator: Calibrator,
    X: Any,
    score: FloatArray,
    label: FloatArray,
    *,
    level: float,
    shift: float = 0.0,
) -> FloatArray:
    """Ends (n, 2) of the intervals of a fitted calibrator's probabilities, which lie between them.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted, and perhaps refreshed since.
    X : array-like of shape (n, 1 + k)
    score, label : ndarray of shape (m,)
        Of the calibration links; see :func:`ranking_scores`.
    level : float in (0, 1)
    shift : float
        Added to the logits of the ends and of the probabilities: the change of the base rate.
    """
    level = check_fraction(level, "level")
    z = calibrator.decision_function(X)
    offset, margin = 0.0, 0.0
    if hasattr(calibrator, "offset_"):
        # Half of the error for the doubt about the offset.
        level, tail = 1.0 - (1.0 - level) / 2.0, (1.0 - level) / 4.0
        offset, margin = calibrator.offset_, float(norm.isf(tail)) * calibrator.offset_standard_error_
    low, high = monotone_interval(score, label, asked_scores(calibrator, X), level=level)
    with np.errstate(divide="ignore"):
        below, above = (np.log(end) - np.log1p(-end) + offset + shift for end in (low, high))
    p = sigmoid(z + shift)
    return np.column_stack((np.minimum(sigmoid(below - margin), p), np.maximum(sigmoid(above + margin), p)))


def asked_scores(calibrator: Calibrator, X: Any) -> FloatArray:
    """Scores of asked links on the scale of :func:`ranking_scores`, (n,); no offset of ``refresh``."""
    if calibrator.link_features == "none":
        return to_float64(X)[:, 0]
    return calibrator.decision_function(X) - getattr(calibrator, "offset_", 0.0)
