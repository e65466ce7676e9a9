"""Exact uniform sampling of non-edges, without rejection against the edge list.

Pairs of different nodes are numbered 0, 1, 2, ... by a closed formula. The non-edges are the numbers left
over when those of the edges are taken out, and the r-th number left over is found by one binary search in
the sorted edge numbers. So distinct ranks give distinct non-edges at any density, in O(E + L) memory: a
complete graph less one edge costs no more than a sparse one.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._validation import check_edge_index, check_positive_int
from linkcal.data.graph import Graph
from linkcal.exceptions import InputError, ShortageError

__all__ = ["NegativeSampler", "distinct_ranks", "first_occurrences", "in_sorted"]

IntArray = NDArray[np.int64]


class NegativeSampler:
    """Draw distinct non-edges of one graph again and again, for instance once per training epoch.

    The edges are numbered and sorted once, in the constructor; each call then costs O(L log E).

    Parameters
    ----------
    graph : Graph
        Its edges, reversed edges (undirected) and self-pairs are never drawn.
    exclude : Tensor [2, K], optional
        More pairs never to draw, in either orientation if the graph is undirected.

    Notes
    -----
    A sampler over the message graph of a split may draw a validation or test link as a "non-edge", as PyG's
    ``negative_sampling`` does: training must not know those links, so it must not avoid them either.

    Examples
    --------
    >>> import numpy as np, torch
    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    >>> sampler = NegativeSampler(path)
    >>> sampler.num_available
    3
    >>> sorted(map(tuple, sampler.sample(3, np.random.default_rng(0)).T.tolist()))
    [(0, 2), (0, 3), (1, 3)]
    """

    def __init__(self, graph: Graph, *, exclude: Tensor | None = None) -> None:
        self._num_nodes = graph.num_nodes
        self._directed = graph.directed
        self._device = graph.edge_index.device
        taken = _pair_numbers(graph.pairs, graph.num_nodes, directed=graph.directed)
        if exclude is not None:
            exclude = check_edge_index(exclude, graph.num_nodes, "exclude")
            exclude = exclude[:, exclude[0] != exclude[1]]
            more = _pair_numbers(exclude, graph.num_nodes, directed=graph.directed)
            taken = np.concatenate([taken, more])
        taken = np.unique(taken)
        self._num_available = graph.num_possible_pairs - len(taken)
        # Number of free pairs before the i-th taken one: non-decreasing, so rank -> number is one search.
        self._free_before = taken - np.arange(len(taken))

    @property
    def num_available(self) -> int:
        """How many distinct non-edges there are to draw."""
        return self._num_available

    def sample(self, num: int, generator: np.random.Generator) -> Tensor:
        """Draw `num` distinct non-edges, every ordered selection equally likely.

        Parameters
        ----------
        num : int
            L, at least 0.
        generator : numpy.random.Generator
            For a named stream see ``linkcal._random.numpy_stream``.

        Returns
        -------
        Tensor [2, L], int64
            On the graph's device; smaller index first in an undirected graph.

        Raises
        ------
        ShortageError
            If there are fewer than `num` non-edges.
        """
        num = check_positive_int(num, "num", minimum=0)
        if not isinstance(generator, np.random.Generator):
            raise InputError(f"generator must be a numpy.random.Generator, got {type(generator).__name__}")
        if num > self._num_available:
            raise ShortageError(
                f"num must be at most the number of non-edges that can be drawn, "
                f"{self._num_available}, got {num}",
                self._num_available,
            )
        ranks = distinct_ranks(self._num_available, num, generator)
        numbers = ranks + np.searchsorted(self._free_before, ranks, side="right")
        return _pairs_of_numbers(numbers, self._num_nodes, directed=self._directed).to(self._device)


def distinct_ranks(population: int, size: int, rng: np.random.Generator) -> IntArray:
    """Uniform ordered sample without replacement of `size` of ``range(population)`` in O(size) memory.

    The distinct values of an i.i.d. uniform sequence, in order of first appearance, are such a sample.
    ``Generator.choice(replace=False)`` is too, but may allocate 50 times the asked size.
    """
    if 2 * size >= population:
        return rng.permutation(population)[:size]
    ranks = np.empty(0, dtype=np.int64)
    while len(ranks) < size:
        missing = size - len(ranks)
        draws = rng.integers(population, size=missing + missing // 4 + 8)
        ranks = first_occurrences(np.concatenate([ranks, draws]))
    return ranks[:size]


def first_occurrences(values: IntArray) -> IntArray:
    """Distinct values in order of first appearance."""
    return values[np.sort(np.unique(values, return_index=True)[1])]


def in_sorted(ordered: IntArray, keys: IntArray) -> NDArray[np.bool_]:
    """Whether each key (m,) stands in the sorted keys; by binary search, without sorting anew."""
    if not ordered.size:
        return np.zeros(keys.size, dtype=np.bool_)
    place = np.minimum(np.searchsorted(ordered, keys), ordered.size - 1)
    return np.asarray(ordered[place] == keys)


def _pair_numbers(pairs: Tensor, num_nodes: int, *, directed: bool) -> IntArray:
    """Give each pair of different nodes its number; the inverse of :func:`_pairs_of_numbers`."""
    u, v = pairs.cpu().numpy()
    if directed:
        return np.asarray(u * (num_nodes - 1) + v - (v > u))
    low, high = np.minimum(u, v), np.maximum(u, v)
    gap = high - low
    wraps = 2 * gap > num_nodes
    step = np.where(wraps, num_nodes - gap, gap)
    start = np.where(wraps, high, low)
    return np.asarray((step - 1) * num_nodes + start)


def _pairs_of_numbers(numbers: IntArray, num_nodes: int, *, directed: bool) -> Tensor:
    """Pairs [2, L] of pair numbers.

    Directed: row by row, leaving out the diagonal. Undirected: nodes stand on a circle and number
    ``(k - 1) N + s`` is the pair {s, s + k mod N}, k steps apart (k up to N/2). Unlike numbering the upper
    triangle row by row, this inverts by integer division alone, without a square root that must be rounded.
    """
    if directed:
        u, v = np.divmod(numbers, max(num_nodes - 1, 1))
        v = v + (v >= u)
    else:
        step, start = np.divmod(numbers, num_nodes)
        end = (start + step + 1) % num_nodes
        u, v = np.minimum(start, end), np.maximum(start, end)
    return torch.from_numpy(np.stack([u, v]))
