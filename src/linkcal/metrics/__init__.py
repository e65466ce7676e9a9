"""Metrics of link probabilities: arrays or tensors in, floats out.

Calibration (ECE and its noise floor), proper scores, ranking. Nothing here knows of graphs or models.
"""

from __future__ import annotations

from linkcal.metrics.calibration import (
    ReliabilityCurve,
    debiased_calibration_error,
    expected_calibration_error,
    reliability_curve,
)
from linkcal.metrics.floor import CalibrationFloor, NullBand, calibration_floor, calibration_null_band
from linkcal.metrics.groups import GroupCalibration, group_calibration
from linkcal.metrics.pattern import CalibrationPattern, calibration_pattern
from linkcal.metrics.proper import accuracy, brier_score, negative_log_likelihood
from linkcal.metrics.ranking import average_precision, hits_at_k, roc_auc
from linkcal.metrics.registry import EVALUATION_KEYS, EXTENDED_KEYS, METRICS, MetricSpec, evaluate_links

__all__ = [
    "EVALUATION_KEYS",
    "EXTENDED_KEYS",
    "METRICS",
    "CalibrationFloor",
    "CalibrationPattern",
    "GroupCalibration",
    "MetricSpec",
    "NullBand",
    "ReliabilityCurve",
    "accuracy",
    "average_precision",
    "brier_score",
    "calibration_floor",
    "calibration_null_band",
    "calibration_pattern",
    "debiased_calibration_error",
    "evaluate_links",
    "expected_calibration_error",
    "group_calibration",
    "hits_at_k",
    "negative_log_likelihood",
    "reliability_curve",
    "roc_auc",
]
