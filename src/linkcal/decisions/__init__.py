"""What a fitted predictor does beyond a probability: select, find thresholds, give intervals, refresh."""

from __future__ import annotations

from linkcal.decisions.conformal import conformal_p_values, select_links
from linkcal.decisions.intervals import IntervalCalibrator, monotone_interval
from linkcal.decisions.thresholds import LinkThreshold, certified_threshold, expected_threshold

__all__ = [
    "IntervalCalibrator",
    "LinkThreshold",
    "certified_threshold",
    "conformal_p_values",
    "expected_threshold",
    "monotone_interval",
    "select_links",
]
