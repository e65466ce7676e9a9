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

__all__ = ["base_sums", "toggled_messages"]

Array = Any  # numpy arrays of one floating dtype; Numba specialises the code on it

# Contraction into fused multiply-adds and free signs of zero let the channel loops vectorise; nothing is
# reordered across channels or neighbours, so results do not depend on threads or blocks.
_FAST = {"contract", "nsz"}


@njit(inline="always")
def _act(value: Any, slope: Any) -> Any:
    low = value * slope
    return value if value > low else low


@njit(parallel=True, cache=True, fastmath=_FAST)
def base_sums(
    indptr: Array, senders: Array, r: Array, e: Array, z: Array, p: Array, slope: Any, nodes: Array, out: Array
) -> None:  # fmt: skip
    """``out[u] = sum_{w in N(u)} r_w act(P_w + r_w e_u Z_u)`` for the given nodes, one sign of the toggle."""
    k = z.shape[1]
    for item in prange(nodes.shape[0]):
        u = nodes[item]
        for c in range(k):
            out[u, c] = 0.0
        for position in range(indptr[u], indptr[u + 1]):
            w = senders[position]
            move = r[w] * e[u]
            for c in range(k):
                out[u, c] += r[w] * _act(p[w, c] + move * z[u, c], slope)


@njit(inline="always")
def _own_hidden(
    c: int, i: int, j: int, insert: Any, r: Array, e: Array, loop: Array, z: Array, aggregate: Array, shift: Array
) -> Any:  # fmt: skip
    """Pre-activation of endpoint i at channel c after (i, j) is toggled."""
    r_i = r[i] + e[i]
    arrived = aggregate[i, c]
    if insert:
        arrived += (r[j] + e[j]) * z[j, c]
    else:
        arrived -= r[j] * z[j, c]
    return r_i * (arrived + loop[i] * r_i * z[i, c]) + shift[c]


@njit(cache=True, fastmath=_FAST)
def _common_neighbours(
    long: int, short: int, indptr: Array, senders: Array, marks: Array, r: Array, e: Array,
    z: Array, p: Array, slope: Any, sum_long: Array, sum_short: Array,
) -> None:  # fmt: skip
    """Add the common neighbours' corrections; `marks` flags the neighbours of the node `long`."""
    k = z.shape[1]
    for position in range(indptr[short], indptr[short + 1]):
        w = senders[position]
        if marks[w] != long:
            continue
        r_w = r[w]
        move_long, move_short = r_w * e[long], r_w * e[short]
        for c in range(k):
            by_long = move_long * z[long, c]
            by_short = move_short * z[short, c]
            both = _act(p[w, c] + by_long + by_short, slope)
            sum_long[c] += r_w * (both - _act(p[w, c] + by_long, slope))
            sum_short[c] += r_w * (both - _act(p[w, c] + by_short, slope))


@njit(cache=True, fastmath=_FAST)
def _own_terms(
    long: int, short: int, insert: bool, r: Array, e: Array, loop: Array, z: Array, p: Array, aggregate: Array,
    shift: Array, slope: Any, sum_long: Array, sum_short: Array,
) -> None:  # fmt: skip
    """Add what the endpoints send to themselves and to each other, and apply the receivers' factor."""
    r_long, r_short = r[long] + e[long], r[short] + e[short]
    for c in range(z.shape[1]):
        h_long = _act(_own_hidden(c, long, short, insert, r, e, loop, z, aggregate, shift), slope)
        h_short = _act(_own_hidden(c, short, long, insert, r, e, loop, z, aggregate, shift), slope)
        if insert:
            sum_long[c] += r_short * h_short
            sum_short[c] += r_long * h_long
        else:  # the base holds the partner's term as a neighbour; it is one no longer
            sum_long[c] -= r[short] * _act(p[short, c] + r[short] * e[long] * z[long, c], slope)
            sum_short[c] -= r[long] * _act(p[long, c] + r[long] * e[short] * z[short, c], slope)
        sum_long[c] = r_long * (sum_long[c] + loop[long] * r_long * h_long)
        sum_short[c] = r_short * (sum_short[c] + loop[short] * r_short * h_short)


@njit(cache=True, fastmath=_FAST)
def _apply(weight: Array, values: Array, out: Array) -> None:
    """``out = values @ weight``, always summed in the same order."""
    for o in range(out.shape[0]):
        out[o] = 0.0
    for c in range(values.shape[0]):
        for o in range(out.shape[0]):
            out[o] += values[c] * weight[c, o]


@njit(parallel=True, cache=True, fastmath=_FAST)
def toggled_messages(
    order: Array, group: Array, long_of: Array, short_of: Array, swapped: Array, insert: Array, all_marks: Array,
    indptr: Array, senders: Array, r: Array, e: Array, loop: Array,
    z: Array, p: Array, aggregate: Array, shift: Array, base: Array, slope: Any, weight: Array, out: Array,
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
        For removal and for insertion, as is `base`.
    z, p, aggregate : float [N, k]
    shift : float [k]
    base : float [2, N, k]
    slope : float
    weight : float [k, k']
    out : float [2, L, k']
        Written: ``W2 a'_i (sum_j b'_j h'_j + q_ii b'_i h'_i)`` of first and second node.
    """
    k, threads = z.shape[1], all_marks.shape[0]
    for thread in prange(threads):
        marks = all_marks[thread]
        sum_long, sum_short = np.empty(k, dtype=z.dtype), np.empty(k, dtype=z.dtype)
        # Round robin: groups are sorted by node, and hubs are rarely neighbours in that order.
        for g in range(thread, group.shape[0] - 1, threads):
            long = long_of[order[group[g]]]
            for position in range(indptr[long], indptr[long + 1]):
                marks[senders[position]] = long
            for item in range(group[g], group[g + 1]):
                pair = order[item]
                short, sign = short_of[pair], int(insert[pair])
                for c in range(k):
                    sum_long[c], sum_short[c] = base[sign, long, c], base[sign, short, c]
                _common_neighbours(
                    long, short, indptr, senders, marks, r, e[sign], z, p, slope, sum_long, sum_short
                )
                _own_terms(
                    long,
                    short,
                    insert[pair],
                    r,
                    e[sign],
                    loop,
                    z,
                    p,
                    aggregate,
                    shift,
                    slope,
                    sum_long,
                    sum_short,
                )
                side = int(swapped[pair])
                _apply(weight, sum_long, out[side, pair])
                _apply(weight, sum_short, out[1 - side, pair])
