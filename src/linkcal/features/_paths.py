"""Weighted common neighbours and paths of length three of pairs, target link excluded."""

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
from linkcal.features._structure import neighbour_lists

#: Names of the columns of :func:`pair_paths`.
PAIR_PATHS = ("adamic_adar", "resource_allocation", "paths_of_length_three")

Array = Any  # NumPy arrays; Numba specialises the code on them


def pair_paths(graph: Graph, edge_label_index: Tensor) -> Tensor:
    """Adamic-Adar, resource allocation and degree-normalised paths of length three, without the target link.

    Baselines for any link predictor; paths of length three also work on bipartite graphs.

    Parameters
    ----------
    graph, edge_label_index
        As in :func:`pair_structure`; directions are ignored.

    Returns
    -------
    Tensor [L, 3], float64
        In the order of ``PAIR_PATHS``.

    Notes
    -----
    With neighbourhoods N and degrees d, w over common neighbours, a over N(u) less v and b over N(v) less u::

        adamic_adar           = sum_w 1 / log d_w             (Adamic and Adar, 2003)
        resource_allocation   = sum_w 1 / d_w                 (Zhou, Lue and Zhang, 2009)
        paths_of_length_three = sum_ab A_ab / sqrt(d_a d_b)   (Kovacs et al., 2019)

    The degrees of a and b do not count the target link; walks through it are subtracted in closed form. Of
    each pair the node with the cheaper two-step neighbourhood is walked, once for all its pairs.

    Examples
    --------
    >>> square = Graph.from_edges(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), num_nodes=4)
    >>> pair_paths(square, torch.tensor([[0, 0], [1, 2]])).numpy().round(3)      # an edge, a diagonal
    array([[0.   , 0.   , 0.5  ],
           [2.885, 1.   , 0.   ]])
    """
    pairs = check_edge_index(edge_label_index, graph.num_nodes, "edge_label_index")
    check_no_self_pairs(pairs)
    indptr, neighbours = neighbour_lists(graph)
    degree = np.diff(indptr).astype(np.float64)
    root = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    row = np.repeat(np.arange(graph.num_nodes), np.diff(indptr))
    # What walking a node's two-step neighbourhood costs, and the sum of 1 / sqrt(d) over its neighbours.
    cost = np.bincount(row, weights=degree[neighbours], minlength=graph.num_nodes)
    root_sum = np.bincount(row, weights=root[neighbours], minlength=graph.num_nodes)
    first, second = pairs.cpu().numpy().astype(np.int64)
    cheaper = cost[second] < cost[first]
    walked, other = np.where(cheaper, second, first), np.where(cheaper, first, second)
    order = np.argsort(walked, kind="stable")
    starts = (
        np.flatnonzero(np.r_[True, np.diff(walked[order]) != 0, True]) if order.size else np.zeros(1, int)
    )
    found = np.zeros((first.size, 3))
    with numba_threads(torch.get_num_threads()):
        _walk(
            indptr, neighbours, degree, root, root_sum, walked[order], other[order], starts,
            torch.get_num_threads(), order, found,
        )  # fmt: skip
    return torch.from_numpy(found).to(pairs.device)


@compiled(parallel=True)
def _walk(
    indptr: Array, neighbours: Array, degree: Array, root: Array, root_sum: Array, walked: Array,
    other: Array, starts: Array, parts: int, order: Array, out: Array,
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
                adamic_adar, allocation, paths = 0.0, 0.0, 0.0
                for i in range(indptr[v], indptr[v + 1]):
                    b = neighbours[i]
                    paths += reached[b] * root[b]
                    if near[b]:
                        adamic_adar += 1.0 / np.log(degree[b])
                        allocation += 1.0 / degree[b]
                if near[v]:
                    # Walks u-v-b-v and u-a-u-v, of which u-v-u-v is both.
                    paths -= root[v] * root_sum[v] + root[u] * root_sum[u] - root[u] * root[v]
                out[order[place], 0] = adamic_adar
                out[order[place], 1] = allocation
                # Differences of equal sums leave rounding noise below 0.
                out[order[place], 2] = max(paths, 0.0)
            for i in range(indptr[u], indptr[u + 1]):
                a = neighbours[i]
                near[a] = False
                for j in range(indptr[a], indptr[a + 1]):
                    reached[neighbours[j]] = 0.0
