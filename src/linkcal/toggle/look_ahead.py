"""What later pairs and base sums read, asked for ahead of them (:mod:`.prefetch`).

A place is asked for in steps, each one item after the one that it needs: where a row starts, the row, what
its nodes hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from linkcal.toggle.kernel_arrays import BASE, GCN, MESSAGE, Kernel, Pairs
from linkcal.toggle.memory import CACHE_LINE
from linkcal.toggle.prefetch import prefetch

__all__ = ["fetch_row", "look_ahead", "look_ahead_to_base"]

Array = Any  # as in :mod:`.kernel`

#: How many pairs before a pair its rows and, before those, its nodes' records are asked for.
ROWS_AHEAD, RECORDS_AHEAD = 2, 4

#: Neighbours of the next node that are asked for: more would push each other out before they are read.
MOST_AHEAD = 32

#: Entries of a list of neighbours that are asked for.
MOST_LISTED = 128


@njit(cache=True, forceinline=True)
def fetch_row(values: Array, row: int) -> None:
    """Ask for a row of a matrix."""
    for c in range(0, values.shape[1], CACHE_LINE // values.itemsize):
        prefetch(values, np.int64(row) * values.shape[1] + c)


@njit(cache=True, forceinline=True)
def _fetch_record(record: Array, t: int, row: int) -> None:
    for c in range(0, record.shape[2], CACHE_LINE // record.itemsize):
        prefetch(record, (np.int64(t) * record.shape[1] + row) * record.shape[2] + c)


@njit(cache=True, forceinline=True)
def _fetch_list(t: int, facts: Array, nodes: Array) -> None:
    """Ask for the neighbours of a node; of a long list for its start, the processor guesses the rest."""
    start, stop = facts[t].start, facts[t].start + facts[t].length
    for position in range(start, min(stop, start + MOST_LISTED), CACHE_LINE // nodes.itemsize):
        prefetch(nodes, position)
    # Lists start anywhere in a line, so that the last neighbour may lie in one more.
    prefetch(nodes, min(stop, start + MOST_LISTED) - 1)


@njit(cache=True, forceinline=True)
def look_ahead_to_base(
    item: int, chosen: Array, index: int, facts: Array, nodes: Array, send: Array, seen: Array, record: Array,
) -> None:  # fmt: skip
    """Ask for what later base sums read: what neighbours hold one node ahead, the rows before that."""
    if item + 3 < chosen.size:
        t = np.int64(chosen[item + 3])
        prefetch(facts, t)
        _fetch_record(record, t, MESSAGE)
        _fetch_record(record, t, BASE + index)
    if item + 2 < chosen.size:
        _fetch_list(chosen[item + 2], facts, nodes)
    if item + 1 < chosen.size:
        t = chosen[item + 1]
        for position in range(facts[t].start, facts[t].start + min(facts[t].length, MOST_AHEAD)):
            w = np.int64(nodes[position])
            prefetch(send, w)
            fetch_row(seen, w)


@njit(cache=True, forceinline=True)
def _fetch(t: int, unread: int, facts: Array, record: Array) -> None:
    """Ask for what a pair reads of its node t: all rows of its record but one."""
    prefetch(facts, t)
    for row in range(record.shape[1]):
        if row != unread:
            _fetch_record(record, t, row)


@njit(cache=True, forceinline=True)
def look_ahead(item: int, kernel: Kernel, pairs: Pairs) -> None:
    """Ask for what later pairs read: their nodes' records first, then the rows that are walked."""
    (kind, depth, weighted, facts, nodes, _, _, _, seen, _,
     record, _, _, _, _, _, _, _, _, _, _) = kernel  # fmt: skip
    order, ends, _, _, insert, _, _ = pairs
    near, far = item + ROWS_AHEAD, item + RECORDS_AHEAD
    if near < ends.shape[1]:
        _fetch_list(ends[1, near], facts, nodes)
        if ends[0, near] != ends[0, near - 1]:
            _fetch_list(ends[0, near], facts, nodes)
    if far < ends.shape[1]:
        inserted = insert[order[far]]
        # Of the two base sums an edge reads the first one, any other pair the second one.
        unread = BASE + 1 - int(inserted) if kind == GCN and not weighted else -1
        long, short = np.int64(ends[0, far]), np.int64(ends[1, far])
        _fetch(short, unread, facts, record)
        if long != ends[0, far - 1]:
            _fetch(long, unread, facts, record)
        if depth == 2 and (weighted or not inserted):
            fetch_row(seen, short)
            fetch_row(seen, long)
