"""Node features that follow from the edges alone, for graphs that bring none."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from linkcal._core.validation import check_edge_index, check_positive_int
from linkcal.data.graph import neighbour_rows

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

    Use message-passing edges only: features of all edges would show the model the validation and test links.
    ``split_links`` does so for a graph with this ``feature_builder``. Toggling a pair's edge later leaves
    these features as they were.

    Parameters
    ----------
    edge_index : Tensor [2, E], int64
        Edges in one or both directions; direction, repeats and self-loops are ignored.
    num_nodes : int
        N.

    Returns
    -------
    Tensor [N, 8], float32
        Columns as in ``STRUCTURAL_FEATURES`` with mean 0 and standard deviation 1 (all 0 where constant);
        ``log`` is ``log(1 + value)``, for PageRank (damping 0.85) ``log(N * pagerank)``. Clustering is
        ``2 t / (d (d - 1))`` with t triangles and degree d, 0 for d < 2; the core number that of Batagelj and
        Zaversnik (arXiv cs/0310049). Neighbour degrees of an isolated node are 0.

    Examples
    --------
    >>> x = structural_node_features(torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]]), num_nodes=5)
    >>> x.shape, x[:, 0].argmax().item()  # node 2 has the highest degree
    (torch.Size([5, 8]), 2)
    """
    num_nodes = check_positive_int(num_nodes, "num_nodes")
    edge_index = check_edge_index(edge_index, num_nodes)
    starts, neighbours = neighbour_rows(edge_index, num_nodes)
    degree = np.diff(starts)
    columns = [
        np.log1p(degree),
        *(np.log1p(column) for column in _neighbour_degrees(starts, neighbours, degree)),
        *_networkx_columns(neighbours, degree),
        np.log(num_nodes * _pagerank(starts, neighbours, degree)),
    ]
    x = np.stack([_standardised(column) for column in columns], axis=1)
    return torch.from_numpy(x.astype(np.float32)).to(edge_index.device)


def _standardised(column: FloatArray) -> FloatArray:
    centred = column - column.mean()
    scale = float(centred.std())
    # A constant column has only rounding noise left; 1e-9 lies far below any real spread of these logs.
    return centred / scale if scale > 1e-9 else np.zeros_like(centred)


def _neighbour_degrees(starts: IntArray, neighbours: IntArray, degree: IntArray) -> list[FloatArray]:
    """Mean, minimum and maximum degree [N] of each node's neighbours; 0 without neighbours."""
    columns = [np.zeros(len(degree)) for _ in range(3)]
    some = np.flatnonzero(degree)  # reduceat gives nonsense for empty rows
    if len(some):
        for column, reduce in zip(columns, (np.add, np.minimum, np.maximum), strict=True):
            column[some] = reduce.reduceat(degree[neighbours], starts[some])
        columns[0][some] /= degree[some]
    return columns


def _networkx_columns(neighbours: IntArray, degree: IntArray) -> list[FloatArray]:
    """Log triangles, clustering and log core number [N]."""
    import networkx as nx  # slow to import, and needed by these features only

    graph = nx.empty_graph(len(degree))
    graph.add_edges_from(
        zip(np.repeat(np.arange(len(degree)), degree).tolist(), neighbours.tolist(), strict=True)
    )
    triangles, core = (
        np.fromiter(count(graph).values(), np.int64, len(degree)) for count in (nx.triangles, nx.core_number)
    )
    wedges = degree * (degree - 1) / 2
    clustering = np.divide(triangles, wedges, out=np.zeros(len(degree)), where=wedges > 0)
    return [np.log1p(triangles), clustering, np.log1p(core)]


def _pagerank(starts: IntArray, neighbours: IntArray, degree: IntArray) -> FloatArray:
    """Power iteration to an L1 change below 1e-10; isolated nodes spread their rank over all."""
    n = len(degree)
    adjacency = sparse.csr_array((np.ones(len(neighbours)), neighbours, starts), shape=(n, n))
    share = np.divide(1.0, degree, out=np.zeros(n), where=degree > 0)
    rank, change = np.full(n, 1.0 / n), 1.0
    while change > 1e-10:  # contracts by the damping factor each round: at most 150 rounds
        spread = adjacency @ (rank * share) + rank[degree == 0].sum() / n
        updated = _DAMPING * spread + (1.0 - _DAMPING) / n
        change, rank = float(np.abs(updated - rank).sum()), updated
    return np.asarray(rank)
