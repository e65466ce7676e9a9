"""Non-edges two steps apart: pairs that share a neighbour, each equally likely."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from linkcal.data.graph import Graph
from linkcal.data.negatives import distinct_ranks, first_occurrences
from linkcal.data.neighbours import neighbour_rows, rows_of_keys
from linkcal.exceptions import ShortageError

__all__ = ["two_hop_negatives"]

IntArray = NDArray[np.int64]
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
        keys = _drawn(graph, rows, paths, num, generator, taken)
    if keys is None:
        keys = _walked(graph, rows, num, generator, taken)
    return torch.from_numpy(np.stack(np.divmod(keys, graph.num_nodes)))


def _drawn(
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


@njit(cache=True)
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


@njit(cache=True)
def _count_partners(
    start: Array, neighbours: Array, closed_start: Array, closed: Array, directed: bool
) -> Array:
    n = start.shape[0] - 1
    seen, found, counts = np.full(n, -1, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    for u in range(n):
        counts[u] = _list_partners(start, neighbours, closed_start, closed, directed, u, seen, found)
    return counts


@njit(cache=True)
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


@njit(cache=True)
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
