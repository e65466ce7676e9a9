"""Compiled pieces that the kernels share."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.compiled import compiled

__all__ = [
    "AGGREGATE",
    "BASE",
    "CACHE_LINE",
    "DEGREE",
    "FAST",
    "GCN",
    "HIDDEN",
    "HUGE",
    "MARKS",
    "MATRIX",
    "MEAN",
    "MESSAGE",
    "NOW_1",
    "NOW_2",
    "NUM_ROWS",
    "SPARE",
    "STEP",
    "SUM",
    "SUMS",
    "WAS_1",
    "WAS_2",
    "Kernel",
    "Pairs",
    "apply_matrix",
    "apply_steps",
    "at_hand",
    "both_directions",
    "empty_array",
    "empty_rows",
    "facts_type",
    "fetch_row",
    "leaky",
    "look_ahead",
    "look_ahead_to_base",
    "prefetch",
    "receive",
    "send",
    "sort_pairs",
    "without_base",
]


# Memory for arrays that are read or written in no order.
#
# NumPy asks the system for huge pages for large arrays; torch and compiled code do not. With ordinary pages
# of 4 KB nearly every read of a large array at a place that cannot be foreseen has to look up its page in
# memory first, in tables that are large themselves.
#
# NumPy's large arrays start 16 bytes into a cache line, so that a row of 128 bytes lies in three lines where
# two would hold it. Arrays whose rows are read one by one start at a line here.

#: Bytes that the processor fetches at once.
CACHE_LINE = 64

#: Bytes from which NumPy asks for huge pages.
HUGE = 1 << 22


def empty_rows(number: int, width: int, like: Tensor) -> Tensor:
    """A new tensor [number, width] of the dtype and on the device of `like`, not filled."""
    if like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return like.new_empty(number, width)
    dtype = np.float32 if like.dtype == torch.float32 else np.float64
    return torch.from_numpy(empty_array((number, width), np.dtype(dtype)))


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A new contiguous array, not filled, that starts at a cache line."""
    size = prod(shape) * dtype.itemsize
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def at_hand(values: NDArray[Any]) -> NDArray[Any]:
    """A contiguous copy in NumPy's own memory; the array itself where it is small or not to be moved."""
    return np.array(values, order="C") if values.nbytes >= HUGE else np.ascontiguousarray(values)


# What :mod:`.kernel` reads: the arrays of a model on a graph and of a block of pairs, and their columns.

Array = Any  # numpy arrays; those of floats have one dtype, on which Numba specialises the code

#: Kinds of layer, and the rows of a node's record: m, aggregate, from BASE on its base sums, the first
#: layer's root last if it has one. The record keeps together what a pair reads of its endpoints; what it
#: reads of neighbours is packed apart.
GCN, MEAN, SUM = 0, 1, 2
MESSAGE, AGGREGATE, BASE = 0, 1, 2
#: Columns of a pair's weights: those of the arc into either endpoint in the two layers, before and after, and
#: the endpoint's degree after.
WAS_1, WAS_2, NOW_1, NOW_2, DEGREE = 0, 1, 2, 3, 4
#: Places of a thread's marks, a power of two. Nodes with the same last bits share one: a table with a place
#: for each node would be read and written at random outside the nearer caches, and this one lies in them.
MARKS = 1 << 14
#: Rows of a thread's workspace, in twos: sums, hidden values, spare.
SUMS, HIDDEN, SPARE, NUM_ROWS = 0, 2, 4, 6


def facts_type(number: np.dtype[Any]) -> np.dtype[Any]:
    """What a pair reads of a node beside its record: the bounds of its row, degree, b(d), self-loops.

    Together and in a part of one cache line, since apart each would be fetched from memory by itself.
    """
    layout: Any = {
        "names": ["start", "degree", "send", "loop_1", "loop_2", "length"],
        "formats": [np.int64, np.float64, number, number, number, np.int32],
        "itemsize": 32 if number.itemsize == 4 else 64,
    }
    kind: np.dtype[Any] = np.dtype(layout)
    return kind


class Kernel(NamedTuple):
    """Arrays of one model on one graph; N nodes, A entries of rows, K channels of the widest row.

    Rows list in- and out-neighbours in increasing order. The first layer's elementwise scale is folded into
    messages, aggregates, roots and `seen`.
    """

    kind: int
    depth: int  # layers: 1 or 2
    weighted: bool  # False: every arc has weight 1 in both directions; `arrive`, `leave` are not read
    facts: Array  # facts_type [N]: what a pair reads of its endpoints beside their records
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
    width: Array  # int64 [4]: first layer's pre-activations, hidden values, output, widest of all
    # int64 [n, 4], see apply_steps: what follows the first layer's first step, and from `middle` on what
    # follows the second layer's shift
    steps: Array
    middle: int
    matrices: Array  # float [M, W, W], W widest of all: the second layer's for messages, for roots if `root`
    affine: Array  # float [n', 3, W]: scale, shift and slope
    root: bool  # whether the second layer has a root
    start: Array  # float [k']: shift of the second layer's first step; its scale is folded into the matrices


class Pairs(NamedTuple):
    """A block of L pairs."""

    order: Array  # int64 [L]: pairs sorted by their longer row
    ends: Array  # int32 [2, L]: endpoint with the longer, the shorter row, in that order
    swapped: Array  # bool [L]: whether the longer row is that of the second node, in that order
    cuts: Array  # int64 [T + 1]: bounds of each thread's share of `order`
    insert: Array  # bool [L]
    base: Array  # int8 [2, L]: base sum of either node, -1: to be computed; read if weighted
    weights: Array  # float64 [L, 5, 2]; read if weighted


# Compiled row-wise maps of two rows at once: matrices, and updates given step by step.
#
# Rows live in one workspace `rows` [R, K]; maps name their source and target rows. Helpers index whole
# arrays: handing them views would be easier to read, but Numba counts references to every view, atomically,
# for each pair.

DenseKernelArray = Any  # numpy arrays of one floating dtype; Numba specialises the code on it

# Contraction into fused multiply-adds and free signs of zero let the channel loops vectorise; nothing is
# reordered across channels or neighbours, so results do not depend on threads or blocks.
FAST = {"contract", "nsz"}

#: Kinds of step: ``leaky(scale * x + shift)``, or a matrix.
STEP, MATRIX = 0, 1


@compiled(forceinline=True)
def leaky(value: Any, slope: Any) -> Any:
    """``max(value, slope * value)``: ReLU for slope 0, the identity for slope 1."""
    low = value * slope
    return value if value > low else low


@compiled(forceinline=True, fastmath=FAST)
def apply_matrix(
    matrices: DenseKernelArray,
    number: int,
    depth: int,
    width: int,
    rows: DenseKernelArray,
    source: int,
    target: int,
) -> None:
    """Rows target, target + 1 += rows source, source + 1 times ``matrices[number, :depth, :width]``.

    Always summed in the same order.
    """
    # Eight terms at a time: both targets are then read and written an eighth as often. Indices that are loop
    # counters are known not to be negative; any other would keep the loop from being vectorised.
    other, goal = source + 1, target + 1
    whole = depth - depth % 8
    for c in range(0, whole, 8):
        a0, a1, a2, a3 = rows[source, c], rows[source, c + 1], rows[source, c + 2], rows[source, c + 3]
        a4, a5, a6, a7 = rows[source, c + 4], rows[source, c + 5], rows[source, c + 6], rows[source, c + 7]
        b0, b1, b2, b3 = rows[other, c], rows[other, c + 1], rows[other, c + 2], rows[other, c + 3]
        b4, b5, b6, b7 = rows[other, c + 4], rows[other, c + 5], rows[other, c + 6], rows[other, c + 7]
        for o in range(width):
            w0, w1 = matrices[number, c, o], matrices[number, c + 1, o]
            w2, w3 = matrices[number, c + 2, o], matrices[number, c + 3, o]
            w4, w5 = matrices[number, c + 4, o], matrices[number, c + 5, o]
            w6, w7 = matrices[number, c + 6, o], matrices[number, c + 7, o]
            low, high = (a0 * w0 + a1 * w1) + (a2 * w2 + a3 * w3), (a4 * w4 + a5 * w5) + (a6 * w6 + a7 * w7)
            rows[target, o] += low + high
            low, high = (b0 * w0 + b1 * w1) + (b2 * w2 + b3 * w3), (b4 * w4 + b5 * w5) + (b6 * w6 + b7 * w7)
            rows[goal, o] += low + high
    for c in range(whole, depth):
        for o in range(width):
            rows[target, o] += rows[source, c] * matrices[number, c, o]
            rows[goal, o] += rows[other, c] * matrices[number, c, o]


@compiled(fastmath=FAST)
def apply_steps(
    steps: DenseKernelArray,
    first: int,
    stop: int,
    matrices: DenseKernelArray,
    affine: DenseKernelArray,
    rows: DenseKernelArray,
    source: int,
    spare: int,
) -> int:
    """Run ``steps[first:stop]`` on rows source, source + 1, with two spare rows; where the result is.

    A step is (kind, number in `matrices` or `affine`, width in, width out); ``affine[n]`` are scale, shift
    and slope.
    """
    for step in range(first, stop):
        kind, number, depth, width = steps[step, 0], steps[step, 1], steps[step, 2], steps[step, 3]
        if kind == MATRIX:
            for c in range(width):
                rows[spare, c] = 0.0
                rows[spare + 1, c] = 0.0
            apply_matrix(matrices, number, depth, width, rows, source, spare)
            source, spare = spare, source
        else:
            slope = affine[number, 2, 0]
            for side in range(2):
                for c in range(width):
                    value = affine[number, 0, c] * rows[source + side, c] + affine[number, 1, c]
                    rows[source + side, c] = leaky(value, slope)
    return source


# Compiled factors ``a(d)`` and ``b(d)`` of :mod:`.algebra`, of one node.


@compiled(forceinline=True)
def receive(kind: int, degree: float) -> float:
    """``a(d)`` of the receiving node."""
    if kind == GCN:
        return 1.0 / np.sqrt(degree) if degree > 0.0 else 0.0
    if kind == MEAN:
        return 1.0 / max(degree, 1.0)
    return 1.0


@compiled(forceinline=True)
def send(kind: int, degree: float) -> float:
    """``b(d)`` of the sending node."""
    return receive(GCN, degree) if kind == GCN else 1.0


# A hint to the processor, from compiled code: fetch a row into the cache before it is needed.


@intrinsic
def prefetch(_typing: Any, array: Any, index: Any) -> Any:
    """Fetch the cache line of ``array.flat[index]`` of a contiguous array; nothing is read or changed.

    Pairs ask for rows in an order that the processor cannot guess, and the work on one pair is too long for
    it to look ahead to the next.
    """
    if not (isinstance(array, types.Array) and array.layout == "C" and isinstance(index, types.Integer)):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        struct = context.make_array(kind)(context, builder, arguments[0])
        place = builder.gep(struct.data, [arguments[1]])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), "llvm.prefetch.p0"
        )
        # For reading, to all levels of the data cache.
        builder.call(function, [builder.bitcast(place, byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.none(array, index), generate


# Compiled preparation of a block of pairs, and of rows that list neighbours in both directions.


# Bits of a digit when keys are sorted by counting.
_DIGIT = 11
_MASK = (1 << _DIGIT) - 1

#: Cost of a pair beside that of one step along its shorter row.
_PAIR_COST = 40

#: How many pairs ahead what is known of their nodes is asked for.
_AHEAD = 16


@compiled()
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


@compiled()
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


@compiled()
def _equal_parts(steps: Array, order: Array, parts: int) -> Array:
    total = np.empty(order.size + 1, np.int64)
    total[0] = 0
    for item in range(order.size):
        total[item + 1] = total[item] + _PAIR_COST + steps[order[item]]
    cuts = np.empty(parts + 1, np.int64)
    for part in range(parts + 1):
        cuts[part] = np.searchsorted(total, total[-1] * part // parts)
    return cuts


@compiled()
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


@compiled()
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


# What later pairs and base sums read, asked for ahead of them (:mod:`.prefetch`).
#
# A place is asked for in steps, each one item after the one that it needs: where a row starts, the row, what
# its nodes hold.


#: How many pairs before a pair its rows and, before those, its nodes' records are asked for.
ROWS_AHEAD, RECORDS_AHEAD = 2, 4

#: Neighbours of the next node that are asked for: more would push each other out before they are read.
MOST_AHEAD = 32

#: Entries of a list of neighbours that are asked for.
MOST_LISTED = 128


@compiled(forceinline=True)
def fetch_row(values: Array, row: int) -> None:
    """Ask for a row of a matrix."""
    for c in range(0, values.shape[1], CACHE_LINE // values.itemsize):
        prefetch(values, np.int64(row) * values.shape[1] + c)


@compiled(forceinline=True)
def _fetch_record(record: Array, t: int, row: int) -> None:
    for c in range(0, record.shape[2], CACHE_LINE // record.itemsize):
        prefetch(record, (np.int64(t) * record.shape[1] + row) * record.shape[2] + c)


@compiled(forceinline=True)
def _fetch_list(t: int, facts: Array, nodes: Array) -> None:
    """Ask for the neighbours of a node; of a long list for its start, the processor guesses the rest."""
    start, stop = facts[t].start, facts[t].start + facts[t].length
    for position in range(start, min(stop, start + MOST_LISTED), CACHE_LINE // nodes.itemsize):
        prefetch(nodes, position)
    # Lists start anywhere in a line, so that the last neighbour may lie in one more.
    prefetch(nodes, min(stop, start + MOST_LISTED) - 1)


@compiled(forceinline=True)
def look_ahead_to_base(
    item: int, chosen: Array, index: int, facts: Array, nodes: Array, send: Array, seen: Array, record: Array,
) -> None:  # fmt: skip
    """Ask for what later base sums read: what neighbours hold one node ahead, the rows before that."""
    if item + 3 < chosen.size:
        t = np.int64(chosen[item + 3])
        prefetch(facts, t)
        _fetch_record(record, t, MESSAGE)
        _fetch_record(record, t, BASE + index)
    if item + 2 < chosen.size:
        _fetch_list(chosen[item + 2], facts, nodes)
    if item + 1 < chosen.size:
        t = chosen[item + 1]
        for position in range(facts[t].start, facts[t].start + min(facts[t].length, MOST_AHEAD)):
            w = np.int64(nodes[position])
            prefetch(send, w)
            fetch_row(seen, w)


@compiled(forceinline=True)
def _fetch(t: int, unread: int, facts: Array, record: Array) -> None:
    """Ask for what a pair reads of its node t: all rows of its record but one."""
    prefetch(facts, t)
    for row in range(record.shape[1]):
        if row != unread:
            _fetch_record(record, t, row)


@compiled(forceinline=True)
def look_ahead(item: int, kernel: Kernel, pairs: Pairs) -> None:
    """Ask for what later pairs read: their nodes' records first, then the rows that are walked."""
    (kind, depth, weighted, facts, nodes, _, _, _, seen, _,
     record, _, _, _, _, _, _, _, _, _, _) = kernel  # fmt: skip
    order, ends, _, _, insert, _, _ = pairs
    near, far = item + ROWS_AHEAD, item + RECORDS_AHEAD
    if near < ends.shape[1]:
        _fetch_list(ends[1, near], facts, nodes)
        if ends[0, near] != ends[0, near - 1]:
            _fetch_list(ends[0, near], facts, nodes)
    if far < ends.shape[1]:
        inserted = insert[order[far]]
        # Of the two base sums an edge reads the first one, any other pair the second one.
        unread = BASE + 1 - int(inserted) if kind == GCN and not weighted else -1
        long, short = np.int64(ends[0, far]), np.int64(ends[1, far])
        _fetch(short, unread, facts, record)
        if long != ends[0, far - 1]:
            _fetch(long, unread, facts, record)
        if depth == 2 and (weighted or not inserted):
            fetch_row(seen, short)
            fetch_row(seen, long)
