"""The compiled kernel for two GCN layers on an undirected graph without repeated edges.

Write ``Z = scale * (X W1)``, ``r_i = d_i ** -1/2`` and ``P_i = scale * pre_i + shift``, so that the first
layer's output is ``act(P_i)``. Toggling (u, v) moves ``r_u`` to ``r_u + e_u`` and ``r_v`` to ``r_v + e_v``;
``e`` depends on the node and on the sign of the toggle alone. The second layer's sum at u is then

    sum_{w in N(u)} r_w act(P_w + r_w e_u Z_u)                              base_u, the same for every v
    + sum_{w in N(u) and N(v)} r_w [act(P_w + r_w (e_u Z_u + e_v Z_v)) - act(P_w + r_w e_u Z_u)]
    + the terms of u and v themselves.

The base is one sweep over the edges for each sign. What is left per pair are the common neighbours: found by
walking the shorter of the two rows against marks of the longer one, ``sum min(d_u, d_v)`` steps in all
(Chiba & Nishizeki, 1985). Pairs are sorted by their longer row, so that its marks are set once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

__all__ = ["AGGREGATE", "BASE", "Z", "base_sums", "toggled_messages"]

Array = Any  # numpy arrays of one floating dtype; Numba specialises the code on it

# Contraction into fused multiply-adds and free signs of zero let the channel loops vectorise; nothing is
# reordered across channels or neighbours, so results do not depend on threads or blocks.
_FAST = {"contract", "nsz"}

#: Rows of a node's record: Z, the aggregate behind P, from BASE on the base sums of removal and insertion.
#: It keeps together in memory what a pair reads of its endpoints; P, read of neighbours, is packed apart.
Z, AGGREGATE, BASE = 0, 1, 2


@njit(inline="always")
def _act(value: Any, slope: Any) -> Any:
    low = value * slope
    return value if value > low else low


@njit(parallel=True, cache=True, fastmath=_FAST)
def base_sums(
    indptr: Array,
    senders: Array,
    r: Array,
    e: Array,
    slope: Any,
    nodes: Array,
    sign: int,
    p: Array,
    record: Array,
) -> None:
    """``sum_{w in N(u)} r_w act(P_w + r_w e_u Z_u)`` into the records of `nodes`, one sign of the toggle."""
    k, base = record.shape[2], BASE + sign
    for item in prange(nodes.shape[0]):
        u = nodes[item]
        for c in range(k):
            record[u, base, c] = 0.0
        for position in range(indptr[u], indptr[u + 1]):
            w = senders[position]
            r_w = r[w]
            move = r_w * e[u]
            for c in range(k):
                record[u, base, c] += r_w * _act(p[w, c] + move * record[u, Z, c], slope)


# The helpers below index whole arrays. Handing them rows (views) would be easier to read, but Numba counts
# references to every view, atomically, for each of the pairs.


@njit(inline="always")
def _own_hidden(
    own: int, other: int, r_own: Any, from_other: Any, loop: Any, record: Array, shift: Array, slope: Any,
    scratch: Array, out: int,
) -> None:  # fmt: skip
    """First-layer output of an endpoint after the toggle; `from_other` weights the partner's Z."""
    own_weight = loop * r_own
    for c in range(shift.shape[0]):
        arrived = (
            record[own, AGGREGATE, c] + from_other * record[other, Z, c] + own_weight * record[own, Z, c]
        )
        scratch[out, c] = _act(r_own * arrived + shift[c], slope)


@njit(inline="always")
def _common_neighbours(
    long: int, short: int, indptr: Array, senders: Array, marks: Array, r: Array, e_long: Any, e_short: Any,
    p: Array, record: Array, slope: Any, scratch: Array,
) -> None:  # fmt: skip
    """Correct both sums for neighbours of `short` that neighbour `long` too, as `marks` tells."""
    for position in range(indptr[short], indptr[short + 1]):
        w = senders[position]
        if marks[w] == long:
            r_w = r[w]
            move_long, move_short = r_w * e_long, r_w * e_short
            for c in range(record.shape[2]):
                p_w = p[w, c]
                by_long = p_w + move_long * record[long, Z, c]
                by_short = move_short * record[short, Z, c]
                both = _act(by_long + by_short, slope)
                scratch[0, c] += r_w * (both - _act(by_long, slope))
                scratch[1, c] += r_w * (both - _act(p_w + by_short, slope))


@njit(inline="always")
def _toggle_pair(
    long: int, short: int, insert: bool, marks: Array, indptr: Array, senders: Array, r: Array, e_long: Any,
    e_short: Any, loop: Array, p: Array, record: Array, shift: Array, slope: Any, scratch: Array,
) -> None:  # fmt: skip
    """Second-layer sums of one pair into the first two rows of `scratch` [4, k]."""
    k = record.shape[2]
    base = BASE + 1 if insert else BASE
    for c in range(k):
        scratch[0, c] = record[long, base, c]
        scratch[1, c] = record[short, base, c]
    _common_neighbours(long, short, indptr, senders, marks, r, e_long, e_short, p, record, slope, scratch)
    r_long, r_short = r[long] + e_long, r[short] + e_short
    if insert:
        _own_hidden(long, short, r_long, r_short, loop[long], record, shift, slope, scratch, 2)
        _own_hidden(short, long, r_short, r_long, loop[short], record, shift, slope, scratch, 3)
        for c in range(k):
            scratch[0, c] += r_short * scratch[3, c]
            scratch[1, c] += r_long * scratch[2, c]
    else:
        # The bases hold the partner's term as that of a neighbour; the partner is one no longer.
        move_long, move_short = r[short] * e_long, r[long] * e_short
        for c in range(k):
            old = _act(p[short, c] + move_long * record[long, Z, c], slope)
            scratch[0, c] -= r[short] * old
        for c in range(k):
            old = _act(p[long, c] + move_short * record[short, Z, c], slope)
            scratch[1, c] -= r[long] * old
        _own_hidden(long, short, r_long, -r[short], loop[long], record, shift, slope, scratch, 2)
        _own_hidden(short, long, r_short, -r[long], loop[short], record, shift, slope, scratch, 3)
    own_long, own_short = loop[long] * r_long, loop[short] * r_short
    for c in range(k):
        scratch[0, c] = r_long * (scratch[0, c] + own_long * scratch[2, c])
        scratch[1, c] = r_short * (scratch[1, c] + own_short * scratch[3, c])


@njit(cache=True, fastmath=_FAST)
def _apply(weight: Array, first: Array, second: Array, out_first: Array, out_second: Array) -> None:
    """``out = values @ weight`` for two rows of values, always summed in the same order."""
    k, width = weight.shape
    for o in range(width):
        out_first[o] = 0.0
        out_second[o] = 0.0
    whole = k - k % 4
    for c in range(0, whole, 4):
        a0, a1, a2, a3 = first[c], first[c + 1], first[c + 2], first[c + 3]
        b0, b1, b2, b3 = second[c], second[c + 1], second[c + 2], second[c + 3]
        for o in range(width):
            w0, w1, w2, w3 = weight[c, o], weight[c + 1, o], weight[c + 2, o], weight[c + 3, o]
            out_first[o] += (a0 * w0 + a1 * w1) + (a2 * w2 + a3 * w3)
            out_second[o] += (b0 * w0 + b1 * w1) + (b2 * w2 + b3 * w3)
    for c in range(whole, k):
        for o in range(width):
            out_first[o] += first[c] * weight[c, o]
            out_second[o] += second[c] * weight[c, o]


@njit(parallel=True, cache=True, fastmath=_FAST)
def toggled_messages(
    order: Array, group: Array, long_of: Array, short_of: Array, swapped: Array, insert: Array,
    all_marks: Array, indptr: Array, senders: Array, r: Array, e: Array, loop: Array, p: Array, record: Array,
    shift: Array, slope: Any, weight: Array, out: Array,
) -> None:  # fmt: skip
    """Second-layer pre-activations, bias left out, of both endpoints of every pair.

    Parameters
    ----------
    order : int64 [L]
        Pairs sorted by their longer row.
    group : int64 [G + 1]
        Bounds in `order` of the pairs that share a longer row.
    long_of, short_of : int32 [L]
        Endpoint with the longer and the shorter row, by pair.
    swapped : bool [L]
        Whether the longer row is that of the pair's second node.
    insert : bool [L]
    all_marks : int32 [T, N]
        Workspace of T threads; an entry is -1 or the node whose neighbours were marked last.
    indptr, senders : int64 [N + 1], int32 [E]
    r, loop : float [N]
    e : float [2, N]
        For removal and for insertion.
    p : float [N, k]
    record : float [N, 4, k]
    shift : float [k]
    slope : float
    weight : float [k, k']
    out : float [2, L, k']
        Written: ``W2 a'_i (sum_j b'_j h'_j + q_ii b'_i h'_i)`` of first and second node.
    """
    threads, width = all_marks.shape[0], weight.shape[1]
    for thread in prange(threads):
        marks = all_marks[thread]
        scratch = np.empty((4, record.shape[2]), dtype=record.dtype)
        sum_long, sum_short = scratch[0], scratch[1]
        message_long, message_short = np.empty(width, record.dtype), np.empty(width, record.dtype)
        # Round robin: groups are sorted by node, and hubs are rarely neighbours in that order.
        for g in range(thread, group.shape[0] - 1, threads):
            long = long_of[order[group[g]]]
            for position in range(indptr[long], indptr[long + 1]):
                marks[senders[position]] = long
            for item in range(group[g], group[g + 1]):
                pair = order[item]
                short, sign = short_of[pair], int(insert[pair])
                _toggle_pair(
                    long, short, insert[pair], marks, indptr, senders, r, e[sign, long], e[sign, short], loop,
                    p, record, shift, slope, scratch,
                )  # fmt: skip
                side = int(swapped[pair])
                _apply(weight, sum_long, sum_short, message_long, message_short)
                for o in range(width):
                    out[side, pair, o] = message_long[o]
                    out[1 - side, pair, o] = message_short[o]
