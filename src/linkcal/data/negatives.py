"""Pairs without an edge: uniform, degree-matched and two-hop, exactly as stated."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.validation import check_choice, check_edge_index, check_positive_int
from linkcal.data.graph import Graph, neighbour_rows, pair_keys, rows_of_keys
from linkcal.exceptions import InputError, ShortageError

__all__ = [
    "NEGATIVE_KINDS",
    "NegativeKind",
    "NegativeSampler",
    "degree_negatives",
    "distinct_ranks",
    "first_occurrences",
    "in_sorted",
    "sample_negatives",
    "two_hop_negatives",
]


# Exact uniform sampling of non-edges, without rejection against the edge list.
#
# Pairs of different nodes are numbered 0, 1, 2, ... by a closed formula. The non-edges are the numbers left
# over when those of the edges are taken out, and the r-th number left over is found by one binary search in
# the sorted edge numbers. So distinct ranks give distinct non-edges at any density, in O(E + L) memory: a
# complete graph less one edge costs no more than a sparse one.

IntArray = NDArray[np.int64]


class NegativeSampler:
    """Draw distinct non-edges of one graph again and again, for instance once per training epoch.

    The edges are numbered and sorted once, in the constructor; each call then costs O(L log E).

    Parameters
    ----------
    graph : Graph
        Its edges, reversed edges (undirected) and self-pairs are never drawn.
    exclude : Tensor [2, K], optional
        More pairs never to draw, in either orientation if the graph is undirected.

    Notes
    -----
    A sampler over the message-passing graph of a split may draw a validation or test link as a "non-edge", as
    PyG's ``negative_sampling`` does: training must not know those links, so it must not avoid them either.

    Examples
    --------
    >>> import numpy as np, torch
    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    >>> sampler = NegativeSampler(path)
    >>> sampler.num_available
    3
    >>> sorted(map(tuple, sampler.sample(3, np.random.default_rng(0)).T.tolist()))
    [(0, 2), (0, 3), (1, 3)]
    """

    def __init__(self, graph: Graph, *, exclude: Tensor | None = None) -> None:
        self._num_nodes = graph.num_nodes
        self._directed = graph.directed
        self._device = graph.edge_index.device
        taken = _pair_numbers(graph.pairs, graph.num_nodes, directed=graph.directed)
        if exclude is not None:
            exclude = check_edge_index(exclude, graph.num_nodes, "exclude")
            exclude = exclude[:, exclude[0] != exclude[1]]
            more = _pair_numbers(exclude, graph.num_nodes, directed=graph.directed)
            taken = np.concatenate([taken, more])
        taken = np.unique(taken)
        self._num_available = graph.num_possible_pairs - len(taken)
        # Number of free pairs before the i-th taken one: non-decreasing, so rank -> number is one search.
        self._free_before = taken - np.arange(len(taken))

    @property
    def num_available(self) -> int:
        """How many distinct non-edges there are to draw."""
        return self._num_available

    def sample(self, num: int, generator: np.random.Generator) -> Tensor:
        """Draw `num` distinct non-edges, every ordered selection equally likely.

        Parameters
        ----------
        num : int
            L, at least 0.
        generator : numpy.random.Generator
            For a named stream see ``linkcal._core.random.numpy_stream``.

        Returns
        -------
        Tensor [2, L], int64
            On the graph's device; smaller index first in an undirected graph.

        Raises
        ------
        ShortageError
            If there are fewer than `num` non-edges.
        """
        num = check_positive_int(num, "num", minimum=0)
        if not isinstance(generator, np.random.Generator):
            raise InputError(f"generator must be a numpy.random.Generator, got {type(generator).__name__}")
        if num > self._num_available:
            raise ShortageError(
                f"num must be at most the number of non-edges that can be drawn, "
                f"{self._num_available}, got {num}",
                self._num_available,
            )
        ranks = distinct_ranks(self._num_available, num, generator)
        numbers = ranks + np.searchsorted(self._free_before, ranks, side="right")
        return _pairs_of_numbers(numbers, self._num_nodes, directed=self._directed).to(self._device)


def distinct_ranks(population: int, size: int, rng: np.random.Generator) -> IntArray:
    """Uniform ordered sample without replacement of `size` of ``range(population)`` in O(size) memory.

    The distinct values of an i.i.d. uniform sequence, in order of first appearance, are such a sample.
    ``Generator.choice(replace=False)`` is too, but may allocate 50 times the asked size.
    """
    if 2 * size >= population:
        return rng.permutation(population)[:size]
    ranks = np.empty(0, dtype=np.int64)
    while len(ranks) < size:
        missing = size - len(ranks)
        draws = rng.integers(population, size=missing + missing // 4 + 8)
        ranks = first_occurrences(np.concatenate([ranks, draws]))
    return ranks[:size]


def first_occurrences(values: IntArray) -> IntArray:
    """Distinct values in order of first appearance."""
    return values[np.sort(np.unique(values, return_index=True)[1])]


def in_sorted(ordered: IntArray, keys: IntArray) -> NDArray[np.bool_]:
    """Whether each key (m,) stands in the sorted keys; by binary search, without sorting anew."""
    if not ordered.size:
        return np.zeros(keys.size, dtype=np.bool_)
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
    step = np.where(wraps, num_nodes - gap, gap)
    start = np.where(wraps, high, low)
    return np.asarray((step - 1) * num_nodes + start)


def _pairs_of_numbers(numbers: IntArray, num_nodes: int, *, directed: bool) -> Tensor:
    """Pairs [2, L] of pair numbers.

    Directed: row by row, leaving out the diagonal. Undirected: nodes stand on a circle and number
    ``(k - 1) N + s`` is the pair {s, s + k mod N}, k steps apart (k up to N/2). Unlike numbering the upper
    triangle row by row, this inverts by integer division alone, without a square root that must be rounded.
    """
    if directed:
        u, v = np.divmod(numbers, max(num_nodes - 1, 1))
        v = v + (v >= u)
    else:
        step, start = np.divmod(numbers, num_nodes)
        end = (start + step + 1) % num_nodes
        u, v = np.minimum(start, end), np.maximum(start, end)
    return torch.from_numpy(np.stack([u, v]))


# Pairs without an edge whose endpoints are drawn in proportion to their degrees.

# Up to so many candidate pairs are listed one by one rather than drawn and rejected.
_LISTED = 1 << 22


def degree_negatives(
    graph: Graph, num: int, generator: np.random.Generator, taken: IntArray, *, listed: int = _LISTED
) -> Tensor:
    """Draw `num` distinct pairs one after the other, each in proportion to the product of its degrees.

    Parameters
    ----------
    graph : Graph
        Degrees are counted in it: of a directed graph, out-degree of the source and in-degree of the target.
    num : int
    generator : numpy.random.Generator
    taken : ndarray (K,), int64
        Sorted distinct keys ``u N + v`` of pairs never to draw (u < v in an undirected graph).
    listed : int
        Graphs with up to so many candidate pairs are drawn from a list of them.

    Returns
    -------
    Tensor [2, num], int64

    Raises
    ------
    ShortageError
        If fewer pairs of nodes with edges are free.

    Notes
    -----
    The source of a random edge and the target of another are proportional to the degrees. The distinct ones
    of a sequence of such pairs, in order of first appearance, are a sample without replacement in which each
    next pair is drawn from those left over, in proportion to their weights. Where so many are asked for, or
    so few exist, that repeats would waste draws, the free pairs are listed and those with the `num` smallest
    ``Exponential(1) / weight`` taken: the same distribution (Efraimidis, Spirakis: Weighted random sampling
    with a reservoir, 2006).
    """
    edges = graph.edge_index.cpu().numpy()
    sources, out_degree = np.unique(edges[0], return_counts=True)
    targets, in_degree = np.unique(edges[1], return_counts=True)
    available = _num_free(graph, sources, targets, taken)
    if num > available:
        raise ShortageError(
            f"num must be at most the number of non-edges between nodes that have edges, {available}, "
            f"got {num}",
            available,
        )
    if len(sources) * len(targets) <= max(8 * num, listed):
        keys, row, column = _free_pairs(graph, sources, targets, taken)
        weight = out_degree[row].astype(np.float64) * in_degree[column]
        waited = generator.exponential(size=len(keys)) / weight
        chosen = np.argpartition(waited, num - 1)[:num] if 0 < num < len(keys) else np.arange(len(keys))[:num]
        keys = keys[chosen[np.argsort(waited[chosen], kind="stable")]]
    else:
        keys = _drawn(graph, edges, num, generator, taken)
    return torch.from_numpy(np.stack(np.divmod(keys, graph.num_nodes)))


def _num_free(graph: Graph, sources: IntArray, targets: IntArray, taken: IntArray) -> int:
    """Pairs of a source and a target that may be drawn."""
    u, v = np.divmod(taken, graph.num_nodes)
    inside = np.isin(u, sources) & np.isin(v, targets)
    loops = len(np.intersect1d(sources, targets, assume_unique=True))
    ordered = len(sources) * len(targets) - loops
    return int((ordered if graph.directed else ordered // 2) - inside.sum())


def _free_pairs(
    graph: Graph, sources: IntArray, targets: IntArray, taken: IntArray
) -> tuple[IntArray, NDArray[np.intp], NDArray[np.intp]]:
    """Keys of all pairs that may be drawn, with their places in `sources` and `targets`."""
    row, column = np.divmod(np.arange(len(sources) * len(targets)), max(len(targets), 1))
    u, v = sources[row], targets[column]
    keys = u * graph.num_nodes + v
    free = (u != v) if graph.directed else (u < v)
    free &= ~in_sorted(taken, keys)
    return keys[free], row[free], column[free]


def _drawn(
    graph: Graph, edges: IntArray, num: int, generator: np.random.Generator, taken: IntArray
) -> IntArray:
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < num:
        size = 2 * (num - len(keys)) + 64
        u = edges[0][generator.integers(edges.shape[1], size=size)]
        v = edges[1][generator.integers(edges.shape[1], size=size)]
        if not graph.directed:
            u, v = np.minimum(u, v), np.maximum(u, v)
        found = (u * graph.num_nodes + v)[u != v]
        keys = first_occurrences(np.concatenate([keys, found[~in_sorted(taken, found)]]))
    return keys[:num]


# Pairs without an edge two steps apart: pairs that share a neighbour, each equally likely.

Array = Any  # NumPy arrays of int64; Numba specialises the code on it

# Up to so many paths of two edges are walked one by one (a fraction of a second); beyond, pairs are drawn.
_WALKED = 1 << 24

# Draws for each pair asked for before drawing is given up for walking.
_DRAWS_PER_PAIR = 256


def two_hop_negatives(
    graph: Graph, num: int, generator: np.random.Generator, taken: IntArray, *, walked: int = _WALKED
) -> Tensor:
    """Draw `num` distinct pairs with a common neighbour, every ordered selection equally likely.

    Parameters
    ----------
    graph : Graph
        A common neighbour is joined to both nodes, in a directed graph in any direction.
    num : int
    generator : numpy.random.Generator
    taken : ndarray (K,), int64
        Sorted distinct keys ``u N + v`` of pairs never to draw (u < v in an undirected graph).
    walked : int
        Graphs with up to so many paths of two edges have all of them walked.

    Returns
    -------
    Tensor [2, num], int64

    Raises
    ------
    ShortageError
        If fewer such pairs are free.

    Notes
    -----
    Never an N x N table. A path u - w - v drawn uniformly favours pairs with many common neighbours; it is
    kept only if w is the SMALLEST of them. Each pair has one such path in each direction, so pairs are
    uniform. In a graph with few paths, or when too few distinct pairs come out of many draws, all paths are
    walked node by node in O(N) memory: partners are counted, distinct ranks drawn, and the partners with
    these ranks found in a second walk. Draws that were given up leave no trace in the distribution, because
    all pairs are exchangeable.
    """
    rows = neighbour_rows(graph.edge_index, graph.num_nodes)
    degree = np.diff(rows[0])
    paths = np.cumsum(degree * (degree - 1))
    keys = None
    if len(paths) and paths[-1] > walked:
        keys = _two_hop_negatives_drawn(graph, rows, paths, num, generator, taken)
    if keys is None:
        keys = _walked(graph, rows, num, generator, taken)
    return torch.from_numpy(np.stack(np.divmod(keys, graph.num_nodes)))


def _two_hop_negatives_drawn(
    graph: Graph,
    rows: tuple[IntArray, IntArray],
    paths: IntArray,
    num: int,
    generator: np.random.Generator,
    taken: IntArray,
) -> IntArray | None:
    """Keys of `num` pairs from random paths; None if too many draws are wasted."""
    start, neighbours = rows
    keys, left = np.empty(0, dtype=np.int64), _DRAWS_PER_PAIR * num + 1024
    while len(keys) < num:
        size = 4 * (num - len(keys)) + 256
        left -= size
        if left < 0:
            return None
        drawn = generator.integers(paths[-1], size=size)
        middle = np.searchsorted(paths, drawn, side="right")
        fewer = start[middle + 1] - start[middle] - 1
        first, second = np.divmod(drawn - (paths[middle] - fewer * (fewer + 1)), fewer)
        second += second >= first
        u, v = neighbours[start[middle] + first], neighbours[start[middle] + second]
        if not graph.directed:
            u, v = np.minimum(u, v), np.maximum(u, v)
        found = u * graph.num_nodes + v
        free = ~np.isin(found, taken)
        free[free] = _smallest_common(start, neighbours, u[free], v[free]) == middle[free]
        keys = first_occurrences(np.concatenate([keys, found[free]]))
    return keys[:num]


def _walked(
    graph: Graph,
    rows: tuple[IntArray, IntArray],
    num: int,
    generator: np.random.Generator,
    taken: IntArray,
) -> IntArray:
    """Keys of `num` pairs by rank among all pairs that are free."""
    n = graph.num_nodes
    if not graph.directed:  # both directions: every row must know all its partners that are taken
        u, v = np.divmod(taken, n)
        taken = np.unique(np.concatenate([taken, v * n + u]))
    closed = rows_of_keys(taken, n)
    upto = np.cumsum(_count_partners(*rows, *closed, graph.directed))
    available = int(upto[-1])
    if num > available:
        raise ShortageError(
            f"num must be at most the number of non-edges with a common neighbour, {available}, got {num}",
            available,
        )
    ranks = distinct_ranks(available, num, generator)
    order = np.argsort(ranks)
    nodes = np.searchsorted(upto, ranks[order], side="right")
    before = np.concatenate([[0], upto[:-1]])[nodes]
    partners = np.empty(num, dtype=np.int64)
    partners[order] = _pick_partners(*rows, *closed, graph.directed, nodes, ranks[order] - before)
    nodes[order] = nodes.copy()
    return np.asarray(nodes * n + partners)


@compiled()
def _list_partners(
    start: Array,
    neighbours: Array,
    closed_start: Array,
    closed: Array,
    directed: bool,
    u: int,
    seen: Array,
    out: Array,
) -> int:
    """Write the free two-step partners of u (larger ones only, if undirected) to `out`; return how many."""
    seen[u] = u
    for k in range(closed_start[u], closed_start[u + 1]):
        seen[closed[k]] = u
    count = 0
    for k in range(start[u], start[u + 1]):
        w = neighbours[k]
        for m in range(start[w], start[w + 1]):
            v = neighbours[m]
            if seen[v] != u:
                seen[v] = u
                if directed or v > u:
                    out[count] = v
                    count += 1
    return count


@compiled()
def _count_partners(
    start: Array, neighbours: Array, closed_start: Array, closed: Array, directed: bool
) -> Array:
    n = start.shape[0] - 1
    seen, found, counts = np.full(n, -1, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    for u in range(n):
        counts[u] = _list_partners(start, neighbours, closed_start, closed, directed, u, seen, found)
    return counts


@compiled()
def _pick_partners(
    start: Array,
    neighbours: Array,
    closed_start: Array,
    closed: Array,
    directed: bool,
    nodes: Array,
    places: Array,
) -> Array:
    """The partner at each place in the list of each of the non-decreasing nodes."""
    n = start.shape[0] - 1
    seen, found = np.full(n, -1, np.int64), np.empty(n, np.int64)
    out = np.empty(len(nodes), np.int64)
    listed = -1
    for k in range(len(nodes)):
        if nodes[k] != listed:
            listed = nodes[k]
            _list_partners(start, neighbours, closed_start, closed, directed, listed, seen, found)
        out[k] = found[places[k]]
    return out


@compiled()
def _smallest_common(start: Array, neighbours: Array, first: Array, second: Array) -> Array:
    """The smallest common neighbour of each pair; -1 without one. The longer row is searched by bisection."""
    out = np.full(len(first), -1, np.int64)
    for pair in range(len(first)):
        u, v = first[pair], second[pair]
        if start[u + 1] - start[u] > start[v + 1] - start[v]:
            u, v = v, u
        row = neighbours[start[v] : start[v + 1]]
        low = 0
        for k in range(start[u], start[u + 1]):
            low += np.searchsorted(row[low:], neighbours[k])
            if low == len(row):
                break
            if row[low] == neighbours[k]:
                out[pair] = row[low]
                break
    return out


# Which non-edges stand against the links: uniform ones, degree-matched ones, or pairs two steps apart.

#: Kinds of non-edges by name; see :func:`sample_negatives`.
NegativeKind = Literal["uniform", "degree", "two-hop"]
NEGATIVE_KINDS: tuple[str, ...] = get_args(NegativeKind)


def sample_negatives(
    graph: Graph,
    num: int,
    generator: np.random.Generator,
    *,
    kind: NegativeKind = "uniform",
    exclude: Tensor | None = None,
) -> Tensor:
    """Draw `num` distinct non-edges of `graph`.

    For repeated uniform draws from one graph keep a :class:`NegativeSampler`, which sorts the edges once.

    Parameters
    ----------
    graph : Graph
    num : int
        L, at least 0.
    generator : numpy.random.Generator
    kind : {"uniform", "degree", "two-hop"}
        ``"uniform"``: every non-edge equally likely. ``"degree"``: endpoints in proportion to their degrees
        (out-degree of the source, in-degree of the target in a directed graph), one pair after the other
        from those left over. ``"two-hop"``: every non-edge with a common neighbour (in any direction) equally
        likely, however many common neighbours it has.
    exclude : Tensor [2, K], optional
        More pairs never to draw, in either orientation if the graph is undirected.

    Returns
    -------
    Tensor [2, L], int64
        On the graph's device; smaller index first in an undirected graph. Never an edge, a reversed edge of
        an undirected graph, a self-pair, an excluded pair or a repeat.

    Raises
    ------
    InputError
        If `kind` is unknown.
    ShortageError
        If there are fewer than `num` such pairs.

    Notes
    -----
    Memory is O(E + N + L). Time is O(L log E) for uniform and degree-matched pairs; two-hop pairs cost
    up to one walk over all paths of two edges in small graphs, and some searches of neighbour lists for each
    pair in large ones.

    Examples
    --------
    >>> import numpy as np, torch
    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    >>> sorted(map(tuple, sample_negatives(path, 2, np.random.default_rng(0), kind="two-hop").T.tolist()))
    [(0, 2), (1, 3)]
    >>> triangle = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
    >>> sample_negatives(triangle, 1, np.random.default_rng(0))
    Traceback (most recent call last):
    linkcal.exceptions.ShortageError: num must be at most the number of non-edges that can be drawn, 0, got 1
    """
    check_choice(kind, "kind", NEGATIVE_KINDS)
    if kind == "uniform":
        return NegativeSampler(graph, exclude=exclude).sample(num, generator)
    num = check_positive_int(num, "num", minimum=0)
    if not isinstance(generator, np.random.Generator):
        raise InputError(f"generator must be a numpy.random.Generator, got {type(generator).__name__}")
    taken = graph.pairs
    if exclude is not None:
        exclude = check_edge_index(exclude, graph.num_nodes, "exclude").to(taken.device)
        taken = torch.cat([taken, exclude[:, exclude[0] != exclude[1]]], dim=1)
    keys = torch.unique(pair_keys(taken, graph.num_nodes, directed=graph.directed)).cpu().numpy()
    draw = degree_negatives if kind == "degree" else two_hop_negatives
    return draw(graph, num, generator, keys).to(graph.edge_index.device)
