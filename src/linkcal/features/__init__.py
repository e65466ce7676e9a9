"""Scored links: the seam between graphs and calibrators."""

from linkcal.features.scores import (
    FEATURE_KINDS,
    FIT_ON,
    FitOn,
    LinkScores,
    OwnEdge,
    calibration_links,
    score_links,
)

__all__ = [
    "FEATURE_KINDS",
    "FIT_ON",
    "FitOn",
    "LinkScores",
    "OwnEdge",
    "calibration_links",
    "score_links",
]
