"""A graph and the sorted neighbour lists that everything walks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, issparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.shown import Shown
from linkcal._core.validation import check_edge_index, check_positive_int, count_not_finite
from linkcal.exceptions import InputError, LinkcalWarning

IntArray = NDArray[np.int64]
Array = Any  # NumPy arrays of int64; Numba specialises the code on it

#: Makes node features [N, F] from message-passing edges [2, E] and the node count.
FeatureBuilder = Callable[[Tensor, int], Tensor]

#: Largest N whose square fits into int64, so that every pair has a key.
_MAX_NODES = 3_037_000_499
#: So few edges may have no odd cycle by chance.
_FEW_EDGES = 20
#: What every pair of a bipartite graph must do, for messages.
JOINS_TYPES = "of a bipartite graph must join a source (type 0) with a target (type 1), in this order"


class EdgeTruth(Protocol):
    """Known edge probabilities of a simulated graph.

    Examples
    --------
    >>> from linkcal.data import simulate_graph
    >>> simulate_graph(9).truth.edge_probability(torch.tensor([[0], [1]])).shape
    torch.Size([1])
    """

    def edge_probability(self, edge_label_index: Tensor) -> Tensor:
        """Probability [L] (float64, in [0, 1]) that each pair [2, L] is an edge."""
        ...


def pair_keys(edge_label_index: Tensor, num_nodes: int, *, directed: bool) -> Tensor:
    """One int64 key per pair; in an undirected graph (u, v) and (v, u) share the key ``min * N + max``.

    Parameters
    ----------
    edge_label_index : Tensor [2, L], int32 or int64
    num_nodes, directed : int and bool
        N, at most 3,037,000,499 so that N squared fits into int64.

    Returns
    -------
    Tensor [L], int64

    Examples
    --------
    >>> pair_keys(torch.tensor([[0, 2], [2, 0]]), 10, directed=False).tolist()
    [2, 2]
    """
    # In int32 the product below would wrap around from 46,341 nodes on.
    pairs = edge_label_index.to(torch.int64)
    row, col = pairs[0], pairs[1]
    if not directed:
        row, col = torch.minimum(row, col), torch.maximum(row, col)
    return row * num_nodes + col


@dataclass(frozen=True, eq=False, repr=False)
class Graph(Shown):
    """A simple graph: no self-loops, no repeated edges, indices sorted by (row, column).

    Build one with :meth:`from_edges`, which cleans any edge list; the constructor trusts its caller.

    Parameters
    ----------
    edge_index : Tensor [2, E], int64
        Message-passing edges, source row first. An undirected graph stores both directions.
    num_nodes : int
        N. Never taken from the largest index: isolated nodes count.
    x, attributes : Tensor [N, F], float, optional
        Node features, without which models learn an embedding of each node; the original ones, where a
        model's ``prepare`` replaced `x`.
    directed, name, truth : bool, str and EdgeTruth, optional
        Directed: (u, v) and (v, u) are different pairs.
    feature_builder : callable (edge_index [2, E], num_nodes) -> Tensor [N, F], optional
        Builds features from edges, only with ``x = None``. ``split_links`` applies it to the training edges
        alone, so that no validation or test link leaks into `x`.
    features_from_edges : bool
        Whether `x` was computed from the edges. Toggling a pair does not recompute it: a trace of the target
        link stays in `x`.
    node_type : Tensor [N], int64, optional
        Makes the graph bipartite: 0 for a source node (a user), 1 for a target node (an item). Edges join the
        two types, only such pairs count as possible, and every pair has its source node first.
    edge_weight : Tensor [E], float32, optional
        Above 0, of the columns of `edge_index`; equal in both directions of an undirected edge. Models read
        it as ``encode(x, edge_index, edge_weight)``.
    edge_time : Tensor [E], float64, optional
        When each edge was first there, equal in both directions of an undirected edge; for
        ``split_links(graph, time=graph.edge_time)``. The message-passing graph of a split has none.
    num_self_loops, num_duplicates, num_backward : int
        Columns that :meth:`from_edges` dropped; `num_backward` is None without `forward_only`.

    Examples
    --------
    >>> graph = Graph.from_edges(torch.tensor([[0, 0, 1, 0, 1, 2, 3], [0, 1, 0, 1, 2, 1, 3]]), num_nodes=5)
    >>> graph.num_pairs, graph.num_self_loops, graph.num_possible_pairs
    (2, 2, 10)
    """

    edge_index: Tensor
    num_nodes: int
    x: Tensor | None = None
    directed: bool = False
    name: str = "graph"
    truth: EdgeTruth | None = None
    feature_builder: FeatureBuilder | None = None
    features_from_edges: bool = False
    attributes: Tensor | None = None
    node_type: Tensor | None = None
    edge_weight: Tensor | None = None
    num_self_loops: int = 0
    num_duplicates: int = 0
    num_backward: int | None = None
    edge_time: Tensor | None = None

    @classmethod
    def from_edges(
        cls,
        edge_index: Any,
        num_nodes: int,
        *,
        x: Tensor | None = None,
        directed: bool = False,
        name: str = "graph",
        truth: EdgeTruth | None = None,
        feature_builder: FeatureBuilder | None = None,
        forward_only: bool = False,
        node_type: Any = None,
        edge_weight: Any = None,
        edge_time: Any = None,
    ) -> Graph:
        """Make a simple graph from any edge list [2, E'] (self-loops, repeats, one or both directions).

        ``num_duplicates`` counts repeated columns, not reversed edges. `forward_only` first drops the columns
        with row > column, which loses edges of a list with one direction only. InputError if an argument has
        the wrong shape, range or content, or both `x` and `feature_builder` are given. `edge_weight` [E'] is
        above 0, and the same wherever an edge stands (in either direction, if undirected); of `edge_time`
        [E'] the earliest value of an edge counts.
        """
        num_nodes = check_positive_int(num_nodes, "num_nodes")
        if num_nodes > _MAX_NODES:
            raise InputError(f"num_nodes must be at most {_MAX_NODES}, got {num_nodes}")
        edge_index = check_edge_index(edge_index, num_nodes)
        if x is not None:
            if feature_builder is not None:
                raise InputError("x must be None with a feature_builder, got both")
            x = _check_features(x, num_nodes)
        if node_type is not None:
            node_type = _check_node_type(node_type, edge_index, num_nodes, directed=directed)
        if edge_weight is not None:
            edge_weight = _check_edge_weight(edge_weight, edge_index.size(1)).to(edge_index.device)
        if edge_time is not None:
            edge_time = check_edge_time(edge_time, edge_index.size(1), "edge_time").to(edge_index.device)
        listed, loops = edge_index, edge_index[0] == edge_index[1]
        edge_index = edge_index[:, ~loops]
        backward = edge_index[0] > edge_index[1]
        if forward_only:
            edge_index = edge_index[:, ~backward]
        keys = torch.unique(pair_keys(edge_index, num_nodes, directed=True))
        duplicates = edge_index.size(1) - keys.numel()
        if not directed:
            keys = torch.unique(torch.cat([keys, keys % num_nodes * num_nodes + keys // num_nodes]))
        simple = torch.stack([keys // num_nodes, keys % num_nodes])
        if edge_weight is not None:
            edge_weight = _weight_of_each(simple, listed, edge_weight, num_nodes, directed=directed)
        if edge_time is not None:
            edge_time = _extremes(simple, listed, edge_time, num_nodes, directed=directed)[0]
        return cls(
            edge_index=simple, num_nodes=num_nodes, x=x, directed=directed, name=name, truth=truth,
            feature_builder=feature_builder, node_type=node_type, edge_weight=edge_weight,
            edge_time=edge_time, num_self_loops=int(loops.sum()), num_duplicates=duplicates,
            num_backward=int(backward.sum()) if forward_only else None,
        )  # fmt: skip

    @property
    def pairs(self) -> Tensor:
        """Each pair once, [2, P]: u < v in an undirected graph, every edge in a directed one.

        A bipartite graph's have their source node first.
        """
        if self.directed:
            return self.edge_index
        row, col = self.edge_index
        return self.edge_index[:, row < col if self.node_type is None else self.node_type[row] == 0]

    @property
    def num_pairs(self) -> int:
        """P: edges, an undirected one counted once."""
        return self.edge_index.size(1) if self.directed else self.edge_index.size(1) // 2

    @property
    def num_possible_pairs(self) -> int:
        """Pairs of two different nodes: N(N-1), halved if undirected; sources times targets if bipartite."""
        if self.node_type is not None:
            return self.ends[0].numel() * self.ends[1].numel()
        return self.num_nodes * (self.num_nodes - 1) // (1 if self.directed else 2)

    @property
    def ordered_pairs(self) -> bool:
        """Whether a pair has a first and a second node: in a directed or a bipartite graph."""
        return self.directed or self.node_type is not None

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Nodes that may stand first, and second, in a pair: all, or the sources and targets, increasing."""
        if self.node_type is None:
            return (nodes := torch.arange(self.num_nodes, device=self.edge_index.device)), nodes
        return tuple((self.node_type == kind).nonzero().flatten() for kind in (0, 1))  # type: ignore[return-value]

    def source_first(self, pairs: Tensor) -> Tensor:
        """Pairs [2, L] in the order that a bipartite graph wants; those of another graph as they are."""
        if self.node_type is None:
            return pairs
        return torch.where(self.node_type.to(pairs.device)[pairs[0]] == 1, pairs.flip(0), pairs)

    def check_pairs(self, pairs: Any, name: str = "edge_label_index") -> Tensor:
        """Return pairs [2, L] as int64; those of a bipartite graph must join source and target, in order."""
        index = check_edge_index(pairs, self.num_nodes, name)
        wrong = self.wrong_types(index)
        if wrong is not None and bool(wrong.any()):
            first = index[:, wrong][:, 0]
            raise InputError(
                f"{name} {JOINS_TYPES}, got {int(wrong.sum())} of {wrong.numel()} pairs that do not, such as "
                f"{tuple(first.tolist())} of types {self.types_of(first)}"
            )
        return index

    def wrong_types(self, pairs: Tensor) -> Tensor | None:
        """Whether each pair [2, L] does not join a source with a target, in order; None unless bipartite."""
        if self.node_type is None:
            return None
        kind = self.node_type.to(pairs.device)[pairs]
        return (kind[0] != 0) | (kind[1] != 1)

    def types_of(self, nodes: Tensor) -> tuple[int, ...]:
        """Types of some nodes of a bipartite graph; none of another."""
        kind = self.node_type
        return () if kind is None else tuple(kind[nodes.to(kind.device)].tolist())

    def with_edges(self, edge_index: Tensor) -> Graph:
        """Graph of other edges between the same nodes, with the types of the nodes and nothing else."""
        return Graph.from_edges(edge_index, self.num_nodes, directed=self.directed, node_type=self.node_type)

    def places_of(self, edge_index: Tensor) -> Tensor:
        """Column [L] of `self.edge_index` in which each edge [2, L] of the graph stands."""
        return torch.searchsorted(self._keys, pair_keys(edge_index, self.num_nodes, directed=True))

    @property
    def node_input(self) -> Tensor:
        """Features, or node ids [N] for a learned embedding: the `x` of a model's ``encode``."""
        return torch.arange(self.num_nodes, device=self.edge_index.device) if self.x is None else self.x

    @property
    def given_features(self) -> Tensor | None:
        """Node features [N, F] that do not follow from the edges: `attributes` or `x`; None without any."""
        if self.attributes is not None:
            return self.attributes
        return None if self.features_from_edges else self.x

    def has_pairs(self, edge_label_index: Tensor) -> Tensor:
        """Whether each pair [2, L] is an edge: bool [L]. Orientation counts only in a directed graph."""
        edge_label_index = check_edge_index(edge_label_index, self.num_nodes, "edge_label_index")
        keys = pair_keys(edge_label_index, self.num_nodes, directed=True)
        return torch.searchsorted(self._keys, keys) < torch.searchsorted(self._keys, keys, right=True)

    @cached_property
    def _keys(self) -> Tensor:
        """Keys of the edges, increasing as the columns are sorted; both directions are stored."""
        return pair_keys(self.edge_index, self.num_nodes, directed=True)

    def _shown(self) -> dict[str, Any]:
        types = {"bipartite": True} if self.node_type is not None else {"directed": self.directed}
        counts = self.counts()
        sizes = {key: counts[key] for key in ("nodes", "edges", "features")}
        return {"name": self.name, **sizes, **types, "weighted": self.edge_weight is not None}

    def counts(self) -> dict[str, int]:
        """Return counts for reports: nodes, pairs, non-edges, features, and what was cleaned away."""
        counts = {
            "nodes": self.num_nodes, "edges": self.num_pairs,
            "non_edges": self.num_possible_pairs - self.num_pairs,
            "features": 0 if self.x is None else self.x.size(1),
            "self_loops_removed": self.num_self_loops, "duplicates_removed": self.num_duplicates,
        }  # fmt: skip
        if self.node_type is not None:
            counts |= {"source_nodes": self.ends[0].numel(), "target_nodes": self.ends[1].numel()}
        return counts if self.num_backward is None else {**counts, "backward_removed": self.num_backward}

    def to(self, device: torch.device | str) -> Graph:
        """Copy of the graph with its tensors on `device`."""
        time = None if self.edge_time is None else self.edge_time.to(device)
        return replace(self.moved(lambda part: part.to(device)), edge_time=time)

    def moved(self, move: Callable[[Tensor], Tensor]) -> Graph:
        """Copy of the graph with `move` applied to its tensors; times keep their digits."""
        parts = {name: getattr(self, name) for name in GRAPH_TENSORS}
        moved: dict[str, Any] = {name: move(part) for name, part in parts.items() if part is not None}
        return replace(self, **moved)


#: Fields of a message-passing graph that are tensors.
GRAPH_TENSORS = ("edge_index", "x", "attributes", "node_type", "edge_weight")


def check_graph(graph: Any) -> Graph:
    """Return `graph` if it is one of linkcal's."""
    if not isinstance(graph, Graph):
        raise InputError(
            f"graph must be a linkcal.data.Graph, got {type(graph).__name__} of {type(graph).__module__}; "
            "make one by Graph.from_edges(edge_index, num_nodes, x=x), or graph_from_hetero(data)"
        )
    return graph


def bipartite_features(source_x: Tensor, target_x: Tensor) -> Tensor:
    """One matrix for both types: columns of the one, of the other (0 elsewhere), 1 for a target node."""
    is_target = torch.arange(len(source_x) + len(target_x)) >= len(source_x)
    return torch.cat([torch.block_diag(source_x, target_x), is_target[:, None].to(source_x)], dim=1)


def warn_of_two_types(graph: Graph) -> None:
    """Warn of a graph that looks bipartite and has no `node_type`: more edges than nodes, no odd cycle."""
    if graph.node_type is not None or graph.num_pairs <= max(graph.num_nodes, _FEW_EDGES):
        return
    n, (row, col) = graph.num_nodes, graph.edge_index.cpu().numpy()

    def components(row: IntArray, col: IntArray, size: int) -> int:
        edges = coo_matrix((np.ones(len(row), np.int8), (row, col)), shape=(size, size))
        return int(connected_components(edges, directed=False)[0])

    # In the double cover every component of a bipartite graph stands twice, any other component once.
    if components(np.r_[row, col], np.r_[col, row] + n, 2 * n) == 2 * components(row, col, n):
        warnings.warn(
            f"every edge of the graph ({n} nodes, {graph.num_pairs} edges) joins two groups of nodes: if "
            "they are of two types, such as users and items, give node_type (0 and 1), else negatives join "
            "users with users",
            LinkcalWarning,
            stacklevel=3,
        )


def _check_node_type(node_type: Any, edge_index: Tensor, num_nodes: int, *, directed: bool) -> Tensor:
    kind = torch.as_tensor(node_type)
    if kind.shape != (num_nodes,) or kind.is_floating_point() or kind.is_complex():
        raise InputError(
            f"node_type must hold integers [num_nodes = {num_nodes}], got {kind.dtype} {list(kind.shape)}"
        )
    kind = kind.to(edge_index.device, torch.int64)
    if kind.unique().tolist() != [0, 1]:
        raise InputError(
            "node_type must hold 0 (source nodes) and 1 (target nodes), both and nothing else, got "
            f"{kind.unique().tolist()[:5]}; of a graph with more types pass the edges between two of them"
        )
    same = kind[edge_index[0]] == kind[edge_index[1]]
    backward = kind[edge_index[0]] > kind[edge_index[1]]
    for wrong, which in ((same, "between nodes of one type"), (backward & directed, "from a target node")):
        if bool(wrong.any()):
            raise InputError(
                f"edges of a {'directed ' * directed}bipartite graph must join a source node (type 0) with a "
                f"target node (type 1), got {int(wrong.sum())} {which}, such as "
                f"{tuple(edge_index[:, wrong][:, 0].tolist())}"
            )
    return kind


def _check_edge_weight(edge_weight: Any, num_edges: int) -> Tensor:
    weight = torch.as_tensor(edge_weight)
    if weight.shape != (num_edges,) or weight.is_complex():
        raise InputError(
            f"edge_weight must hold a number per edge [{num_edges}], got {weight.dtype} {list(weight.shape)}"
        )
    weight = weight.to(torch.float32)
    wrong = ~(torch.isfinite(weight) & (weight > 0))
    if bool(wrong.any()):
        raise InputError(
            f"edge_weight must be finite and above 0, got {int(wrong.sum())} of {num_edges} that are not "
            f"({int(weight.isnan().sum())} NaN, {int((weight == 0).sum())} zero, {int((weight < 0).sum())} "
            f"negative), the first {weight[wrong][0]:g}; an edge of weight 0 is none"
        )
    return weight


def check_edge_time(edge_time: Any, num_edges: int, name: str) -> Tensor:
    """Return times [E], finite numbers or dates (as seconds since 1970), as float64."""
    given = edge_time if isinstance(edge_time, Tensor) else np.array(edge_time)
    numbers = not given.is_complex() if isinstance(given, Tensor) else given.dtype.kind in "fiuM"
    if not numbers or given.shape != (num_edges,):
        raise InputError(
            f"{name} must hold a number or a datetime64 per edge [{num_edges}], got {given.dtype} "
            f"{list(given.shape)}"
        )
    if isinstance(given, np.ndarray) and given.dtype.kind == "M":
        seconds = (given - np.datetime64(0, "s")) / np.timedelta64(1, "s")
        given = np.where(np.isnat(given), np.nan, seconds)
    time = torch.as_tensor(given).to(torch.float64, copy=True)
    if not torch.as_tensor(given).is_floating_point() and bool((time.abs() > 2**53).any()):
        raise InputError(f"{name} must be at most 2^53, beyond which float64 has gaps, got larger ones")
    missing = int((~torch.isfinite(time)).sum())
    if missing:
        raise InputError(f"{name} must be finite, got {count_not_finite(missing)}")
    return time


def _extremes(
    simple: Tensor, listed: Tensor, values: Tensor, num_nodes: int, *, directed: bool
) -> tuple[Tensor, Tensor]:
    """Smallest and largest value [E] of each edge of a simple graph, from a list that may repeat them."""
    wanted, given = (pair_keys(edges, num_nodes, directed=directed) for edges in (simple, listed))
    distinct, place = torch.unique(given, return_inverse=True)
    rows = torch.searchsorted(distinct, wanted)
    empty = values.new_zeros(len(distinct))
    low = empty.scatter_reduce(0, place, values, "amin", include_self=False)
    return low[rows], empty.scatter_reduce(0, place, values, "amax", include_self=False)[rows]


def _weight_of_each(
    simple: Tensor, listed: Tensor, weight: Tensor, num_nodes: int, *, directed: bool
) -> Tensor:
    """Weights of the edges of a simple graph, from a list that may repeat them; refuse contradictions."""
    low, high = _extremes(simple, listed, weight, num_nodes, directed=directed)
    differ = low != high
    if bool(differ.any()):
        raise InputError(
            f"edge_weight must be the same wherever an edge stands{' either way' * (not directed)}, got "
            f"{int(differ.sum()) // (1 if directed else 2)} edges with two weights, such as "
            f"{tuple(simple[:, differ][:, 0].tolist())} with {low[differ][0]:g} and {high[differ][0]:g}"
        )
    return low


def _check_features(features: Any, num_nodes: int) -> Tensor:
    if issparse(features) or (isinstance(features, Tensor) and features.layout != torch.strided):
        name = type(features).__name__
        raise InputError(f"x must be dense, got {name} in a sparse layout: convert it (to_dense, toarray)")
    if not isinstance(features, Tensor):
        # A copy, as the caller's may be read-only, in this machine's byte order.
        features = np.array(features)
        if features.dtype.kind not in "fiub":
            raise InputError(f"x must hold real numbers, got {features.dtype}")
        features = torch.from_numpy(features.astype(features.dtype.newbyteorder("="), copy=False))
    x: Tensor = features
    if x.is_complex():
        raise InputError(f"x must hold real numbers, got {x.dtype}")
    if x.ndim != 2 or x.size(0) != num_nodes:
        raise InputError(f"x must have shape [num_nodes, F], num_nodes = {num_nodes}, got {list(x.shape)}")
    if not x.dtype.is_floating_point:
        x = x.to(torch.get_default_dtype())
    bad = ~torch.isfinite(x)
    if bool(bad.any()):
        row = int(bad.any(dim=1).nonzero()[0])
        raise InputError(f"x must be finite, got {count_not_finite(int(bad.sum()))}, the first in row {row}")
    # Row by row: another layout rounds products otherwise, and a saved graph would not score as before.
    return x.contiguous()


def neighbour_rows(edge_index: Tensor, num_nodes: int) -> tuple[IntArray, IntArray]:
    """Row starts (N + 1,) and neighbours (A,): those of u are ``neighbours[starts[u] : starts[u + 1]]``.

    Distinct and increasing; direction, repeats and self-loops are ignored.
    """
    row, col = edge_index.cpu().numpy()
    row, col = row[row != col], col[row != col]
    keys = np.unique(np.concatenate([row * num_nodes + col, col * num_nodes + row]))
    return row_starts(keys // num_nodes, num_nodes), keys % num_nodes


def row_starts(row: IntArray, num_nodes: int) -> IntArray:
    """Where each row starts, (N + 1,), in a list that is sorted by row."""
    return np.asarray(np.searchsorted(row, np.arange(num_nodes + 1)), dtype=np.int64)


@compiled(inline="always")
def place_in_row(values: Array, low: int, high: int, wanted: int) -> int:
    """Place of `wanted` in the increasing ``values[low:high]``, or -1; by bisection."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < end and values[low] == wanted else -1
