"""A pair's place in the graph, target link excluded: degrees, common neighbours, paths; its columns."""

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numba import prange
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads, useful_threads
from linkcal._core.validation import check_edge_index, check_no_self_pairs
from linkcal.data import Graph
from linkcal.data.graph import neighbour_rows, row_starts
from linkcal.toggle import ToggledEmbeddings

#: Names of the columns of :func:`pair_structure`.
PAIR_STRUCTURE = (
    "degree_u", "degree_v", "common_neighbours", "adamic_adar", "resource_allocation",
    "paths_of_length_three",
)  # fmt: skip

Array = Any  # NumPy arrays; Numba specialises the code on them
T = TypeVar("T")


def once_per_graph(make: Callable[[Graph], T]) -> Callable[[Graph], T]:
    """`make`, whose result is kept while the graph lives and its tensors stay as they are."""
    known: WeakKeyDictionary[Graph, tuple[list[int], T]] = WeakKeyDictionary()

    def kept(graph: Graph) -> T:
        tensors = [part for part in (graph.edge_index, graph.given_features) if part is not None]
        if any(part.is_inference() for part in tensors):  # these do not tell whether they changed
            return make(graph)
        version = [part._version for part in tensors]
        if graph not in known or known[graph][0] != version:
            known[graph] = version, make(graph)
        return known[graph][1]

    return kept


@once_per_graph
def _degrees(graph: Graph) -> Tensor:
    degree = torch.bincount(graph.edge_index.flatten(), minlength=graph.num_nodes)
    # Both directions of an undirected edge are stored.
    return degree if graph.directed else degree // 2


@once_per_graph
def neighbour_lists(graph: Graph) -> tuple[Array, Array]:
    """Sorted neighbours of each node in any direction, as compressed rows."""
    if graph.directed:
        return neighbour_rows(graph.edge_index, graph.num_nodes)
    # Both directions are stored, sorted by (row, column): nothing is left to sort.
    row, col = graph.edge_index.cpu().numpy()
    return row_starts(row, graph.num_nodes), np.ascontiguousarray(col)


def pair_structure(graph: Graph, edge_label_index: Tensor) -> Tensor:
    """Degrees, common neighbours and paths of pairs, without the target link, which would tell the label.

    Parameters
    ----------
    graph : Graph
        The message-passing graph.
    edge_label_index : Tensor [2, L], int
        Pairs of two different nodes.

    Returns
    -------
    Tensor [L, 6], float64
        In the order of ``PAIR_STRUCTURE``, on the device of `edge_label_index`. In a directed graph edges in
        any direction count; only the pair's own direction is left out.

    Notes
    -----
    With neighbourhoods N and degrees d, w over common neighbours, a over N(u) less v and b over N(v) less u::

        adamic_adar           = sum_w 1 / log d_w             (Adamic and Adar, 2003)
        resource_allocation   = sum_w 1 / d_w                 (Zhou, Lue and Zhang, 2009)
        paths_of_length_three = sum_ab A_ab / sqrt(d_a d_b)   (Kovacs et al., 2019)

    Paths of length three also work on bipartite graphs. Of each pair the node with the cheaper two-step
    neighbourhood is walked, once for all its pairs.

    Examples
    --------
    >>> square = Graph.from_edges(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), num_nodes=4)
    >>> pair_structure(square, torch.tensor([[0, 0], [1, 2]])).numpy().round(3)      # an edge, a diagonal
    array([[1.   , 1.   , 0.   , 0.   , 0.   , 0.5  ],
           [2.   , 2.   , 2.   , 2.885, 1.   , 0.   ]])
    """
    pairs = check_edge_index(edge_label_index, graph.num_nodes, "edge_label_index")
    check_no_self_pairs(pairs)
    own = graph.has_pairs(pairs.to(graph.edge_index.device)).to(pairs.device, torch.int64)
    degrees = _degrees(graph).to(pairs.device)[pairs] - own
    indptr, neighbours = neighbour_lists(graph)
    degree, root, root_sum, cost = _walks(graph)
    first, second = pairs.cpu().numpy().astype(np.int64)
    cheaper = cost[second] < cost[first]
    walked, other = np.where(cheaper, second, first), np.where(cheaper, first, second)
    order = np.argsort(walked, kind="stable")
    starts = np.r_[np.unique(walked[order], return_index=True)[1], order.size]
    found, parts = np.zeros((first.size, 4)), useful_threads(torch.get_num_threads(), first.size)
    parts_of_pairs = walked[order], other[order], order, starts
    with numba_threads(parts):
        _walk(indptr, neighbours, degree, root, root_sum, *parts_of_pairs, parts, found)
    return torch.cat([degrees.T, torch.from_numpy(found).to(pairs.device)], dim=1)


@once_per_graph
def _walks(graph: Graph) -> tuple[Array, ...]:
    """Of each node d, 1 / sqrt(d), its sum over the neighbours, and what its two-step neighbourhood costs."""
    indptr, neighbours = neighbour_lists(graph)
    degree = np.diff(indptr).astype(np.float64)
    root = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    row = np.repeat(np.arange(graph.num_nodes), np.diff(indptr))
    summed = (np.bincount(row, weights=part[neighbours], minlength=len(degree)) for part in (root, degree))
    return degree, root, *summed


@compiled(parallel=True)
def _walk(
    indptr: Array, neighbours: Array, degree: Array, root: Array, root_sum: Array, walked: Array,
    other: Array, order: Array, starts: Array, parts: int, out: Array,
) -> None:  # fmt: skip
    """All pairs, grouped by the node that is walked; each part has an array of nodes to mark."""
    groups = starts.shape[0] - 1
    for part in prange(parts):
        near = np.zeros(degree.shape[0], np.bool_)
        reached = np.zeros(degree.shape[0])
        for group in range(part, groups, parts):
            u = walked[starts[group]]
            for i in range(indptr[u], indptr[u + 1]):
                a = neighbours[i]
                near[a] = True
                for j in range(indptr[a], indptr[a + 1]):
                    reached[neighbours[j]] += root[a]
            for place in range(starts[group], starts[group + 1]):
                v = other[place]
                common, adamic_adar, allocation, paths = 0.0, 0.0, 0.0, 0.0
                for i in range(indptr[v], indptr[v + 1]):
                    b = neighbours[i]
                    paths += reached[b] * root[b]
                    if near[b]:
                        common += 1.0
                        adamic_adar += 1.0 / np.log(degree[b])
                        allocation += 1.0 / degree[b]
                if near[v]:
                    # Walks u-v-b-v and u-a-u-v, of which u-v-u-v is both.
                    paths -= root[v] * root_sum[v] + root[u] * root_sum[u] - root[u] * root[v]
                # Differences of equal sums leave rounding noise below 0.
                out[order[place]] = common, adamic_adar, allocation, max(paths, 0.0)
            for i in range(indptr[u], indptr[u + 1]):
                a = neighbours[i]
                near[a] = False
                for j in range(indptr[a], indptr[a + 1]):
                    reached[neighbours[j]] = 0.0


# Keeps logarithms finite where the target link changes nothing.
_EPS = 1e-6
# Added to sums over common neighbours and to paths, of 0.001 to 1; by cross-validation inside the validation
# links of Cora, CiteSeer, Chameleon, Bitcoin Alpha, Bitcoin OTC, Twitch PT, with GCN and SAGE.
_LEAST_SUM, _LEAST_PATHS = 0.1, 0.01


def structural_features(toggled: ToggledEmbeddings, structure: Tensor, attributes: Tensor) -> Tensor:
    """Features of each link from its toggled embeddings and from its place in the graph.

    Parameters
    ----------
    toggled : ToggledEmbeddings
        Of L links.
    structure, attributes : Tensor [L, 6], float64, and [L, 2], float32
        Of :func:`pair_structure`, and of :func:`attribute_similarity`.

    Returns
    -------
    Tensor [L, 12]
        Named by ``STRUCTURAL_COLUMNS``, in the dtype of the logits.

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
        log_adamic_adar, log_resource_allocation
                               log(0.1 + x)
        log_paths_of_length_three
                               log(0.01 + x / sqrt((1 + d_u) (1 + d_v)))
        attribute_cosine, neighbourhood_cosine: `attributes`
    """
    absent, present = toggled.absent, toggled.present
    size = torch.linalg.vector_norm(absent, dim=1)
    distance = torch.linalg.vector_norm(present - absent, dim=1)
    toggle = [
        toggled.logit_present - toggled.logit_absent, torch.log(distance + _EPS),
        torch.log(distance / (size + _EPS) + _EPS), (_direction(absent) * _direction(present)).sum(dim=1),
    ]  # fmt: skip
    columns = torch.stack([column.to(toggled.logit_absent.dtype) for column in toggle], dim=1)
    return torch.cat([columns, structure_features(structure, attributes).to(columns)], dim=1)


def structure_features(structure: Tensor, attributes: Tensor) -> Tensor:
    """Those of :func:`structural_features` that need no model, [L, 8], float64."""
    counts, sums = torch.log1p(structure[:, :3].double()), structure[:, 3:].double()
    degree_sum = counts[:, 0] + counts[:, 1]
    paths = torch.log(sums[:, 2] * torch.exp(-degree_sum / 2.0) + _LEAST_PATHS)
    columns = [
        *(degree_sum, (counts[:, 0] - counts[:, 1]).abs(), counts[:, 2]),
        *(*torch.log(sums[:, :2] + _LEAST_SUM).T, paths, *attributes.double().T),
    ]
    return torch.stack(columns, dim=1)


def _direction(h: Tensor) -> Tensor:
    """Rows of length 1; zero rows stay zero."""
    # By the largest entry first: squares of very large or small entries leave float32.
    peak = h.abs().amax(dim=1, keepdim=True)
    h = h / torch.where(peak > 0, peak, torch.ones_like(peak))
    length = torch.linalg.vector_norm(h, dim=1, keepdim=True)
    return h / torch.where(length > 0, length, torch.ones_like(length))
