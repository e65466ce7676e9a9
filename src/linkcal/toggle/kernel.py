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

__all__ = ["base_sums", "toggled_sums"]

Array = Any  # numpy arrays of one floating dtype; Numba specialises the code on it

# Contraction into fused multiply-adds and free signs of zero let the channel loops vectorise; nothing is
# reordered across channels or neighbours, so results do not depend on threads or blocks.
_FAST = {"contract", "nsz"}


@njit(parallel=True, cache=True, fastmath=_FAST)
def base_sums(
    indptr: Array,
    senders: Array,
    r: Array,
    shift: Array,
    z: Array,
    p: Array,
    slope: Any,
    used: Array,
    out: Array,
) -> None:
    """``out[u] = sum_{w in N(u)} r_w act(P_w + r_w e_u Z_u)`` for the nodes in `used`; `shift` is e [N]."""
    k = z.shape[1]
    for item in prange(used.shape[0]):
        u = used[item]
        for c in range(k):
            out[u, c] = 0.0
        for position in range(indptr[u], indptr[u + 1]):
            w = senders[position]
            move = r[w] * shift[u]
            for c in range(k):
                value = p[w, c] + move * z[u, c]
                low = value * slope
                out[u, c] += r[w] * (value if value > low else low)


@njit(inline="always")
def _own_hidden(
    c: int,
    i: int,
    j: int,
    insert: Any,
    r: Array,
    e: Array,
    loop: Array,
    z: Array,
    aggregate: Array,
    shift: Array,
) -> Any:
    """Pre-activation of endpoint i at channel c after (i, j) is toggled."""
    r_i = r[i] + e[i]
    arrived = aggregate[i, c]
    if insert:
        arrived += (r[j] + e[j]) * z[j, c]
    else:
        arrived -= r[j] * z[j, c]
    return r_i * (arrived + loop[i] * r_i * z[i, c]) + shift[c]


@njit(inline="always")
def _act(value: Any, slope: Any) -> Any:
    low = value * slope
    return value if value > low else low


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


@njit(parallel=True, cache=True, fastmath=_FAST)
def toggled_sums(
    order: Array, long_of: Array, short_of: Array, group: Array, insert: bool, threads: int,
    indptr: Array, senders: Array, r: Array, e: Array, loop: Array,
    z: Array, p: Array, aggregate: Array, shift: Array, base: Array, slope: Any,
    out_long: Array, out_short: Array,
) -> None:  # fmt: skip
    """Second-layer sums of both endpoints of every pair, all toggled in the same direction.

    Parameters
    ----------
    order : int64 [L]
        Pairs sorted by their longer row.
    long_of, short_of : int64 [L]
        Endpoint with the longer and the shorter row, by pair.
    group : int64 [G + 1]
        Bounds in `order` of the pairs that share a longer row.
    insert : bool
    threads : int
        Number of slices that the groups are dealt to, each with marks [N] of its own.
    indptr, senders : int64 [N + 1], int64 [E]
    r, e, loop : float [N]
    z, p, aggregate, base : float [N, k]
    shift : float [k]
    slope : float
    out_long, out_short : float [L, k]
        Written: ``a'_i (sum_j b'_j h'_j + q_ii b'_i h'_i)`` of the two endpoints.
    """
    n, k = z.shape
    num_groups = group.shape[0] - 1
    for thread in prange(threads):
        marks = np.full(n, -1, dtype=np.int64)
        sum_long, sum_short = np.empty(k, dtype=z.dtype), np.empty(k, dtype=z.dtype)
        # Round robin: groups are sorted by node, and hubs are rarely neighbours in that order.
        for g in range(thread, num_groups, threads):
            long = long_of[order[group[g]]]
            for position in range(indptr[long], indptr[long + 1]):
                marks[senders[position]] = long
            for item in range(group[g], group[g + 1]):
                pair = order[item]
                short = short_of[pair]
                for c in range(k):
                    sum_long[c], sum_short[c] = base[long, c], base[short, c]
                _common_neighbours(
                    long, short, indptr, senders, marks, r, e, z, p, slope, sum_long, sum_short
                )
                r_long, r_short = r[long] + e[long], r[short] + e[short]
                for c in range(k):
                    h_long = _act(_own_hidden(c, long, short, insert, r, e, loop, z, aggregate, shift), slope)
                    h_short = _act(
                        _own_hidden(c, short, long, insert, r, e, loop, z, aggregate, shift), slope
                    )
                    if insert:
                        sum_long[c] += r_short * h_short
                        sum_short[c] += r_long * h_long
                    else:  # the base holds the partner's term as a neighbour; it is one no longer
                        old = _act(p[short, c] + r[short] * e[long] * z[long, c], slope)
                        sum_long[c] -= r[short] * old
                        old = _act(p[long, c] + r[long] * e[short] * z[short, c], slope)
                        sum_short[c] -= r[long] * old
                    out_long[pair, c] = r_long * (sum_long[c] + loop[long] * r_long * h_long)
                    out_short[pair, c] = r_short * (sum_short[c] + loop[short] * r_short * h_short)
