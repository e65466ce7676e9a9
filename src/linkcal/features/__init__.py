"""Scored links: the seam between graphs and calibrators."""

from linkcal.features.attributes import attribute_similarity
from linkcal.features.fit_on import FIT_ON, FitOn, calibration_links, calibration_part
from linkcal.features.scorer import LinkScorer, score_links
from linkcal.features.scores import FEATURE_KINDS, LinkScores, OwnEdge
from linkcal.features.structural import ATTRIBUTE_COLUMNS, STRUCTURAL_COLUMNS, structural_features
from linkcal.features.structure import PAIR_STRUCTURE, pair_structure

__all__ = [
    "ATTRIBUTE_COLUMNS",
    "FEATURE_KINDS",
    "FIT_ON",
    "PAIR_STRUCTURE",
    "STRUCTURAL_COLUMNS",
    "FitOn",
    "LinkScorer",
    "LinkScores",
    "OwnEdge",
    "attribute_similarity",
    "calibration_links",
    "calibration_part",
    "pair_structure",
    "score_links",
    "structural_features",
]
