"""Compiled preparation of a block of pairs, and of rows that list neighbours in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["both_directions", "sort_pairs"]

Array = Any


@njit(cache=True)
def sort_pairs(nodes: Array, indptr: Array) -> tuple[Array, Array, Array]:
    """Sort pairs [2, L] by their endpoint with the longer row, by counting.

    Returns
    -------
    order : int64 [L]
    group : int64 [G + 1]
        Bounds in `order` of the pairs that share the longer row.
    swapped : bool [L]
        Whether the longer row is that of the second node.
    """
    count, num_nodes = nodes.shape[1], indptr.size - 1
    swapped = np.empty(count, np.bool_)
    start = np.zeros(num_nodes + 1, np.int64)
    for pair in range(count):
        u, v = nodes[0, pair], nodes[1, pair]
        swapped[pair] = indptr[v + 1] - indptr[v] > indptr[u + 1] - indptr[u]
        start[(v if swapped[pair] else u) + 1] += 1
    groups = 0
    for node in range(num_nodes):
        groups += start[node + 1] > 0
        start[node + 1] += start[node]
    group = np.zeros(groups + 1, np.int64)
    groups = 0
    for node in range(num_nodes):
        if start[node + 1] > start[node]:
            groups += 1
            group[groups] = start[node + 1]
    order = np.empty(count, np.int64)
    for pair in range(count):
        node = nodes[1, pair] if swapped[pair] else nodes[0, pair]
        order[start[node]] = pair
        start[node] += 1
    return order, group, swapped


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
