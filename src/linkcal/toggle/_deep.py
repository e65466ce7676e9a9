"""The compiled kernel for encoders of any depth: what a toggle moves, row by row around each pair.

A toggle of (u, v) moves layer l = 0, 1, ... of L at nodes within ``l + 1`` steps of u and v (gcn, whose
degrees move what u and v send; ``l`` steps else), and the output sees nodes within ``L - 1 - l`` steps. Layer
l thus recomputes the nodes within the smaller of the two, which a search lists by distance:

    aggregate'_i = aggregate_i + sum_{j moved, j -> i} q_ji (b'_j m'_j - b_j m_j) + (the toggled arcs' terms)

Directed graphs are searched along both directions: more nodes than can move, whose change is 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads, useful_threads
from linkcal.data.graph import place_in_row
from linkcal.toggle._delta import arcs_per_node, blown_up
from linkcal.toggle._graph import ToggleGraph, search_around
from linkcal.toggle._kernel import AGGREGATE, DEGREE, MESSAGE, NOW, WAS, CompiledToggle
from linkcal.toggle._layers import (
    FAST,
    GCN,
    KINDS,
    Layer,
    LayerCache,
    PackedSteps,
    PairWeights,
    apply_matrix,
    apply_steps,
    as_array,
    forward_with_cache,
    receive,
    send,
)
from linkcal.toggle._recognise import Encoder

Array = Any  # NumPy arrays; those of floats have one dtype, for which Numba compiles the code

#: Columns of a layer's numbers: kind; matrices of m and r (-1: no root); steps; widths in, pre and out.
KIND, MATRIX_M, MATRIX_R, FIRST_STEP, STOP_STEP, WIDTH_IN, WIDTH_PRE, WIDTH_OUT = range(8)
#: What is held of listed nodes after two hidden rows: what is sent after the toggle, and its change.
AFTER, CHANGED = 2, 3
#: Part of a node's record in a layer after m and aggregate.
ROOT = 2
# Rows of a thread's workspace, in twos.
_SOURCE, _SPARE, _ROOT, _NUM_ROWS = 0, 2, 4, 6
# A step of a bisection, in steps of a walk.
_BISECTION = 2
# Listed nodes that there is room for at first.
_FIRST_SIZE = 64
# Cost of a pair beside that of its arcs, for equal shares of the threads.
_PAIR_COST = 40


class DeepKernel(NamedTuple):
    """Arrays of one model on one graph; N nodes, E arcs, L layers, W channels of the widest row."""

    indptr: Array  # int64 [N + 1]: rows of in-neighbours
    senders: Array  # int32 [E]
    starts: Array  # int64 [N + 1]: rows of neighbours in any direction
    neighbours: Array  # int32 [A]
    weight: Array  # float [L, E]; [L, 0] where every arc has weight 1
    degree: Array  # float64 [L, N]
    loop: Array  # float [L, N]: the self-loop's weight
    record: Array  # float [L, N, S, W]: m, aggregate and, in encoders with one, root
    numbers: Array  # int64 [L, 8]
    radius: Array  # int64 [L]: how far the rows of each layer are from the endpoints
    steps: Array  # int64 [n, 4], see apply_steps
    matrices: Array  # float [M, W, W]
    affine: Array  # float [n', 3, W]


@compiled(fastmath=FAST)
def _send_anew(
    layer: int, pair: int, moved: int, ball: Array, numbers: Array, weights: Array, degree: Array,
    record: Array, matrices: Array, held: Array, hidden: int, rows: Array,
) -> None:  # fmt: skip
    """What the first `moved` listed nodes send after the toggle, ``b' m'``, and its change, into `held`."""
    kind, depth, width = numbers[layer, KIND], numbers[layer, WIDTH_IN], numbers[layer, WIDTH_PRE]
    matrix, number = numbers[layer, MATRIX_M], record.dtype.type
    for i in range(0, moved, 2):
        both = min(2, moved - i)
        if layer > 0:
            for c in range(depth):
                rows[_SOURCE, c] = held[hidden, i, c]
                rows[_SOURCE + 1, c] = held[hidden, i + both - 1, c]
            for c in range(width):
                rows[_SPARE, c] = 0.0
                rows[_SPARE + 1, c] = 0.0
            apply_matrix(matrices, matrix, depth, width, rows, _SOURCE, _SPARE)
        for k in range(both):
            place, node, row = i + k, ball[i + k], _SPARE + k
            if layer == 0:
                for c in range(width):
                    rows[row, c] = record[0, node, MESSAGE, c]
            was = number(send(kind, degree[layer, node]))
            now = number(send(kind, weights[pair, layer, place, DEGREE])) if place < 2 else was
            for c in range(width):
                held[AFTER, place, c] = now * rows[row, c]
                held[CHANGED, place, c] = now * rows[row, c] - was * record[layer, node, MESSAGE, c]


@compiled(fastmath=FAST)
def _add_changes(
    layer: int, node: int, moved: int, ball: Array, slot: Array, indptr: Array, senders: Array,
    weight: Array, width: int, held: Array, rows: Array, row: int,
) -> None:  # fmt: skip
    """Add ``q change`` over the arcs from the first `moved` listed nodes to `node`."""
    start, stop = indptr[node], indptr[node + 1]
    weighted, one = weight.shape[1] > 0, held.dtype.type(1.0)
    bisections = 1
    while (1 << bisections) <= stop - start:
        bisections += 1
    if moved * bisections * _BISECTION < stop - start:
        for j in range(moved):
            position = place_in_row(senders, start, stop, ball[j])
            if position >= 0:
                factor = weight[layer, position] if weighted else one
                for c in range(width):
                    rows[row, c] += factor * held[CHANGED, j, c]
        return
    for position in range(start, stop):
        j = slot[senders[position]]
        if 0 <= j < moved:
            factor = weight[layer, position] if weighted else one
            for c in range(width):
                rows[row, c] += factor * held[CHANGED, j, c]


@compiled(fastmath=FAST)
def _pre_activation(
    layer: int, pair: int, place: int, moved: int, ball: Array, slot: Array, kernel: DeepKernel,
    weights: Array, held: Array, rows: Array, row: int,
) -> None:  # fmt: skip
    """``pre'`` of one listed node, without its root, into a row."""
    (indptr, senders, _, _, weight, degree, loop, record, numbers, _, _, _, _) = kernel
    kind, width, number = numbers[layer, KIND], numbers[layer, WIDTH_PRE], record.dtype.type
    node = ball[place]
    for c in range(width):
        rows[row, c] = record[layer, node, AGGREGATE, c]
    if layer > 0 or kind == GCN:
        _add_changes(layer, node, moved, ball, slot, indptr, senders, weight, width, held, rows, row)
    now = degree[layer, node]
    if place < 2:
        now = weights[pair, layer, place, DEGREE]
        toggled = number(weights[pair, layer, place, NOW] - weights[pair, layer, place, WAS])
        for c in range(width):
            rows[row, c] += toggled * held[AFTER, 1 - place, c]
    a, looped = number(receive(kind, now)), loop[layer, node]
    if place < moved:
        for c in range(width):
            rows[row, c] = a * (rows[row, c] + looped * held[AFTER, place, c])
    else:
        looped *= number(send(kind, degree[layer, node]))
        for c in range(width):
            rows[row, c] = a * (rows[row, c] + looped * record[layer, node, MESSAGE, c])


@compiled(fastmath=FAST)
def _roots(
    layer: int, first: int, both: int, moved: int, ball: Array, record: Array, numbers: Array,
    matrices: Array, held: Array, hidden: int, rows: Array,
) -> None:  # fmt: skip
    """``r'`` of one or two listed nodes into the workspace."""
    depth, width = numbers[layer, WIDTH_IN], numbers[layer, WIDTH_PRE]
    if layer > 0 and first < moved:
        for k in range(2):
            place = min(first + k, moved - 1)
            for c in range(depth):
                rows[_SOURCE + k, c] = held[hidden, place, c]
            for c in range(width):
                rows[_ROOT + k, c] = 0.0
        apply_matrix(matrices, numbers[layer, MATRIX_R], depth, width, rows, _SOURCE, _ROOT)
    for k in range(both):
        if layer == 0 or first + k >= moved:
            for c in range(width):
                rows[_ROOT + k, c] = record[layer, ball[first + k], ROOT, c]


@compiled(fastmath=FAST)
def _layer(
    layer: int, pair: int, count: int, moved: int, ball: Array, slot: Array, kernel: DeepKernel,
    weights: Array, held: Array, hidden: int, rows: Array,
) -> None:  # fmt: skip
    """Output of one layer at the first `count` listed nodes, beside the hidden values that it reads."""
    (_, _, _, _, _, degree, _, record, numbers, _, steps, matrices, affine) = kernel
    first, stop, rooted = numbers[layer, FIRST_STEP], numbers[layer, STOP_STEP], numbers[layer, MATRIX_R] >= 0
    width, last = numbers[layer, WIDTH_PRE], numbers[layer, WIDTH_OUT]
    _send_anew(layer, pair, moved, ball, numbers, weights, degree, record, matrices, held, hidden, rows)
    for i in range(0, count, 2):
        both = min(2, count - i)
        if rooted:
            _roots(layer, i, both, moved, ball, record, numbers, matrices, held, hidden, rows)
        for k in range(both):
            row = _SOURCE + k
            _pre_activation(layer, pair, i + k, moved, ball, slot, kernel, weights, held, rows, row)
            if rooted:
                for c in range(width):
                    rows[row, c] += rows[_ROOT + k, c]
        at = apply_steps(steps, first, stop, matrices, affine, rows, _SOURCE, _SPARE)
        for k in range(both):
            for c in range(last):
                held[1 - hidden, i + k, c] = rows[at + k, c]


@compiled(fastmath=FAST)
def _work(thread: int, slots: Array, kernel: DeepKernel, pairs: tuple[Array, ...], out: Array) -> None:
    """The pairs of one thread; see :func:`toggle_deep`."""
    (_, _, starts, neighbours, _, _, _, record, numbers, radius, _, matrices, _) = kernel
    nodes, order, cuts, weights = pairs
    depth, widest, slot = numbers.shape[0], matrices.shape[1], slots[thread]
    rows = np.zeros((_NUM_ROWS, widest), record.dtype)
    ball, upto = np.empty(slot.size, np.int32), np.empty(radius.max() + 1, np.int64)
    held = np.empty((4, _FIRST_SIZE, widest), record.dtype)
    for item in range(cuts[thread], cuts[thread + 1]):
        pair = order[item]
        search_around(nodes[0, pair], nodes[1, pair], starts, neighbours, slot, ball, upto)
        if upto[-1] > held.shape[1]:
            held = np.empty((4, min(2 * upto[-1], slot.size), widest), record.dtype)
        moved, hidden = 2, 0
        for layer in range(depth):
            count = upto[radius[layer]]
            _layer(layer, pair, count, moved, ball, slot, kernel, weights, held, hidden, rows)
            moved, hidden = count, 1 - hidden
        for side in range(2):
            for c in range(out.shape[2]):
                out[side, pair, c] = held[hidden, side, c]
        for place in range(upto[-1]):
            slot[ball[place]] = -1


@compiled(parallel=True, fastmath=FAST)
def toggle_deep(kernel: DeepKernel, pairs: tuple[Array, ...], slots: Array, out: Array) -> None:
    """Outputs [2, P, d] of the last layer after each toggle; `slots` int32 [T, N] is workspace, all -1.

    `pairs` are their nodes int64 [2, P], the order of work [P], the bounds [T + 1] of each thread's share of
    it, and weights float64 [P, L, 2, 3], see PairWeights.
    """
    for thread in prange(slots.shape[0]):
        _work(thread, slots, kernel, pairs, out)


class DeepToggle:
    """Layers on one graph, and their toggles by the kernel; `insert_weight` is that of inserted edges."""

    def __init__(self, caches: Sequence[LayerCache], graph: ToggleGraph, insert_weight: float = 1.0) -> None:
        self.cost = arcs_per_node(graph, len(caches))
        self.kernel = self._kernel(caches, graph)
        self.weights = PairWeights(caches, graph, insert_weight)
        self.slots = np.full((max(1, torch.get_num_threads()), graph.num_nodes), -1, dtype=np.int32)

    @staticmethod
    def _kernel(caches: Sequence[LayerCache], graph: ToggleGraph) -> DeepKernel:
        packed = PackedSteps()
        numbers: list[tuple[int, ...]] = []
        for index, cache in enumerate(caches):
            layer, first = cache.layer, len(packed.table)
            assert layer.steps is not None
            # In the first layer neither messages nor roots change: its matrices are not read.
            message, root = 0, -1 if cache.root is None else 0
            if index:
                assert layer.weight is not None
                message = packed.matrix(layer.weight)
                root = -1 if layer.root_weight is None else packed.matrix(layer.root_weight)
            stop = packed.steps(layer.steps)
            width = numbers[-1][-1] if numbers else 0
            out = layer.updated(cache.pre[:0]).size(1)
            numbers.append((KINDS[layer.kind], message, root, first, stop, width, cache.pre.size(1), out))
        depth, widths = len(caches), [size for row in numbers for size in row[-3:]]
        widest, steps, matrices, affine = packed.packed(widths, caches[0].pre.dtype)
        indptr, senders = graph.indptr.numpy(), graph.senders.numpy().astype(np.int32)
        starts, neighbours = (indptr, senders) if graph.undirected else graph.both_directions()[:2]
        sends = int(caches[0].layer.kind == "gcn")
        given = [cache.arc_weight for cache in caches]
        weight = caches[0].pre.new_empty(depth, 0)
        if some := [each for each in given if each is not None]:
            weight = torch.stack([torch.ones_like(some[0]) if each is None else each for each in given])
        return DeepKernel(
            indptr, senders, starts, neighbours, weight=as_array(weight),
            degree=as_array(torch.stack([cache.degree for cache in caches])),
            loop=as_array(torch.stack([cache.loop for cache in caches])),
            record=_record(caches, graph.num_nodes, widest), numbers=np.array(numbers, dtype=np.int64),
            radius=np.minimum(np.arange(depth)[::-1], np.arange(depth) + sends), steps=steps,
            matrices=matrices, affine=affine,
        )  # fmt: skip

    def endpoints(self, pairs: Tensor, insert: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer's output after the toggle at the first and at the second nodes, [L, d] each."""
        threads = useful_threads(self.slots.shape[0], pairs.size(1))
        # Pairs with a common first node read the same rows: one after the other, out of the cache.
        order = torch.argsort(pairs[0], stable=True)
        cost = _PAIR_COST + self.cost[pairs].sum(dim=0)[order]
        total = torch.cat([cost.new_zeros(1), torch.cumsum(cost, 0)])
        cuts = torch.searchsorted(total, total[-1] * torch.arange(threads + 1) // threads)
        weights = self.weights.of(pairs, insert)[0]
        block = tuple(as_array(part) for part in (pairs, order, cuts, weights))
        out = np.empty((2, pairs.size(1), int(self.kernel.numbers[-1, WIDTH_OUT])), self.kernel.record.dtype)
        with numba_threads(threads):
            toggle_deep(self.kernel, block, self.slots[:threads], out)
        return torch.from_numpy(out[0]), torch.from_numpy(out[1])


def _record(caches: Sequence[LayerCache], num_nodes: int, widest: int) -> Array:
    rooted = any(cache.root is not None for cache in caches)
    record = caches[0].pre.new_empty(len(caches), num_nodes, 3 if rooted else 2, widest)
    for place, cache in zip(record, caches, strict=True):
        for part, values in enumerate((cache.message, cache.aggregate, cache.root)):
            if values is not None:
                place[:, part, : values.size(1)] = values
    return as_array(record)


def compiled_toggle(layers: Sequence[Layer]) -> type[CompiledToggle] | type[DeepToggle] | None:
    """The compiled kernel that is exact for these layers, the faster one first; None if there is none."""
    if any(layer.steps is None for layer in layers):
        return None
    return CompiledToggle if CompiledToggle.applies(layers) else DeepToggle


class SummedToggle:
    """An encoder's toggles by kernels for chains: of the values that its output reads, as sums of chains."""

    def __init__(self, encoder: Encoder, graph: ToggleGraph, insert_weight: float = 1.0) -> None:
        self.output, self.toggles = encoder.output, []
        self.before: list[Tensor] = []
        assert encoder.sums is not None
        for chains in encoder.sums:
            kernels, before = [], []
            for chain in chains:
                kernel = compiled_toggle(chain.layers)
                assert kernel is not None
                h, caches = forward_with_cache(chain.layers, graph, chain.features)
                kernels.append(kernel(caches, graph, insert_weight))
                before.append(h)
            self.toggles.append(kernels)
            self.before.append(torch.stack(before).sum(dim=0))

    @staticmethod
    def applies(encoder: Encoder) -> bool:
        """Whether there is a kernel for each chain."""
        return encoder.sums is not None and all(
            compiled_toggle(chain.layers) is not None for chains in encoder.sums for chain in chains
        )

    def endpoints(self, pairs: Tensor, insert: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings after the toggle of the first and of the second nodes, [L, d] each.

        NaN where rounding decides (see `blown_up`).
        """
        values: tuple[list[Tensor], list[Tensor]] = ([], [])
        for kernels in self.toggles:
            parts = [kernel.endpoints(pairs, insert) for kernel in kernels]
            for side in (0, 1):
                total = parts[0][side]
                for part in parts[1:]:
                    total = total + part[side]
                values[side].append(total)
        found = []
        for given, node in zip(values, pairs, strict=True):
            out = self.output(given, node)
            out[blown_up(self.output, given, [each[node] for each in self.before], node, out)] = torch.nan
            found.append(out)
        return found[0], found[1]
