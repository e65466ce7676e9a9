"""Intervals: how well each pair's probability is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._validation import check_fraction
from linkcal.calibrators import base_rate_offset
from linkcal.calibrators.intervals import calibrated_interval, ranking_scores
from linkcal.decisions.base import EvidenceMethods
from linkcal.features import LinkScores
from linkcal.scoring import BaseRate

__all__ = ["IntervalMethods"]

FloatArray = NDArray[np.float64]


class IntervalMethods(EvidenceMethods):
    """The methods ``predict_interval`` and ``interval_of``."""

    def predict_interval(
        self, edge_label_index: Tensor, *, level: float = 0.9, base_rate: BaseRate | None = None
    ) -> Tensor:
        """Lower and upper end [L, 2] of an interval for each pair's probability.

        Parameters
        ----------
        edge_label_index : Tensor [2, L], int
        level : float in (0, 1)
            Probability, over the draw of the calibration links, that the interval of one pair holds the share
            of links among pairs of its score.
        base_rate : float in (0, 1) or "density", optional
            As in ``predict_proba``; both ends move with it.

        Returns
        -------
        Tensor [L, 2], float64
            The pair's own probability lies between the ends.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If a pair is out of range, `level` is not in (0, 1), or the predictor was loaded from a folder
            that has no calibration links.

        Notes
        -----
        What is covered and what is assumed: :class:`linkcal.calibrators.IntervalCalibrator`. After a
        ``refresh`` half of the error pays for the interval of the offset (normal, by its standard error).
        """
        self._require_fitted()
        return self.interval_of(
            self.scorer().score(self._placed(edge_label_index)), level=level, base_rate=base_rate
        )

    def interval_of(
        self, scores: LinkScores, *, level: float = 0.9, base_rate: BaseRate | None = None
    ) -> Tensor:
        """Interval [L, 2] of links that a scorer scored; see :meth:`predict_interval`."""
        self._require_fitted()
        level = check_fraction(level, "level")
        rate = self.base_rate if base_rate is None else self.resolve_base_rate(base_rate)
        reference, label = self._interval_evidence()
        if not len(scores):  # scikit-learn's checks refuse no rows
            return torch.empty(0, 2, dtype=torch.float64)
        shift = base_rate_offset(self.calibration_rate, rate)
        X = scores.to_matrix(self.calibrator_.link_features)
        return torch.from_numpy(
            calibrated_interval(self.calibrator_, X, reference, label, level=level, shift=shift)
        )

    def _interval_evidence(self) -> tuple[FloatArray, FloatArray]:
        """Scores and labels of the calibration links for intervals; made once for each calibrator."""
        kept: tuple[Any, FloatArray, FloatArray] | None = self.__dict__.get("_interval_cache")
        if kept is None or kept[0] is not self.calibrator_:
            scores = self._score_evidence(self._evidence().calibration)
            X, y = scores.to_arrays(self.calibrator_.link_features)
            kept = (self.calibrator_, ranking_scores(self.calibrator_, X, y), y.astype(np.float64))
            self.__dict__["_interval_cache"] = kept
        return kept[1], kept[2]
