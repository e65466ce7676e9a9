"""HeaRT candidates: pairs that keep one end of a link, the hardest by three heuristics."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.preprocessing import normalize

from linkcal.data.graph import Graph, neighbour_rows, pair_keys, row_starts
from linkcal.exceptions import ShortageError

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float32]

#: Probability with which the walk of personalised PageRank returns to the kept end in each step.
RESTART = 0.15
# Chebyshev steps: error 2 s^25 < 1e-6 with s = 0.85 / (1 + sqrt(1 - 0.85^2)), beside float32's.
_STEPS = 25
# Numbers in each of about six blocks [N, m] that are held at a time.
_BLOCK = 1 << 20


class Heuristics:
    """Scores of all nodes for kept ends of links, without the links; formulas at ``sample_negatives``."""

    def __init__(self, graph: Graph) -> None:
        n = graph.num_nodes
        start, near = neighbour_rows(graph.edge_index, n)
        self._degree = np.diff(start)
        self._root = (1.0 / np.sqrt(np.maximum(self._degree, 1))).astype(np.float32)
        root, one = np.repeat(self._root, self._degree), np.ones(len(near), dtype=np.float32)
        self._adjacency, self._allocation, self._walk = (
            csr_matrix((part, near, start), shape=(n, n))
            for part in (one, self._root[near] ** 2, root * self._root[near])
        )
        self._x = None
        if (x := graph.given_features) is not None:  # by the largest entry first: squares stay finite
            rows = csr_matrix(x.detach().cpu().double().numpy())
            self._x = normalize(normalize(rows, "max")).astype(np.float32)

    def scores(self, kept: IntArray, other: IntArray, own: BoolArray) -> list[FloatArray]:
        """Three, or two without features, each [N, m]; `own`: whether the link alone joins its ends."""
        around = self._adjacency[kept].toarray().T
        around[other[own], np.flatnonzero(own)] = 0.0
        found = [self._allocation @ around, self._page_rank(np.stack([kept, other]), own)]
        return found if self._x is None else [*found, self._x @ self._x[kept].toarray().T]

    def _page_rank(self, ends: IntArray, own: BoolArray) -> FloatArray:
        # p = 0.15 D^1/2 y / sqrt(d_kept), y = 0.85 S y + e_kept, S = D^-1/2 A D^-1/2: by Chebyshev's
        # semi-iteration (Golub and Varga, 1961). The S of a column is without its own link.
        column, pull, degree = np.arange(len(own)), 1.0 - RESTART, self._degree[ends]
        ratio = (np.sqrt(degree / np.maximum(degree - own, 1)) * (degree > own)).astype(np.float32)
        link = self._root[ends].prod(axis=0) * own
        last, now = np.zeros((2, len(self._degree), len(own)), dtype=np.float32)
        now[ends[0], column] = 1.0
        relaxed = 2.0
        for _ in range(_STEPS):
            relaxed = 1.0 / (1.0 - pull**2 * relaxed / 4.0)
            values = now[ends, column]
            now[ends, column] = moved = values * ratio
            after = self._walk @ now
            after[ends, column] = (after[ends, column] - link * moved[::-1]) * ratio
            now[ends, column] = values
            after *= np.float32(relaxed * pull)
            after[ends[0], column] += np.float32(relaxed)
            last *= np.float32(1.0 - relaxed)
            after += last
            last, now = now, after
        now *= np.sqrt(self._degree).astype(np.float32)[:, None]
        return np.asarray(now * (np.float32(RESTART) * self._root[ends[0]] * ratio[0]))


def hardest(scores: list[FloatArray], free: BoolArray, count: int, tie: IntArray) -> IntArray:
    """The first `count` free nodes by their smallest rank in any of the scores (N,); equals by `tie`.

    Scores above 0 are ranked, the largest first; nodes without a rank come last.
    """
    rank = np.full(len(free), len(free))
    for score in scores:
        score = np.where(free, score, 0.0)
        least = np.partition(score, -count)[-count] if count < len(score) else 0.0
        listed = np.flatnonzero((score >= least) & (score > 0.0))
        listed = listed[np.lexsort((tie[listed], -score[listed]))][:count]
        rank[listed] = np.minimum(rank[listed], np.arange(len(listed)))
    nodes = np.flatnonzero(rank < len(free))
    nodes = nodes if len(nodes) >= count else np.flatnonzero(free)
    return nodes[np.lexsort((tie[nodes], rank[nodes]))][:count]


def candidate_keys(
    graph: Graph, links: IntArray, side: IntArray, half: int, tie: IntArray, closed: IntArray
) -> Iterator[IntArray]:
    """Keys of each link's `half` hardest pairs that keep its source (side 0) or target (1), none `closed`."""
    n, number, heuristics = graph.num_nodes, links.shape[1], Heuristics(graph)
    pairs = torch.from_numpy(links).to(graph.edge_index.device)
    # An edge in the other direction joins the two as well.
    own = (graph.has_pairs(pairs) & ~(graph.has_pairs(pairs.flip(0)) & graph.directed)).cpu().numpy()
    reverse = np.sort(closed % n * n + closed // n)
    known = (closed, reverse) if graph.directed else [np.union1d(closed, reverse)] * 2
    rows = [(row_starts(keys // n, n), keys % n) for keys in known]
    ends = [np.isin(np.arange(n), nodes.cpu().numpy()) for nodes in reversed(graph.ends)]
    kept, other = np.where(side, links[::-1], links)
    for block in np.array_split(np.arange(number), max(1, -(-number * n // _BLOCK))):
        found = heuristics.scores(kept[block], other[block], own[block])
        scores = [np.ascontiguousarray(score.T) for score in found]
        for place, (u, keeps) in enumerate(zip(kept[block], side[block], strict=True)):
            start, partners = rows[keeps]
            free = ends[keeps].copy()
            free[u] = free[partners[start[u] : start[u + 1]]] = False
            nodes = hardest([score[place] for score in scores], free, half, tie)
            pairs = torch.from_numpy(np.stack([np.full_like(nodes, u), nodes][:: -1 if keeps else 1]))
            yield pair_keys(pairs, n, directed=graph.directed).numpy()


def heart_keys(
    graph: Graph, num: int, generator: np.random.Generator, closed: IntArray, *, links: IntArray, half: int
) -> IntArray:
    """Distinct keys of `num` candidates: the links take turns, each keeps an end and draws uniformly."""
    number, tie, drawn = links.shape[1], generator.permutation(graph.num_nodes), dict[int, None]()
    most = min(num, 2 * half * number)  # candidates that there can be
    turns = -(-most // max(number, 1))
    turn = np.concatenate([np.arange(0), *(generator.permutation(number) for _ in range(turns))])[:most]
    side, both = generator.integers(2, size=len(turn)), (np.tile(links, 2), np.repeat([0, 1], number))
    every: list[IntArray] = []
    if turns > 2 or most < num:  # each list is used again
        every = list(candidate_keys(graph, *both, half, tie, closed))
    once = candidate_keys(graph, links[:, turn], side, half, tie, closed)
    for listed in (every[place] for place in turn + number * side) if every else once:
        if free := [key for key in listed.tolist() if key not in drawn]:
            drawn[free[generator.integers(len(free))]] = None
    if (missing := num - len(drawn)) > 0:  # some lists were used up: what is left of all
        every = every or list(candidate_keys(graph, *both, half, tie, closed))
        rest = np.setdiff1d(np.concatenate([np.arange(0), *every]), list(drawn))
        if missing > len(rest):
            there = len(drawn) + len(rest)
            message = f"num must be at most the number of candidates of the links, {there}, got {num}"
            raise ShortageError(message, there)
        drawn |= dict.fromkeys(generator.permutation(rest)[:missing].tolist())
    return np.fromiter(drawn, dtype=np.int64, count=num)
