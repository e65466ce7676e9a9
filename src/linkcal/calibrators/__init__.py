"""Calibrators: scikit-learn classifiers from a link's logit (and features) to its probability."""

from linkcal.calibrators.base import Calibrator
from linkcal.calibrators.base_rate import base_rate_offset, shift_base_rate
from linkcal.calibrators.bbq import BBQ
from linkcal.calibrators.beta import Beta
from linkcal.calibrators.bounds import monotone_interval
from linkcal.calibrators.decisions import conformal_p_values, select_links
from linkcal.calibrators.embedding_mlp import EmbeddingMLP
from linkcal.calibrators.histogram import Histogram
from linkcal.calibrators.identity import Identity
from linkcal.calibrators.in_n_out import InNOut
from linkcal.calibrators.intervals import IntervalCalibrator
from linkcal.calibrators.isotonic import Isotonic
from linkcal.calibrators.platt import Platt
from linkcal.calibrators.registry import CALIBRATORS, CalibratorSpec, calibrator_name, make_calibrator
from linkcal.calibrators.structural import StructuralCalibrator
from linkcal.calibrators.temperature import Temperature
from linkcal.calibrators.thresholds import LinkThreshold, certified_threshold, expected_threshold
from linkcal.calibrators.together import fit_together

__all__ = [
    "BBQ",
    "CALIBRATORS",
    "Beta",
    "Calibrator",
    "CalibratorSpec",
    "EmbeddingMLP",
    "Histogram",
    "Identity",
    "InNOut",
    "IntervalCalibrator",
    "Isotonic",
    "LinkThreshold",
    "Platt",
    "StructuralCalibrator",
    "Temperature",
    "base_rate_offset",
    "calibrator_name",
    "certified_threshold",
    "conformal_p_values",
    "expected_threshold",
    "fit_together",
    "make_calibrator",
    "monotone_interval",
    "select_links",
    "shift_base_rate",
]
