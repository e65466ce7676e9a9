"""Scored links: what calibrators read of a graph and a model."""

from __future__ import annotations

from linkcal._core.columns import ATTRIBUTE_COLUMNS, STRUCTURAL_COLUMNS
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
    score_links,
)
from linkcal.features._structure import (
    PAIR_PATHS,
    PAIR_STRUCTURE,
    pair_paths,
    pair_structure,
    structural_features,
)

__all__ = [
    "ATTRIBUTE_COLUMNS",
    "COLUMN_NAMES",
    "FEATURE_KINDS",
    "FIT_ON",
    "PAIR_PATHS",
    "PAIR_STRUCTURE",
    "STRUCTURAL_COLUMNS",
    "FitOn",
    "LinkScorer",
    "LinkScores",
    "TargetLink",
    "attribute_similarity",
    "calibration_links",
    "calibration_part",
    "pair_paths",
    "pair_structure",
    "score_links",
    "structural_features",
]
