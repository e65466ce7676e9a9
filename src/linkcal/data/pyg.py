"""Splits from and to PyG's convention: three ``Data`` objects as ``RandomLinkSplit`` makes them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from linkcal._core.validation import check_edge_index, check_no_self_pairs
from linkcal.data.graph import Graph, pair_keys, warn_of_two_types
from linkcal.data.split import LinkPairs, LinkSplit
from linkcal.exceptions import InputError, LinkcalWarning

if TYPE_CHECKING:
    from torch_geometric.data import Data


def from_pyg(
    train: Data,
    val: Data,
    test: Data,
    *,
    directed: bool = False,
    symmetric: bool = False,
    positive_label: int = 1,
    name: str = "graph",
) -> LinkSplit:
    """Take over a split of the format of PyG's ``RandomLinkSplit``.

    Parameters
    ----------
    train, val, test : torch_geometric.data.Data
        With ``edge_index``, ``edge_label_index`` and ``edge_label`` (or the ``pos_`` and ``neg_`` attributes
        of ``split_labels=True``). Message passing uses ``train.edge_index`` only, also for the test pairs:
        PyG's test graph has the validation edges as well. Edge attributes are ignored.
    directed : bool
        Whether (u, v) and (v, u) are different links. If not, ``train.edge_index`` must hold both directions.
    symmetric : bool
        Whether a directed graph may have the reverse of each edge. Most likely it is undirected and was split
        without ``is_undirected=True``: held-out links then have their reverse in the message-passing graph.
    positive_label : int
        Value of ``edge_label`` of a link (0: negative; others are refused). PyG shifts labels by one where
        ``edge_label`` existed before: pass 2 then.
    name : str

    Returns
    -------
    LinkSplit
        In each part positives first, then negatives, in the given order; undirected pairs have the smaller
        index first. The rates of :class:`LinkPairs` are unknown (None). InputError where :class:`LinkSplit`
        refuses, if a training link is not in the message-passing graph, or a pair has both labels.

    Warns
    -----
    LinkcalWarning
        If a negative stands twice, which PyG may draw in both directions or in two parts: it is kept once,
        in the test part before validation before training.

    Examples
    --------
    >>> from linkcal.data import simulate_graph, split_links
    >>> split = split_links(simulate_graph(60, num_features=4))
    >>> bool((from_pyg(*to_pyg(split)).test.edge_label_index == split.test.edge_label_index).all())
    True
    """
    from torch_geometric.data import Data

    # A repeated negative is kept in the first of these: a test set should stay as it was.
    given = {"test": test, "val": val, "train": train}
    for part, data in given.items():
        if not isinstance(data, Data):
            raise InputError(
                f"{part} must be a torch_geometric.data.Data, got {type(data).__name__}; split the edges of "
                "one type of a HeteroData, or data.to_homogeneous()"
            )
    graph = _message_graph(train, directed=directed, name=name)
    warn_of_two_types(graph)
    positives: dict[str, Tensor] = {}
    negatives: dict[str, Tensor] = {}
    for part, data in given.items():
        positives[part], negatives[part] = _labelled_pairs(data, part, graph, positive_label)
    _refuse_disjoint(graph, positives["train"])
    held_out = torch.cat([positives["val"], positives["test"]], dim=1)
    edges = torch.cat([graph.pairs, held_out], dim=1)
    if directed and not symmetric:
        _refuse_symmetric(graph, edges, held_out)
    negatives = _distinct_negatives(graph, edges, negatives)
    pairs = {part: LinkPairs.of(positives[part], negatives[part]) for part in given}
    full = Graph.from_edges(edges, graph.num_nodes, directed=directed)
    counts = {**full.counts(), "features": graph.counts()["features"]}
    return LinkSplit(graph, pairs["train"], pairs["val"], pairs["test"], counts_full=counts)


def to_pyg(split: LinkSplit) -> tuple[Data, Data, Data]:
    """Write a split as PyG's ``RandomLinkSplit`` would: ``(train, val, test)``.

    As in PyG, the edges of the test object include the validation links: scores on it differ from linkcal's,
    which are computed on the training edges throughout. Tensors may be shared with `split`.

    Parameters
    ----------
    split : LinkSplit

    Returns
    -------
    tuple of torch_geometric.data.Data
        With ``x`` (if any), ``num_nodes``, ``edge_index``, ``edge_label_index`` and float ``edge_label``.

    Examples
    --------
    >>> from linkcal.data import simulate_graph, split_links
    >>> train, val, test = to_pyg(split_links(simulate_graph(60, num_features=4)))
    >>> train.num_edges == val.num_edges < test.num_edges
    True
    """
    from torch_geometric.data import Data

    graph, edges = split.graph, split.graph.edge_index
    known = split.val.edge_label_index[:, split.val.edge_label == 1]
    both = Graph.from_edges(torch.cat([edges, known], dim=1), graph.num_nodes, directed=graph.directed)

    def of(part: LinkPairs, edges: Tensor) -> Data:
        labels = {"edge_label": part.edge_label, "edge_label_index": part.edge_label_index}
        return Data(x=graph.x, edge_index=edges, num_nodes=graph.num_nodes, **labels)

    return of(split.train, edges), of(split.val, edges), of(split.test, both.edge_index)


def _refuse_symmetric(graph: Graph, edges: Tensor, held_out: Tensor) -> None:
    leaked = int(graph.has_pairs(held_out.flip(0)).sum())
    ways = (Graph.from_edges(edges, graph.num_nodes, directed=directed) for directed in (False, True))
    if leaked and len({way.edge_index.size(1) for way in ways}) == 1:
        raise InputError(
            f"a directed graph must not have the reverse of each of its edges, got one whose message-passing "
            f"graph holds the reverse of {leaked} of {held_out.size(1)} validation and test links; split an "
            "undirected graph with RandomLinkSplit(is_undirected=True), or pass symmetric=True"
        )


def _message_graph(train: Data, *, directed: bool, name: str) -> Graph:
    graph = Graph.from_edges(train.edge_index, train.num_nodes, x=train.x, directed=directed, name=name)
    # from_edges adds missing reverses: the simple graph is then larger than what was stored.
    stored = train.edge_index.size(1) - graph.num_self_loops - graph.num_duplicates
    if not directed and graph.edge_index.size(1) != stored:
        raise InputError(
            "train.edge_index must hold both directions of each edge, got some in one only; split an "
            "undirected graph with RandomLinkSplit(is_undirected=True); for a directed one pass directed=True"
        )
    return graph


def _labelled_pairs(data: Data, part: str, graph: Graph, positive_label: int) -> tuple[Tensor, Tensor]:
    """Positive and negative pairs of one part, smaller index first if undirected."""
    index, label = _labels_of(data, part)
    index = check_edge_index(index, graph.num_nodes, f"{part}.edge_label_index")
    if label.shape != index.shape[1:]:
        raise InputError(f"{part}.edge_label must have shape [{index.size(1)}], got {list(label.shape)}")
    other = label[(label != 0) & (label != positive_label)]
    if other.numel():
        known = f"0 and positive_label = {positive_label} only"
        raise InputError(f"{part}.edge_label must hold {known}, got {other[0].item()!r}")
    check_no_self_pairs(index, f"{part}.edge_label_index")
    if not graph.directed:
        index = index.sort(dim=0).values
    is_link = label == positive_label
    return index[:, is_link], index[:, ~is_link]


def _labels_of(data: Any, part: str) -> tuple[Tensor, Tensor]:
    kinds = [k for k in ("", "pos_", "neg_") if f"{k}edge_label_index" in data and f"{k}edge_label" in data]
    if not kinds:
        raise InputError(
            f"{part} must have edge_label_index and edge_label, got {', '.join(sorted(data.keys()))}"
        )
    index = torch.cat([data[f"{kind}edge_label_index"] for kind in kinds], dim=1)
    return index, torch.cat([data[f"{kind}edge_label"] for kind in kinds])


def _refuse_disjoint(graph: Graph, links: Tensor) -> None:
    outside = ~graph.has_pairs(links)
    if outside.any():
        raise InputError(
            f"train links must be in train.edge_index, got {int(outside.sum())} that are not, the first "
            f"{tuple(links[:, outside][:, 0].tolist())}; split with disjoint_train_ratio=0"
        )


def _distinct_negatives(graph: Graph, edges: Tensor, negatives: dict[str, Tensor]) -> dict[str, Tensor]:
    """Refuse negatives that are edges; keep each pair once over all parts, in the first of them."""
    joined = torch.cat(list(negatives.values()), dim=1)
    keys, known = (pair_keys(pairs, graph.num_nodes, directed=graph.directed) for pairs in (joined, edges))
    wrong = torch.isin(keys, known)
    if wrong.any():
        pair = tuple(joined[:, wrong][:, 0].tolist())
        raise InputError(f"negatives must be no edges, got {int(wrong.sum())} that are, the first {pair}")
    first = torch.zeros_like(keys, dtype=torch.bool)
    first[torch.from_numpy(np.unique(keys.cpu().numpy(), return_index=True)[1])] = True
    if not first.all():
        warnings.warn(
            f"dropped {int((~first).sum())} negatives that repeat another one, in either direction",
            LinkcalWarning,
            stacklevel=3,
        )
    kept = torch.split(first, [pairs.size(1) for pairs in negatives.values()])
    return {part: negatives[part][:, keep] for part, keep in zip(negatives, kept, strict=True)}
