"""Histogram binning."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import numpy as np

from linkcal._math import logit, sigmoid
from linkcal._validation import check_choice, check_flag, check_positive_int
from linkcal.calibrators._bins import bin_index, bin_sums, quantile_edges, uniform_edges
from linkcal.calibrators._ranking import ties_broken
from linkcal.calibrators.base import Calibrator, FloatArray, StateKind

__all__ = ["Histogram"]


@final
class Histogram(Calibrator):
    """Histogram binning: the share of links in the bin of ``sigmoid(s)``.

    Robust, but coarse: all links of a bin get the same probability. Columns 1.. of X are ignored.

    Parameters
    ----------
    n_bins : int, default=15
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or of about equal numbers of calibration links (equal scores stay together, so
        fewer bins may be used).
    preserve_ranking : bool, default=False
        Whether links of the same probability keep the order of their logits: probabilities then move by
        less than 1e-6. Without it Hits@K, which counts ties against a method, collapses. The order shows in
        float64: rounded to float32 most are equal again, so rank by the logits (``decision_function``, or
        calling the predictor).

    Attributes
    ----------
    bin_edges_ : ndarray of shape (B + 1,)
        From 0 to 1. Bins are closed on the right; 0 belongs to the first.
    bin_probability_ : ndarray of shape (B,)
        In [0, 1].
    bin_weight_ : ndarray of shape (B,)
        Weight of the calibration links in each bin; 0 for an empty bin.
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Notes
    -----
    An empty bin (possible only with ``"uniform"``) returns its centre, the average of the uncalibrated
    probabilities that fall into it: without data nothing is corrected beyond the bin's width.

    References
    ----------
    Zadrozny, Elkan: Obtaining calibrated probability estimates from decision trees and naive Bayesian
    classifiers, ICML 2001.

    Examples
    --------
    >>> X, y = [[1.0]] * 10, [1] * 3 + [0] * 7
    >>> Histogram(n_bins=10).fit(X, y).predict_proba([[1.0], [0.1]])[:, 1].round(6)
    array([0.3 , 0.55])
    """

    _state: ClassVar[dict[str, StateKind]] = {"bin_edges_": 1, "bin_probability_": 1, "bin_weight_": 1}

    bin_edges_: FloatArray
    bin_probability_: FloatArray
    bin_weight_: FloatArray

    def __init__(
        self,
        *,
        n_bins: int = 15,
        strategy: Literal["uniform", "quantile"] = "uniform",
        preserve_ranking: bool = False,
    ) -> None:
        self.n_bins = n_bins
        self.strategy = strategy
        self.preserve_ranking = preserve_ranking

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        n_bins = check_positive_int(self.n_bins, "n_bins")
        check_flag(self.preserve_ranking, "preserve_ranking")
        p = sigmoid(X[:, 0])
        if check_choice(self.strategy, "strategy", ("uniform", "quantile")) == "uniform":
            edges = uniform_edges(n_bins)
        else:
            values, position = np.unique(p, return_inverse=True)
            edges = quantile_edges(values, bin_sums(position, weight, len(values)), n_bins)
        index, used = bin_index(p, edges), len(edges) - 1
        total, links = bin_sums(index, weight, used), bin_sums(index, weight * y, used)
        centre = 0.5 * (edges[:-1] + edges[1:])
        self.bin_edges_, self.bin_weight_ = edges, total
        self.bin_probability_ = np.divide(links, total, out=centre, where=total > 0.0)

    def _probability(self, X: FloatArray) -> FloatArray:
        p = self.bin_probability_[bin_index(sigmoid(X[:, 0]), self.bin_edges_)]
        return ties_broken(p, X[:, 0]) if self.preserve_ranking else p

    def _decision(self, X: FloatArray) -> FloatArray:
        return logit(self._probability(X))
