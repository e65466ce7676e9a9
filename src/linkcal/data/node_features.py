"""Node features that follow from the edges alone, for graphs that bring none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.validation import check_edge_index, check_positive_int
from linkcal.data.graph import neighbour_rows

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

#: Names of the columns of :func:`structural_node_features`.
STRUCTURAL_FEATURES = (
    "log_degree",
    *(f"log_{kind}_neighbour_degree" for kind in ("mean", "min", "max")),
    "log_triangles",
    "clustering",
    "log_core_number",
    "log_pagerank",
)


def structural_node_features(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Eight structural features of each node, standardised over the nodes.

    Use message-passing edges only: features of all edges would show the model the validation and test links.
    ``split_links`` does so for a graph with this ``feature_builder``. Toggling a pair's edge later leaves
    these features as they were.

    Parameters
    ----------
    edge_index, num_nodes : Tensor [2, E], int64, and int N
        Edges in one or both directions; direction, repeats and self-loops are ignored.

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
        *np.log1p(_neighbour_degrees(neighbours, degree)),
        *_networkx_columns(neighbours, degree),
    ]
    x = np.stack([_standardised(column) for column in columns], axis=1)
    return torch.from_numpy(x.astype(np.float32)).to(edge_index.device)


def _standardised(column: FloatArray) -> FloatArray:
    centred = column - column.mean()
    scale = float(centred.std())
    # A constant column has only rounding noise left; 1e-9 lies far below any real spread of these logs.
    return centred / scale if scale > 1e-9 else np.zeros_like(centred)


def _neighbour_degrees(neighbours: IntArray, degree: IntArray) -> FloatArray:
    """Mean, minimum and maximum degree (3, N) of each node's neighbours; 0 without neighbours."""
    groups = pd.Series(degree[neighbours]).groupby(np.repeat(np.arange(len(degree)), degree))
    columns = groups.agg(["mean", "min", "max"]).reindex(range(len(degree)), fill_value=0)
    return columns.to_numpy(np.float64).T


def _networkx_columns(neighbours: IntArray, degree: IntArray) -> list[FloatArray]:
    """Log triangles, clustering, log core number and log PageRank relative to its mean [N]."""
    import networkx as nx  # slow to import, and needed by these features only

    n = len(degree)
    graph = nx.empty_graph(n)
    graph.add_edges_from(zip(np.repeat(np.arange(n), degree).tolist(), neighbours.tolist(), strict=True))
    # The iteration contracts by 0.85 a round: it reaches an L1 change of 1e-10 within 150.
    pagerank = nx.pagerank(graph, alpha=0.85, tol=1e-10 / n, max_iter=300)
    triangles, core, rank = (
        np.fromiter(values.values(), np.float64, n)
        for values in (nx.triangles(graph), nx.core_number(graph), pagerank)
    )
    wedges = degree * (degree - 1) / 2
    clustering = np.divide(triangles, wedges, out=np.zeros(n), where=wedges > 0)
    return [np.log1p(triangles), clustering, np.log1p(core), np.log(n * rank)]
