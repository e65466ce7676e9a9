"""The compiled kernel: one or two layers of the algebra, any kind, all pairs.

With ``m`` and ``pre`` of the first layer and ``Delta_t = (b'_t - b_t) m_t``, what the toggle of (u, v) makes
node t in {u, v} send differently, a neighbour w of u has afterwards the hidden value

    act(pre_w + a_w (l_wu Delta_u + l_wv Delta_v)),        l_wt the first layer's weight of the arc t -> w

where ``Delta_t`` depends on t and on the change of its degree alone. The second layer's sum at u is then

    sum_w c_uw b_w act(pre_w + a_w l_wu Delta_u)                            base_u, the same for every v
    + sum_{w neighbours both} c_uw b_w [act(pre_w + a_w (l_wu Delta_u + l_wv Delta_v))
                                        - act(pre_w + a_w l_wu Delta_u)]
    + the terms of u and v themselves.

Bases are one sweep over the arcs for each change of degree. What is left per pair are the common neighbours:
found by walking the shorter of the two rows against marks of the longer one, ``sum min(d_u, d_v)`` steps in
all (Chiba & Nishizeki, 1985). Pairs are sorted by their longer row, so that its marks are set once. For mean
and sum ``Delta`` is 0, and no neighbour is looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from linkcal.data.neighbours import place_in_row
from linkcal.toggle.dense_kernel import FAST, apply_matrix, apply_steps, leaky
from linkcal.toggle.factor_kernel import receive
from linkcal.toggle.factor_kernel import send as send_factor
from linkcal.toggle.kernel_arrays import (
    AGGREGATE,
    BASE,
    DEGREE,
    GCN,
    HIDDEN,
    MESSAGE,
    NOW_1,
    NOW_2,
    NUM_ROWS,
    SPARE,
    SUMS,
    WAS_1,
    WAS_2,
    Kernel,
    Pairs,
)
from linkcal.toggle.look_ahead import look_ahead, look_ahead_to_base

__all__ = ["base_sums", "toggle_pairs"]

Array = Any  # numpy arrays; those of floats have one dtype, on which Numba specialises the code


@njit(cache=True, forceinline=True, fastmath=FAST)
def _base(
    t: int, moved: Any, weighted: bool, facts: Array, nodes: Array, arrive: Array, leave: Array,
    send: Array, seen: Array, slope: Any, record: Array, channels: int, rows: Array, row: int,
) -> None:  # fmt: skip
    """``sum_w c_tw b_w act(seen_w + a_w l_wt moved m_t)`` into a row of `rows`."""
    for c in range(channels):
        rows[row, c] = 0.0
    for position in range(facts[t].start, facts[t].start + facts[t].length):
        w = nodes[position]
        # For gcn a(d) = b(d), and for the others nothing moves.
        move, coefficient = send[w] * moved, send[w]
        if weighted:
            move *= leave[position]
            coefficient *= arrive[position]
        for c in range(channels):
            rows[row, c] += coefficient * leaky(seen[w, c] + move * record[t, MESSAGE, c], slope)


@njit(parallel=True, cache=True, fastmath=FAST)
def base_sums(kernel: Kernel, chosen: Array, index: int, change: float) -> None:
    """Base sums of the nodes `chosen` whose degree moves by `change`, into row `index` of their records."""
    (kind, _, weighted, facts, nodes, arrive, leave, send, seen, slope, record, _, _, _,
     width, _, _, _, _, _, _) = kernel  # fmt: skip
    channels = width[1]
    for item in prange(chosen.size):
        t = chosen[item]
        look_ahead_to_base(item, chosen, index, facts, nodes, send, seen, record)
        moved = seen.dtype.type(send_factor(kind, facts[t].degree + change)) - facts[t].send
        sums = np.empty((1, channels), seen.dtype)
        _base(t, moved, weighted, facts, nodes, arrive, leave, send, seen, slope, record, channels,
              sums, 0)  # fmt: skip
        for c in range(channels):
            record[t, BASE + index, c] = sums[0, c]


@njit(cache=True, forceinline=True, fastmath=FAST)
def _own_hidden(
    t: int, o: int, a_t: Any, partner: Any, own: Any, record: Array, rooted: bool, shift: Array, slope: Any,
    rows: Array, row: int,
) -> None:  # fmt: skip
    """First step of an endpoint's hidden value; `partner` and `own` weight the messages of o and t."""
    root = record.shape[1] - 1
    if rooted:
        for c in range(shift.size):
            arrived = record[t, AGGREGATE, c] + partner * record[o, MESSAGE, c] + own * record[t, MESSAGE, c]
            rows[row, c] = leaky(a_t * arrived + record[t, root, c] + shift[c], slope)
    else:
        for c in range(shift.size):
            arrived = record[t, AGGREGATE, c] + partner * record[o, MESSAGE, c] + own * record[t, MESSAGE, c]
            rows[row, c] = leaky(a_t * arrived + shift[c], slope)


@njit(cache=True, forceinline=True, fastmath=FAST)
def _common_neighbours(
    long: int, short: int, moved_long: Any, moved_short: Any, weighted: bool, facts: Array, nodes: Array,
    arrive: Array, leave: Array, send: Array, marks: Array, seen: Array, slope: Any,
    record: Array, channels: int, rows: Array,
) -> None:  # fmt: skip
    """Correct both sums for the neighbours of `short` that neighbour `long` too.

    ``marks[w % marks.size]`` is a position in the row of `long` if that row holds w or a node that shares
    w's place, else in a row that was marked before.
    """
    start, stop = facts[long].start, facts[long].start + facts[long].length
    for position in range(facts[short].start, facts[short].start + facts[short].length):
        w = nodes[position]
        mark = np.int64(marks[w & (marks.size - 1)])
        if start <= mark < stop:
            if nodes[mark] != w:
                mark = place_in_row(nodes, start, stop, w)
                if mark < 0:
                    continue
            by_long, by_short = send[w] * moved_long, send[w] * moved_short
            to_long = to_short = send[w]
            if weighted:
                by_long *= leave[mark]
                by_short *= leave[position]
                to_long *= arrive[mark]
                to_short *= arrive[position]
            for c in range(channels):
                before = seen[w, c]
                one = before + by_long * record[long, MESSAGE, c]
                other = by_short * record[short, MESSAGE, c]
                both = leaky(one + other, slope)
                rows[SUMS, c] += to_long * (both - leaky(one, slope))
                rows[SUMS + 1, c] += to_short * (both - leaky(before + other, slope))


@njit(cache=True, forceinline=True, fastmath=FAST)
def _start_sum(
    t: int, base: int, moved: Any, weighted: bool, facts: Array, nodes: Array, arrive: Array, leave: Array,
    send: Array, seen: Array, slope: Any, record: Array, channels: int, rows: Array, row: int,
) -> None:  # fmt: skip
    """Base sum of an endpoint into a row: the one that is kept, or worked out here where none fits."""
    if base >= 0:
        for c in range(channels):
            rows[row, c] = record[t, BASE + base, c]
    else:
        _base(t, moved, weighted, facts, nodes, arrive, leave, send, seen, slope, record, channels, rows,
              row)  # fmt: skip


@njit(cache=True, forceinline=True, fastmath=FAST)
def _drop_partner(
    t: int, o: int, was_2: Any, leave_1: Any, moved: Any, sent: Any, seen: Array, slope: Any,
    record: Array, channels: int, rows: Array, row: int,
) -> None:  # fmt: skip
    """Take the partner's term out of a base sum, which holds it as any other neighbour's; `sent` is its b."""
    if was_2 != 0.0:
        move, coefficient = sent * leave_1 * moved, was_2 * sent
        for c in range(channels):
            rows[row, c] -= coefficient * leaky(seen[o, c] + move * record[t, MESSAGE, c], slope)


@njit(cache=True, forceinline=True, fastmath=FAST)
def _second_layer(result: int, hidden: int, matrices: Array, root: bool, start: Array, rows: Array) -> int:
    """First step of the second layer, from the scaled sums and the endpoints' hidden values; where it is."""
    target = HIDDEN + SPARE - result
    for c in range(start.size):
        rows[target, c] = start[c]
        rows[target + 1, c] = start[c]
    apply_matrix(matrices, 0, hidden, start.size, rows, SUMS, target)
    if root:
        apply_matrix(matrices, 1, hidden, start.size, rows, result, target)
    return target


@njit(cache=True, fastmath=FAST)
def _work(thread: int, marks: Array, kernel: Kernel, pairs: Pairs, out: Array) -> None:
    """The pairs of one thread; see :func:`toggle_pairs`. The suffixes are those of `long` and `short`."""
    (kind, depth, weighted, facts, nodes, arrive, leave, send, seen, seen_slope,
     record, rooted, shift, slope, width, steps, middle, matrices, affine, root, start) = kernel  # fmt: skip
    order, ends, swapped, cuts, insert, base_of, weights = pairs
    hidden, last, number = width[1], width[2], seen.dtype.type
    rows = np.zeros((NUM_ROWS, width[3]), seen.dtype)
    mark, marked = marks[thread], -1
    for item in range(cuts[thread], cuts[thread + 1]):
        look_ahead(item, kernel, pairs)
        long, short, pair, side = ends[0, item], ends[1, item], order[item], int(swapped[item])
        inserted, other = insert[pair], 1 - side
        if kind == GCN and depth == 2 and long != marked:
            for position in range(facts[long].start, facts[long].start + facts[long].length):
                mark[nodes[position] & (mark.size - 1)] = position
            marked = long
        # Weights of the arcs into long and short in layers 1 and 2, before and after; degrees after.
        was1_l = was1_s = was2_l = was2_s = number(0.0 if inserted else 1.0)
        now1_l = now1_s = now2_l = now2_s = number(1.0 if inserted else 0.0)
        degree_l = facts[long].degree + (1.0 if inserted else -1.0)
        degree_s = facts[short].degree + (1.0 if inserted else -1.0)
        base_l = base_s = int(inserted) if kind == GCN else 0
        if weighted:
            was1_l, was1_s = number(weights[pair, WAS_1, side]), number(weights[pair, WAS_1, other])
            was2_l, was2_s = number(weights[pair, WAS_2, side]), number(weights[pair, WAS_2, other])
            now1_l, now1_s = number(weights[pair, NOW_1, side]), number(weights[pair, NOW_1, other])
            now2_l, now2_s = number(weights[pair, NOW_2, side]), number(weights[pair, NOW_2, other])
            degree_l, degree_s = weights[pair, DEGREE, side], weights[pair, DEGREE, other]
            base_l, base_s = base_of[side, pair], base_of[other, pair]
        a_l, a_s = number(receive(kind, degree_l)), number(receive(kind, degree_s))
        b_l, b_s = (a_l, a_s) if kind == GCN else (number(1.0), number(1.0))
        send_l, send_s = facts[long].send, facts[short].send
        _own_hidden(long, short, a_l, now1_l * b_s - was1_l * send_s, facts[long].loop_1 * b_l, record,
                    rooted, shift, slope, rows, HIDDEN)  # fmt: skip
        _own_hidden(short, long, a_s, now1_s * b_l - was1_s * send_l, facts[short].loop_1 * b_s, record,
                    rooted, shift, slope, rows, HIDDEN + 1)  # fmt: skip
        result = apply_steps(steps, 0, middle, matrices, affine, rows, HIDDEN, SPARE) if middle else HIDDEN
        if depth == 2:
            moved_l, moved_s = b_l - send_l, b_s - send_s
            _start_sum(long, base_l, moved_l, weighted, facts, nodes, arrive, leave, send, seen,
                       seen_slope, record, hidden, rows, SUMS)  # fmt: skip
            _start_sum(short, base_s, moved_s, weighted, facts, nodes, arrive, leave, send, seen,
                       seen_slope, record, hidden, rows, SUMS + 1)  # fmt: skip
            if kind == GCN:
                _common_neighbours(long, short, moved_l, moved_s, weighted, facts, nodes, arrive, leave,
                                   send, mark, seen, seen_slope, record, hidden, rows)  # fmt: skip
            _drop_partner(long, short, was2_l, was1_s, moved_l, send_s, seen, seen_slope, record, hidden,
                          rows, SUMS)  # fmt: skip
            _drop_partner(short, long, was2_s, was1_l, moved_s, send_l, seen, seen_slope, record, hidden,
                          rows, SUMS + 1)  # fmt: skip
            from_s, own_l = now2_l * b_s, facts[long].loop_2 * b_l
            from_l, own_s = now2_s * b_l, facts[short].loop_2 * b_s
            for c in range(hidden):
                h_l, h_s = rows[result, c], rows[result + 1, c]
                rows[SUMS, c] = a_l * (rows[SUMS, c] + from_s * h_s + own_l * h_l)
                rows[SUMS + 1, c] = a_s * (rows[SUMS + 1, c] + from_l * h_l + own_s * h_s)
            result = _second_layer(result, hidden, matrices, root, start, rows)
            if middle < steps.shape[0]:
                result = apply_steps(steps, middle, steps.shape[0], matrices, affine, rows, result, SUMS)
        for c in range(last):
            out[side, pair, c] = rows[result, c]
            out[other, pair, c] = rows[result + 1, c]


@njit(parallel=True, cache=True, fastmath=FAST)
def toggle_pairs(kernel: Kernel, pairs: Pairs, marks: Array, out: Array) -> None:
    """Output of the last layer at both nodes of every pair after its toggle.

    Parameters
    ----------
    kernel : Kernel
    pairs : Pairs
    marks : int32 [T, n], n a power of two
        Workspace of T threads, -1 at first.
    out : float [2, L, d]
        Written: first and second node of each pair.
    """
    for thread in prange(marks.shape[0]):
        _work(thread, marks, kernel, pairs, out)
