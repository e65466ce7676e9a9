"""Labelled pairs, and train / validation / test splits of a graph's links that do not leak."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from linkcal._core.random import numpy_stream
from linkcal._core.shown import Shown
from linkcal._core.validation import (
    check_choice,
    check_edge_index,
    check_fraction,
    check_positive_float,
    check_positive_int,
)
from linkcal.data.audit import audit_pairs
from linkcal.data.graph import Graph, check_edge_time, check_graph, warn_of_two_types
from linkcal.data.negatives import NEGATIVE_KINDS, NegativeKind, check_kind, sample_negatives
from linkcal.exceptions import EdgeFeaturesWarning, InputError, LinkcalWarning, ShortageError

_PARTS = ("test", "val", "train")


@dataclass(frozen=True, eq=False, repr=False)
class LinkPairs(Shown):
    """Candidate links with labels; InputError if an argument has the wrong shape, range or content.

    Parameters
    ----------
    edge_label_index, edge_label : Tensor [2, L], int64 (int32 is converted), and Tensor [L], float32
        Pairs, in an undirected graph smaller index first, in a bipartite one the source node; 1 for a link, 0
        for a negative.
    positive_rate, negative_rate : float, optional
        Fractions of the full graph's edges and non-edges that were drawn, for :meth:`label_probability`.
    time : Tensor [L], float64, optional
        When each link was first there; NaN for a negative.

    Examples
    --------
    >>> LinkPairs(torch.tensor([[0, 0, 1], [1, 2, 2]]), torch.tensor([1.0, 0.0, 1.0])).num_positives
    2
    """

    edge_label_index: Tensor
    edge_label: Tensor
    positive_rate: float | None = None
    negative_rate: float | None = None
    time: Tensor | None = None

    def _shown(self) -> dict[str, Any]:
        return {"links": self.num_positives, "negatives": self.num_negatives}

    def __post_init__(self) -> None:
        index = check_edge_index(self.edge_label_index, None, "edge_label_index")
        object.__setattr__(self, "edge_label_index", index)
        label = self.edge_label
        if not isinstance(label, Tensor):
            raise InputError(f"edge_label must be a tensor [L], got {type(label).__name__}")
        if label.shape != index.shape[1:]:
            raise InputError(f"edge_label must have shape [{index.size(1)}], got {list(label.shape)}")
        other = label[(label != 0) & (label != 1)]
        if other.numel():
            raise InputError(f"edge_label must hold only 0 and 1, got {other[0].item()!r}")
        time = self.time
        if time is not None and not (isinstance(time, Tensor) and time.shape == label.shape):
            came = list(time.shape) if isinstance(time, Tensor) else type(time).__name__
            raise InputError(f"time must be a tensor [{len(label)}], as edge_label, got {came}")
        if time is not None and not torch.equal(time.isnan(), label == 0):
            wrong = int((time.isnan() != (label == 0)).sum())
            raise InputError(f"time must be a number for a link and NaN for a negative, got {wrong} others")

    @classmethod
    def of(cls, positives: Tensor, negatives: Tensor, **rest: Any) -> LinkPairs:
        """Links [2, P], then negatives [2, Q], with their labels and, where known, rates and times."""
        label = torch.zeros(positives.size(1) + negatives.size(1), device=positives.device)
        label[: positives.size(1)] = 1.0
        return cls(torch.cat([positives, negatives], dim=1), label, **rest)

    def __len__(self) -> int:
        return self.edge_label_index.size(1)

    @property
    def num_positives(self) -> int:
        """Number of links."""
        return int(self.edge_label.sum())

    @property
    def num_negatives(self) -> int:
        """Number of negatives."""
        return len(self) - self.num_positives

    def label_probability(self, edge_probability: Tensor) -> Tensor:
        """Probability [L] that each pair is positive given that it was drawn into this set.

        ``q a / (q a + (1 - q) b)`` with edge probability q and the rates a of edges, b of non-edges (Bayes);
        InputError if the rates are not known.
        """
        if self.positive_rate is None or self.negative_rate is None:
            raise InputError("positive_rate and negative_rate must be known for label_probability, got None")
        weighted = edge_probability * self.positive_rate
        return weighted / (weighted + (1 - edge_probability) * self.negative_rate)

    def to(self, device: torch.device | str) -> LinkPairs:
        """Copy with tensors on `device`."""
        index, label = self.edge_label_index.to(device), self.edge_label.to(device)
        time = None if self.time is None else self.time.to(device)
        return replace(self, edge_label_index=index, edge_label=label, time=time)


@dataclass(frozen=True, eq=False, repr=False)
class LinkSplit(Shown):
    """Message-passing graph and labelled pairs of one run.

    InputError with the first error that :func:`audit_pairs` finds: a validation or test link or a negative is
    an edge of `graph`, a training link is none, a pair stands twice in the three parts together (in either
    direction where the graph is undirected), or does not join the two types of a bipartite graph. Where all
    parts have times, test links must be later than validation links, and these later than training links; a
    negative may be a link of a later part.

    Parameters
    ----------
    graph : Graph
        The TRAINING edges only; every score, also of validation and test pairs, is computed on it.
    train, val, test : LinkPairs
        Training positives are edges of `graph`; no negative is an edge of the full graph.
    seed, negatives, counts_full : int, str and dict, optional
        Seed of the split and kind of its negatives, None for a split from elsewhere; the full graph's counts.
    features_from_held_out : bool
        Whether the features are known to have been computed from all edges, held-out links included.

    Examples
    --------
    >>> from linkcal.data import simulate_graph
    >>> split = split_links(simulate_graph(100))
    >>> bool(split.graph.has_pairs(split.held_out_edges()).any())  # none is a message-passing edge
    False
    """

    graph: Graph
    train: LinkPairs
    val: LinkPairs
    test: LinkPairs
    seed: int | None = None
    counts_full: dict[str, int] = field(default_factory=dict)
    negatives: str | None = None
    features_from_held_out: bool = False

    def __post_init__(self) -> None:
        # A subclass of LinkPairs may hold pairs drawn with replacement, and is not checked.
        parts = {name: part for name in _PARTS if type(part := getattr(self, name)) is LinkPairs}
        audit_pairs(self.graph, **parts).raise_error()

    def part(self, name: str) -> LinkPairs:
        """``train``, ``val`` or ``test`` by name."""
        part: LinkPairs = getattr(self, check_choice(name, "part", reversed(_PARTS)))
        return part

    def _shown(self) -> dict[str, Any]:
        sizes = {name: len(self.part(name)) for name in reversed(_PARTS)}
        kind = {"negatives": self.negatives, "seed": self.seed}
        return {"nodes": self.graph.num_nodes, "message_edges": self.graph.num_pairs, **sizes, **kind}

    def held_out_edges(self) -> Tensor:
        """Links of the validation and test parts, [2, H]: edges outside the message-passing graph."""
        return torch.cat([p.edge_label_index[:, p.edge_label == 1] for p in (self.val, self.test)], dim=1)

    def counts(self) -> dict[str, int]:
        """Return counts for reports: the full graph's, and positives and negatives of each part."""
        out = dict(self.counts_full) or self.graph.counts()
        out["message_edges"] = self.graph.num_pairs
        for name in reversed(_PARTS):
            out[f"{name}_positives"] = self.part(name).num_positives
            out[f"{name}_negatives"] = self.part(name).num_negatives
        return out

    def to(self, device: torch.device | str) -> LinkSplit:
        """Copy with tensors on `device`."""
        return replace(self, **{name: getattr(self, name).to(device) for name in ("graph", *_PARTS)})


def split_links(
    graph: Graph,
    *,
    time: Any = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    negatives_per_positive: float = 1.0,
    negatives: NegativeKind = "uniform",
    seed: int = 0,
    symmetric: bool = False,
) -> LinkSplit:
    """Split the links of `graph` into training, validation and test pairs, each with sampled negatives.

    Parameters
    ----------
    graph : Graph
        The full graph. Its ``feature_builder``, if any, computes features from the training edges alone.
    time : Tensor [E] or array-like, optional
        When each column of ``graph.edge_index`` was first there, such as ``graph.edge_time``. The last links
        are then tested, those before them validate, and the first train. Links of one time stay together, in
        the later part where they reach over a cut, so parts may be larger than their fractions.
    val_fraction, test_fraction : float in (0, 1)
        Fractions of the edges, rounded down (as PyG's ``RandomLinkSplit`` does); their sum is below 1.
    negatives_per_positive : float > 0
        Negatives per link in every part, rounded to the nearest whole number.
    negatives : {"uniform", "degree", "two-hop", "heart"}
        As in :func:`~linkcal.data.sample_negatives`; degrees and common neighbours are those of the FULL
        graph, with `time` of the edges up to the end of the part; a bipartite graph has no two-hop ones.
    symmetric : bool
        Whether a directed graph may have the reverse of each edge, which held-out links then keep as edges.
        HeaRT negatives are drawn for the links of their part, scored on the message-passing graph.
        Training draws its own uniform negatives in each epoch.
    seed : int
        With `time` of the negatives alone.

    Returns
    -------
    LinkSplit
        In every part positives stand first, then negatives, both in random order (with `time` the links in
        theirs, which ``LinkPairs.time`` holds); undirected pairs have the smaller index first.
        ``negative_rate`` is known for uniform negatives only, with `time` no rate is. With `time`,
        ``counts()`` has the nodes of validation and test links without a training edge (unseen nodes), and
        the links that have one. InputError if a part would have no positive or no negative, ShortageError if
        there are too few non-edges of that kind.

    Warns
    -----
    EdgeFeaturesWarning
        If the features were computed from all edges (as by PEG's ``prepare``) and so leak held-out links.
    LinkcalWarning
        If every edge joins two groups of nodes, as in a bipartite graph, and there is no ``node_type``. With
        `time`, if nodes are unseen in a graph without features, where models learn an embedding of each.

    Notes
    -----
    Negatives are one sample without replacement from the non-edges of the FULL graph, cut into three: no pair
    stands in two parts, as happens to negatives that are sampled for each part alone (PyG issue 10706). With
    `time` they are pairs without an edge up to the end of their part, each drawn once: a negative can become
    a link of a later part.

    Examples
    --------
    >>> split = split_links(Graph.from_edges([range(20), [*range(1, 20), 0]], num_nodes=20))
    >>> split.graph.num_pairs, len(split.train), len(split.val), len(split.test)
    (16, 32, 4, 4)
    """
    graph = check_graph(graph)
    val_fraction = check_fraction(val_fraction, "val_fraction")
    test_fraction = check_fraction(test_fraction, "test_fraction")
    per_positive = check_positive_float(negatives_per_positive, "negatives_per_positive", maximum=1e9)
    check_choice(negatives, "negatives", NEGATIVE_KINDS)
    check_kind(graph, negatives)
    seed = check_positive_int(seed, "seed", minimum=0)
    if val_fraction + test_fraction >= 1.0:
        raise InputError(f"val_fraction + test_fraction must be < 1, got {val_fraction} + {test_fraction}")
    if graph.features_from_edges:
        warnings.warn(
            "features of the graph were computed from all its edges and know the links that this split holds "
            "out: split first, then prepare the message-passing graph (model.prepare(split.graph))",
            EdgeFeaturesWarning,
            stacklevel=2,
        )
    if graph.directed and not symmetric and bool(graph.has_pairs(graph.pairs.flip(0)).all()):
        raise InputError(
            "a directed graph must not have the reverse of each edge, got one that has: held-out links would "
            "stay message-passing edges; declare it undirected, or pass symmetric=True (--symmetric)"
        )
    warn_of_two_types(graph)
    sizes = _positives_per_part(graph.num_pairs, val_fraction, test_fraction)
    if time is None:
        order = torch.from_numpy(numpy_stream(seed, "split").permutation(graph.num_pairs))
        positives = _cut(graph.pairs[:, order.to(graph.edge_index.device)], sizes)
        times: dict[str, Tensor] = {}
    else:
        positives, times = _cut_by_time(graph, time, sizes)
    num_positives = {part: pairs.size(1) for part, pairs in positives.items()}
    num_negatives = {part: round(per_positive * num) for part, num in num_positives.items()}
    for part, size in num_negatives.items():
        if size < 1:
            raise InputError(
                f"negatives_per_positive must give every part at least one negative, got {per_positive!r} "
                f"with {num_positives[part]} {part} positives"
            )
    message = _message_graph(graph, positives["train"])
    if times or negatives == "heart":
        drawn = _draw_by_part(graph, message, positives, num_negatives, negatives, seed, timed=bool(times))
    else:
        drawn = _draw_negatives(graph, num_negatives, negatives, seed)
    non_edges = graph.num_possible_pairs - graph.num_pairs
    parts = {
        part: LinkPairs.of(
            positives[part],
            drawn[part],
            positive_rate=None if times else num_positives[part] / graph.num_pairs,
            negative_rate=None if times or negatives != "uniform" else num_negatives[part] / non_edges,
            time=functional.pad(times[part], (0, num_negatives[part]), value=math.nan) if times else None,
        )
        for part in _PARTS
    }
    counts = {**graph.counts(), "features": 0 if message.x is None else message.x.size(1)}
    if times:
        counts |= _count_unseen(message, positives)
    return LinkSplit(
        message, **parts, seed=seed, counts_full=counts, negatives=negatives,
        features_from_held_out=graph.features_from_edges,
    )  # fmt: skip


def _cut_by_time(graph: Graph, time: Any, sizes: dict[str, int]) -> tuple[dict[str, Tensor], ...]:
    """Links of each part in the order of their time, and these times; links of one time in one part."""
    pairs, of_column = graph.pairs, check_edge_time(time, graph.edge_index.size(1), "time")
    of_column = of_column.to(pairs.device)
    when = of_column[graph.places_of(pairs)]
    if not graph.directed and bool((when != of_column[graph.places_of(pairs.flip(0))]).any()):
        raise InputError("time must be the same in both directions of an undirected edge, got edges with two")
    when, order = torch.sort(when, stable=True)
    start = {"val": when[sizes["train"]], "test": when[-sizes["test"]]}
    part = (when >= start["val"]).int() + (when >= start["test"]).int()
    found = {name: part == place for place, name in enumerate(reversed(_PARTS))}
    for name in reversed(_PARTS):
        if not bool(found[name].any()):
            raise InputError(
                f"time must leave every part a link, got none for {name} of {len(when)}: links of one time "
                f"stay together, and {int((when == start['val']).sum())} are of {float(start['val']):.17g}"
            )
    by_part = {name: pairs[:, order[rows]] for name, rows in found.items()}
    return by_part, {name: when[rows] for name, rows in found.items()}


def _draw_by_part(
    graph: Graph, message: Graph, positives: dict[str, Tensor], sizes: dict[str, int], kind: NegativeKind,
    seed: int, *, timed: bool,
) -> dict[str, Tensor]:  # fmt: skip
    """Pairs without an edge (`timed`: up to the end of each part), each in one part only."""
    generator, drawn = numpy_stream(seed, "negatives"), dict[str, Tensor]()
    for place, part in enumerate(_PARTS):
        known = torch.cat([positives[name] for name in _PARTS[place if timed else 0 :]], dim=1)
        seen = message if kind == "heart" else graph.with_edges(known)
        rest: Any = {"exclude": torch.cat([known, *drawn.values()], dim=1), "links": positives[part]}
        try:
            drawn[part] = sample_negatives(seen, sizes[part], generator, kind=kind, **rest)
        except ShortageError as error:
            detail = f"negatives = {kind!r} ({part} {sizes[part]})"
            raise ShortageError(f"{detail}: {error}", error.available) from None
    return drawn


def _count_unseen(message: Graph, positives: dict[str, Tensor]) -> dict[str, int]:
    """Nodes of held-out links without a training edge, and the links that have one; warn if it matters."""
    unseen = torch.bincount(message.edge_index.flatten(), minlength=message.num_nodes) == 0
    counts = {}
    for part in ("val", "test"):
        counts[f"{part}_unseen_nodes"] = int(unseen[torch.unique(positives[part])].sum())
        counts[f"{part}_links_of_unseen_nodes"] = int(unseen[positives[part]].any(dim=0).sum())
    if message.x is None and counts["test_unseen_nodes"]:
        warnings.warn(
            f"{counts['test_links_of_unseen_nodes']} of {positives['test'].size(1)} test links have a node "
            "without a training edge, whose learned embedding stays as it was drawn: give node features",
            LinkcalWarning,
            stacklevel=3,
        )
    return counts


def _message_graph(graph: Graph, train_edges: Tensor) -> Graph:
    """Graph of the training edges [2, P] alone, with features built from them where `graph` asks for it."""
    edge_index = graph.with_edges(train_edges).edge_index
    weight = None if graph.edge_weight is None else graph.edge_weight[graph.places_of(edge_index)]
    graph = replace(graph, edge_index=edge_index, edge_weight=weight, edge_time=None)
    if graph.feature_builder is None:
        return graph
    x = graph.feature_builder(edge_index, graph.num_nodes)
    return replace(graph, x=x, feature_builder=None, features_from_edges=True)


def _positives_per_part(num_edges: int, val_fraction: float, test_fraction: float) -> dict[str, int]:
    # 1e-9: a share such as 0.29 of 100 is 28.999999999999996 in floating point.
    test, val = (math.floor(fraction * num_edges + 1e-9) for fraction in (test_fraction, val_fraction))
    sizes = {"test": test, "val": val, "train": num_edges - test - val}
    for part, size in sizes.items():
        if size < 1:
            raise InputError(
                f"graph must have enough edges for one positive in every part, got {num_edges} edges: "
                f"val_fraction = {val_fraction} and test_fraction = {test_fraction} leave {part} without any"
            )
    return sizes


def _draw_negatives(graph: Graph, sizes: dict[str, int], kind: NegativeKind, seed: int) -> dict[str, Tensor]:
    """One sample without replacement from the non-edges of the full graph, cut into the parts."""
    if graph.num_pairs == graph.num_possible_pairs:
        raise ShortageError(f"graph must have non-edges, got a complete graph of {graph.num_nodes} nodes")
    try:
        pairs = sample_negatives(graph, sum(sizes.values()), numpy_stream(seed, "negatives"), kind=kind)
    except ShortageError as error:
        detail = ", ".join(f"{part} {sizes[part]}" for part in reversed(_PARTS))
        raise ShortageError(f"negatives = {kind!r} ({detail}): {error}", error.available) from None
    return _cut(pairs, sizes)


def _cut(pairs: Tensor, sizes: dict[str, int]) -> dict[str, Tensor]:
    """Cut pairs [2, L] into consecutive parts; test comes first, so that it depends on no other part."""
    ends = np.cumsum([sizes[part] for part in _PARTS]).tolist()
    return dict(zip(_PARTS, torch.tensor_split(pairs, ends[:-1], dim=1), strict=True))
