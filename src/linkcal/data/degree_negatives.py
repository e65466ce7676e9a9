"""Non-edges whose endpoints are drawn in proportion to their degrees."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal.data.graph import Graph
from linkcal.data.negatives import first_occurrences, in_sorted
from linkcal.exceptions import ShortageError

__all__ = ["degree_negatives"]

IntArray = NDArray[np.int64]

# Up to so many candidate pairs are listed one by one rather than drawn and rejected.
_LISTED = 1 << 22


def degree_negatives(
    graph: Graph, num: int, generator: np.random.Generator, taken: IntArray, *, listed: int = _LISTED
) -> Tensor:
    """Draw `num` distinct pairs one after the other, each in proportion to the product of its degrees.

    Parameters
    ----------
    graph : Graph
        Degrees are counted in it: of a directed graph, out-degree of the source and in-degree of the target.
    num : int
    generator : numpy.random.Generator
    taken : ndarray (K,), int64
        Sorted distinct keys ``u N + v`` of pairs never to draw (u < v in an undirected graph).
    listed : int
        Graphs with up to so many candidate pairs are drawn from a list of them.

    Returns
    -------
    Tensor [2, num], int64

    Raises
    ------
    ShortageError
        If fewer pairs of nodes with edges are free.

    Notes
    -----
    The source of a random edge and the target of another are proportional to the degrees. The distinct ones
    of a sequence of such pairs, in order of first appearance, are a sample without replacement in which each
    next pair is drawn from those left over, in proportion to their weights. Where so many are asked for, or
    so few exist, that repeats would waste draws, the free pairs are listed and those with the `num` smallest
    ``Exponential(1) / weight`` taken: the same distribution (Efraimidis, Spirakis: Weighted random sampling
    with a reservoir, 2006).
    """
    edges = graph.edge_index.cpu().numpy()
    sources, out_degree = np.unique(edges[0], return_counts=True)
    targets, in_degree = np.unique(edges[1], return_counts=True)
    available = _num_free(graph, sources, targets, taken)
    if num > available:
        raise ShortageError(
            f"num must be at most the number of non-edges between nodes that have edges, {available}, "
            f"got {num}",
            available,
        )
    if len(sources) * len(targets) <= max(8 * num, listed):
        keys, row, column = _free_pairs(graph, sources, targets, taken)
        weight = out_degree[row].astype(np.float64) * in_degree[column]
        waited = generator.exponential(size=len(keys)) / weight
        chosen = np.argpartition(waited, num - 1)[:num] if 0 < num < len(keys) else np.arange(len(keys))[:num]
        keys = keys[chosen[np.argsort(waited[chosen], kind="stable")]]
    else:
        keys = _drawn(graph, edges, num, generator, taken)
    return torch.from_numpy(np.stack(np.divmod(keys, graph.num_nodes)))


def _num_free(graph: Graph, sources: IntArray, targets: IntArray, taken: IntArray) -> int:
    """Pairs of a source and a target that may be drawn."""
    u, v = np.divmod(taken, graph.num_nodes)
    inside = np.isin(u, sources) & np.isin(v, targets)
    loops = len(np.intersect1d(sources, targets, assume_unique=True))
    ordered = len(sources) * len(targets) - loops
    return int((ordered if graph.directed else ordered // 2) - inside.sum())


def _free_pairs(
    graph: Graph, sources: IntArray, targets: IntArray, taken: IntArray
) -> tuple[IntArray, NDArray[np.intp], NDArray[np.intp]]:
    """Keys of all pairs that may be drawn, with their places in `sources` and `targets`."""
    row, column = np.divmod(np.arange(len(sources) * len(targets)), max(len(targets), 1))
    u, v = sources[row], targets[column]
    keys = u * graph.num_nodes + v
    free = (u != v) if graph.directed else (u < v)
    free &= ~in_sorted(taken, keys)
    return keys[free], row[free], column[free]


def _drawn(
    graph: Graph, edges: IntArray, num: int, generator: np.random.Generator, taken: IntArray
) -> IntArray:
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < num:
        size = 2 * (num - len(keys)) + 64
        u = edges[0][generator.integers(edges.shape[1], size=size)]
        v = edges[1][generator.integers(edges.shape[1], size=size)]
        if not graph.directed:
            u, v = np.minimum(u, v), np.maximum(u, v)
        found = (u * graph.num_nodes + v)[u != v]
        keys = first_occurrences(np.concatenate([keys, found[~in_sorted(taken, found)]]))
    return keys[:num]
