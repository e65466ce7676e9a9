"""The best pairs with a common neighbour, for models that score each pair by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from linkcal._validation import check_finite, to_float64
from linkcal.data import Graph
from linkcal.data.negatives import in_sorted
from linkcal.data.neighbours import neighbour_rows
from linkcal.ranking._best import Best, taken_keys

__all__ = ["top_two_hop_pairs"]

IntArray = NDArray[np.int64]


def top_two_hop_pairs(
    graph: Graph, score: Callable[[Tensor], Tensor], k: int, chunk_size: int, exclude: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Pairs [2, n] with a common neighbour and no edge whose `score` (pairs [2, L] to [L]) is largest.

    Parameters
    ----------
    graph : Graph
    score : callable
        Pairs [2, L] to scores [L]; called with at most `chunk_size` pairs.
    k : int
        n is k, or the number of such pairs if they are fewer.
    chunk_size : int
    exclude : Tensor [2, K], optional
        More known edges to leave out.

    Returns
    -------
    pairs : Tensor [2, n], int64
        Best first; equal scores stand in the order of (u, v).
    score : Tensor [n], float64
    """
    taken = taken_keys(graph, exclude)
    best = Best(k, 0.0)
    for keys in _two_hop_keys(graph, chunk_size):
        free = keys[~in_sorted(taken, keys)]
        for start in range(0, free.size, chunk_size):
            part = free[start : start + chunk_size]
            asked = torch.from_numpy(np.stack([part // graph.num_nodes, part % graph.num_nodes]))
            best.offer(check_finite(to_float64(score(asked)), "logits of the model"), part)
    scores, keys = best.answer()
    pairs = np.stack([keys // graph.num_nodes, keys % graph.num_nodes])
    return torch.from_numpy(pairs), torch.from_numpy(scores)


def _two_hop_keys(graph: Graph, chunk_size: int) -> Iterator[IntArray]:
    """Keys of the pairs that share a neighbour (direction of edges ignored), some rows at a time."""
    n = graph.num_nodes
    starts, neighbours = neighbour_rows(graph.edge_index, n)
    adjacency = csr_matrix((np.ones(neighbours.size, dtype=np.bool_), neighbours, starts), shape=(n, n))
    # Pairs that a row of the square lists at most, and rows that stay within the chunk together.
    cost = np.cumsum(adjacency @ np.diff(starts))
    start = 0
    while start < n:
        spent = cost[start - 1] if start else 0
        stop = max(int(np.searchsorted(cost, spent + chunk_size, side="right")), start + 1)
        square = (adjacency[start:stop] @ adjacency).tocoo()
        u, v = square.row.astype(np.int64) + start, square.col.astype(np.int64)
        kept = u != v if graph.directed else u < v
        yield np.unique(u[kept] * n + v[kept])
        start = stop
