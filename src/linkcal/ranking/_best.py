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
    """The k best of what was offered, and what lies within `margin` of the k-th."""

    def __init__(self, k: int, margin: float) -> None:
        self.k, self.margin = k, margin
        self.score: FloatArray = np.empty(0)
        self.key: IntArray = np.empty(0, dtype=np.int64)

    @property
    def bound(self) -> float:
        """Block scores below this cannot belong to the k best; -inf (masked) never passes."""
        lowest = np.finfo(np.float64).min
        return lowest if self.score.size < self.k else float(self.score[self.k - 1]) - self.margin

    def offer(self, score: FloatArray, key: IntArray) -> None:
        """Take candidates in; keeps k of them, ties by key."""
        score, key = np.concatenate([self.score, score]), np.concatenate([self.key, key])
        order = np.lexsort([key, -score])[: self.k]
        self.score, self.key = score[order], key[order]

    def answer(self) -> tuple[FloatArray, IntArray]:
        return self.score, self.key


def taken_keys(graph: Graph, exclude: Tensor | None) -> IntArray:
    edges = graph.edge_index
    if exclude is not None:
        edges = torch.cat([edges, exclude.to(edges)], dim=1)
    return np.unique(pair_keys(edges, graph.num_nodes, directed=graph.directed).cpu().numpy())
