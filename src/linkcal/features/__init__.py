"""Scored links: the seam between graphs and calibrators."""

from __future__ import annotations

from linkcal.features.attributes import attribute_similarity
from linkcal.features.scores import (
    COLUMN_NAMES,
    FEATURE_KINDS,
    FIT_ON,
    FitOn,
    LinkScorer,
    LinkScores,
    TargetLink,
    calibration_links,
    calibration_part,
    score_links,
)
from linkcal.features.structure import (
    ATTRIBUTE_COLUMNS,
    PAIR_STRUCTURE,
    STRUCTURAL_COLUMNS,
    pair_structure,
    structural_features,
)

__all__ = [
    "ATTRIBUTE_COLUMNS",
    "COLUMN_NAMES",
    "FEATURE_KINDS",
    "FIT_ON",
    "PAIR_STRUCTURE",
    "STRUCTURAL_COLUMNS",
    "FitOn",
    "LinkScorer",
    "LinkScores",
    "TargetLink",
    "attribute_similarity",
    "calibration_links",
    "calibration_part",
    "pair_structure",
    "score_links",
    "structural_features",
]
