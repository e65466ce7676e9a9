"""Scored links: what calibrators read of a graph and a model."""

from linkcal._core.columns import ATTRIBUTE_COLUMNS, COLUMN_GROUPS, STRUCTURAL_COLUMNS, STRUCTURE_COLUMNS
from linkcal.features._attributes import attribute_similarity
from linkcal.features._scores import (
    COLUMN_NAMES,
    FEATURE_KINDS,
    FIT_ON,
    FitOn,
    LinkScorer,
    LinkScores,
    TargetLink,
    calibration_links,
    calibration_part,
    link_segments,
    score_links,
)
from linkcal.features._structure import PAIR_STRUCTURE, pair_structure, structural_features

__all__ = [
    "ATTRIBUTE_COLUMNS", "COLUMN_GROUPS", "COLUMN_NAMES", "FEATURE_KINDS", "FIT_ON",
    "PAIR_STRUCTURE", "STRUCTURAL_COLUMNS", "STRUCTURE_COLUMNS", "FitOn", "LinkScorer", "LinkScores",
    "TargetLink", "attribute_similarity", "calibration_links", "calibration_part", "link_segments",
    "pair_structure", "score_links", "structural_features",
]  # fmt: skip
