"""The compiled kernel behind the common interface: when it applies, and its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._threads import numba_threads
from linkcal.toggle.algebra import Elementwise, Layer, Step, sender_factor
from linkcal.toggle.cache import LayerCache
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.kernel import base_sums, toggle_pairs
from linkcal.toggle.kernel_arrays import (
    AGGREGATE,
    BASE,
    GCN,
    MARKS,
    MEAN,
    MESSAGE,
    SUM,
    Kernel,
    Pairs,
    facts_type,
)
from linkcal.toggle.memory import at_hand, empty_array
from linkcal.toggle.packing import PackedSteps, after_shift, as_array
from linkcal.toggle.pair_rows import arc_change
from linkcal.toggle.plan_kernel import both_directions, sort_pairs, without_base

__all__ = ["CompiledToggle", "kernel_applies"]

_KINDS = {"gcn": GCN, "mean": MEAN, "sum": SUM}
Array = NDArray[Any]


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
