"""Degrees and common neighbours of pairs, with each pair's own edge left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from linkcal._threads import numba_threads
from linkcal._validation import check_edge_index, check_no_self_pairs
from linkcal.data import Graph
from linkcal.data.neighbours import neighbour_rows, place_in_row, row_starts

__all__ = ["PAIR_STRUCTURE", "PairStructure", "neighbour_lists", "pair_structure"]

#: Names of the columns of :func:`pair_structure`.
PAIR_STRUCTURE = ("degree_u", "degree_v", "common_neighbours")

Array = Any  # NumPy arrays of int64; Numba specialises the code on it

# Two sorted rows are merged unless one is this many times longer; then its entries are searched by bisection.
_BISECT_FROM = 16


def pair_structure(graph: Graph, edge_label_index: Tensor) -> Tensor:
    """Degrees of both endpoints and their common neighbours, counted without the pair's own edge.

    A training edge would otherwise raise the degrees of its own endpoints by one and give its label away.

    Parameters
    ----------
    graph : Graph
        The message graph.
    edge_label_index : Tensor [2, L], int
        Pairs of two different nodes.

    Returns
    -------
    Tensor [L, 3], int64
        In the order of ``PAIR_STRUCTURE``, on the device of `edge_label_index`. In a directed graph the
        degree counts edges in both directions and a common neighbour is joined to both nodes in any
        direction; only the pair's own direction is left out.

    Raises
    ------
    InputError
        If an index is out of range or a pair joins a node to itself.

    Notes
    -----
    Exact. The two sorted neighbour lists are merged, or the longer one is searched for the members of a much
    shorter one: at most ``O(d_u + d_v)`` steps a pair, in parallel over pairs. The own edge makes neither
    endpoint a common neighbour, so only the degrees have to be corrected.

    Examples
    --------
    >>> triangle = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=4)
    >>> pair_structure(triangle, torch.tensor([[0, 0], [1, 3]])).tolist()
    [[1, 1, 1], [2, 0, 0]]
    """
    return PairStructure(graph)(edge_label_index)


class PairStructure:
    """:func:`pair_structure` of one graph, whose neighbour lists are made once: call it with pairs [2, L]."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        degree = torch.bincount(graph.edge_index.flatten(), minlength=graph.num_nodes)
        # Both directions of an undirected edge are stored.
        self._degree = degree if graph.directed else degree // 2
        self._lists = neighbour_lists(graph)

    def __call__(self, edge_label_index: Tensor) -> Tensor:
        """Degrees and common neighbours [L, 3]."""
        graph = self._graph
        pairs = check_edge_index(edge_label_index, graph.num_nodes, "edge_label_index")
        check_no_self_pairs(pairs)
        own = graph.has_pairs(pairs.to(graph.edge_index.device)).to(pairs.device, torch.int64)
        first, second = (np.ascontiguousarray(row) for row in pairs.cpu().numpy())
        common = np.empty(len(first), dtype=np.int64)
        with numba_threads(torch.get_num_threads()):
            _count_common(*self._lists, first, second, common)
        degrees = self._degree.to(pairs.device)[pairs] - own
        return torch.stack([degrees[0], degrees[1], torch.from_numpy(common).to(pairs.device)], dim=1)


def neighbour_lists(graph: Graph) -> tuple[Array, Array]:
    """Sorted neighbours of each node in any direction, as compressed rows."""
    if graph.directed:
        return neighbour_rows(graph.edge_index, graph.num_nodes)
    # Both directions are stored, sorted by (row, column): nothing is left to sort.
    row, col = graph.edge_index.cpu().numpy()
    return row_starts(row, graph.num_nodes), np.ascontiguousarray(col)


@njit(cache=True)
def _common(indptr: Array, neighbours: Array, u: int, v: int) -> int:
    if indptr[u + 1] - indptr[u] > indptr[v + 1] - indptr[v]:
        u, v = v, u
    i, i_end, j, j_end = indptr[u], indptr[u + 1], indptr[v], indptr[v + 1]
    count = 0
    if (j_end - j) > _BISECT_FROM * (i_end - i):
        for position in range(i, i_end):
            count += place_in_row(neighbours, j, j_end, neighbours[position]) >= 0
        return count
    while i < i_end and j < j_end:
        a, b = neighbours[i], neighbours[j]
        count += a == b
        i += a <= b
        j += b <= a
    return count


@njit(parallel=True, cache=True)
def _count_common(indptr: Array, neighbours: Array, first: Array, second: Array, out: Array) -> None:
    for pair in prange(first.shape[0]):
        out[pair] = _common(indptr, neighbours, first[pair], second[pair])
