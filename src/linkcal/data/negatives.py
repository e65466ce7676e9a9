"""Negatives, pairs without an edge: uniform, degree-matched, two-hop and HeaRT, exactly as stated."""

from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.validation import check_choice, check_edge_index, check_positive_int
from linkcal.data._heart import heart_keys
from linkcal.data.graph import Graph, neighbour_rows, pair_keys, place_in_row
from linkcal.exceptions import InputError, ShortageError

IntArray = NDArray[np.int64]
Rows = tuple[IntArray, IntArray]  # row starts and columns, as of neighbour_rows
Array = Any  # NumPy arrays of int64, or Rows; Numba specialises the code on it

#: Kinds of negatives by name; see :func:`sample_negatives`.
NegativeKind = Literal["uniform", "degree", "two-hop", "heart"]
NEGATIVE_KINDS: tuple[str, ...] = get_args(NegativeKind)

#: Up to so many candidate pairs are listed one by one; up to the second number where most draws would fail.
_LISTED = 1 << 22
_LISTED_DENSE = 1 << 27
#: Up to so many paths of two edges are walked one by one; beyond, pairs are drawn.
_WALKED = 1 << 24
#: Draws for each wanted pair before drawing is given up for walking.
_DRAWS_PER_PAIR = 256


def sample_negatives(
    graph: Graph,
    num: int,
    generator: np.random.Generator,
    *,
    kind: NegativeKind = "uniform",
    exclude: Tensor | None = None,
    links: Tensor | None = None,
    half: int = 250,
) -> Tensor:
    """Draw `num` distinct non-edges of `graph`; see :class:`NegativeSampler` for repeated uniform draws.

    Parameters
    ----------
    graph, num, generator : Graph, int (L) and numpy.random.Generator
    kind : {"uniform", "degree", "two-hop", "heart"}
        ``"uniform"``: every non-edge equally likely. ``"degree"``: one after the other, endpoints in
        proportion to their degrees (directed: out-degree of the source, in-degree of the target).
        ``"two-hop"``: every non-edge with a common neighbour (in any direction) equally likely.
        ``"heart"``: as in the notes.
    exclude : Tensor [2, K], optional
        More pairs never to draw, in either orientation if the graph is undirected.
    links, half : Tensor [2, P] and int, optional
        Read by ``"heart"`` alone: links that negatives are drawn for, default the edges; K / 2.

    Returns
    -------
    Tensor [2, L], int64
        On the graph's device; smaller index first in an undirected graph, source node first in a bipartite
        one, whose pairs join the two types and are never ``"two-hop"``. Never an edge, a reversed edge of an
        undirected graph, a self-pair, an excluded pair or a repeat. ShortageError if there are fewer.

    Notes
    -----
    HeaRT (Li et al., 2023, arXiv 2306.10453) ranks a link (s, t) among K = 500 candidates, K / 2 non-edges
    (s, a) and K / 2 (b, t). For a kept end, here s, all nodes a are ranked, the highest score first, by::

        resource allocation    sum over common neighbours w of 1 / d_w
        personalised PageRank  p_a, where p = 0.15 e_s + 0.85 W p and W moves to a random neighbour
        feature cosine         x_s . x_a / (|x_s| |x_a|), if the graph has ``given_features``

    without the link itself, neighbours in any direction. A score of 0 or less gives no rank. The K / 2 nodes
    with the smallest of their ranks are candidates, equals at random. To draw, the links take turns: each
    keeps an end by a fair coin and draws uniformly from the candidates that are left. Time: O(L (N + E)).

    Examples
    --------
    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    >>> sorted(map(tuple, sample_negatives(path, 2, np.random.default_rng(0), kind="two-hop").T.tolist()))
    [(0, 2), (1, 3)]
    """
    check_choice(kind, "kind", NEGATIVE_KINDS)
    check_kind(graph, kind)
    if kind == "uniform":
        return NegativeSampler(graph, exclude=exclude).sample(num, generator)
    num, draw = _check_draw(num, generator), _DRAWS[kind]
    if kind == "heart":
        ends = graph.pairs if links is None else graph.check_pairs(links, "links")
        more = graph.edge_index if exclude is None else check_edge_index(exclude, graph.num_nodes, "exclude")
        exclude = torch.cat([ends, more.to(ends)], dim=1)
        draw = partial(draw, links=ends.cpu().numpy(), half=check_positive_int(half, "half"))
    keys = pair_keys(_taken(graph, exclude), graph.num_nodes, directed=graph.directed)
    closed = torch.unique(keys).cpu().numpy()
    pairs = np.stack(np.divmod(draw(graph, num, generator, closed), graph.num_nodes))
    return graph.source_first(torch.from_numpy(pairs).to(graph.edge_index.device))


def check_kind(graph: Graph, kind: str) -> None:
    """Refuse two-hop negatives of a bipartite graph: a source and a target never share a neighbour."""
    if kind == "two-hop" and graph.node_type is not None:
        raise InputError(
            "negatives of a bipartite graph must be 'uniform', 'degree' or 'heart', got 'two-hop': no source "
            "node has a neighbour in common with a target node"
        )


def _taken(graph: Graph, exclude: Tensor | None) -> Tensor:
    """Pairs [2, K] that must not be drawn: those of the graph, and what could be drawn of `exclude`."""
    if exclude is None:
        return graph.pairs
    exclude = check_edge_index(exclude, graph.num_nodes, "exclude").to(graph.edge_index.device)
    if graph.node_type is not None:
        kind = graph.node_type[exclude]
        exclude = graph.source_first(exclude[:, kind[0] != kind[1]])
    return torch.cat([graph.pairs, exclude[:, exclude[0] != exclude[1]]], dim=1)


def _check_draw(num: int, generator: np.random.Generator) -> int:
    if not isinstance(generator, np.random.Generator):
        raise InputError(f"generator must be a numpy.random.Generator, got {type(generator).__name__}")
    return check_positive_int(num, "num", minimum=0)


def _require(num: int, available: int, which: str) -> None:
    if num > available:
        raise ShortageError(
            f"num must be at most the number of non-edges {which}, {available}, got {num}", available
        )


# Uniform: pairs of different nodes are numbered by a closed formula; the r-th number that is no edge's is
# found by one binary search, so distinct ranks give distinct non-edges at any density, in O(E + L) memory.
class NegativeSampler:
    """Draw distinct non-edges of one graph again and again; the edges are sorted only once.

    On the message-passing graph of a split it may draw a validation or test link: training must not know
    those links, so it must not avoid them either.

    Parameters
    ----------
    graph : Graph
    exclude : Tensor [2, K], optional
        As in :func:`sample_negatives`. The attribute ``num_available`` is the number of pairs left to draw.

    Examples
    --------
    >>> sampler = NegativeSampler(Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4))
    >>> sorted(map(tuple, sampler.sample(sampler.num_available, np.random.default_rng(0)).T.tolist()))
    [(0, 2), (0, 3), (1, 3)]
    """

    def __init__(self, graph: Graph, *, exclude: Tensor | None = None) -> None:
        self._num_nodes, self._directed = graph.num_nodes, graph.directed
        self._device = graph.edge_index.device
        pairs = _taken(graph, exclude)
        self._ends: tuple[IntArray, IntArray] | None = None
        if graph.node_type is not None:
            # A bipartite graph's pairs are numbered row by row: place of the source, place of the target.
            self._ends = graph.ends[0].cpu().numpy(), graph.ends[1].cpu().numpy()
            (first, second), (u, v) = self._ends, pairs.cpu().numpy()
            taken = np.unique(np.searchsorted(first, u) * len(second) + np.searchsorted(second, v))
        else:
            taken = np.unique(_pair_numbers(pairs, graph.num_nodes, directed=graph.directed))
        self.num_available = graph.num_possible_pairs - len(taken)
        # Number of free pairs before the i-th taken one: non-decreasing, so rank -> number is one search.
        self._free_before = taken - np.arange(len(taken))

    def sample(self, num: int, generator: np.random.Generator) -> Tensor:
        """Draw `num` distinct non-edges [2, L], int64, every ordered selection equally likely.

        On the graph's device; smaller index first in an undirected graph. ShortageError if there are fewer.
        """
        num = _check_draw(num, generator)
        _require(num, self.num_available, "that can be drawn")
        ranks = _distinct_ranks(self.num_available, num, generator)
        numbers = ranks + np.searchsorted(self._free_before, ranks, side="right")
        if self._ends is not None:
            source, target = self._ends
            place = np.divmod(numbers, len(target))
            return torch.from_numpy(np.stack([source[place[0]], target[place[1]]])).to(self._device)
        return _pairs_of_numbers(numbers, self._num_nodes, directed=self._directed).to(self._device)


def _distinct_ranks(population: int, size: int, rng: np.random.Generator) -> IntArray:
    """Uniform ordered sample of ``range(population)``: the first appearances in uniform draws."""
    if 2 * size >= population:
        return rng.permutation(population)[:size]
    ranks = np.empty(0, dtype=np.int64)
    while (missing := size - len(ranks)) > 0:
        ranks = _extended(ranks, rng.integers(population, size=missing + missing // 4 + 8))
    return ranks[:size]


def _extended(values: IntArray, more: IntArray) -> IntArray:
    """The distinct values of both in order of first appearance."""
    values = np.concatenate([values, more])
    return values[np.sort(np.unique(values, return_index=True)[1])]


def _keys(u: IntArray, v: IntArray, graph: Graph) -> IntArray:
    """Keys as of :func:`pair_keys`."""
    if not graph.directed:
        u, v = np.minimum(u, v), np.maximum(u, v)
    return np.asarray(u * graph.num_nodes + v)


def in_sorted(ordered: IntArray, keys: IntArray) -> NDArray[np.bool_]:
    """Whether each key (m,) stands in the sorted keys; by binary search, without sorting anew."""
    if not ordered.size:
        return np.zeros(keys.shape, dtype=bool)
    place = np.minimum(np.searchsorted(ordered, keys), ordered.size - 1)
    return np.asarray(ordered[place] == keys)


def _pair_numbers(pairs: Tensor, num_nodes: int, *, directed: bool) -> IntArray:
    """Give each pair of different nodes its number; the inverse of :func:`_pairs_of_numbers`."""
    u, v = pairs.cpu().numpy()
    if directed:
        return np.asarray(u * (num_nodes - 1) + v - (v > u))
    low, high = np.minimum(u, v), np.maximum(u, v)
    gap = high - low
    wraps = 2 * gap > num_nodes
    return np.asarray((np.where(wraps, num_nodes - gap, gap) - 1) * num_nodes + np.where(wraps, high, low))


def _pairs_of_numbers(numbers: IntArray, num_nodes: int, *, directed: bool) -> Tensor:
    """Pairs [2, L] of pair numbers.

    Directed: row by row, without the diagonal. Undirected: number ``(k - 1) N + s`` is the pair
    {s, s + k mod N}, k up to N/2, which inverts by integer division without a rounded square root.
    """
    if directed:
        u, v = np.divmod(numbers, max(num_nodes - 1, 1))
        v = v + (v >= u)
    else:
        step, start = np.divmod(numbers, num_nodes)
        end = (start + step + 1) % num_nodes
        u, v = np.minimum(start, end), np.maximum(start, end)
    return torch.from_numpy(np.stack([u, v]))


# Degree-matched: sources and targets of random edges are proportional to the degrees; the distinct pairs, in
# order of first appearance, are a weighted sample without replacement. Where draws would be wasted, the free
# pairs with the smallest ``Exponential(1) / weight`` have the same distribution (Efraimidis, Spirakis, 2006).
def _degree_keys(graph: Graph, num: int, generator: np.random.Generator, closed: IntArray) -> IntArray:
    """Keys ``u N + v`` of `num` pairs, none in the sorted keys `closed`, by the product of their degrees."""
    ordered = graph.ordered_pairs
    edges = (graph.pairs if ordered else graph.edge_index).cpu().numpy()
    sources, out_degree = np.unique(edges[0], return_counts=True)
    targets, in_degree = np.unique(edges[1], return_counts=True)
    closed_pairs = torch.from_numpy(np.stack(np.divmod(closed, graph.num_nodes)))
    u, v = graph.source_first(closed_pairs).numpy()
    inside = in_sorted(sources, u) & in_sorted(targets, v)
    row, column = np.searchsorted(sources, u[inside]), np.searchsorted(targets, v[inside])
    loops, at_source, at_target = np.intersect1d(sources, targets, return_indices=True)
    orders = 1 if ordered else 2
    candidates = len(sources) * len(targets)
    available = (candidates - len(loops)) // orders - len(row)
    _require(num, available, "between nodes that have edges")
    out_weight, in_weight = out_degree.astype(np.float64), in_degree.astype(np.float64)
    refused = orders * (out_weight[row] @ in_weight[column]) + out_weight[at_source] @ in_weight[at_target]
    wasteful = refused > 0.75 * edges.shape[1] ** 2 or 2 * num > available
    if candidates <= max(8 * num, _LISTED) or (wasteful and candidates <= _LISTED_DENSE):
        free = sources[:, None] != targets if ordered else sources[:, None] < targets
        free[row, column] = False
        row, column = np.nonzero(free)
        waited = generator.exponential(size=len(row)) / (out_weight[row] * in_weight[column])
        chosen = np.argpartition(waited, num - 1)[:num] if 0 < num < len(row) else np.arange(len(row))[:num]
        chosen = chosen[np.argsort(waited[chosen], kind="stable")]
        return _keys(sources[row[chosen]], targets[column[chosen]], graph)
    keys = np.empty(0, dtype=np.int64)
    while (missing := num - len(keys)) > 0:
        u, v = (end[generator.integers(len(end), size=2 * missing + 64)] for end in edges)
        found = _keys(u, v, graph)[u != v]
        keys = _extended(keys, found[~in_sorted(closed, found)])
    return keys[:num]


# Two-hop: a random path u - w - v favours pairs with many common neighbours, so it is kept only if w is the
# SMALLEST of them. With few paths or many wasted draws, which few free pairs cause, these are listed and
# distinct ranks drawn; giving up draws does not change the distribution, because all pairs are exchangeable.
def _two_hop_keys(graph: Graph, num: int, generator: np.random.Generator, closed: IntArray) -> IntArray:
    """Keys ``u N + v`` of `num` pairs with a common neighbour, none in the sorted keys `closed`."""
    rows = neighbour_rows(graph.edge_index, graph.num_nodes)
    degree = np.diff(rows[0])
    paths = np.cumsum(degree * (degree - 1))
    keys = _two_hop_drawn(graph, rows, paths, num, generator, closed) if paths[-1] > _WALKED else None
    if keys is not None:
        return keys
    found = np.empty(_list_two_hop(*rows, graph.directed, np.empty(0, np.int64)), np.int64)
    _list_two_hop(*rows, graph.directed, found)
    free = found[~in_sorted(closed, found)]
    _require(num, len(free), "with a common neighbour")
    return free[_distinct_ranks(len(free), num, generator)]


def _two_hop_drawn(
    graph: Graph, rows: Rows, paths: IntArray, num: int, generator: np.random.Generator, closed: IntArray
) -> IntArray | None:
    """Keys of `num` pairs from random paths; None if too many draws are wasted."""
    start, neighbours = rows
    keys, left = np.empty(0, dtype=np.int64), _DRAWS_PER_PAIR * num + 1024
    while (missing := num - len(keys)) > 0:
        size = 4 * missing + 256
        left -= size
        if left < 0:
            return None
        drawn = generator.integers(paths[-1], size=size)
        middle = np.searchsorted(paths, drawn, side="right")
        fewer = start[middle + 1] - start[middle] - 1
        first, second = np.divmod(drawn - (paths[middle] - fewer * (fewer + 1)), fewer)
        second += second >= first
        found = _keys(neighbours[start[middle] + first], neighbours[start[middle] + second], graph)
        free = ~in_sorted(closed, found)
        free[free] = _smallest_common(rows, *np.divmod(found[free], graph.num_nodes)) == middle[free]
        keys = _extended(keys, found[free])
    return keys[:num]


#: How each kind but the uniform one is drawn.
_DRAWS: dict[str, Any] = {"degree": _degree_keys, "two-hop": _two_hop_keys, "heart": heart_keys}


@compiled()
def _list_two_hop(start: Array, neighbours: Array, directed: bool, out: Array) -> int:
    """Write the keys of pairs with a common neighbour to `out`, while it has room; return their number."""
    n, count = len(start) - 1, 0
    seen = np.full(n, -1, np.int64)
    for u in range(n):
        seen[u] = u
        for k in range(start[u], start[u + 1]):
            w = neighbours[k]
            for m in range(start[w], start[w + 1]):
                v = neighbours[m]
                if seen[v] != u:
                    seen[v] = u
                    if directed or v > u:
                        if count < len(out):
                            out[count] = u * n + v
                        count += 1
    return count


@compiled()
def _smallest_common(rows: Array, first: Array, second: Array) -> Array:
    """The smallest common neighbour of each pair; -1 without one. The longer row is searched by bisection."""
    start, neighbours = rows
    out = np.full(len(first), -1, np.int64)
    for pair in range(len(first)):
        u, v = first[pair], second[pair]
        if start[u + 1] - start[u] > start[v + 1] - start[v]:
            u, v = v, u
        for k in range(start[u], start[u + 1]):
            if place_in_row(neighbours, start[v], start[v + 1], neighbours[k]) >= 0:
                out[pair] = neighbours[k]
                break
    return out
