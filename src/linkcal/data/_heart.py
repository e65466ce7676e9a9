"""HeaRT candidates: pairs that keep one end of a link, the hardest by three heuristics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from linkcal.data.graph import Graph, neighbour_rows, pair_keys, rows_of_keys
from linkcal.exceptions import ShortageError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

#: Probability with which the walk of personalised PageRank returns to the kept end in each step.
RESTART = 0.15
# Steps of the Chebyshev iteration: error 2 s^25 < 1e-6, s = 0.85 / (1 + sqrt(1 - 0.85^2)), beside float32's.
_STEPS = 25
# Numbers in one of the some six blocks [N, m] that are held at a time.
_BLOCK = 1 << 20


class Heuristics:
    """Scores of all nodes beside the kept ends of links, as if the links were not in the graph.

    Formulas at :func:`~linkcal.data.heart_candidates`. Neighbours in any direction count.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, shape = graph, (graph.num_nodes, graph.num_nodes)
        start, near = neighbour_rows(graph.edge_index, graph.num_nodes)
        self.degree = np.diff(start)
        self._root = (1.0 / np.sqrt(np.maximum(self.degree, 1))).astype(np.float32)
        row, one = np.repeat(np.arange(graph.num_nodes), self.degree), np.ones(len(near), dtype=np.float32)
        self._adjacency = csr_matrix((one, near, start), shape=shape)
        self._allocation = csr_matrix((one / self.degree[near].astype(np.float32), near, start), shape=shape)
        self._walk = csr_matrix((self._root[row] * self._root[near], near, start), shape=shape)
        self._unit = None
        if (x := graph.given_features) is not None:
            unit = csr_matrix(x.detach().cpu().double().numpy())
            filled = np.diff(unit.indptr)
            unit.data /= np.repeat(abs(unit).max(axis=1).toarray().ravel(), filled)  # keeps squares finite
            unit.data /= np.repeat(np.sqrt(np.asarray(unit.power(2).sum(axis=1)).ravel()), filled)
            self._unit = unit.astype(np.float32)

    def scores(self, ends: IntArray, own: NDArray[np.bool_]) -> list[FloatArray]:
        """Resource allocation, PageRank and, with features, cosine, each [N, m], float32.

        `ends` (2, m): the kept end of each link and its other end; `own` (m,): whether the two are neighbours
        by this link alone.
        """
        kept, other = ends
        around = self._adjacency[kept].toarray().T
        around[other[own], np.flatnonzero(own)] = 0.0
        found = [self._allocation @ around, self._page_rank(ends, own)]
        return found if self._unit is None else [*found, self._unit @ self._unit[kept].toarray().T]

    def _page_rank(self, ends: IntArray, own: NDArray[np.bool_]) -> FloatArray:
        # With S = D^-1/2 A D^-1/2, p = restart D^1/2 y / sqrt(d_kept), where y = (1 - restart) S y + e_kept:
        # by Chebyshev's semi-iteration (Golub and Varga, 1961). Without its link a column has its own S.
        kept, column, pull = ends[0], np.arange(ends.shape[1]), 1.0 - RESTART
        degree = self.degree[ends]
        ratio = np.sqrt(degree / np.maximum(degree - own, 1)) * (degree > own)
        ratio, link = ratio.astype(np.float32), self._root[ends].prod(axis=0) * own
        last = np.zeros((len(self.degree), len(kept)), dtype=np.float32)
        now = last.copy()
        now[kept, column] = 1.0
        relaxed = 2.0
        for _ in range(_STEPS):
            relaxed = 1.0 / (1.0 - pull**2 * relaxed / 4.0)
            values = now[ends, column]
            now[ends, column] = values * ratio
            after = self._walk @ now
            after[ends, column] -= link * (values * ratio)[::-1]
            after[ends, column] *= ratio
            now[ends, column] = values
            after *= np.float32(relaxed * pull)
            after[kept, column] += np.float32(relaxed)
            last *= np.float32(1.0 - relaxed)
            after += last
            last, now = now, after
        now *= np.sqrt(self.degree).astype(np.float32)[:, None]
        now *= np.float32(RESTART) * self._root[kept] * ratio[0]
        return now


class Candidates:
    """The `half` hardest pairs of each end of `links` [2, P], none in the sorted keys `closed`."""

    def __init__(
        self, graph: Graph, links: IntArray, half: int, generator: np.random.Generator, closed: IntArray
    ) -> None:
        n = graph.num_nodes
        self.graph, self.links, self.half = graph, links, half
        self._heuristics, self._tie = Heuristics(graph), generator.permutation(n)
        pairs = torch.from_numpy(links).to(graph.edge_index.device)
        own = graph.has_pairs(pairs)  # an edge in the other direction joins the ends too
        self._own = (own & ~graph.has_pairs(pairs.flip(0)) if graph.directed else own).cpu().numpy()
        reverse = np.sort(closed % n * n + closed // n)
        keys = (closed, reverse) if graph.directed else [np.union1d(closed, reverse)] * 2
        self._closed = [rows_of_keys(part, n) for part in keys]
        self._ends = [np.zeros(n, dtype=bool) for _ in range(2)]  # nodes in the place of the end that is left
        for place, nodes in zip(self._ends, reversed(graph.ends), strict=True):
            place[nodes.cpu().numpy()] = True
        counts = [
            self._ends[side].sum() - self._ends[side][kept] - np.diff(self._closed[side][0])[kept]
            for side, kept in enumerate(links)
        ]
        #: Number of candidates of each end, [2, P].
        self.counts = np.minimum(np.stack(counts), half)

    def keys(self, link: IntArray, side: IntArray) -> list[IntArray]:
        """Keys of each link's candidates, hardest first; the source (side 0) or the target is kept."""
        kept, other, own = self.links[side, link], self.links[1 - side, link], self._own[link]
        # Without a link to leave out, a kept end has the same candidates in all its links.
        which = np.stack([kept, side * self.graph.ordered_pairs, np.where(own, other, -1)])
        _, first, place = np.unique(which, axis=1, return_index=True, return_inverse=True)
        lists = list(self._listed(np.stack([kept, other])[:, first], own[first], side[first]))
        return [lists[i] for i in place.ravel()]

    def _listed(self, ends: IntArray, own: NDArray[np.bool_], side: IntArray) -> Iterator[IntArray]:
        n, number = self.graph.num_nodes, len(side)
        for block in np.array_split(np.arange(number), max(1, -(-number * n // _BLOCK))):
            scores = self._heuristics.scores(ends[:, block], own[block])
            by_link = [np.ascontiguousarray(score.T) for score in scores]
            for place, (kept, keeps) in enumerate(zip(ends[0, block], side[block], strict=True)):
                start, closed = self._closed[keeps]
                free = self._ends[keeps].copy()
                free[kept] = free[closed[start[kept] : start[kept + 1]]] = False
                nodes = hardest([score[place] for score in by_link], free, self.half, self._tie)
                pairs = torch.from_numpy(np.stack([np.full_like(nodes, kept), nodes]))
                yield pair_keys(
                    pairs.flip(0) if keeps else pairs, n, directed=self.graph.directed
                ).numpy()


def hardest(scores: list[FloatArray], free: NDArray[np.bool_], count: int, tie: IntArray) -> IntArray:
    """The first `count` free nodes by their smallest rank in any of the scores (N,).

    Scores above 0 are ranked, the largest first; nodes without any come last. Equals are ordered by `tie`.
    """
    unranked = len(free)
    rank = np.full(len(free), unranked)
    for score in scores:
        score = np.where(free, score, 0.0)
        least = np.partition(score, -count)[-count] if count < len(score) else 0.0
        listed = np.flatnonzero((score >= least) & (score > 0.0))
        listed = listed[np.lexsort((tie[listed], -score[listed]))][:count]
        rank[listed] = np.minimum(rank[listed], np.arange(len(listed)))
    nodes = np.flatnonzero(rank < unranked)
    if len(nodes) < count:
        nodes = np.flatnonzero(free)
    return nodes[np.lexsort((tie[nodes], rank[nodes]))][:count]


def heart_keys(candidates: Candidates, num: int, generator: np.random.Generator) -> IntArray:
    """Distinct keys of `num` candidates: the links take turns, each draws uniformly from its own."""
    number = candidates.links.shape[1]
    rounds = [generator.permutation(number) for _ in range(-(-num // max(number, 1)))] if number else []
    link = np.concatenate([*rounds, np.empty(0, dtype=np.int64)])[:num]
    # Both ends' lists are drawn from as one: an end is chosen in proportion to the length of its list.
    source, target = candidates.counts[:, link]
    side = (generator.random(len(link)) * (source + target) >= source).astype(np.int64)
    drawn: dict[int, None] = {}
    for listed in candidates.keys(link, side):
        free = [key for key in listed.tolist() if key not in drawn]
        if free:
            drawn[free[generator.integers(len(free))]] = None
    keys = np.fromiter(drawn, dtype=np.int64, count=len(drawn))
    if len(keys) < num:  # some lists are used up: the rest from what is left of all
        link, side = np.tile(np.arange(number), 2), np.repeat([0, 1], number)
        rest = np.setdiff1d(np.concatenate([*candidates.keys(link, side), keys[:0]]), keys)
        if (available := len(keys) + len(rest)) < num:
            raise ShortageError(
                f"num must be at most the number of candidates of the links, {available}, got {num}", available
            )
        keys = np.concatenate([keys, generator.permutation(rest)[: num - len(keys)]])
    return keys
