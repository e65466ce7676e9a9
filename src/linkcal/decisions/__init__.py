"""What a fitted predictor does beyond a probability: select pairs, find thresholds, give intervals."""

from linkcal.decisions._intervals import IntervalCalibrator
from linkcal.decisions._thresholds import (
    LinkThreshold,
    certified_threshold,
    conformal_p_values,
    expected_threshold,
    select_links,
)

__all__ = [
    "IntervalCalibrator", "LinkThreshold", "certified_threshold", "conformal_p_values", "expected_threshold",
    "select_links",
]  # fmt: skip
