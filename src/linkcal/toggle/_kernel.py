"""The compiled kernel for one or two layers: its arrays, its code, when it applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads
from linkcal.data.graph import place_in_row
from linkcal.toggle._compiled import (
    AGGREGATE,
    BASE,
    DEGREE,
    FAST,
    GCN,
    HIDDEN,
    MARKS,
    MEAN,
    MESSAGE,
    NOW_1,
    NOW_2,
    NUM_ROWS,
    SPARE,
    SUM,
    SUMS,
    WAS_1,
    WAS_2,
    Kernel,
    Pairs,
    apply_matrix,
    apply_steps,
    at_hand,
    both_directions,
    empty_array,
    facts_type,
    leaky,
    look_ahead,
    look_ahead_to_base,
    receive,
    sort_pairs,
    without_base,
)
from linkcal.toggle._compiled import send as send_factor
from linkcal.toggle._delta import arc_change
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._layers import (
    Elementwise,
    Layer,
    LayerCache,
    PackedSteps,
    Step,
    after_shift,
    as_array,
    sender_factor,
)

__all__ = ["CompiledToggle", "base_sums", "kernel_applies", "toggle_pairs"]


# The compiled kernel: one or two layers of the algebra, any kind, all pairs.
#
# With ``m`` and ``pre`` of the first layer and ``Delta_t = (b'_t - b_t) m_t``, what the toggle of (u, v)
# makes node t in {u, v} send differently, a neighbour w of u has afterwards the hidden value
#
#     act(pre_w + a_w (l_wu Delta_u + l_wv Delta_v)),        l_wt the first layer's weight of the arc t -> w
#
# where ``Delta_t`` depends on t and on the change of its degree alone. The second layer's sum at u is then
#
#     sum_w c_uw b_w act(pre_w + a_w l_wu Delta_u)                            base_u, the same for every v
#     + sum_{w neighbours both} c_uw b_w [act(pre_w + a_w (l_wu Delta_u + l_wv Delta_v))
#                                         - act(pre_w + a_w l_wu Delta_u)]
#     + the terms of u and v themselves.
#
# Bases are one sweep over the arcs for each change of degree. What is left per pair are the common
# neighbours: found by walking the shorter of the two rows against marks of the longer one, ``sum min(d_u,
# d_v)`` steps in all (Chiba & Nishizeki, 1985). Pairs are sorted by their longer row, so that its marks are
# set once. For mean and sum ``Delta`` is 0, and no neighbour is looked at.

Array = Any  # numpy arrays; those of floats have one dtype, on which Numba specialises the code


@compiled(forceinline=True, fastmath=FAST)
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


@compiled(parallel=True, fastmath=FAST)
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


@compiled(forceinline=True, fastmath=FAST)
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


@compiled(forceinline=True, fastmath=FAST)
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


@compiled(forceinline=True, fastmath=FAST)
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


@compiled(forceinline=True, fastmath=FAST)
def _drop_partner(
    t: int, o: int, was_2: Any, leave_1: Any, moved: Any, sent: Any, seen: Array, slope: Any,
    record: Array, channels: int, rows: Array, row: int,
) -> None:  # fmt: skip
    """Take the partner's term out of a base sum, which holds it as any other neighbour's; `sent` is its b."""
    if was_2 != 0.0:
        move, coefficient = sent * leave_1 * moved, was_2 * sent
        for c in range(channels):
            rows[row, c] -= coefficient * leaky(seen[o, c] + move * record[t, MESSAGE, c], slope)


@compiled(forceinline=True, fastmath=FAST)
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


@compiled(fastmath=FAST)
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


@compiled(parallel=True, fastmath=FAST)
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


# The compiled kernel behind the common interface: when it applies, and its arrays.

_KINDS = {"gcn": GCN, "mean": MEAN, "sum": SUM}


def kernel_applies(layers: Sequence[Layer], features: Tensor) -> bool:
    """Whether the kernel is exact: one or two layers of one kind, updates given step by step, CPU."""
    first, last = layers[0], layers[-1]
    return (
        len(layers) in (1, 2)
        and all(layer.steps is not None and layer.kind == first.kind for layer in layers)
        and (len(layers) == 1 or _second_layer_applies(first, last))
        and features.device.type == "cpu"
        and features.dtype in (torch.float32, torch.float64)
    )


def _second_layer_applies(first: Layer, second: Layer) -> bool:
    assert first.steps is not None
    return (
        second.message_weight is not None
        and (second.root is None or second.root_weight is not None)
        and first.self_loop_fill == second.self_loop_fill
        # A neighbour's hidden value is worked out anew for gcn, where there is no room for an MLP.
        and (first.kind != "gcn" or len(first.steps) == 1)
    )


class CompiledToggle:
    """One or two layers on one graph in the kernel's notation (:mod:`.kernel`).

    Parameters
    ----------
    caches : list of one or two LayerCache
        Taken over: left without their large arrays.
    graph : ToggleGraph
    insert_weight : float
        Weight of inserted edges.
    """

    def __init__(self, caches: list[LayerCache], graph: ToggleGraph, insert_weight: float = 1.0) -> None:
        self.caches, self.graph, self.insert_weight = caches, graph, insert_weight
        first = caches[0]
        if len(caches) == 2:
            # Of a second layer no sum is read. What is freed before the record is made need not be taken
            # anew from the system, which costs more than all that is done with it.
            caches[1] = caches[1].slim()
        self.weighted = (
            not graph.undirected
            or graph.arc_weights() is not None
            or insert_weight != 1.0
            or any(cache.arc_factor is not None for cache in caches)
        )
        # One more entry, 0, for arcs that are not there.
        self.arc_weight = [np.append(self._arc_weight(cache), 0.0) for cache in caches if self.weighted]
        self.kernel = self._kernel()
        # Changes of degree whose base sums are kept: an edge of weight 1 removed, one inserted, none.
        self.changes = (-1.0, 1.0 if first.layer.kind == "mean" else insert_weight, 0.0)
        self.has_base = np.zeros((3, graph.num_nodes), dtype=np.bool_)
        # The large arrays are in the kernel's record by now.
        caches[0] = first.slim()
        self.marks = np.full((max(1, torch.get_num_threads()), MARKS), -1, dtype=np.int32)

    def _kernel(self) -> Kernel:
        first, last = self.caches[0], self.caches[-1]
        kind, depth = first.layer.kind, len(self.caches)
        assert first.layer.steps is not None
        head = first.layer.steps[0]
        assert isinstance(head, Elementwise)
        packed = PackedSteps()
        start = head.shift[:0]
        tail: tuple[Step, ...] = ()
        if depth == 2:
            assert last.layer.steps is not None
            assert last.layer.message_weight is not None
            second = last.layer.steps[0]
            assert isinstance(second, Elementwise)
            start, tail = second.shift, (*after_shift(second), *last.layer.steps[1:])
            packed.matrix(last.layer.message_weight * second.scale[:, None])
            if last.layer.root_weight is not None:
                packed.matrix(last.layer.root_weight * second.scale[:, None])
        middle = packed.steps(first.layer.steps[1:])
        packed.steps(tail)
        moving = kind == "gcn"
        # Neighbours' hidden values move for gcn alone: there they are kept as they are before the activation.
        if not moving:
            seen = first.layer.update(first.pre)
        else:
            # In place where a second layer has read `pre` already; that of a last one may be the output.
            seen = first.pre if depth == 2 else torch.empty_like(first.pre)
            torch.addcmul(head.shift, first.pre, head.scale, out=seen)
        widths = [first.pre.size(1), seen.size(1), last.layer.update(last.pre[:0]).size(1)]
        widest = max(*widths, *(size for matrix in packed.matrices for size in matrix.shape), 1)
        number = first.pre.numpy().dtype.type
        starts, nodes, arrive, leave = self._rows()
        self.lengths = np.diff(starts).astype(np.int32)  # [N]
        return Kernel(
            _KINDS[kind],
            depth,
            self.weighted,
            facts=self._facts(starts),
            nodes=nodes,
            arrive=arrive,
            leave=leave,
            send=at_hand(as_array(sender_factor(kind, first.degree, seen.dtype))),
            seen=as_array(seen),
            seen_slope=number(head.slope if moving else 1.0),
            record=self._record(head.scale, max(widths[:2])),
            rooted=first.root is not None,
            shift=as_array(head.shift),
            slope=number(head.slope),
            width=np.array([*widths, widest], dtype=np.int64),
            steps=np.array(packed.table, dtype=np.int64).reshape(-1, 4),
            middle=middle,
            matrices=packed.padded_matrices(widest, seen.dtype),
            affine=packed.padded_affine(widest, seen.dtype),
            root=depth == 2 and last.layer.root_weight is not None,
            start=as_array(start.to(seen.dtype)),
        )

    def _record(self, scale: Tensor, channels: int) -> Array:
        first = self.caches[0]
        bases = 0 if len(self.caches) == 1 else 3 if self.weighted else 2
        if first.layer.kind != "gcn":
            bases = min(bases, 1)
        rows = BASE + bases + (first.root is not None)
        empty = empty_array((self.graph.num_nodes, rows, channels), first.pre.numpy().dtype)
        record = torch.from_numpy(empty)
        width = first.pre.size(1)
        torch.mul(first.message, scale, out=record[:, MESSAGE, :width])
        torch.mul(first.aggregate, scale, out=record[:, AGGREGATE, :width])
        if first.root is not None:
            torch.mul(first.root, scale, out=record[:, -1, :width])
        # Where the values behind the layer are wider than the layer, the kernel runs over their width: what
        # stands there is multiplied by 0, and must be a number.
        record[:, :, width:] = 0
        return empty

    def _facts(self, starts: Array) -> Array:
        """What a pair reads of its nodes beside their records, see :func:`.facts_type`."""
        first, dtype = self.caches[0], self.caches[0].pre.dtype
        facts = empty_array((self.graph.num_nodes,), facts_type(first.pre.numpy().dtype))
        facts["start"], facts["length"], facts["degree"] = starts[:-1], self.lengths, first.degree.numpy()
        facts["send"] = sender_factor(first.layer.kind, first.degree, dtype).numpy()
        facts["loop_1"], facts["loop_2"] = first.looped().numpy(), self.caches[-1].looped().numpy()
        return facts

    def _rows(self) -> tuple[Array, Array, Array, Array]:
        """Rows of neighbours and, with weights, what arrives from (layer 2) and leaves to (layer 1) each."""
        graph, dtype = self.graph, self.caches[0].pre.numpy().dtype
        indptr, senders = graph.indptr.numpy(), graph.senders.numpy()
        if not self.weighted:
            nothing = np.empty(0, dtype)
            return indptr, senders.astype(np.int32), nothing, nothing
        starts, nodes, arriving, leaving = both_directions(indptr, senders)
        arrive, leave = (
            weight[place].astype(dtype)
            for weight, place in ((self.arc_weight[-1], arriving), (self.arc_weight[0], leaving))
        )
        return starts, nodes, arrive, leave

    def _arc_weight(self, cache: LayerCache) -> Array:
        """Weight of each arc of the graph in one layer, [E]."""
        given = self.graph.arc_weights()
        weight = torch.ones(self.graph.senders.numel()) if given is None else given
        weight = weight.to(cache.pre.dtype)
        return as_array(weight if cache.arc_factor is None else weight * cache.arc_factor)

    def endpoints(self, pairs: Tensor, insert: Tensor, out: Tensor) -> None:
        """Write the last layer's output after the toggle to `out` [2 L, d]: first nodes, then second ones."""
        nodes = pairs.to(torch.int32).numpy()
        inserted = insert.numpy()
        order, ends, swapped, cuts = sort_pairs(nodes, self.lengths, self.marks.shape[0])
        base = np.empty((2, 0), dtype=np.int8)
        weights = np.empty((0, 5, 2))
        if self.weighted:
            weights, change = self._pair_weights(pairs, insert)
            base = self._base_of(change)
            if self.kernel.kind != GCN:
                base = np.zeros_like(base)  # nothing moves, so one base sum fits all
        with numba_threads(self.marks.shape[0]):
            self._need_bases(nodes, base if self.weighted else inserted.astype(np.int8)[None].repeat(2, 0))
            block = Pairs(order, ends, swapped, cuts, inserted, base, weights)
            toggle_pairs(self.kernel, block, self.marks, out.view(2, -1, out.size(1)).numpy())

    def _pair_weights(self, pairs: Tensor, insert: Tensor) -> tuple[Array, Array]:
        """Columns of a pair's weights [L, 5, 2], and the change of either node's degree [2, L]."""
        weights = np.zeros((pairs.size(1), 5, 2))
        changes = np.zeros((2, pairs.size(1)))
        first = self.caches[0]
        mean = first.layer.kind == "mean"
        for side in (0, 1):
            source, target = pairs[1 - side], pairs[side]
            found, position = self.graph.find(source, target)
            toggled = side == 1 or self.graph.undirected
            for layer, cache in ((0, first), (1, self.caches[-1])):
                weight = torch.from_numpy(self.arc_weight[min(layer, len(self.arc_weight) - 1)])
                was = weight[torch.where(found, position, -1)]
                now = torch.where(insert, self._inserted(cache, source, target), 0.0) if toggled else was
                weights[:, layer, side], weights[:, 2 + layer, side] = was.numpy(), now.numpy()
            degree = first.degree[target]
            if toggled:
                by_weight, by_count = arc_change(self.graph, source, target, insert, self.insert_weight)
                change = by_count if mean else by_weight
                degree = degree + change
                if not mean:  # as in delta propagation: no rounding where a node's only arc goes
                    alone = ~insert & (self.graph.indptr[target + 1] - self.graph.indptr[target] == 1)
                    degree = torch.where(alone, first.self_loop[target].double(), degree)
                changes[side] = change.numpy()
            weights[:, 4, side] = degree.numpy()
        return weights, changes

    def _inserted(self, cache: LayerCache, source: Tensor, target: Tensor) -> Tensor:
        factor = cache.factor_between(source, target)
        inserted = torch.full(source.shape, self.insert_weight, dtype=torch.float64)
        return inserted if factor is None else inserted * factor

    def _base_of(self, change: Array) -> Array:
        """Which kept base sum fits each change of degree, -1: none."""
        base = np.full(change.shape, -1, dtype=np.int8)
        for index, kept in enumerate(self.changes):
            base[change == kept] = index
        return base

    def _need_bases(self, nodes: Array, base: Array) -> None:
        """Compute the base sums of nodes that no earlier block asked for."""
        if self.kernel.depth == 1:
            return
        if self.kernel.kind != GCN:
            base = np.zeros_like(base)  # nothing moves, so there is one for all changes
        for index, change in enumerate(self.changes if self.weighted else self.changes[:2]):
            asked = without_base(nodes, base, self.has_base, index)
            if asked.size:
                base_sums(self.kernel, asked, index, change)
                self.has_base[index, asked] = True
