"""Node features that follow from the edges alone, for graphs that bring none."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.validation import check_edge_index, check_positive_int
from linkcal.data.graph import neighbour_rows, row_starts

__all__ = ["STRUCTURAL_FEATURES", "structural_node_features"]


IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

#: Names of the columns of :func:`structural_node_features`.
STRUCTURAL_FEATURES = (
    "log_degree",
    "log_mean_neighbour_degree",
    "log_min_neighbour_degree",
    "log_max_neighbour_degree",
    "log_triangles",
    "clustering",
    "log_core_number",
    "log_pagerank",
)

_DAMPING = 0.85


def structural_node_features(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Eight structural features of each node, standardised over the nodes.

    Give it message-passing edges only: features computed from all edges would show the model the validation
    and test links. ``split_links`` does so for a graph whose ``feature_builder`` this is.

    Parameters
    ----------
    edge_index : Tensor [2, E], int64
        Edges in one or both directions; direction, repeats and self-loops are ignored.
    num_nodes : int
        N.

    Returns
    -------
    Tensor [N, 8], float32
        In the order of ``STRUCTURAL_FEATURES``; ``log`` is ``log(1 + value)``, for PageRank
        ``log(N * pagerank)``. Each column has mean 0 and standard deviation 1 (all 0 where it is constant).

    Notes
    -----
    The clustering coefficient is ``2 t / (d (d - 1))`` with t triangles and degree d, 0 for d < 2. The core
    number is the largest k for which the node lies in a subgraph of minimum degree k (Batagelj and Zaversnik,
    arXiv cs/0310049). PageRank has damping 0.85. Neighbour degrees of an isolated node are 0. Time is
    O(E sqrt(E)) for the triangles, linear for the rest.

    Toggling a pair's edge later leaves these features as they were on the message-passing graph.

    Examples
    --------
    >>> import torch
    >>> x = structural_node_features(torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]]), num_nodes=5)
    >>> x.shape
    torch.Size([5, 8])
    >>> x[:, 0].argmax().item()  # node 2 has the highest degree
    2
    """
    num_nodes = check_positive_int(num_nodes, "num_nodes")
    edge_index = check_edge_index(edge_index, num_nodes)
    indptr, indices = neighbour_rows(edge_index, num_nodes)
    degree = np.diff(indptr)
    mean, low, high = _neighbour_degrees(indptr, indices, degree)
    triangles = _triangles(*_oriented_csr(indices, degree))
    wedges = degree * (degree - 1) / 2
    clustering = np.divide(triangles, wedges, out=np.zeros(num_nodes), where=wedges > 0)
    columns = [
        np.log1p(degree),
        np.log1p(mean),
        np.log1p(low),
        np.log1p(high),
        np.log1p(triangles),
        clustering,
        np.log1p(_core_numbers(indptr, indices, degree)),
        np.log(num_nodes * _pagerank(indptr, indices)),
    ]
    x = np.stack([_standardise(column) for column in columns], axis=1)
    return torch.from_numpy(x.astype(np.float32)).to(edge_index.device)


def _standardise(column: FloatArray) -> FloatArray:
    centred = column - column.mean()
    scale = float(centred.std())
    # A constant column has only rounding noise left; 1e-9 lies far below any real spread of these logs.
    return centred / scale if scale > 1e-9 else np.zeros_like(centred)


def _oriented_csr(indices: IntArray, degree: IntArray) -> tuple[IntArray, IntArray]:
    """Each edge once, from the endpoint of lower (degree, index): then no list is longer than sqrt(2 E)."""
    row = np.repeat(np.arange(len(degree)), degree)
    forward = (degree[row] < degree[indices]) | ((degree[row] == degree[indices]) & (row < indices))
    return row_starts(row[forward], len(degree)), indices[forward]


def _neighbour_degrees(
    indptr: IntArray, indices: IntArray, degree: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, minimum and maximum degree [N] of each node's neighbours; 0 without neighbours."""
    mean, low, high = np.zeros(len(degree)), np.zeros(len(degree)), np.zeros(len(degree))
    some = np.flatnonzero(degree)  # reduceat gives nonsense for empty rows
    if len(some):
        values, starts = degree[indices], indptr[some]
        mean[some] = np.add.reduceat(values, starts) / degree[some]
        low[some] = np.minimum.reduceat(values, starts)
        high[some] = np.maximum.reduceat(values, starts)
    return mean, low, high


def _pagerank(indptr: IntArray, indices: IntArray) -> FloatArray:
    """Power iteration to an L1 change below 1e-10; isolated nodes hand their share to all."""
    num_nodes = len(indptr) - 1
    degree = np.diff(indptr)
    adjacency = sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(num_nodes, num_nodes))
    share = np.divide(1.0, degree, out=np.zeros(num_nodes), where=degree > 0)
    rank = np.full(num_nodes, 1.0 / num_nodes)
    change = 1.0
    while change > 1e-10:  # contracts by the damping factor each round: at most 150 rounds
        spread = adjacency @ (rank * share) + rank[degree == 0].sum() / num_nodes
        updated = _DAMPING * spread + (1.0 - _DAMPING) / num_nodes
        change, rank = float(np.abs(updated - rank).sum()), updated
    return np.asarray(rank)


def _triangles(indptr: IntArray, indices: IntArray) -> IntArray:
    """Triangles [N] through each node of an acyclically oriented graph; each is found once."""
    count = np.zeros(len(indptr) - 1, dtype=np.int64)
    _count_triangles(indptr, indices, count, np.full(len(count), -1, dtype=np.int64))
    return count


@compiled()
def _count_triangles(
    indptr: IntArray, indices: IntArray, count: IntArray, marked: IntArray
) -> None:  # pragma: no cover (compiled)
    """Add each triangle u -> v -> w, u -> w to `count`; ``marked[w] == u`` tells that u -> w."""
    for u in range(len(count)):
        for i in range(indptr[u], indptr[u + 1]):
            marked[indices[i]] = u
        for i in range(indptr[u], indptr[u + 1]):
            v = indices[i]
            for j in range(indptr[v], indptr[v + 1]):
                w = indices[j]
                if marked[w] == u:
                    count[u] += 1
                    count[v] += 1
                    count[w] += 1


def _core_numbers(indptr: IntArray, indices: IntArray, degree: IntArray) -> IntArray:
    """Core number [N]: the degree that a node has left when nodes are taken away smallest first."""
    order = np.argsort(degree, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    start = np.concatenate([[0], np.cumsum(np.bincount(degree))])
    core = degree.copy()
    _peel(indptr, indices, core, order, place, start)
    return core


@compiled()
def _peel(
    indptr: IntArray, indices: IntArray, core: IntArray, order: IntArray, place: IntArray, start: IntArray
) -> None:  # pragma: no cover (compiled)
    """Turn degrees into core numbers in place (Batagelj and Zaversnik).

    `order` lists the nodes by remaining degree, `place` is its inverse, and ``start[d]`` is where the nodes
    of remaining degree d begin. Sorting outside keeps the compiled part, and its first call, short.
    """
    for i in range(len(order)):
        v = order[i]
        for j in range(indptr[v], indptr[v + 1]):
            u = indices[j]
            if core[u] > core[v]:
                # Move u to the front of its bin, then let the bin below take it.
                front = start[core[u]]
                w = order[front]
                if u != w:
                    order[front], order[place[u]] = u, w
                    place[w], place[u] = place[u], front
                start[core[u]] += 1
                core[u] -= 1
