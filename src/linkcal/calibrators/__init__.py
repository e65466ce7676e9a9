"""Calibrators: scikit-learn classifiers from a link's logit (and features) to its probability."""

from linkcal.calibrators.base import Calibrator
from linkcal.calibrators.base_rate import base_rate_offset, shift_base_rate
from linkcal.calibrators.binning import BBQ, Histogram, Isotonic
from linkcal.calibrators.networks import EmbeddingMLP, InNOut
from linkcal.calibrators.registry import CALIBRATORS, calibrator_name, make_calibrator
from linkcal.calibrators.scaling import Beta, Identity, Platt, Temperature
from linkcal.calibrators.structural import StructuralCalibrator, StructureOnly

__all__ = [
    "BBQ", "CALIBRATORS", "Beta", "Calibrator", "EmbeddingMLP", "Histogram", "Identity", "InNOut",
    "Isotonic", "Platt", "StructuralCalibrator", "StructureOnly", "Temperature", "base_rate_offset",
    "calibrator_name", "make_calibrator", "shift_base_rate",
]  # fmt: skip
