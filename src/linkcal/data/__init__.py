"""Graphs and their labelled pairs: data sets, own files, simulation, exact negatives, leak-proof splits."""

from linkcal.data.audit import AuditFinding, SplitAudit, audit_pairs, audit_split
from linkcal.data.graph import EdgeTruth, FeatureBuilder, Graph, pair_keys
from linkcal.data.named import DATASETS, DatasetInfo, load_dataset
from linkcal.data.negatives import NEGATIVE_KINDS, NegativeKind, NegativeSampler, sample_negatives
from linkcal.data.node_features import STRUCTURAL_FEATURES, laplacian_eigenmaps, structural_node_features
from linkcal.data.node_ids import BipartiteIds, NodeIds
from linkcal.data.ogb import OFFICIAL_SPLITS, load_official_split
from linkcal.data.own_files import (
    NamedGraph,
    PairChunk,
    read_edges,
    read_features,
    read_labelled_pairs,
    read_pairs,
    read_split,
)
from linkcal.data.pyg import from_pyg, graph_from_hetero
from linkcal.data.simulated import BlockModelTruth, simulate_graph
from linkcal.data.split import LinkPairs, LinkSplit, split_links

__all__ = [
    "DATASETS", "NEGATIVE_KINDS", "OFFICIAL_SPLITS", "STRUCTURAL_FEATURES", "AuditFinding", "BipartiteIds",
    "BlockModelTruth", "DatasetInfo", "EdgeTruth", "FeatureBuilder", "Graph", "LinkPairs", "LinkSplit",
    "NamedGraph", "NegativeKind", "NegativeSampler", "NodeIds", "PairChunk", "SplitAudit", "audit_pairs",
    "audit_split", "from_pyg", "graph_from_hetero", "laplacian_eigenmaps", "load_dataset",
    "load_official_split", "pair_keys", "read_edges", "read_features", "read_labelled_pairs", "read_pairs",
    "read_split", "sample_negatives", "simulate_graph", "split_links", "structural_node_features",
]  # fmt: skip
