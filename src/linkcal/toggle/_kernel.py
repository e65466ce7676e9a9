"""The compiled kernel for one or two layers of one kind: a base sum per node, and the common neighbours.

With ``m`` and ``pre`` of the first layer and ``Delta_t = (b'_t - b_t) m_t``, what the toggle of (u, v) makes
node t in {u, v} send differently, a neighbour w of u has afterwards the hidden value

    act(pre_w + a_w (l_wu Delta_u + l_wv Delta_v))        l_wt: the first layer's weight of the arc t -> w

and the second layer's sum at u is

    sum_w c_uw b_w act(pre_w + a_w l_wu Delta_u)                            base_u, the same for every v
    + sum_{w neighbours both} c_uw b_w [act(pre_w + a_w (l_wu Delta_u + l_wv Delta_v))
                                        - act(pre_w + a_w l_wu Delta_u)]
    + the terms of u and v themselves.

Common neighbours are found by walking the shorter row against marks of the longer one, ``sum min(d_u, d_v)``
steps in all (Chiba & Nishizeki, 1985). For mean and sum ``Delta`` is 0, and no neighbour is visited.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange
from torch import Tensor

from linkcal._core.compiled import as_records, compiled
from linkcal._core.threads import numba_threads, useful_threads
from linkcal.data.graph import place_in_row
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._layers import (
    FAST,
    GCN,
    KINDS,
    Elementwise,
    Layer,
    LayerCache,
    PackedSteps,
    PairWeights,
    apply_matrix,
    apply_steps,
    as_array,
    leaky,
    receive,
    send,
    sender_factor,
)

Array = Any  # NumPy arrays; those of floats have one dtype, for which Numba compiles the code

#: Rows of a node's record: m, aggregate, base sums from BASE on, and last the first layer's root, if any.
MESSAGE, AGGREGATE, BASE = 0, 1, 2
#: Columns of a pair's weights, see PairWeights.
WAS, NOW, DEGREE = 0, 1, 2
#: Places in `width` of Kernel.
FIRST_WIDTH, LAST_WIDTH, HIDDEN_WIDTH, OUT_WIDTH, WIDEST = range(5)
#: Places of a thread's marks, a power of two; nodes with the same last bits share one. Fits the near caches.
MARKS = 1 << 14
#: Rows of a thread's workspace, in twos: sums, hidden values, spare.
SUMS, HIDDEN, SPARE, NUM_ROWS = 0, 2, 4, 6
# Cost of a pair, in steps along its shorter row, for equal shares of the threads.
_PAIR_COST = 40


def facts_type(number: np.dtype[Any]) -> np.dtype[Any]:
    """Bounds of a node's row, degree, b(d), self-loops: together, to be fetched from memory at once."""
    formats = [np.int64, np.float64, number, number, number, np.int32]
    names = ["start", "degree", "send", "loop_1", "loop_2", "length"]
    return np.dtype(list(zip(names, formats, strict=True)), align=True)


class Kernel(NamedTuple):
    """Arrays of one model on one graph; N nodes, A entries of rows, K channels of the widest row.

    Rows are sorted. The first layer's scale is folded into messages, aggregates, roots and `seen`.
    """

    kind: int
    depth: int  # layers: 1 or 2
    weighted: bool  # False: every arc has weight 1 in both directions; `arrive`, `leave` are not read
    facts: Array  # facts_type [N]
    nodes: Array  # int32 [A]
    arrive: Array  # float [A]: second layer's weight of the arc from the neighbour
    leave: Array  # float [A]: first layer's weight of the arc to the neighbour
    send: Array  # float [N]: b(d), read of neighbours
    seen: Array  # float [N, K]: what neighbours hold, before the activation of slope `seen_slope`
    seen_slope: Any
    record: Array  # float [N, S, K]
    rooted: bool  # whether the first layer has a root
    shift: Array  # float [K]: of the first layer's first step
    slope: Any
    width: Array  # int64 [5]: pre-activations of both layers, hidden values, output, widest of all
    # int64 [n, 4], see apply_steps: the first layer's after its first, from `middle` on the second layer's
    steps: Array
    middle: int
    matrices: Array  # float [M, W, W], W widest of all: the second layer's for messages, for roots if `root`
    affine: Array  # float [n', 3, W]: scale, shift and slope
    root: bool  # whether the second layer has a root


class Pairs(NamedTuple):
    """A block of L pairs."""

    order: Array  # int64 [L]: pairs sorted by their longer row
    ends: Array  # int32 [2, L]: endpoint with the longer, the shorter row, in that order
    swapped: Array  # bool [L]: whether the longer row is that of the second node, in that order
    cuts: Array  # int64 [T + 1]: bounds of each thread's share of `order`
    insert: Array  # bool [L]
    base: Array  # int8 [2, L]: base sum of either node, -1: to be computed; read if weighted
    weights: Array  # float64 [L, layers, 2, 3], see PairWeights; read if weighted


@compiled(forceinline=True, fastmath=FAST)
def _base(t: int, moved: Any, kernel: Kernel, rows: Array, row: int) -> None:
    """``sum_w c_tw b_w act(seen_w + a_w l_wt moved m_t)`` into a row of `rows`."""
    (_, _, weighted, facts, nodes, arrive, leave, send_of, seen, slope, record, _, _, _,
     width, _, _, _, _, _) = kernel  # fmt: skip
    channels = width[HIDDEN_WIDTH]
    for c in range(channels):
        rows[row, c] = 0.0
    for position in range(facts[t].start, facts[t].start + facts[t].length):
        w = nodes[position]
        # For gcn a(d) = b(d), and for the others nothing moves.
        move, coefficient = send_of[w] * moved, send_of[w]
        if weighted:
            move *= leave[position]
            coefficient *= arrive[position]
        for c in range(channels):
            rows[row, c] += coefficient * leaky(seen[w, c] + move * record[t, MESSAGE, c], slope)


@compiled(parallel=True, fastmath=FAST)
def base_sums(kernel: Kernel, chosen: Array, index: int, change: float) -> None:
    """Base sums of the nodes `chosen` whose degree moves by `change`, into row `index` of their records."""
    # Unpacked: Numba drops what a parallel loop writes to an attribute of a tuple.
    (kind, _, _, facts, _, _, _, _, seen, _, record, _, _, _, width, _, _, _, _, _) = kernel
    for item in prange(chosen.size):
        t, channels = chosen[item], width[HIDDEN_WIDTH]
        moved = seen.dtype.type(send(kind, facts[t].degree + change)) - facts[t].send
        sums = np.empty((1, channels), seen.dtype)
        _base(t, moved, kernel, sums, 0)
        for c in range(channels):
            record[t, BASE + index, c] = sums[0, c]


@compiled(forceinline=True, fastmath=FAST)
def _own_hidden(
    t: int, o: int, a_t: Any, partner: Any, own: Any, kernel: Kernel, rows: Array, row: int
) -> None:
    """First step of an endpoint's hidden value; `partner` and `own` weight the messages of o and t."""
    record, shift = kernel.record, kernel.shift
    root, nothing = record.shape[1] - 1, shift.dtype.type(0.0)
    for c in range(shift.size):
        arrived = record[t, AGGREGATE, c] + partner * record[o, MESSAGE, c] + own * record[t, MESSAGE, c]
        rest = record[t, root, c] if kernel.rooted else nothing
        rows[row, c] = leaky(a_t * arrived + rest + shift[c], kernel.slope)


@compiled(forceinline=True, fastmath=FAST)
def _common_neighbours(
    long: int, short: int, moved_long: Any, moved_short: Any, kernel: Kernel, marks: Array, rows: Array
) -> None:
    """Correct both sums for the neighbours of `short` that neighbour `long` too.

    Where ``marks[w % marks.size]`` is outside the row of `long`, w is not in it; else w or a node that shares
    its place is.
    """
    (_, _, weighted, facts, nodes, arrive, leave, send_of, seen, slope, record, _, _, _,
     width, _, _, _, _, _) = kernel  # fmt: skip
    start, stop = facts[long].start, facts[long].start + facts[long].length
    for position in range(facts[short].start, facts[short].start + facts[short].length):
        w = nodes[position]
        mark = np.int64(marks[w & (marks.size - 1)])
        if start <= mark < stop:
            if nodes[mark] != w:
                mark = place_in_row(nodes, start, stop, w)
                if mark < 0:
                    continue
            by_long, by_short = send_of[w] * moved_long, send_of[w] * moved_short
            to_long = to_short = send_of[w]
            if weighted:
                by_long *= leave[mark]
                by_short *= leave[position]
                to_long *= arrive[mark]
                to_short *= arrive[position]
            for c in range(width[HIDDEN_WIDTH]):
                before = seen[w, c]
                one = before + by_long * record[long, MESSAGE, c]
                other = by_short * record[short, MESSAGE, c]
                both = leaky(one + other, slope)
                rows[SUMS, c] += to_long * (both - leaky(one, slope))
                rows[SUMS + 1, c] += to_short * (both - leaky(before + other, slope))


@compiled(forceinline=True, fastmath=FAST)
def _start_sum(t: int, base: int, moved: Any, kernel: Kernel, rows: Array, row: int) -> None:
    """Base sum of an endpoint into a row: the stored one, or computed here where none fits."""
    if base >= 0:
        for c in range(kernel.width[HIDDEN_WIDTH]):
            rows[row, c] = kernel.record[t, BASE + base, c]
    else:
        _base(t, moved, kernel, rows, row)


@compiled(forceinline=True, fastmath=FAST)
def _drop_partner(
    t: int, o: int, was_2: Any, leave_1: Any, moved: Any, sent: Any, kernel: Kernel, rows: Array, row: int
) -> None:
    """Take the partner's term out of a base sum, which holds it as any other neighbour's; `sent` is its b."""
    if was_2 != 0.0:
        move, coefficient, seen = sent * leave_1 * moved, was_2 * sent, kernel.seen
        for c in range(kernel.width[HIDDEN_WIDTH]):
            before = seen[o, c] + move * kernel.record[t, MESSAGE, c]
            rows[row, c] -= coefficient * leaky(before, kernel.seen_slope)


@compiled(forceinline=True, fastmath=FAST)
def _second_layer(result: int, hidden: int, width: int, matrices: Array, root: bool, rows: Array) -> int:
    """The second layer's ``pre``, from the scaled sums and the endpoints' hidden values; where it is."""
    target = HIDDEN + SPARE - result
    for c in range(width):
        rows[target, c] = 0.0
        rows[target + 1, c] = 0.0
    apply_matrix(matrices, 0, hidden, width, rows, SUMS, target)
    if root:
        apply_matrix(matrices, 1, hidden, width, rows, result, target)
    return target


@compiled(fastmath=FAST)
def _work(thread: int, marks: Array, kernel: Kernel, pairs: Pairs, out: Array) -> None:
    """The pairs of one thread; see :func:`toggle_pairs`. The suffixes are those of `long` and `short`."""
    (kind, depth, weighted, facts, nodes, _, _, _, seen, _, _, _, _, _,
     width, steps, middle, matrices, affine, root) = kernel  # fmt: skip
    order, ends, swapped, cuts, insert, base_of, weights = pairs
    hidden, last, number = width[HIDDEN_WIDTH], width[OUT_WIDTH], seen.dtype.type
    rows = np.zeros((NUM_ROWS, width[WIDEST]), seen.dtype)
    mark, marked = marks[thread], -1
    for item in range(cuts[thread], cuts[thread + 1]):
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
            end = depth - 1
            was1_l, was1_s = number(weights[pair, 0, side, WAS]), number(weights[pair, 0, other, WAS])
            was2_l, was2_s = number(weights[pair, end, side, WAS]), number(weights[pair, end, other, WAS])
            now1_l, now1_s = number(weights[pair, 0, side, NOW]), number(weights[pair, 0, other, NOW])
            now2_l, now2_s = number(weights[pair, end, side, NOW]), number(weights[pair, end, other, NOW])
            degree_l, degree_s = weights[pair, 0, side, DEGREE], weights[pair, 0, other, DEGREE]
            base_l, base_s = base_of[side, pair], base_of[other, pair]
        a_l, a_s = number(receive(kind, degree_l)), number(receive(kind, degree_s))
        b_l, b_s = (a_l, a_s) if kind == GCN else (number(1.0), number(1.0))
        send_l, send_s = facts[long].send, facts[short].send
        to_l, to_s = now1_l * b_s - was1_l * send_s, now1_s * b_l - was1_s * send_l
        _own_hidden(long, short, a_l, to_l, facts[long].loop_1 * b_l, kernel, rows, HIDDEN)
        _own_hidden(short, long, a_s, to_s, facts[short].loop_1 * b_s, kernel, rows, HIDDEN + 1)
        result = apply_steps(steps, 0, middle, matrices, affine, rows, HIDDEN, SPARE) if middle else HIDDEN
        if depth == 2:
            moved_l, moved_s = b_l - send_l, b_s - send_s
            _start_sum(long, base_l, moved_l, kernel, rows, SUMS)
            _start_sum(short, base_s, moved_s, kernel, rows, SUMS + 1)
            if kind == GCN:
                _common_neighbours(long, short, moved_l, moved_s, kernel, mark, rows)
            _drop_partner(long, short, was2_l, was1_s, moved_l, send_s, kernel, rows, SUMS)
            _drop_partner(short, long, was2_s, was1_l, moved_s, send_l, kernel, rows, SUMS + 1)
            from_s, own_l = now2_l * b_s, facts[long].loop_2 * b_l
            from_l, own_s = now2_s * b_l, facts[short].loop_2 * b_s
            for c in range(hidden):
                h_l, h_s = rows[result, c], rows[result + 1, c]
                rows[SUMS, c] = a_l * (rows[SUMS, c] + from_s * h_s + own_l * h_l)
                rows[SUMS + 1, c] = a_s * (rows[SUMS + 1, c] + from_l * h_l + own_s * h_s)
            result = _second_layer(result, hidden, width[LAST_WIDTH], matrices, root, rows)
            result = apply_steps(steps, middle, steps.shape[0], matrices, affine, rows, result, SUMS)
        for c in range(last):
            out[side, pair, c] = rows[result, c]
            out[other, pair, c] = rows[result + 1, c]


@compiled(parallel=True, fastmath=FAST)
def toggle_pairs(kernel: Kernel, pairs: Pairs, marks: Array, out: Array) -> None:
    """Outputs [2, L, d] after each toggle; `marks` int32 [T, a power of two] is workspace, -1 at first."""
    for thread in prange(marks.shape[0]):
        _work(thread, marks, kernel, pairs, out)


class CompiledToggle:
    """One or two layers on one graph, and their toggles by the kernel; `insert_weight`: of inserted edges."""

    def __init__(self, caches: Sequence[LayerCache], graph: ToggleGraph, insert_weight: float = 1.0) -> None:
        self.graph, kind = graph, caches[0].layer.kind
        given = any(cache.arc_weight is not None for cache in caches)
        self.weighted = given or not graph.undirected or insert_weight != 1.0
        self.weights = PairWeights(caches, graph, insert_weight) if self.weighted else None
        self.kernel = self._kernel(caches)
        #: Changes of degree whose base sums are stored: an edge of weight 1 removed, one inserted, none.
        self.changes = (-1.0, 1.0 if kind == "mean" else insert_weight, 0.0)
        self.has_base = np.zeros((3, graph.num_nodes), dtype=np.bool_)
        self.marks = np.full((max(1, torch.get_num_threads()), MARKS), -1, dtype=np.int32)

    @staticmethod
    def applies(layers: Sequence[Layer]) -> bool:
        """Whether the kernel is exact: one or two layers of one kind, updates given step by step."""
        first, last = layers[0], layers[-1]
        if any(layer.steps is None or layer.kind != first.kind for layer in layers) or len(layers) > 2:
            return False
        # A neighbour's hidden value is computed anew for gcn, where there is no room for an MLP.
        room = first.kind != "gcn" or len(first.steps or ()) == 1
        return len(layers) == 1 or (room and first.self_loop_fill == last.self_loop_fill)

    def _kernel(self, caches: Sequence[LayerCache]) -> Kernel:
        first, last = caches[0], caches[-1]
        kind, depth = first.layer.kind, len(caches)
        assert first.layer.steps is not None
        assert last.layer.steps is not None
        head, packed = first.layer.steps[0], PackedSteps()
        assert isinstance(head, Elementwise)
        if depth == 2:
            assert last.layer.weight is not None
            packed.matrix(last.layer.weight)
            if last.layer.root_weight is not None:
                packed.matrix(last.layer.root_weight)
        middle = packed.steps(first.layer.steps[1:])
        if depth == 2:
            packed.steps(last.layer.steps)
        # Neighbours' hidden values move for gcn alone: there they are stored before the activation.
        moving = kind == "gcn"
        seen = torch.addcmul(head.shift, first.pre, head.scale) if moving else first.layer.updated(first.pre)
        out = last.layer.updated(last.pre[:0]).size(1)
        widths = [first.pre.size(1), last.pre.size(1), seen.size(1), out]
        widest, steps, matrices, affine = packed.packed(widths, seen.dtype)
        number = first.pre.numpy().dtype.type
        starts, nodes, arrive, leave = self._rows(number)
        self.lengths = np.diff(starts).astype(np.int32)  # [N]
        facts = np.empty(self.graph.num_nodes, facts_type(np.dtype(number)))
        facts["start"], facts["length"], facts["degree"] = starts[:-1], self.lengths, first.degree.numpy()
        facts["send"] = sender_factor(kind, first.degree, seen.dtype).numpy()
        facts["loop_1"], facts["loop_2"] = first.loop.numpy(), last.loop.numpy()
        return Kernel(
            KINDS[kind], depth, self.weighted, facts=as_records(facts), nodes=nodes, arrive=arrive,
            leave=leave, send=np.ascontiguousarray(facts["send"]), seen=as_array(seen),
            seen_slope=number(head.slope if moving else 1.0),
            record=self._record(first, depth, head.scale, max(first.pre.size(1), seen.size(1))),
            rooted=first.root is not None, shift=as_array(head.shift), slope=number(head.slope),
            width=np.array([*widths, widest], dtype=np.int64), steps=steps, middle=middle,
            matrices=matrices, affine=affine, root=depth == 2 and last.layer.root_weight is not None,
        )  # fmt: skip

    def _record(self, first: LayerCache, depth: int, scale: Tensor, channels: int) -> Array:
        bases = 0 if depth == 1 else 3 if self.weighted else 2
        if first.layer.kind != "gcn":
            bases = min(bases, 1)
        rows = BASE + bases + (first.root is not None)
        width = first.pre.size(1)
        # Channels beyond the layer's own are multiplied by 0 and must be numbers.
        record = first.pre.new_zeros(self.graph.num_nodes, rows, channels)
        record[:, MESSAGE, :width] = first.message * scale
        record[:, AGGREGATE, :width] = first.aggregate * scale
        if first.root is not None:
            record[:, -1, :width] = first.root * scale
        return as_array(record)

    def _rows(self, number: Any) -> tuple[Array, Array, Array, Array]:
        """Rows of neighbours and, with weights, what arrives from (layer 2) and leaves to (layer 1) each."""
        if self.weights is None:
            nothing = np.empty(0, number)
            return self.graph.indptr.numpy(), self.graph.senders.numpy().astype(np.int32), nothing, nothing
        starts, nodes, arriving, leaving = self.graph.both_directions()
        weights = self.weights.arc_weight
        return starts, nodes, weights[-1].numpy()[arriving], weights[0].numpy()[leaving]

    def endpoints(self, pairs: Tensor, insert: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer's output after the toggle at the first and at the second nodes, [L, d] each."""
        nodes, inserted = pairs.to(torch.int32).numpy(), insert.numpy()
        weights, base = np.empty((0, 0, 2, 3)), inserted.astype(np.int8)[None].repeat(2, 0)
        if self.weights is not None:
            of_pairs, change = self.weights.of(pairs, insert)
            weights, base = of_pairs.numpy(), np.full(pairs.shape, -1, dtype=np.int8)
            for index, kept in enumerate(self.changes):
                base[change.numpy() == kept] = index
        if self.kernel.kind != GCN:
            base = np.zeros_like(base)  # nothing moves, so one base sum fits all changes
        threads = useful_threads(self.marks.shape[0], pairs.size(1))
        block = self._sorted(nodes, inserted, base, weights, threads)
        out = np.empty((2, pairs.size(1), int(self.kernel.width[OUT_WIDTH])), self.kernel.seen.dtype)
        with numba_threads(threads):
            if self.kernel.depth == 2:
                self._need_bases(nodes, base)
            toggle_pairs(self.kernel, block, self.marks[:threads], out)
        return torch.from_numpy(out[0]), torch.from_numpy(out[1])

    def _sorted(self, nodes: Array, insert: Array, base: Array, weights: Array, threads: int) -> Pairs:
        """The pairs by their longer row, cut into parts of about equal cost."""
        lengths = self.lengths[nodes]
        second = lengths[1] > lengths[0]
        ends = np.where(second, nodes[::-1], nodes)
        order = np.argsort(ends[0])
        total = np.append(0, np.cumsum(_PAIR_COST + lengths.min(axis=0)[order].astype(np.int64)))
        cuts = np.searchsorted(total, total[-1] * np.arange(threads + 1) // threads)
        return Pairs(order, np.ascontiguousarray(ends[:, order]), second[order], cuts, insert, base, weights)

    def _need_bases(self, nodes: Array, base: Array) -> None:
        """Compute the base sums of nodes that no earlier block needed."""
        for index, change in enumerate(self.changes):
            chosen = np.unique(nodes[(base == index) & ~self.has_base[index][nodes]])
            if chosen.size:
                base_sums(self.kernel, chosen, index, change)
                # Not before: the caller may be interrupted.
                self.has_base[index, chosen] = True
