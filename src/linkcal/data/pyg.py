"""Splits in PyG's convention: three ``Data`` objects as ``RandomLinkSplit`` makes them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from linkcal._core.validation import check_edge_index, check_no_self_pairs, check_type
from linkcal.data.audit import reversed_links
from linkcal.data.graph import Graph, bipartite_features, pair_keys, warn_of_two_types
from linkcal.data.split import LinkPairs, LinkSplit
from linkcal.exceptions import InputError, LinkcalWarning

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData


def from_pyg(
    train: Data | HeteroData,
    val: Data | HeteroData,
    test: Data | HeteroData,
    *,
    directed: bool = False,
    symmetric: bool = False,
    positive_label: int = 1,
    name: str = "graph",
) -> LinkSplit:
    """Take over a split of the format of PyG's ``RandomLinkSplit``.

    Parameters
    ----------
    train, val, test : torch_geometric.data.Data or HeteroData
        With ``edge_index``, ``edge_label_index`` and ``edge_label`` (or the ``pos_`` and ``neg_`` attributes
        of ``split_labels=True``). Message passing uses ``train.edge_index`` only, also for the test pairs:
        PyG's test graph has the validation edges as well. ``train.edge_weight`` becomes the graph's; any
        ``edge_attr`` is refused. A HeteroData is taken as by :func:`graph_from_hetero`.
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
        refuses, as it does ``disjoint_train_ratio`` above 0, whose training links are no edges.

    Warns
    -----
    LinkcalWarning
        If a negative stands twice, which PyG may draw in both directions or in two parts: it is kept once,
        in the test part before validation before training.

    Examples
    --------
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.transforms import RandomLinkSplit
    >>> ring = torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40])
    >>> data = Data(edge_index=torch.cat([ring, ring.flip(0)], dim=1), num_nodes=40)
    >>> from_pyg(*RandomLinkSplit(is_undirected=True, neg_sampling_ratio=0)(data)).counts()["message_edges"]
    28
    """
    from torch_geometric.data import Data, HeteroData

    # A repeated negative is kept in the first of these: a test set should stay as it was.
    given = {"test": test, "val": val, "train": train}
    for part, data in given.items():
        if isinstance(data, HeteroData):
            given[part] = _of_two_types(data, part)
        elif not isinstance(data, Data):
            raise InputError(f"{part} must be PyG's Data or HeteroData, got {type(data).__name__}")
    graph = _message_graph(given["train"], directed=directed, name=name)
    warn_of_two_types(graph)
    positives: dict[str, Tensor] = {}
    negatives: dict[str, Tensor] = {}
    for part, data in given.items():
        positives[part], negatives[part] = _labelled_pairs(data, part, graph, positive_label)
    held_out = torch.cat([positives["val"], positives["test"]], dim=1)
    if directed and not symmetric:
        leaked = int(reversed_links(graph, held_out).sum())
        if leaked:
            raise InputError(
                "a directed graph must not have the reverse of each of its edges, got one that holds the "
                f"reverse of {leaked} of {held_out.size(1)} validation and test links; split an undirected "
                "graph with RandomLinkSplit(is_undirected=True), or pass symmetric=True"
            )
    negatives = _distinct_negatives(graph, negatives)
    pairs = {part: LinkPairs.of(positives[part], negatives[part]) for part in given}
    full = graph.with_edges(torch.cat([graph.pairs, held_out], dim=1))
    counts = {**full.counts(), "features": graph.counts()["features"]}
    return LinkSplit(graph, pairs["train"], pairs["val"], pairs["test"], counts_full=counts)


def graph_from_hetero(data: HeteroData, *, name: str = "graph") -> Graph:
    """Bipartite graph of a HeteroData with two node types and one edge type (its reverse may be there too).

    Parameters
    ----------
    data : torch_geometric.data.HeteroData
        Features of both types, or of none; ``edge_weight`` of the edge type is kept.
    name : str

    Returns
    -------
    Graph
        The edge type's source nodes first, then its target nodes. `x` has the columns of the one type, those
        of the other (0 where they are of the other type), and 1 for a target node.

    Examples
    --------
    >>> from torch_geometric.data import HeteroData
    >>> data = HeteroData({"user": {"num_nodes": 2}, "item": {"num_nodes": 3}})
    >>> data["user", "rates", "item"].edge_index = torch.tensor([[0, 1], [2, 0]])
    >>> graph_from_hetero(data).pairs.tolist()
    [[0, 1], [4, 2]]
    """
    from torch_geometric.data import HeteroData

    check_type(data, HeteroData, "data")
    return _message_graph(_of_two_types(data, "data"), directed=False, name=name)


def _of_two_types(data: HeteroData, part: str) -> Data:
    """The nodes of both types as one Data, source nodes first, edges in both directions."""
    from torch_geometric.data import Data

    labelled = [kind for kind in data.edge_types if "edge_label_index" in data[kind]]
    forward = (labelled or data.edge_types or [("", "", "")])[0]
    backward = [kind for kind in data.edge_types if kind != forward]
    source, target = forward[0], forward[2]
    reverse = [kind for kind in backward if (kind[0], kind[2]) == (target, source)]
    if len(data.node_types) != 2 or source == target or len(reverse) != len(backward) or len(backward) > 1:
        raise InputError(
            f"{part} must be a HeteroData with two node types and one edge type between them, got node types "
            f"{', '.join(data.node_types) or 'none'} and, reverse types aside, edge types "
            f"{', '.join('-'.join(kind) for kind in data.edge_types)}; keep one by data.edge_type_subgraph"
        )
    store, count = data[forward], (data[source].num_nodes, data[target].num_nodes)
    shift = torch.tensor([[0], [count[0]]])
    edges = check_edge_index(store.edge_index, None, f"{part}.edge_index") + shift
    for kind in backward:
        given = data[kind].edge_index.flip(0) + shift
        if not torch.equal(*(torch.unique(each, dim=1) for each in (edges, given))):
            raise InputError(
                f"{part} must have the same edges in {'-'.join(kind)} as in {'-'.join(forward)}, reversed, "
                "got others: pass rev_edge_types to RandomLinkSplit"
            )
    features = [data[kind].x.float() for kind in (source, target) if "x" in data[kind]]
    if len(features) == 1:
        raise InputError(
            f"{part} must have features x of both node types or of none, got those of one: give nodes "
            "of the other a constant, data[type].x = torch.ones(num_nodes, 1)"
        )
    values = {name: store[name] for name in ("edge_label", "edge_attr") if name in store}
    if "edge_weight" in store:
        values["edge_weight"] = store.edge_weight.repeat(2)
    if "edge_label_index" in store:
        values["edge_label_index"] = store.edge_label_index + shift
    return Data(
        x=bipartite_features(*features) if features else None,
        edge_index=torch.cat([edges, edges.flip(0)], dim=1), num_nodes=sum(count),
        node_type=torch.arange(sum(count)).ge(count[0]).long(), **values,
    )  # fmt: skip


def _message_graph(train: Data, *, directed: bool, name: str) -> Graph:
    if train.get("edge_attr") is not None:
        raise InputError(
            "train.edge_attr must be left out, as linkcal passes edge weights alone to encode: move weights "
            "to train.edge_weight, or delete what the model does not read (del train.edge_attr)"
        )
    node_type, edge_type = train.get("node_type"), train.get("edge_type")
    if node_type is not None and node_type.unique().numel() == 1:
        node_type = None
    if edge_type is not None:
        way = edge_type[:0] if node_type is None else node_type[train.edge_index[0]]
        ways = [edge_type] if node_type is None else [edge_type[way == kind] for kind in way.unique()]
        if any(each.unique().numel() > 1 for each in ways):
            raise InputError(
                f"train must have edges of one type, got {edge_type.unique().numel()} in train.edge_type: "
                "keep one, or delete it to treat all edges alike (del train.edge_type)"
            )
    rest: Any = {"node_type": node_type, "edge_weight": train.get("edge_weight"), "x": train.x, "name": name}
    graph = Graph.from_edges(train.edge_index, train.num_nodes, directed=directed, **rest)
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
    kinds = [k for k in ("", "pos_", "neg_") if f"{k}edge_label_index" in data and f"{k}edge_label" in data]
    if not kinds:
        found = ", ".join(sorted(data.keys()))
        raise InputError(f"{part} must have edge_label_index and edge_label, got {found}")
    index = torch.cat([data[f"{kind}edge_label_index"] for kind in kinds], dim=1)
    label = torch.cat([data[f"{kind}edge_label"] for kind in kinds])
    index = check_edge_index(index, graph.num_nodes, f"{part}.edge_label_index")
    if label.shape != index.shape[1:]:
        raise InputError(f"{part}.edge_label must have shape [{index.size(1)}], got {list(label.shape)}")
    other = label[(label != 0) & (label != positive_label)]
    if other.numel():
        known = f"0 and positive_label = {positive_label} only"
        raise InputError(f"{part}.edge_label must hold {known}, got {other[0].item()!r}")
    check_no_self_pairs(index, f"{part}.edge_label_index")
    if not graph.directed:
        index = graph.source_first(index.sort(dim=0).values)
    index = graph.check_pairs(index, f"{part}.edge_label_index")
    is_link = label == positive_label
    return index[:, is_link], index[:, ~is_link]


def _distinct_negatives(graph: Graph, negatives: dict[str, Tensor]) -> dict[str, Tensor]:
    """Keep each pair once over all parts, in the first of them."""
    keys = pair_keys(torch.cat(list(negatives.values()), dim=1), graph.num_nodes, directed=graph.directed)
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
