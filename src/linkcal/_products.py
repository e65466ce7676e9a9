"""All pairs' scores where a score is a weighted product of embeddings, in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.validation import check_finite, check_positive_int, to_float64
from linkcal._scoring import known_pair_keys
from linkcal.data import Graph
from linkcal.exceptions import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Best:
    """The k best of what was offered: largest scores first, equal ones by the smaller key."""

    def __init__(self, k: int, margin: float) -> None:
        self.k, self.margin = k, margin
        self._parts: list[tuple[FloatArray, IntArray]] = []
        self._held = 0
        #: Score and key of the k-th best when last selected; what is no better takes no part.
        self._last: tuple[float, int] | None = None

    @property
    def bound(self) -> float:
        """Block scores below this cannot belong to the k best; -inf (masked) never passes."""
        lowest = np.finfo(np.float64).min
        return lowest if self._last is None else max(lowest, self._last[0] - self.margin)

    def offer(self, score: FloatArray, key: IntArray) -> None:
        """Take candidates in; the k best of all offers are kept, ties by key."""
        if self._last is not None:
            last_score, last_key = self._last
            better = (score > last_score) | ((score == last_score) & (key < last_key))
            score, key = score[better], key[better]
        self._parts.append((score, key))
        self._held += key.size
        # The first k give a bound at once; later ones wait until selecting is cheap per candidate.
        if self._held >= (self.k if self._last is None else 2 * self.k):
            self._select()

    def answer(self) -> tuple[FloatArray, IntArray]:
        """Scores and keys of the k best, sorted; fewer if fewer were offered."""
        score, key = self._joined()
        order = np.lexsort([key, -score])[: self.k]
        return score[order], key[order]

    def pairs(self, num_nodes: int) -> tuple[Tensor, Tensor]:
        """The k best as pairs [2, n], int64, and scores [n], float64; keys are ``u * num_nodes + v``."""
        score, key = self.answer()
        return torch.from_numpy(np.stack(np.divmod(key, num_nodes))), torch.from_numpy(score)

    def _joined(self) -> tuple[FloatArray, IntArray]:
        if not self._parts:
            return np.empty(0), np.empty(0, dtype=np.int64)
        return np.concatenate([s for s, _ in self._parts]), np.concatenate([key for _, key in self._parts])

    def _select(self) -> None:
        """Leave the k best, unsorted, and note the last of them; at least k are held."""
        score, key = self._joined()
        place = score.size - self.k
        lowest = np.partition(score, place)[place]
        above, tied = score > lowest, np.flatnonzero(score == lowest)
        wanted = self.k - int(np.count_nonzero(above))
        tied = tied[np.argpartition(key[tied], wanted - 1)[:wanted]]
        self._last = (float(lowest), int(key[tied].max()))
        kept = np.concatenate([np.flatnonzero(above), tied])
        self._parts, self._held = [(score[kept], key[kept])], self.k


# Nodes are ordered by length: a block whose lengths multiply to less than the k-th best score so far holds
# none of the k best (Cauchy and Schwarz) and is not computed.

#: Rounding of a product of matrices, relative to the largest possible score, and of adding the bias.
_ROUNDING = 1e-12
_BIAS_ROUNDING = 1e-15
#: The smallest finite number; scores of pairs that take no part are below it.
_LOWEST = float(np.finfo(np.float64).min)
#: Pairs that are scored by themselves at once.
_PORTION = 1 << 14


def top_products(
    z: Tensor,
    graph: Graph,
    k: int,
    *,
    weight: Tensor | None = None,
    bias: float = 0.0,
    chunk_size: int = 1 << 18,
    known: IntArray | None = None,
) -> tuple[Tensor, Tensor]:
    """Missing pairs with the largest ``sum_k w_k z_uk z_vk + b``, exactly, best first, ties by (u, v).

    Self-pairs and pairs with `known` keys, by default the edges of `graph`, are left out; `weight` is [d] or
    [1]. Returns pairs [2, n], n <= k, and scores [n], float64.

    The rounding of a matrix product depends on the block's shape. So blocks only nominate: every pair within
    rounding of the k-th best is scored again by itself in float64, and no `chunk_size` changes the list.
    """
    k, chunk_size = check_positive_int(k, "k"), check_positive_int(chunk_size, "chunk_size")
    _check_inputs(z, graph, weight, bias)
    n = graph.num_nodes
    left = check_finite(to_float64(z), "z")
    right = left if weight is None else left * to_float64(weight)
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1)
    largest = float(lengths[0].max() * lengths[1].max())
    if not math.isfinite(largest + abs(bias)):
        raise InputError("z must have inner products below 1.8e308, got lengths that multiply to more")
    order = np.argsort(-lengths[0] * lengths[1], kind="stable")
    kind = None if graph.node_type is None else graph.node_type.cpu().numpy()[order]
    rows, cols = (order, order) if kind is None else (order[kind == 0], order[kind == 1])
    a, a_length, b, b_length = left[rows], lengths[0][rows], right[cols], lengths[1][cols]
    taken = _in_order(known_pair_keys(graph) if known is None else known, rows, cols, graph)
    margin = _ROUNDING * largest + _BIAS_ROUNDING * abs(bias)
    best = Best(k, margin)
    for row, col in _tiles(rows.size, cols.size, chunk_size):
        if not graph.ordered_pairs and col.stop <= row.start + 1:
            continue
        bound = max(best.bound - bias, _LOWEST)
        if a_length[row].max() * b_length[col].max() < bound - margin:
            continue
        scores = a[row] @ b[col].T
        _mask(scores, row, col, taken, graph)
        u, v = _nominated(scores, bound, k, margin)
        keys = _keys(rows[u + row.start], cols[v + col.start], graph)
        best.offer(_scores_alone(left, right, keys, n) + bias, keys)
    pairs, score = best.pairs(n)
    return graph.source_first(pairs), score


def _check_inputs(z: Tensor, graph: Graph, weight: Tensor | None, bias: float) -> None:
    if z.ndim != 2 or z.size(0) != graph.num_nodes:
        raise InputError(
            f"z must have shape [N, d] with N = {graph.num_nodes} nodes of the graph, got {list(z.shape)}"
        )
    if not math.isfinite(bias):
        raise InputError(f"bias must be finite, got {bias}")
    if weight is not None and not bool(torch.isfinite(weight).all()):
        raise InputError("weight must be finite, got NaN or infinite values")
    if weight is not None and list(weight.shape) not in ([1], [z.size(1)]):
        raise InputError(f"weight must have shape [{z.size(1)}] or [1], got {list(weight.shape)}")


def _tiles(num_rows: int, num_cols: int, chunk_size: int) -> Iterator[tuple[slice, slice]]:
    """Blocks that cover all pairs, as square as may be, of at most `chunk_size` pairs."""
    height = min(num_rows, max(1, math.isqrt(chunk_size)))
    width = min(num_cols, chunk_size // height)
    for row in range(0, num_rows, height):
        for col in range(0, num_cols, width):
            yield slice(row, min(row + height, num_rows)), slice(col, min(col + width, num_cols))


def _keys(u: IntArray, v: IntArray, graph: Graph) -> IntArray:
    """One number for each pair, the smaller node first in an undirected graph."""
    if not graph.directed:
        u, v = np.minimum(u, v), np.maximum(u, v)
    return u * graph.num_nodes + v


def _in_order(keys: IntArray, rows: IntArray, cols: IntArray, graph: Graph) -> IntArray:
    """Sorted keys of the same pairs when nodes are numbered by their place in `rows`, and in `cols`."""
    first, second = np.zeros((2, graph.num_nodes), dtype=np.int64)
    first[rows], second[cols] = np.arange(rows.size), np.arange(cols.size)
    u, v = graph.source_first(torch.from_numpy(np.stack(np.divmod(keys, graph.num_nodes)))).numpy()
    if graph.node_type is not None:
        return np.sort(first[u] * graph.num_nodes + second[v])
    return np.sort(_keys(first[u], second[v], graph))


def _mask(scores: FloatArray, row: slice, col: slice, taken: IntArray, graph: Graph) -> None:
    """Put -inf where a block holds known edges, self-pairs, or the second copy of an unordered pair."""
    n = graph.num_nodes
    first, last = np.searchsorted(taken, [row.start * n, row.stop * n])
    u, v = np.divmod(taken[first:last], n)
    inside = (v >= col.start) & (v < col.stop)
    scores[u[inside] - row.start, v[inside] - col.start] = -np.inf
    if graph.node_type is None and col.start < row.stop and (row.start < col.stop or not graph.directed):
        u, v = np.arange(row.start, row.stop)[:, None], np.arange(col.start, col.stop)
        scores[(u == v) if graph.directed else (u >= v)] = -np.inf


def _nominated(scores: FloatArray, bound: float, k: int, margin: float) -> tuple[IntArray, IntArray]:
    """Rows and columns of a block's scores that may be among the k best: not below `bound`."""
    if np.count_nonzero(scores >= bound) > 2 * k:
        # Finding the block's own k-th best takes longer than all else, and few blocks need it.
        bound = max(bound, _kth_largest(scores, k) - margin)
    u, v = np.nonzero(scores >= bound)
    return u, v


def _kth_largest(scores: FloatArray, k: int) -> float:
    """The k-th largest finite score of a block; the smallest finite number if it has fewer than k."""
    if scores.size < k:
        return _LOWEST
    return max(_LOWEST, float(np.partition(scores, scores.size - k, axis=None)[scores.size - k]))


def _scores_alone(left: FloatArray, right: FloatArray, keys: IntArray, num_nodes: int) -> FloatArray:
    """Each pair's score as a sum over its own row, which no other pair influences; (u, v) as (v, u)."""
    score = np.empty(keys.size)
    for start in range(0, keys.size, _PORTION):
        u, v = np.divmod(keys[start : start + _PORTION], num_nodes)
        first, second = np.minimum(u, v), np.maximum(u, v)
        score[start : start + _PORTION] = (left[first] * right[second]).sum(axis=1)
    return score
