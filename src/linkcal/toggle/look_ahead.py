"""What later pairs and base sums read, asked for ahead of them (:mod:`.prefetch`).

A place is asked for in steps, each one item after the one that it needs: where a row starts, the row, what
its nodes hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from linkcal.toggle.prefetch import prefetch

__all__ = ["look_ahead", "look_ahead_to_base"]

Array = Any  # as in :mod:`.kernel`

#: Bytes that the processor fetches at once.
CACHE_LINE = 64

#: Neighbours of the next node that are asked for: more would push each other out before they are read.
MOST_AHEAD = 32


@njit(cache=True, forceinline=True)
def look_ahead_to_base(
    item: int, chosen: Array, indptr: Array, nodes: Array, degree: Array, factors: Array, seen: Array,
    record: Array,
) -> None:  # fmt: skip
    """Ask for what later base sums read: what neighbours hold one node ahead, the rows before that."""
    width, line = seen.shape[1], CACHE_LINE // record.itemsize
    if item + 3 < chosen.size:
        t = np.int64(chosen[item + 3])
        prefetch(indptr, t)
        prefetch(degree, t)
        prefetch(factors, t * 4)
        for c in range(0, width, line):
            prefetch(record, t * record.shape[1] * record.shape[2] + c)
    if item + 2 < chosen.size:
        prefetch(nodes, indptr[chosen[item + 2]])
    if item + 1 < chosen.size:
        t = chosen[item + 1]
        for position in range(indptr[t], min(indptr[t + 1], indptr[t] + MOST_AHEAD)):
            w = np.int64(nodes[position])
            prefetch(factors, w * 4)
            for c in range(0, width, line):
                prefetch(seen, w * width + c)


@njit(cache=True, forceinline=True)
def _fetch(t: int, indptr: Array, degree: Array, factors: Array, seen: Array, record: Array) -> None:
    """Ask for what a pair reads of its node t."""
    size, width, line = record.shape[1] * record.shape[2], seen.shape[1], CACHE_LINE // record.itemsize
    for c in range(0, size, line):
        prefetch(record, np.int64(t) * size + c)
    for c in range(0, width, line):
        prefetch(seen, np.int64(t) * width + c)
    prefetch(indptr, np.int64(t))
    prefetch(degree, np.int64(t))
    prefetch(factors, np.int64(t) * 4)


@njit(cache=True, forceinline=True)
def look_ahead(
    item: int, ends: Array, indptr: Array, nodes: Array, degree: Array, factors: Array, seen: Array,
    record: Array,
) -> None:  # fmt: skip
    """Ask for what later pairs read: records two pairs ahead, the row that is walked one ahead."""
    if item + 1 < ends.shape[1]:
        prefetch(nodes, indptr[ends[1, item + 1]])
        if ends[0, item + 1] != ends[0, item]:
            prefetch(nodes, indptr[ends[0, item + 1]])
            prefetch(nodes, indptr[ends[0, item + 1]] + CACHE_LINE // nodes.itemsize)
    if item + 2 < ends.shape[1]:
        _fetch(ends[1, item + 2], indptr, degree, factors, seen, record)
        if ends[0, item + 2] != ends[0, item + 1]:
            _fetch(ends[0, item + 2], indptr, degree, factors, seen, record)
