"""The largest inner products of node embeddings over all missing pairs, block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._validation import check_edge_index, check_finite, check_positive_int
from linkcal.data import Graph
from linkcal.exceptions import InputError
from linkcal.ranking._best import Best, taken_keys

__all__ = ["top_products"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Rounding of a product of matrices against the sum over one pair, relative to the largest possible score.
_ROUNDING = 1e-12


def top_products(
    z: Tensor,
    graph: Graph,
    k: int,
    *,
    weight: Tensor | None = None,
    bias: float = 0.0,
    chunk_size: int = 1 << 18,
    exclude: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Missing pairs with the largest ``sum_k w_k z_uk z_vk + b``, exactly, best first.

    Parameters
    ----------
    z : Tensor [N, d]
        Node embeddings.
    graph : Graph
        Its edges and self-pairs are left out.
    k : int
    weight : Tensor [d] or [1], optional
        Ones by default.
    bias : float
    chunk_size : int
        Scores held at once.
    exclude : Tensor [2, K], optional
        More pairs to leave out.

    Returns
    -------
    pairs : Tensor [2, n], int64
        n = k, or all missing pairs if they are fewer. Ties stand in the order of (u, v).
    score : Tensor [n], float64

    Raises
    ------
    InputError
        If `z` has not one finite row per node, `weight` does not fit it, `exclude` names other nodes, or `k`
        or `chunk_size` is below 1.

    Notes
    -----
    A block of scores is a product of matrices, whose rounding depends on the shape of the block. So blocks
    only nominate: every pair within rounding of the k-th best is scored again by itself, in float64, and
    these scores alone decide. The list is therefore the same for every `chunk_size`.
    """
    k, chunk_size = check_positive_int(k, "k"), check_positive_int(chunk_size, "chunk_size")
    _check_shapes(z, graph, weight)
    if exclude is not None:
        exclude = check_edge_index(exclude, graph.num_nodes, "exclude")
    left = check_finite(z.detach().cpu().numpy().astype(np.float64), "z")
    right = left if weight is None else left * weight.detach().cpu().numpy().astype(np.float64)
    taken = taken_keys(graph, exclude)
    largest = float(np.linalg.norm(left, axis=1).max() * np.linalg.norm(right, axis=1).max())
    margin = _ROUNDING * max(1.0, largest)
    best = Best(k, margin)
    for row, col in _tiles(graph.num_nodes, chunk_size):
        if not graph.directed and col.stop <= row.start + 1:
            continue
        scores = left[row] @ right[col].T
        _mask(scores, row, col, taken, graph)
        bound = max(best.bound, _kth_largest(scores, k) - margin)
        u, v = np.nonzero(scores >= bound)
        keys = (u + row.start) * graph.num_nodes + v + col.start
        best.offer(_scores_alone(left, right, keys, graph.num_nodes), keys)
    score, keys = best.answer()
    pairs = np.stack([keys // graph.num_nodes, keys % graph.num_nodes])
    return torch.from_numpy(pairs), torch.from_numpy(score + bias)


def _check_shapes(z: Tensor, graph: Graph, weight: Tensor | None) -> None:
    if z.ndim != 2 or z.size(0) != graph.num_nodes:
        raise InputError(
            f"z must have shape [N, d] with N = {graph.num_nodes} nodes of the graph, got {list(z.shape)}"
        )
    if weight is not None and list(weight.shape) not in ([1], [z.size(1)]):
        raise InputError(f"weight must have shape [{z.size(1)}] or [1], got {list(weight.shape)}")


def _tiles(num_nodes: int, chunk_size: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of rows and columns that cover all pairs, at most `chunk_size` pairs each."""
    width = min(num_nodes, chunk_size)
    height = max(1, chunk_size // width)
    for row in range(0, num_nodes, height):
        for col in range(0, num_nodes, width):
            yield (
                slice(row, min(row + height, num_nodes)),
                slice(col, min(col + width, num_nodes)),
            )


def _mask(scores: FloatArray, row: slice, col: slice, taken: IntArray, graph: Graph) -> None:
    """Put -inf where a block holds known edges, self-pairs, or the second copy of an unordered pair."""
    n = graph.num_nodes
    first, last = np.searchsorted(taken, [row.start * n, row.stop * n])
    u, v = np.divmod(taken[first:last], n)
    inside = (v >= col.start) & (v < col.stop)
    scores[u[inside] - row.start, v[inside] - col.start] = -np.inf
    u, v = np.arange(row.start, row.stop)[:, None], np.arange(col.start, col.stop)
    scores[(u == v) if graph.directed else (u >= v)] = -np.inf


def _kth_largest(scores: FloatArray, k: int) -> float:
    """The k-th largest finite score of a block; the smallest finite number if it has fewer than k."""
    lowest = float(np.finfo(np.float64).min)
    if scores.size < k:
        return lowest
    return max(lowest, float(np.partition(scores, scores.size - k, axis=None)[scores.size - k]))


def _scores_alone(left: FloatArray, right: FloatArray, keys: IntArray, num_nodes: int) -> FloatArray:
    """Each pair's score as a sum over its own row, which no other pair influences; (u, v) as (v, u)."""
    u, v = keys // num_nodes, keys % num_nodes
    return np.asarray((left[u] * right[v]).sum(axis=1))
