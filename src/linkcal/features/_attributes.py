"""Similarity of two nodes' features as the graph came with them, each pair's target link left out."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler, normalize
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from linkcal._core.columns import ATTRIBUTE_COLUMNS
from linkcal._core.random import numpy_stream
from linkcal._core.threads import blas_threads
from linkcal._core.validation import check_edge_index, check_no_self_pairs
from linkcal.data import Graph
from linkcal.features._structure import neighbour_lists, once_per_graph

# Principal directions that are kept, at most and (of as many features) at least.
MOST_DIRECTIONS, FEWEST_DIRECTIONS = 128, 4
# Nodes that directions are found on, and numbers in their features: at most 400 MB in float64.
_SAMPLED_NODES, _FEWEST_SAMPLED, _SAMPLED_NUMBERS = 20_000, 1_000, 50_000_000
# Standardised coordinates below this are rounding: a node filled with float32 means is average.
_AVERAGE = 1e-4
# A float32 sum of unit vectors no longer than this share of their number is what rounding left of 0.
_CANCELLED = 1e-6
# Numbers of a block of feature rows or of pairs; bounds the memory that is held for a moment.
_BLOCK = 1 << 22


def attribute_similarity(graph: Graph, edge_label_index: Tensor) -> Tensor:
    """Cosines of the endpoints' own features, and of those of their neighbourhoods.

    Parameters
    ----------
    graph, edge_label_index
        As in :func:`pair_structure`; the graph's ``given_features`` are read.

    Returns
    -------
    Tensor [L, 2], float32, in [-1, 1]
        Named by ``ATTRIBUTE_COLUMNS``: the cosine of ``z_u`` and ``z_v``, the endpoints' coordinates in
        principal directions of the features; and that of ``n_u`` and ``n_v``, where ``n_u`` sums z over u and
        its neighbours but the other endpoint. 0 where a vector is zero, and without given features.

    Notes
    -----
    Symmetric in an undirected graph, and the same whether or not the target link is in the graph (up to
    float32 rounding). In a directed graph neighbours in any direction count, and an endpoint stays in the sum
    if the reverse edge joins the two; so (u, v) and (v, u) differ where just one of them is an edge.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), num_nodes=4, x=x)
    >>> attribute_similarity(graph, torch.tensor([[0, 0], [1, 3]])).round(decimals=4).tolist()
    [[1.0, 0.0], [-1.0, -1.0]]
    """
    pairs = check_edge_index(edge_label_index, graph.num_nodes, "edge_label_index")
    check_no_self_pairs(pairs)
    if graph.given_features is None or not pairs.size(1):
        return torch.zeros((pairs.size(1), len(ATTRIBUTE_COLUMNS)), device=pairs.device)
    parts, near = _nodes_and_sums(graph), pairs.to(graph.edge_index.device)
    own = graph.has_pairs(near)
    if graph.directed:
        own &= ~graph.has_pairs(near.flip(0))
    size = max(1, _BLOCK // max(1, parts[0].size(1)))
    blocks = zip(near.cpu().split(size, dim=1), own.cpu().split(size), strict=True)
    return torch.cat([_cosines(*parts, block, target_link) for block, target_link in blocks]).to(pairs.device)


def attribute_directions(x: Tensor) -> Tensor:
    """Node features [N, F] along the principal directions that stand out of noise, as rows of length 1.

    Tensor [N, k], float32, on the CPU, k <= 128; 0 where a node is average. Features are standardised and
    rows scaled to one length. Of F noise features of variance v, no principal variance of n nodes exceeds
    ``v (1 + sqrt(F / n))^2`` by much (Marchenko and Pastur, 1967): directions above it are kept, v being what
    they leave of the total; at least 4, and all if none stands out. A fixed seed samples large graphs.
    """
    num_nodes, num_features = x.shape
    if not num_features:
        return torch.zeros((num_nodes, 0))
    rows = x.detach().cpu().to(torch.promote_types(x.dtype, torch.float32)).numpy()
    count = max(_FEWEST_SAMPLED, min(_SAMPLED_NODES, _SAMPLED_NUMBERS // num_features))
    chosen = np.arange(num_nodes)
    if count < num_nodes:
        chosen = np.sort(numpy_stream(0, "attribute directions").choice(num_nodes, count, replace=False))
    scaling, axes = _principal_axes(rows[chosen].astype(np.float64))
    out = np.zeros((num_nodes, axes.shape[1]), dtype=np.float32)
    size = max(1, _BLOCK // num_features)
    for start in range(0, num_nodes if axes.size else 0, size):
        block = rows[start : start + size].astype(np.float64)
        out[start : start + size] = _unit_rows(scaling.transform(block) @ axes)
    return torch.from_numpy(out)


def _unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows [n, k] of length 1, made in place; 0 for those that are average up to rounding."""
    peak = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows[peak[:, 0] <= _AVERAGE] = 0.0
    rows /= np.maximum(peak, _AVERAGE)  # squares of very large entries leave float64
    return np.asarray(normalize(rows, copy=False))


def _principal_axes(rows: NDArray[np.float64]) -> tuple[Pipeline, NDArray[np.float64]]:
    """Standardisation of feature rows [n, F], and the axes [F, k] of their directions that stand out."""
    # By the largest entry first: squares of very large features stay finite.
    scaling = make_pipeline(MaxAbsScaler(), StandardScaler()).fit(rows)
    varying = int(np.count_nonzero(scaling[-1].var_ > 0.0))
    if varying == 0 or len(rows) < 2:
        return scaling, np.zeros((rows.shape[1], 0))
    rank = min(MOST_DIRECTIONS, varying, len(rows))
    # One thread: sums cut in other places would differ in their last bits.
    with blas_threads(1):
        lengthened = _unit_rows(scaling.transform(rows))
        lengthened *= np.sqrt(varying)  # mean square 1, as before
        _, strength, axes = randomized_svd(lengthened, rank, random_state=0)
    standing_out = _standing_out(strength**2 / len(rows), varying, len(rows))
    kept = max(standing_out, FEWEST_DIRECTIONS) if standing_out else rank
    return scaling, np.asarray(axes[:kept].T)


def _standing_out(variance: NDArray[np.float64], num_features: int, num_rows: int) -> int:
    """How many of the largest principal variances, in falling order, noise alone would not reach."""
    count, before = 0, -1
    while before < count < num_features:
        before, rest = count, num_features - count
        # What the directions found so far leave of the total variance, 1 for each feature.
        noise = (num_features - variance[:count].sum()) / rest
        count = int(np.count_nonzero(variance > noise * (1.0 + np.sqrt(rest / num_rows)) ** 2))
    return count


@once_per_graph
def _nodes_and_sums(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """Directions z [N, k] of nodes, their sums over each and its neighbours [N, k], noise of the sums [N]."""
    x = graph.given_features
    assert x is not None  # the caller has looked
    z = attribute_directions(x)
    starts, neighbours = neighbour_lists(graph)
    one = np.ones(len(neighbours), dtype=np.float32)
    adjacency = csr_matrix((one, neighbours, starts), shape=(graph.num_nodes, graph.num_nodes))
    sums = adjacency @ z.numpy()
    sums += z.numpy()
    noise = _CANCELLED * (1.0 + np.diff(starts))
    return z, torch.from_numpy(sums), torch.from_numpy(noise.astype(np.float32))


def _cosines(z: Tensor, sums: Tensor, noise: Tensor, pairs: Tensor, target_link: Tensor) -> Tensor:
    """Both cosines [L, 2] of pairs [2, L]; `target_link` [L] says which pairs are edges."""
    first, second = z[pairs[0]], z[pairs[1]]
    own = target_link[:, None].to(z.dtype)
    around_first, around_second = sums[pairs[0]] - own * second, sums[pairs[1]] - own * first
    lengths = torch.stack([torch.linalg.vector_norm(part, dim=1) for part in (around_first, around_second)])
    together = (around_first * around_second).sum(dim=1) / lengths.prod(dim=0)
    together = torch.where((lengths > noise[pairs]).all(dim=0), together, 0.0)
    return torch.stack([(first * second).sum(dim=1), together], dim=1).clamp(-1.0, 1.0)
