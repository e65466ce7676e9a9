"""Isotonic regression, by scikit-learn."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
from sklearn.isotonic import IsotonicRegression

from linkcal._math import logit
from linkcal._validation import check_flag
from linkcal.calibrators._ranking import ties_broken
from linkcal.calibrators.base import Calibrator, FloatArray, StateKind

__all__ = ["Isotonic"]


@final
class Isotonic(Calibrator):
    """Isotonic regression of the label on the logit: the best increasing map, linear between its knots.

    Needs some hundreds of links; it makes ties (order is kept, not strictly), and probabilities of exactly
    0 and 1 at the ends are usual. Outside the range of the calibration logits the end values continue.
    Columns 1.. of X are ignored.

    Parameters
    ----------
    preserve_ranking : bool, default=False
        Whether links of the same probability keep the order of their logits: probabilities then move by
        less than 1e-6, and the ranking is that of the logit. Without it Hits@K, which counts ties against a
        method, collapses. The order shows in float64: rounded to float32 most are equal again, so rank by the
        logits (``decision_function``, or calling the predictor).

    Attributes
    ----------
    logit_thresholds_ : ndarray of shape (m,)
        Knots, increasing.
    probability_thresholds_ : ndarray of shape (m,)
        Probability at each knot, in [0, 1], never decreasing.
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Notes
    -----
    Fitted by :class:`sklearn.isotonic.IsotonicRegression`; only its knots are kept.

    References
    ----------
    Zadrozny, Elkan: Transforming Classifier Scores into Accurate Multiclass Probability Estimates, KDD 2002.

    Examples
    --------
    >>> X, y = [[-1.0], [-1.0], [0.0], [1.0], [1.0]], [0, 1, 0, 1, 1]
    >>> Isotonic().fit(X, y).predict_proba([[-5.0], [1.0]])[:, 1].round(6)
    array([0.333333, 1.      ])
    """

    _state: ClassVar[dict[str, StateKind]] = {"logit_thresholds_": 1, "probability_thresholds_": 1}

    logit_thresholds_: FloatArray
    probability_thresholds_: FloatArray

    def __init__(self, *, preserve_ranking: bool = False) -> None:
        self.preserve_ranking = preserve_ranking

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        check_flag(self.preserve_ranking, "preserve_ranking")
        regression = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        regression.fit(X[:, 0], y, sample_weight=weight)
        self.logit_thresholds_ = regression.X_thresholds_
        self.probability_thresholds_ = regression.y_thresholds_

    def _probability(self, X: FloatArray) -> FloatArray:
        p = np.interp(X[:, 0], self.logit_thresholds_, self.probability_thresholds_)
        return ties_broken(p, X[:, 0]) if self.preserve_ranking else p

    def _decision(self, X: FloatArray) -> FloatArray:
        return logit(self._probability(X))
