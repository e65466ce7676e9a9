"""A run's results at the share of links that the user asked for, from test links at another share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal._math import sigmoid
from linkcal.calibrators import Calibrator, base_rate_offset, shift_base_rate
from linkcal.data import LinkSplit
from linkcal.decisions import base_rate_origin, graph_density
from linkcal.metrics import METRICS

__all__ = ["AskedRate", "ranking_metrics"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class AskedRate:
    """The base rate that probabilities and metrics are moved to.

    Parameters
    ----------
    rate : float in (0, 1)
    calibration_rate : float in (0, 1)
        Share of links among the calibration links.
    origin : str
        Where it comes from, in words.
    """

    rate: float
    calibration_rate: float
    origin: str

    @classmethod
    def of(cls, base_rate: Any, split: LinkSplit, negatives_per_positive: float) -> AskedRate | None:
        """The rate of a configuration's ``base_rate``; None if it asks for none."""
        if base_rate is None:
            return None
        rate = graph_density(split.graph) if base_rate == "density" else float(base_rate)
        return cls(rate, 1.0 / (1.0 + negatives_per_positive), base_rate_origin(base_rate))

    def probability(self, calibrator: Calibrator, X: FloatArray) -> FloatArray:
        """Probabilities (L,) at the asked rate."""
        # As in ``CalibratedLinkPredictor``: a probability near 1 has lost the digits that the shift needs.
        return sigmoid(self.decision(calibrator, X))

    def decision(self, calibrator: Calibrator, X: FloatArray) -> FloatArray:
        """Calibrated logits (L,) at the asked rate."""
        return calibrator.decision_function(X) + base_rate_offset(self.calibration_rate, self.rate)

    def weight(self, label: FloatArray) -> FloatArray:
        """Weights (L,) with which the test links have the asked share; 1 for links."""
        positives = float(label.sum())
        per_negative = positives * (1.0 - self.rate) / (self.rate * max(len(label) - positives, 1.0))
        return np.where(label == 1.0, 1.0, per_negative)

    def true_error(self, probability: FloatArray, truth: FloatArray, label: FloatArray) -> float:
        """Mean distance to the true probabilities, which are known at the test links' own share."""
        share = float(label.mean())
        moved = shift_base_rate(truth, from_rate=share, to_rate=self.rate)
        return float(np.average(np.abs(probability - moved), weights=self.weight(label)))

    def record(self) -> dict[str, Any]:
        """JSON values for metrics and artifact."""
        return {"base_rate": self.rate, "base_rate_origin": self.origin}


def ranking_metrics(label: FloatArray, decision: FloatArray, result: dict[str, float]) -> dict[str, float]:
    """The ranking metrics of a result again, without weights; what does not exist stays NaN."""
    names = [name for name in result if name in METRICS and METRICS[name].input == "score"]
    return {name: METRICS[name].function(label, decision) for name in names if not np.isnan(result[name])}
