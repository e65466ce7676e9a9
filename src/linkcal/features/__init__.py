"""Scored links: the seam between graphs and calibrators."""

from linkcal.features.scores import FEATURE_KINDS, LinkScores, OwnEdge, score_links

__all__ = ["FEATURE_KINDS", "LinkScores", "OwnEdge", "score_links"]
