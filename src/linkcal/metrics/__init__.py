"""Metrics of link probabilities: arrays or tensors in, floats out, without graphs or models.

Everywhere `y_true` (L,) holds 0 and 1; `y_prob` is (L,), (L, 1) or (L, 2) in [0, 1], where two columns are
``(1 - p, p)``; `score` (L,) is a logit, a probability or any increasing map of them; `sample_weight` (L,) is
>= 0, where weight k counts a link k times and weight 0 leaves it out. An ``InputError`` names an argument of
wrong shape, range or content, a lack of links, and in ranking metrics a lack of one of the classes.
"""

from linkcal.metrics.calibration import (
    CalibrationFloor,
    ReliabilityCurve,
    calibration_floor,
    debiased_calibration_error,
    expected_calibration_error,
    reliability_curve,
)
from linkcal.metrics.drift import CalibrationAlarm, PopulationTest, calibration_alarm, same_population
from linkcal.metrics.groups import GroupCalibration, group_calibration
from linkcal.metrics.intervals import bootstrap_intervals
from linkcal.metrics.registry import EVALUATION_KEYS, METRICS, MetricSpec, evaluate_links
from linkcal.metrics.scores import (
    accuracy,
    average_precision,
    brier_score,
    hits_at_k,
    mean_reciprocal_rank,
    negative_log_likelihood,
    roc_auc,
)
from linkcal.metrics.value import ModelValue, model_value

__all__ = [
    "EVALUATION_KEYS", "METRICS", "CalibrationAlarm", "CalibrationFloor", "GroupCalibration", "MetricSpec",
    "ModelValue", "PopulationTest", "ReliabilityCurve", "accuracy", "average_precision",
    "bootstrap_intervals", "brier_score", "calibration_alarm", "calibration_floor",
    "debiased_calibration_error", "evaluate_links", "expected_calibration_error", "group_calibration",
    "hits_at_k", "mean_reciprocal_rank", "model_value", "negative_log_likelihood", "reliability_curve",
    "roc_auc", "same_population",
]  # fmt: skip
