"""Node features that follow from the edges alone: structure, and positions (Laplacian eigenmaps)."""

import inspect
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_matrix, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from torch import Tensor

from linkcal._core.validation import check_edge_index, check_positive_int
from linkcal.data.graph import neighbour_rows

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

#: Components of up to this many nodes are solved as a dense matrix.
_DENSE_NODES = 400
#: Whether SciPy accepts a generator for ARPACK's restarts (from 1.17 on).
_SEEDED = "rng" in inspect.signature(eigsh).parameters
#: Names of the columns of :func:`structural_node_features`.
STRUCTURAL_FEATURES = (
    "log_degree", *(f"log_{kind}_neighbour_degree" for kind in ("mean", "min", "max")), "log_triangles",
    "clustering", "log_core_number", "log_pagerank",
)  # fmt: skip


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
    starts, near = neighbour_rows(edge_index, num_nodes)
    degree = np.diff(starts)
    parts = [np.log1p(degree), *np.log1p(_neighbour_degrees(near, degree)), *_networkx_columns(near, degree)]
    x = np.stack([_standardised(column) for column in parts], axis=1)
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


def laplacian_eigenmaps(edge_index: Tensor, num_nodes: int, num_dims: int) -> Tensor:
    """Positions Z [N, p] of the nodes: the smoothest non-constant functions on each component of the graph.

    Columns have a mean square of 1 on each component and are zero beyond its size less one, and on isolated
    nodes. The direction of edges is ignored.

    Parameters
    ----------
    edge_index : Tensor [2, E], int
        Message-passing edges: of a split, the training edges alone.
    num_nodes, num_dims : int
        N and p, both at least 1.

    Returns
    -------
    Tensor [N, p], float32, on the device of `edge_index`
        Equal graphs give equal positions (before SciPy 1.17 not where ARPACK restarts, as for a star).

    Notes
    -----
    With adjacency A and degrees D of a component, the columns solve ``(D - A) y = lambda D y`` for the
    smallest ``lambda > 0``: ``y = D^(-1/2) v`` from the largest eigenvalues of ``D^(-1/2) A D^(-1/2)``. The
    sign makes each column's sum of cubes positive (Belkin and Niyogi, Neural Computation 15(6), 2003).

    Examples
    --------
    >>> z = laplacian_eigenmaps(torch.tensor([[0, 1], [1, 2]]), num_nodes=4, num_dims=1)
    >>> [round(abs(value), 3) for value in z.flatten().tolist()]
    [1.225, 0.0, 1.225, 0.0]
    """
    num_nodes = check_positive_int(num_nodes, "num_nodes")
    num_dims = check_positive_int(num_dims, "num_dims")
    starts, neighbours = neighbour_rows(check_edge_index(edge_index, num_nodes), num_nodes)
    adjacency = csr_matrix((np.ones(neighbours.size), neighbours, starts), shape=(num_nodes, num_nodes))
    positions = np.zeros((num_nodes, num_dims), dtype=np.float32)
    _, component = connected_components(adjacency, directed=False)
    order = np.argsort(component, kind="stable")
    for nodes in np.split(order, np.cumsum(np.bincount(component))[:-1]):
        if nodes.size > 1:
            wanted = min(num_dims, nodes.size - 1)
            positions[nodes, :wanted] = _component_eigenmap(adjacency[nodes][:, nodes], wanted)
    return torch.from_numpy(positions).to(edge_index.device)


def _component_eigenmap(adjacency: csr_matrix, wanted: int) -> FloatArray:
    """Columns [n, wanted] of one connected component with at least two nodes."""
    n = adjacency.shape[0]
    root = np.sqrt(np.asarray(adjacency.sum(axis=1)).ravel())
    scale = diags_array(1.0 / root)
    operator = scale @ adjacency @ scale
    if n <= _DENSE_NODES or 2 * wanted >= n:
        _, vectors = eigh(operator.toarray(), subset_by_index=[n - 1 - wanted, n - 1])
    else:
        # ARPACK's own start vector is random. It finds both vectors of a double eigenvalue only with full
        # accuracy (tol=0): with 1e-8 it returns the next eigenvalue's vector for a ring.
        start = np.random.default_rng(0).standard_normal(n)
        seeded: dict[str, Any] = {"rng": np.random.default_rng(1)} if _SEEDED else {}
        values, vectors = eigsh(
            operator, k=wanted + 1, which="LA", v0=start, tol=0, ncv=min(n, 2 * wanted + 40), **seeded
        )
        vectors = vectors[:, np.argsort(values, kind="stable")]
    smooth_first = vectors[:, ::-1][:, 1:] / root[:, None]
    smooth_first /= np.sqrt((smooth_first**2).mean(axis=0))
    return np.asarray(smooth_first * np.where((smooth_first**3).sum(axis=0) < 0.0, -1.0, 1.0))
