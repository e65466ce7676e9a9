"""Graphs and their labelled pairs: the simple graph, exact negatives, leak-proof splits."""

from linkcal.data.graph import EdgeTruth, FeatureBuilder, Graph, pair_keys
from linkcal.data.negatives import NegativeSampler, sample_negatives
from linkcal.data.pairs import LinkPairs, LinkSplit
from linkcal.data.split import split_links

__all__ = [
    "EdgeTruth",
    "FeatureBuilder",
    "Graph",
    "LinkPairs",
    "LinkSplit",
    "NegativeSampler",
    "pair_keys",
    "sample_negatives",
    "split_links",
]
