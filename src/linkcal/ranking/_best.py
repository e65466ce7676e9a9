"""What both kinds of ranking share: pairs that take no part, and the k best of a stream of candidates."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal.data import Graph, pair_keys

__all__ = ["Best", "taken_keys"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Best:
    """The k best of what was offered: largest scores first, equal ones by the smaller key.

    Up to 2k candidates wait unsorted. When they are that many, a partial selection leaves k; so a candidate
    costs the same however many come at once.
    """

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

    def may_take(self, score: float, key: int) -> bool:
        """Whether a candidate with at most this score and at least this key could be among the k best."""
        return self._last is None or (score, -key) > (self._last[0], -self._last[1])

    def offer(self, score: FloatArray, key: IntArray) -> None:
        """Take candidates in; the k best of all offers are kept, ties by key."""
        if self._last is not None:
            last_score, last_key = self._last
            better = (score > last_score) | ((score == last_score) & (key < last_key))
            score, key = score[better], key[better]
        self._parts.append((score, key))
        self._held += key.size
        # The first k give a bound at once; later ones wait until selecting costs no more than they did.
        if self._held >= (self.k if self._last is None else 2 * self.k):
            self._select()

    def answer(self) -> tuple[FloatArray, IntArray]:
        """Scores and keys of the k best, sorted; fewer if fewer were offered."""
        score, key = self._joined()
        order = np.lexsort([key, -score])[: self.k]
        return score[order], key[order]

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


def taken_keys(graph: Graph, exclude: Tensor | None) -> IntArray:
    edges = graph.edge_index
    if exclude is not None:
        edges = torch.cat([edges, exclude.to(edges)], dim=1)
    return np.unique(pair_keys(edges, graph.num_nodes, directed=graph.directed).cpu().numpy())
