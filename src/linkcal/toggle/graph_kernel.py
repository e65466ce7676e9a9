"""Compiled parts of :mod:`.graph`: sorting arcs into rows, finding arcs, matching opposite arcs.

Node numbers are small integers, so arcs are sorted by counting (two passes, O(E + N)), not by comparing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from linkcal.data.neighbours import place_in_row
from linkcal.toggle.look_ahead import fetch_row
from linkcal.toggle.prefetch import prefetch

__all__ = [
    "find_arcs",
    "opposite_arcs",
    "row_starts_if_sorted",
    "rows_are_symmetric",
    "sort_arcs",
    "sort_by_value",
    "sum_rows",
]

Array = Any  # int64 arrays, unless said otherwise

#: How many entries ahead what an entry leads to is asked for; where that leads on, twice as many.
_AHEAD = 16


@njit(cache=True)
def sort_by_value(values: Array, order: Array, size: int) -> Array:
    """`order` sorted stably by ``values[order]``, which are in [0, size); int64."""
    start = np.zeros(size + 1, np.int64)
    for item in order:
        start[values[item] + 1] += 1
    for value in range(size):
        start[value + 1] += start[value]
    out = np.empty_like(order)
    for item in order:
        value = values[item]
        out[start[value]] = item
        start[value] += 1
    return out


@njit(cache=True)
def _without_loops(source: Array, target: Array) -> Array:
    """Positions of the arcs that join two different nodes."""
    out = np.empty(source.size, np.int64)
    count = 0
    for arc in range(source.size):
        if source[arc] != target[arc]:
            out[count] = arc
            count += 1
    return out[:count]


@njit(cache=True)
def _is_sorted(values: Array, order: Array) -> bool:
    rising = True
    for item in range(1, order.size):
        rising &= values[order[item]] >= values[order[item - 1]]
    return rising


@njit(cache=True)
def sort_arcs(source: Array, target: Array, num_nodes: int) -> tuple[Array, Array, Array]:
    """Arcs that are no self-loops by target, then source, repeated ones merged.

    Parameters
    ----------
    source, target : int64 [E']
    num_nodes : int

    Returns
    -------
    order : int64 [A]
        Positions of the arcs in the given list, sorted; equal arcs in their given order.
    first : int64 [E + 1]
        Bounds in `order` of each distinct arc.
    indptr : int64 [N + 1]
        Bounds in the distinct arcs of each target.
    """
    order = _without_loops(source, target)
    if not _is_sorted(source, order):
        order = sort_by_value(source, order, num_nodes)
    order = sort_by_value(target, order, num_nodes)
    first = np.empty(order.size + 1, np.int64)
    indptr = np.zeros(num_nodes + 1, np.int64)
    distinct = 0
    for item in range(order.size):
        s, t = source[order[item]], target[order[item]]
        if item == 0 or s != source[order[item - 1]] or t != target[order[item - 1]]:
            first[distinct] = item
            distinct += 1
            indptr[t + 1] += 1
    first[distinct] = order.size
    for node in range(num_nodes):
        indptr[node + 1] += indptr[node]
    return order, first[: distinct + 1].copy(), indptr


@njit(cache=True)
def row_starts_if_sorted(row: Array, column: Array, num_nodes: int) -> Array:
    """Where each row starts, int64 [N + 1], in entries that increase by row, then column.

    Empty where they do not, or where an entry is repeated or lies on the diagonal.
    """
    starts = np.zeros(num_nodes + 1, np.int64)
    last_row, last_column = 0, -1
    for item in range(row.size):
        r, c = row[item], column[item]
        if r < last_row or (r == last_row and c <= last_column) or r == c:
            return starts[:0]
        for node in range(last_row, r):
            starts[node + 1] = item
        last_row, last_column = r, c
    for node in range(last_row, num_nodes):
        starts[node + 1] = row.size
    return starts


@njit(parallel=True, cache=True)
def rows_are_symmetric(starts: Array, columns: Array, pointers: Array) -> bool:
    """Whether j stands in row i wherever i stands in row j; rows increase, without i in row i.

    `pointers` [T, N] is workspace: each of T threads takes about as many entries.
    """
    parts, matched = pointers.shape[0], 0
    for part in prange(parts):
        first = np.searchsorted(starts[:-1], columns.size * part // parts) if part else 0
        last = starts.size - 1
        if part + 1 < parts:
            last = np.searchsorted(starts[:-1], columns.size * (part + 1) // parts)
        matched += _matched(starts, columns, pointers[part], first, last)
    # Each entry above the diagonal has met its own one below it; now they are as many.
    return bool(2 * matched == columns.size)


@njit(cache=True)
def _matched(starts: Array, columns: Array, pointer: Array, first: int, last: int) -> int:
    """How many entries above the diagonal rows `first` to `last` hold; 0 if one lacks that below it.

    Rows are visited in increasing order, so the rows i < j that list j are met in the order in which row j
    must list them.
    """
    for j in range(first, starts.size - 1):
        pointer[j] = starts[j]
        while pointer[j] < starts[j + 1] and columns[pointer[j]] < first:
            pointer[j] += 1
    above = 0
    for i in range(first, last):
        for position in range(starts[i], starts[i + 1]):
            if position + 2 * _AHEAD < columns.size:
                prefetch(pointer, columns[position + 2 * _AHEAD])
                prefetch(starts, columns[position + 2 * _AHEAD] + 1)
                if columns[position + _AHEAD] > i:
                    prefetch(columns, pointer[columns[position + _AHEAD]])
            j = columns[position]
            if j > i:
                place = pointer[j]
                if place == starts[j + 1] or columns[place] != i:
                    return 0
                pointer[j] = place + 1
                above += 1
    return above


@njit(cache=True)
def opposite_arcs(indptr: Array, senders: Array) -> Array:
    """For each arc j -> i the position of the arc i -> j, or -1 where there is none; int64 [E].

    Rows are visited in increasing order and each is sorted, so the arcs out of a node are met in the order in
    which its own row lists them: one pointer per row suffices.
    """
    out = np.full(senders.size, -1, np.int64)
    pointer = indptr[:-1].copy()
    for i in range(indptr.size - 1):
        for position in range(indptr[i], indptr[i + 1]):
            j = senders[position]
            while pointer[j] < indptr[j + 1] and senders[pointer[j]] < i:
                pointer[j] += 1
            if pointer[j] < indptr[j + 1] and senders[pointer[j]] == i:
                out[position] = pointer[j]
    return out


@njit(parallel=True, cache=True)
def find_arcs(indptr: Array, senders: Array, source: Array, target: Array) -> Array:
    """Position of each arc source -> target in `senders`, or -1 where there is none; int64 [L]."""
    out = np.empty(source.size, np.int64)
    for item in prange(source.size):
        if item + 12 < source.size:
            prefetch(indptr, target[item + 12])
            prefetch(senders, indptr[target[item + 6]])
        row = target[item]
        out[item] = place_in_row(senders, indptr[row], indptr[row + 1], source[item])
    return out


@njit(parallel=True, cache=True)
def sum_rows(starts: Array, columns: Array, weights: Array, values: Array, out: Array) -> None:
    """``out[i] = sum_j weights_ij values[j]`` over the entries j of each row i.

    Parameters
    ----------
    starts : int64 [N + 1]
    columns : int64 [E]
    weights : float [E], or [0] where all are 1
    values, out : float [N, k]
    """
    for i in prange(starts.size - 1):
        for c in range(out.shape[1]):
            out[i, c] = 0.0
        for position in range(starts[i], starts[i + 1]):
            if position + _AHEAD < columns.size:
                fetch_row(values, columns[position + _AHEAD])
            j = columns[position]
            if weights.size:
                for c in range(out.shape[1]):
                    out[i, c] += weights[position] * values[j, c]
            else:
                for c in range(out.shape[1]):
                    out[i, c] += values[j, c]
