"""Compiled preparation of a block of pairs, and of rows that list neighbours in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from linkcal.toggle.prefetch import prefetch

__all__ = ["both_directions", "sort_pairs", "without_base"]

Array = Any


# Bits of a digit when keys are sorted by counting.
_DIGIT = 11
_MASK = (1 << _DIGIT) - 1

#: Cost of a pair beside that of one step along its shorter row.
_PAIR_COST = 40

#: How many pairs ahead what is known of their nodes is asked for.
_AHEAD = 16


@njit(cache=True)
def sort_pairs(nodes: Array, lengths: Array, parts: int) -> tuple[Array, Array, Array, Array]:
    """Sort pairs [2, L] by their endpoint with the longer row, by counting; of `lengths` int32 [N].

    Returns
    -------
    order : int64 [L]
    ends : int32 [2, L]
        Endpoint with the longer and with the shorter row, in that order of pairs.
    swapped : bool [L]
        Whether the longer row is that of the pair's second node, in that order of pairs.
    cuts : int64 [parts + 1]
        Bounds of consecutive parts of about equal cost.
    """
    count = nodes.shape[1]
    second, longer, steps = np.empty(count, np.bool_), np.empty(count, np.int32), np.empty(count, np.int64)
    for pair in range(count):
        if pair + _AHEAD < count:
            prefetch(lengths, nodes[0, pair + _AHEAD])
            prefetch(lengths, nodes[1, pair + _AHEAD])
        u, v = nodes[0, pair], nodes[1, pair]
        of_u, of_v = lengths[u], lengths[v]
        second[pair] = of_v > of_u
        longer[pair] = v if of_v > of_u else u
        steps[pair] = min(of_u, of_v)
    order, swapped = _counted(longer, lengths.size), np.empty(count, np.bool_)
    ends = np.empty((2, count), np.int32)
    for item in range(count):
        pair = order[item]
        side = int(second[pair])
        swapped[item] = second[pair]
        ends[0, item], ends[1, item] = nodes[side, pair], nodes[1 - side, pair]
    return order, ends, swapped, _equal_parts(steps, order, parts)


@njit(cache=True)
def _counted(keys: Array, size: int) -> Array:
    """Stable order of keys in [0, size), int64, by counting.

    Digit by digit, the lowest first, so that the counts stay in the fastest cache however many keys there
    might be: a graph may have far more nodes than a block has pairs.
    """
    order = np.arange(keys.size)
    shift = 0
    while shift == 0 or (size - 1) >> shift > 0:
        start = np.zeros((1 << _DIGIT) + 1, np.int64)
        for item in order:
            start[((keys[item] >> shift) & _MASK) + 1] += 1
        for digit in range(1 << _DIGIT):
            start[digit + 1] += start[digit]
        sorted_order = np.empty_like(order)
        for item in order:
            digit = (keys[item] >> shift) & _MASK
            sorted_order[start[digit]] = item
            start[digit] += 1
        order = sorted_order
        shift += _DIGIT
    return order


@njit(cache=True)
def _equal_parts(steps: Array, order: Array, parts: int) -> Array:
    total = np.empty(order.size + 1, np.int64)
    total[0] = 0
    for item in range(order.size):
        total[item + 1] = total[item] + _PAIR_COST + steps[order[item]]
    cuts = np.empty(parts + 1, np.int64)
    for part in range(parts + 1):
        cuts[part] = np.searchsorted(total, total[-1] * part // parts)
    return cuts


@njit(cache=True)
def without_base(nodes: Array, base: Array, has_base: Array, index: int) -> Array:
    """Nodes of pairs [2, L] that ask for base sum `index` and have none yet, once each; int32.

    Visits what is asked for, not all nodes there are: a graph may have far more than a block.
    """
    out = np.empty(nodes.size, np.int32)
    count = 0
    for side in range(2):
        for pair in range(nodes.shape[1]):
            if pair + _AHEAD < nodes.shape[1]:
                prefetch(has_base, index * has_base.shape[1] + nodes[side, pair + _AHEAD])
            node = nodes[side, pair]
            if base[side, pair] == index and not has_base[index, node]:
                has_base[index, node] = True
                out[count] = node
                count += 1
    # They have one once it is worked out: until then the caller may be interrupted.
    for item in range(count):
        has_base[index, out[item]] = False
    return out[:count].copy()


@njit(cache=True)
def both_directions(indptr: Array, senders: Array) -> tuple[Array, Array, Array, Array]:
    """Rows that list in- and out-neighbours alike.

    Returns
    -------
    starts : int64 [N + 1]
    nodes : int32 [A]
        Increasing in each row.
    arriving, leaving : int64 [A]
        Position of the arc from and to the neighbour in `senders`, -1 where there is none.
    """
    num_nodes = indptr.size - 1
    out_start = np.zeros(num_nodes + 1, np.int64)
    for sender in senders:
        out_start[sender + 1] += 1
    for node in range(num_nodes):
        out_start[node + 1] += out_start[node]
    fill = out_start[:-1].copy()
    receiver, arc = np.empty_like(senders), np.empty_like(senders)
    for node in range(num_nodes):
        for position in range(indptr[node], indptr[node + 1]):
            sender = senders[position]
            receiver[fill[sender]] = node
            arc[fill[sender]] = position
            fill[sender] += 1
    starts = np.zeros(num_nodes + 1, np.int64)
    nodes = np.empty(2 * senders.size, np.int32)
    arriving = np.full(2 * senders.size, -1, np.int64)
    leaving = np.full(2 * senders.size, -1, np.int64)
    at = 0
    for node in range(num_nodes):
        i, j = indptr[node], out_start[node]
        while i < indptr[node + 1] or j < out_start[node + 1]:
            sender = senders[i] if i < indptr[node + 1] else num_nodes
            target = receiver[j] if j < out_start[node + 1] else num_nodes
            nodes[at] = min(sender, target)
            if sender <= target:
                arriving[at] = i
                i += 1
            if target <= sender:
                leaving[at] = arc[j]
                j += 1
            at += 1
        starts[node + 1] = at
    return starts, nodes[:at].copy(), arriving[:at].copy(), leaving[:at].copy()
