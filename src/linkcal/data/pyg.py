"""Splits from and to PyG's convention: three ``Data`` objects as ``RandomLinkSplit`` makes them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from linkcal._core.validation import check_choice, check_edge_index
from linkcal.data.graph import Graph, pair_keys
from linkcal.data.split import LinkPairs, LinkSplit
from linkcal.exceptions import InputError, LinkcalWarning

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["from_pyg", "to_pyg"]


#: Where a repeated negative is kept: a test set should stay as it was.
_KEEP_ORDER = ("test", "val", "train")


def from_pyg(
    train: Data,
    val: Data,
    test: Data,
    *,
    directed: bool = False,
    symmetric: bool = False,
    positive_label: int = 1,
    repeated_negatives: Literal["drop", "error"] = "drop",
    name: str = "graph",
) -> LinkSplit:
    """Take over a split that PyG's ``RandomLinkSplit`` (or anything of its format) made.

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
    repeated_negatives : {"drop", "error"}
        PyG may draw a negative of an undirected graph in both directions, even in two parts. ``"drop"`` keeps
        it once (test before validation before training) and warns with the count.
    name : str

    Returns
    -------
    LinkSplit
        In each part positives first, then negatives, in the given order; undirected pairs have the smaller
        index first. The rates of :class:`LinkPairs` are unknown (None).

    Raises
    ------
    InputError
        If a validation or test link is in the message-passing graph (also reversed, if undirected), a
        training link is not, a pair has both labels or is positive twice, or a format is not as above.

    Examples
    --------
    >>> from linkcal.data import simulate_graph, split_links
    >>> split = split_links(simulate_graph(60, num_features=4))
    >>> bool((from_pyg(*to_pyg(split)).test.edge_label_index == split.test.edge_label_index).all())
    True
    """
    check_choice(repeated_negatives, "repeated_negatives", ("drop", "error"))
    for part, data in (("train", train), ("val", val), ("test", test)):
        _check_data(data, part)
    graph = _message_graph(train, directed=directed, name=name)
    parts = {
        part: _labelled_pairs(data, part, graph, positive_label)
        for part, data in (("train", train), ("val", val), ("test", test))
    }
    positives = {part: pairs[0] for part, pairs in parts.items()}
    _check_positives(graph, positives)
    edges = torch.cat([graph.pairs, positives["val"], positives["test"]], dim=1)
    if directed and not symmetric:
        _refuse_symmetric(graph, edges, torch.cat([positives["val"], positives["test"]], dim=1))
    negatives = _distinct_negatives(graph, edges, {p: n for p, (_, n) in parts.items()}, repeated_negatives)
    labelled = {part: LinkPairs.of(positives[part], negatives[part]) for part in parts}
    full = Graph.from_edges(edges, graph.num_nodes, directed=directed)
    counts = {**full.counts(), "features": graph.counts()["features"]}
    train, val, test = (labelled[part] for part in ("train", "val", "test"))
    return LinkSplit(graph, train, val, test, seed=None, counts_full=counts)


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

    graph = split.graph
    known = split.val.edge_label_index[:, split.val.edge_label == 1]
    with_val = Graph.from_edges(
        torch.cat([graph.edge_index, known], dim=1), graph.num_nodes, directed=graph.directed
    )
    edges = {"train": graph.edge_index, "val": graph.edge_index, "test": with_val.edge_index}

    train, val, test = (
        Data(
            x=graph.x,
            edge_index=edge_index,
            num_nodes=graph.num_nodes,
            edge_label=split.part(part).edge_label,
            edge_label_index=split.part(part).edge_label_index,
        )
        for part, edge_index in edges.items()
    )
    return train, val, test


def _check_data(data: Any, part: str) -> None:
    from torch_geometric.data import Data

    if not isinstance(data, Data):
        raise InputError(
            f"{part} must be a torch_geometric.data.Data, got {type(data).__name__}; split the edges of one "
            "type of a HeteroData, or data.to_homogeneous()"
        )


def _refuse_symmetric(graph: Graph, edges: Tensor, held_out: Tensor) -> None:
    keys, reverse = (
        pair_keys(pairs, graph.num_nodes, directed=True).unique() for pairs in (edges, edges.flip(0))
    )
    leaked = int(graph.has_pairs(held_out.flip(0)).sum())
    if leaked and torch.equal(keys, reverse):
        raise InputError(
            f"a directed graph must not have the reverse of each of its edges, got one whose message-passing "
            f"graph holds the reverse of {leaked} of {held_out.size(1)} validation and test links; split an "
            "undirected graph with RandomLinkSplit(is_undirected=True), or pass symmetric=True"
        )


def _message_graph(train: Data, *, directed: bool, name: str) -> Graph:
    num_nodes = train.num_nodes
    if num_nodes is None:
        raise InputError("train must have num_nodes or x, got neither")
    graph = Graph.from_edges(train.edge_index, int(num_nodes), x=train.x, directed=directed, name=name)
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
        raise InputError(
            f"{part}.edge_label must hold 0 and positive_label = {positive_label} only, "
            f"got {other[0].item()!r}"
        )
    loops = index[0][index[0] == index[1]]
    if loops.numel():
        raise InputError(
            f"{part}.edge_label_index must join two different nodes, got ({int(loops[0])}, {int(loops[0])}); "
            "remove self-loops before splitting"
        )
    if not graph.directed:
        index = torch.stack([torch.minimum(index[0], index[1]), torch.maximum(index[0], index[1])])
    is_link = label == positive_label
    return index[:, is_link], index[:, ~is_link]


def _labels_of(data: Any, part: str) -> tuple[Tensor, Tensor]:
    if "edge_label_index" in data and "edge_label" in data:
        return data.edge_label_index, data.edge_label
    if "pos_edge_label_index" in data and "pos_edge_label" in data:
        index, label = [data.pos_edge_label_index], [data.pos_edge_label]
        if "neg_edge_label_index" in data:
            index.append(data.neg_edge_label_index)
            label.append(data.neg_edge_label)
        return torch.cat(index, dim=1), torch.cat(label)
    raise InputError(
        f"{part} must have edge_label_index and edge_label, got {', '.join(sorted(data.keys()))}"
    )


def _check_positives(graph: Graph, positives: dict[str, Tensor]) -> None:
    for part in ("val", "test"):
        known = graph.has_pairs(positives[part])
        if known.any():
            pair = tuple(positives[part][:, known][:, 0].tolist())
            hint = "" if graph.directed else "; split undirected graphs with is_undirected=True"
            raise InputError(
                f"{part} links must not be in train.edge_index, got {int(known.sum())} that are, the first "
                f"{pair}: the model would be shown the answer{hint}"
            )
    outside = ~graph.has_pairs(positives["train"])
    if outside.any():
        pair = tuple(positives["train"][:, outside][:, 0].tolist())
        raise InputError(
            f"train links must be in train.edge_index, got {int(outside.sum())} that are not, the first "
            f"{pair}; split with disjoint_train_ratio=0"
        )


def _distinct_negatives(
    graph: Graph, edges: Tensor, negatives: dict[str, Tensor], repeated: str
) -> dict[str, Tensor]:
    """Refuse negatives that are edges; keep each pair once over all parts."""
    joined = torch.cat([negatives[part] for part in _KEEP_ORDER], dim=1)
    keys = pair_keys(joined, graph.num_nodes, directed=graph.directed)
    edge_keys = pair_keys(edges, graph.num_nodes, directed=graph.directed)
    wrong = torch.isin(keys, edge_keys)
    if wrong.any():
        pair = tuple(joined[:, wrong][:, 0].tolist())
        raise InputError(f"negatives must be no edges, got {int(wrong.sum())} that are, the first {pair}")
    first = _first_of_each(keys)
    dropped = int((~first).sum())
    if dropped and repeated == "error":
        pair = tuple(joined[:, ~first][:, 0].tolist())
        raise InputError(
            f"negatives must stand once in all parts together, got {dropped} repeated, as {pair}"
        )
    if dropped:
        warnings.warn(
            f"dropped {dropped} negatives that repeat another one, in either direction",
            LinkcalWarning,
            stacklevel=3,
        )
    sizes = [negatives[part].size(1) for part in _KEEP_ORDER]
    kept = dict(zip(_KEEP_ORDER, torch.split(first, sizes), strict=True))
    return {part: negatives[part][:, kept[part]] for part in _KEEP_ORDER}


def _first_of_each(keys: Tensor) -> Tensor:
    """Whether each key [L] is the first of its value: bool [L]."""
    order = torch.argsort(keys, stable=True)
    ranked = keys[order]
    first = torch.ones_like(keys, dtype=torch.bool)
    first[order[1:]] = ranked[1:] != ranked[:-1]
    return first
