"""Degrees and common neighbours of pairs, target link excluded, and the columns made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads
from linkcal._core.validation import check_edge_index, check_no_self_pairs
from linkcal.data import Graph
from linkcal.data.graph import neighbour_rows, place_in_row, row_starts
from linkcal.toggle import ToggledEmbeddings

#: Names of the columns of :func:`pair_structure`.
PAIR_STRUCTURE = ("degree_u", "degree_v", "common_neighbours")

Array = Any  # NumPy arrays of int64; Numba specialises the code on it

# Two sorted rows are merged unless one is this many times longer; then its entries are searched by bisection.
_BISECT_FROM = 16


def pair_structure(graph: Graph, edge_label_index: Tensor) -> Tensor:
    """Degrees of both endpoints and their common neighbours, counted without the target link.

    A training edge would otherwise raise the degrees of its own endpoints by one and give its label away.

    Parameters
    ----------
    graph : Graph
        The message-passing graph.
    edge_label_index : Tensor [2, L], int
        Pairs of two different nodes.

    Returns
    -------
    Tensor [L, 3], int64
        Exact, in the order of ``PAIR_STRUCTURE``, on the device of `edge_label_index`. In a directed graph
        edges in any direction count; only the pair's own direction is left out.

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


@compiled()
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


@compiled(parallel=True)
def _count_common(indptr: Array, neighbours: Array, first: Array, second: Array, out: Array) -> None:
    for pair in prange(first.shape[0]):
        out[pair] = _common(indptr, neighbours, first[pair], second[pair])


# Keeps logarithms finite where the target link changes nothing.
_EPS = 1e-6


def structural_features(toggled: ToggledEmbeddings, structure: Tensor, attributes: Tensor) -> Tensor:
    """Features of each link from its toggled embeddings and from its place in the graph.

    Parameters
    ----------
    toggled : ToggledEmbeddings
        Of L links.
    structure, attributes : Tensor [L, 3], int64, and [L, 2], float32
        d_u, d_v, c of :func:`linkcal.features.pair_structure`; :func:`linkcal.features.attribute_similarity`.

    Returns
    -------
    Tensor [L, 9]
        Named by ``STRUCTURAL_COLUMNS``, in the dtype of the logits; finite where the squares of the
        embeddings' entries are.

    Notes
    -----
    With s, h without the target link, s+, h+ with it, and eps = 1e-6; ``log_distance`` is the log of gamma of
    arXiv 2403.04605. In an undirected graph all are the same for (u, v) and (v, u)::

        logit_change           s+ - s
        log_distance           log(||h+ - h|| + eps)
        log_relative_distance  log(||h+ - h|| / (||h|| + eps) + eps)
        cosine                 of h+ and h; 0 where one of them is zero
        log_degree_sum         log(1 + d_u) + log(1 + d_v)
        log_degree_difference  |log(1 + d_u) - log(1 + d_v)|
        log_common_neighbours  log(1 + c)
        attribute_cosine, neighbourhood_cosine: `attributes`
    """
    absent, present = toggled.absent, toggled.present
    size = torch.linalg.vector_norm(absent, dim=1)
    distance = torch.linalg.vector_norm(present - absent, dim=1)
    cosine = (_direction(absent) * _direction(present)).sum(dim=1)
    log_degree = torch.log1p(structure[:, :2].to(absent.dtype))
    columns = [
        toggled.logit_present - toggled.logit_absent,
        torch.log(distance + _EPS),
        torch.log(distance / (size + _EPS) + _EPS),
        cosine,
        log_degree.sum(dim=1),
        (log_degree[:, 0] - log_degree[:, 1]).abs(),
        torch.log1p(structure[:, 2].to(absent.dtype)),
        *attributes.unbind(dim=1),
    ]
    return torch.stack([column.to(toggled.logit_absent.dtype) for column in columns], dim=1)


def _direction(h: Tensor) -> Tensor:
    """Rows of length 1; zero rows stay zero."""
    # By the largest entry first: squares of very large or small entries leave float32.
    peak = h.abs().amax(dim=1, keepdim=True)
    h = h / torch.where(peak > 0, peak, torch.ones_like(peak))
    length = torch.linalg.vector_norm(h, dim=1, keepdim=True)
    return h / torch.where(length > 0, length, torch.ones_like(length))
