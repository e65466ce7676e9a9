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

__all__ = ["AGGREGATE", "BASE", "PRE", "Z", "base_sums", "toggled_messages"]

Array = Any  # numpy arrays of one floating dtype; Numba specialises the code on it

# Contraction into fused multiply-adds and free signs of zero let the channel loops vectorise; nothing is
# reordered across channels or neighbours, so results do not depend on threads or blocks.
_FAST = {"contract", "nsz"}

#: Rows of a node's record: Z, P, the aggregate behind P, and from BASE on the base sum of removal and insertion.
#: One record keeps what a pair reads of a node together in memory.
Z, PRE, AGGREGATE, BASE = 0, 1, 2, 3


@njit(inline="always")
def _act(value: Any, slope: Any) -> Any:
    low = value * slope
    return value if value > low else low


@njit(parallel=True, cache=True, fastmath=_FAST)
def base_sums(
    indptr: Array, senders: Array, r: Array, e: Array, slope: Any, nodes: Array, sign: int, record: Array
) -> None:
    """``sum_{w in N(u)} r_w act(P_w + r_w e_u Z_u)`` into the records of the given nodes, one sign of the toggle."""
    k = record.shape[2]
    for item in prange(nodes.shape[0]):
        u = nodes[item]
        z, total = record[u, Z], record[u, BASE + sign]
        for c in range(k):
            total[c] = 0.0
        for position in range(indptr[u], indptr[u + 1]):
            w = senders[position]
            p, r_w = record[w, PRE], r[w]
            move = r_w * e[u]
            for c in range(k):
                total[c] += r_w * _act(p[c] + move * z[c], slope)


@njit(inline="always")
def _own_hidden(
    own: Array, other: Array, r_own: Any, from_other: Any, loop: Any, shift: Array, slope: Any, out: Array
) -> None:
    """First-layer output of an endpoint after the toggle; `from_other` is what the partner's Z is weighted with."""
    z, arrived, z_other = own[Z], own[AGGREGATE], other[Z]
    own_weight = loop * r_own
    for c in range(out.shape[0]):
        pre = r_own * (arrived[c] + from_other * z_other[c] + own_weight * z[c]) + shift[c]
        out[c] = _act(pre, slope)


@njit(inline="always")
def _finish(total: Array, r_own: Any, loop: Any, h_own: Array, partner: Any, h_partner: Array) -> None:
    """Add what the endpoint sends to itself and what its partner sends, and apply the receiver's factor."""
    own = loop * r_own
    for c in range(total.shape[0]):
        total[c] = r_own * (total[c] + own * h_own[c] + partner * h_partner[c])


@njit(inline="always")
def _old_partner(p: Array, r_partner: Any, moved: Array, slope: Any, out: Array) -> None:
    """The partner's term that a base sum holds because the edge was there."""
    for c in range(out.shape[0]):
        out[c] = _act(p[c] + r_partner * moved[c], slope)


@njit(inline="always")
def _common_neighbours(
    row: Array, long: int, marks: Array, r: Array, record: Array, slope: Any, moved_long: Array, moved_short: Array,
    sum_long: Array, sum_short: Array,
) -> None:  # fmt: skip
    """Add the corrections for nodes of `row` that neighbour the node `long` too, as `marks` tells."""
    for w in row:
        if marks[w] == long:
            p, r_w = record[w, PRE], r[w]
            for c in range(p.shape[0]):
                by_long = p[c] + r_w * moved_long[c]
                by_short = r_w * moved_short[c]
                both = _act(by_long + by_short, slope)
                sum_long[c] += r_w * (both - _act(by_long, slope))
                sum_short[c] += r_w * (both - _act(p[c] + by_short, slope))


@njit(inline="always")
def _apply(weight: Array, values: Array, out: Array) -> None:
    """``out = values @ weight``, always summed in the same order: four rows at a time, then the rest."""
    k, width = weight.shape
    for o in range(width):
        out[o] = 0.0
    whole = k - k % 4
    for c in range(0, whole, 4):
        a, b, d, e = values[c], values[c + 1], values[c + 2], values[c + 3]
        for o in range(width):
            out[o] += (a * weight[c, o] + b * weight[c + 1, o]) + (d * weight[c + 2, o] + e * weight[c + 3, o])
    for c in range(whole, k):
        a = values[c]
        for o in range(width):
            out[o] += a * weight[c, o]


@njit(cache=True, fastmath=_FAST)
def _toggle_pair(
    long: int, short: int, insert: bool, marks: Array, row: Array, r: Array, e: Array, loop: Array, record: Array,
    shift: Array, slope: Any, scratch: Array,
) -> None:  # fmt: skip
    """Second-layer sums of one pair into the first two rows of `scratch` [6, k]."""
    sum_long, sum_short, first, second = scratch[0], scratch[1], scratch[2], scratch[3]
    moved_long, moved_short = scratch[4], scratch[5]
    of_long, of_short = record[long], record[short]
    e_long, e_short = e[long], e[short]
    for c in range(shift.shape[0]):
        moved_long[c] = e_long * of_long[Z, c]
        moved_short[c] = e_short * of_short[Z, c]
    base = BASE + insert
    for c in range(shift.shape[0]):
        sum_long[c] = of_long[base, c]
        sum_short[c] = of_short[base, c]
    _common_neighbours(row, long, marks, r, record, slope, moved_long, moved_short, sum_long, sum_short)
    r_long, r_short = r[long] + e_long, r[short] + e_short
    if not insert:
        _old_partner(of_short[PRE], r[short], moved_long, slope, first)
        _old_partner(of_long[PRE], r[long], moved_short, slope, second)
        for c in range(shift.shape[0]):
            sum_long[c] -= r[short] * first[c]
            sum_short[c] -= r[long] * second[c]
    # An inserted partner sends with its new factor; a removed one takes back what it sent with the old.
    from_short = r_short if insert else -r[short]
    from_long = r_long if insert else -r[long]
    _own_hidden(of_long, of_short, r_long, from_short, loop[long], shift, slope, first)
    _own_hidden(of_short, of_long, r_short, from_long, loop[short], shift, slope, second)
    _finish(sum_long, r_long, loop[long], first, r_short if insert else r_short * 0, second)
    _finish(sum_short, r_short, loop[short], second, r_long if insert else r_long * 0, first)


@njit(parallel=True, cache=True, fastmath=_FAST)
def toggled_messages(
    order: Array, group: Array, long_of: Array, short_of: Array, swapped: Array, insert: Array, all_marks: Array,
    indptr: Array, senders: Array, r: Array, e: Array, loop: Array, record: Array, shift: Array, slope: Any,
    weight: Array, out: Array,
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
    record : float [N, 5, k]
    shift : float [k]
    slope : float
    weight : float [k, k']
    out : float [2, L, k']
        Written: ``W2 a'_i (sum_j b'_j h'_j + q_ii b'_i h'_i)`` of first and second node.
    """
    threads = all_marks.shape[0]
    for thread in prange(threads):
        marks = all_marks[thread]
        scratch = np.empty((6, record.shape[2]), dtype=record.dtype)
        # Round robin: groups are sorted by node, and hubs are rarely neighbours in that order.
        for g in range(thread, group.shape[0] - 1, threads):
            long = long_of[order[group[g]]]
            for position in range(indptr[long], indptr[long + 1]):
                marks[senders[position]] = long
            for item in range(group[g], group[g + 1]):
                pair = order[item]
                short, sign = short_of[pair], int(insert[pair])
                row = senders[indptr[short] : indptr[short + 1]]
                _toggle_pair(
                    long, short, insert[pair], marks, row, r, e[sign], loop, record, shift, slope, scratch
                )
                side = int(swapped[pair])
                _apply(weight, scratch[0], out[side, pair])
                _apply(weight, scratch[1], out[1 - side, pair])
