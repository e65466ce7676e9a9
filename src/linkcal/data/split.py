"""Leak-proof train / validation / test splits of a graph's links."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from linkcal._core.random import numpy_stream
from linkcal._core.validation import check_choice, check_fraction, check_positive_float, check_positive_int
from linkcal.data.graph import Graph
from linkcal.data.negatives import NEGATIVE_KINDS, NegativeKind, sample_negatives
from linkcal.data.pairs import LinkPairs, LinkSplit
from linkcal.exceptions import EdgeFeaturesWarning, InputError, ShortageError

__all__ = ["split_links"]


_PARTS = ("test", "val", "train")


def split_links(
    graph: Graph,
    *,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    negatives_per_positive: float = 1.0,
    negatives: NegativeKind = "uniform",
    seed: int = 0,
) -> LinkSplit:
    """Split the links of `graph` into training, validation and test pairs, each with sampled non-edges.

    Parameters
    ----------
    graph : Graph
        The full graph. If it has a ``feature_builder``, node features are computed from the training edges
        alone and stand in the message-passing graph's ``x``.
    val_fraction, test_fraction : float in (0, 1)
        Shares of the edges, rounded down (as PyG's ``RandomLinkSplit`` does); their sum is below 1.
    negatives_per_positive : float > 0
        Pairs without an edge per edge in every part, rounded to the nearest whole number.
    negatives : {"uniform", "degree", "two-hop"}
        Kind of the non-edges of every part, see :func:`~linkcal.data.sample_negatives`; degrees and common
        neighbours are those of the FULL graph. The non-edges that a model learns from are not among them:
        training draws its own, always uniform, anew in each epoch.
    seed : int
        Edges are drawn from the stream ``"split"``, non-edges from ``"negatives"``.

    Returns
    -------
    LinkSplit
        ``graph`` holds the training edges only. In every part positives stand first, then negatives, both in
        random order. Pairs of an undirected graph are written smaller index first; a directed graph keeps the
        direction. ``negative_rate`` is known for uniform non-edges only, which are all drawn at one rate.

    Raises
    ------
    InputError
        If a part would have no positive or no negative.
    ShortageError
        If the graph has fewer non-edges of that kind than the three parts need together.

    Warns
    -----
    EdgeFeaturesWarning
        If the features were computed from the edges of the full graph (``model.prepare`` of PEG does that):
        they know the links that are held out here.

    Notes
    -----
    Positives are a partition of the edges and negatives are one sample without replacement from the non-edges
    of the FULL graph, cut into three. So no pair (unordered, in an undirected graph) stands in two parts or
    with two labels: the overlap of validation and test negatives that sampling each part alone
    gives (PyG issue 10706) cannot occur.

    Examples
    --------
    >>> import torch
    >>> ring = Graph.from_edges(torch.stack([torch.arange(20), (torch.arange(20) + 1) % 20]), num_nodes=20)
    >>> split = split_links(ring, seed=0)
    >>> split.graph.num_pairs, len(split.train), len(split.val), len(split.test)
    (16, 32, 4, 4)
    """
    val_fraction = check_fraction(val_fraction, "val_fraction")
    test_fraction = check_fraction(test_fraction, "test_fraction")
    negatives_per_positive = check_positive_float(
        negatives_per_positive, "negatives_per_positive", maximum=1e9
    )
    check_choice(negatives, "negatives", NEGATIVE_KINDS)
    seed = check_positive_int(seed, "seed", minimum=0)
    if val_fraction + test_fraction >= 1.0:
        raise InputError(
            f"val_fraction + test_fraction must be below 1, got {val_fraction} + {test_fraction}"
        )
    if graph.features_from_edges:
        warnings.warn(
            "features of the graph were computed from all its edges and know the links that this split holds "
            "out: split first, then prepare the message-passing graph (model.prepare(split.graph))",
            EdgeFeaturesWarning,
            stacklevel=2,
        )
    num_positives = _positives_per_part(graph.num_pairs, val_fraction, test_fraction)
    num_negatives = _negatives_per_part(num_positives, negatives_per_positive)
    drawn = _draw_negatives(graph, num_negatives, negatives, seed)

    order = torch.from_numpy(numpy_stream(seed, "split").permutation(graph.num_pairs))
    positives = _cut(graph.pairs[:, order.to(graph.edge_index.device)], num_positives)
    num_non_edges = graph.num_possible_pairs - graph.num_pairs if negatives == "uniform" else None
    parts = {part: _labelled(positives[part], drawn[part], graph.num_pairs, num_non_edges) for part in _PARTS}
    message = _message_graph(graph, positives["train"])
    counts = {**graph.counts(), "features": 0 if message.x is None else message.x.size(1)}
    return LinkSplit(graph=message, **parts, seed=seed, counts_full=counts, negatives=negatives)


def _message_graph(graph: Graph, train_edges: Tensor) -> Graph:
    """Graph of the training edges [2, P] alone, with features built from them where `graph` asks for it."""
    edge_index = train_edges if graph.directed else torch.cat([train_edges, train_edges.flip(0)], dim=1)
    keys = (edge_index[0] * graph.num_nodes + edge_index[1]).sort().values
    edge_index = torch.stack([keys // graph.num_nodes, keys % graph.num_nodes])
    if graph.feature_builder is None:
        return replace(graph, edge_index=edge_index)
    x = graph.feature_builder(edge_index, graph.num_nodes)
    return replace(graph, edge_index=edge_index, x=x, feature_builder=None, features_from_edges=True)


def _positives_per_part(num_edges: int, val_fraction: float, test_fraction: float) -> dict[str, int]:
    if num_edges == 0:
        raise InputError("graph must have edges to split, got 0")
    # 1e-9: a share such as 0.29 of 100 is 28.999999999999996 in floating point.
    test = math.floor(test_fraction * num_edges + 1e-9)
    val = math.floor(val_fraction * num_edges + 1e-9)
    sizes = {"test": test, "val": val, "train": num_edges - test - val}
    for part, size in sizes.items():
        if size < 1:
            raise InputError(
                f"graph must have enough edges for one positive in every part, got {num_edges} edges: "
                f"val_fraction = {val_fraction} and test_fraction = {test_fraction} leave {part} without any"
            )
    return sizes


def _negatives_per_part(num_positives: dict[str, int], per_positive: float) -> dict[str, int]:
    sizes = {part: round(per_positive * num) for part, num in num_positives.items()}
    for part, size in sizes.items():
        if size < 1:
            raise InputError(
                f"negatives_per_positive must give every part at least one negative, got {per_positive!r} "
                f"with {num_positives[part]} {part} positives"
            )
    return sizes


def _draw_negatives(graph: Graph, sizes: dict[str, int], kind: NegativeKind, seed: int) -> dict[str, Tensor]:
    """One sample without replacement from the non-edges of the full graph, cut into the parts."""
    asked, available = sum(sizes.values()), graph.num_possible_pairs - graph.num_pairs
    detail = ", ".join(f"{part} {sizes[part]}" for part in reversed(_PARTS))
    if available == 0:
        raise ShortageError(
            f"graph must have non-edges to sample negatives from, got a complete graph: {graph.num_nodes} "
            f"nodes, {graph.num_pairs} edges, no non-edge"
        )
    if asked > available:
        raise ShortageError(
            f"negatives_per_positive must ask for at most the {available} non-edges that the graph has, "
            f"got {asked} ({detail})",
            available,
        )
    try:
        pairs = sample_negatives(graph, asked, numpy_stream(seed, "negatives"), kind=kind)
    except ShortageError as error:
        raise ShortageError(f"negatives = {kind!r} ({detail}): {error}", error.available) from None
    return _cut(pairs, sizes)


def _cut(pairs: Tensor, sizes: dict[str, int]) -> dict[str, Tensor]:
    """Cut pairs [2, L] into consecutive parts; test comes first, so that it depends on no other part."""
    ends = np.cumsum([sizes[part] for part in _PARTS]).tolist()
    return dict(zip(_PARTS, torch.tensor_split(pairs, ends[:-1], dim=1), strict=True))


def _labelled(positives: Tensor, negatives: Tensor, num_edges: int, num_non_edges: int | None) -> LinkPairs:
    num_positives, num_negatives = positives.size(1), negatives.size(1)
    label = torch.zeros(num_positives + num_negatives, device=positives.device)
    label[:num_positives] = 1.0
    return LinkPairs(
        edge_label_index=torch.cat([positives, negatives], dim=1),
        edge_label=label,
        positive_rate=num_positives / num_edges,
        negative_rate=None if num_non_edges is None else num_negatives / num_non_edges,
    )
