"""The compiled kernel for encoders of any depth behind the common interface: when it applies, its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._threads import numba_threads
from linkcal.toggle.algebra import Layer
from linkcal.toggle.cache import LayerCache
from linkcal.toggle.deep_kernel import DeepKernel, DeepPairs, toggle_deep
from linkcal.toggle.fused import CompiledToggle, kernel_applies
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.kernel_arrays import GCN, MEAN, SUM
from linkcal.toggle.packing import PackedSteps, as_array
from linkcal.toggle.pair_rows import arc_change, arcs_per_node
from linkcal.toggle.plan_kernel import both_directions

__all__ = ["CompiledToggle", "DeepToggle", "compiled_toggle", "deep_kernel_applies"]

_KINDS = {"gcn": GCN, "mean": MEAN, "sum": SUM}
# Cost of a pair beside that of its arcs, for equal shares of the threads.
_PAIR_COST = 40
Array = NDArray[Any]


def deep_kernel_applies(layers: Sequence[Layer], features: Tensor) -> bool:
    """Whether the kernel is exact: all updates given step by step, later messages and roots linear, CPU."""
    return (
        all(layer.steps is not None for layer in layers)
        and all(layer.message_weight is not None for layer in layers[1:])
        and all(layer.root is None or layer.root_weight is not None for layer in layers[1:])
        and features.device.type == "cpu"
        and features.dtype in (torch.float32, torch.float64)
    )


def compiled_toggle(
    layers: Sequence[Layer], features: Tensor
) -> type[CompiledToggle] | type[DeepToggle] | None:
    """The compiled kernel that is exact for these layers, the faster one first; None if there is none."""
    if kernel_applies(layers, features):
        return CompiledToggle
    return DeepToggle if deep_kernel_applies(layers, features) else None


class DeepToggle:
    """Layers on one graph in the kernel's notation (:mod:`.deep_kernel`).

    Parameters
    ----------
    caches : sequence of LayerCache
    graph : ToggleGraph
    insert_weight : float
        Weight of inserted edges.
    """

    def __init__(self, caches: Sequence[LayerCache], graph: ToggleGraph, insert_weight: float = 1.0) -> None:
        self.caches, self.graph, self.insert_weight = list(caches), graph, insert_weight
        # Only lengths of rows are read of the graph's transpose.
        receivers = graph if graph.undirected else graph.transposed()
        self.cost = arcs_per_node(graph, receivers, len(self.caches))
        self.kernel = self._kernel()
        # The large arrays are in the kernel's record by now.
        self.caches = [cache.slim() for cache in caches]
        self.slots = np.full((max(1, torch.get_num_threads()), graph.num_nodes), -1, dtype=np.int32)

    def _kernel(self) -> DeepKernel:
        caches, graph = self.caches, self.graph
        packed = PackedSteps()
        numbers: list[tuple[int, ...]] = []
        for index, cache in enumerate(caches):
            layer, first = cache.layer, len(packed.table)
            assert layer.steps is not None
            message = root = -1
            if index:
                assert layer.message_weight is not None
                message = packed.matrix(layer.message_weight)
            if layer.root is not None:
                # The first layer's roots do not move: its matrix is never read.
                root = packed.matrix(layer.root_weight) if layer.root_weight is not None and index else 0
            stop = packed.steps(layer.steps)
            width = numbers[-1][-1] if numbers else 0
            out = layer.update(cache.pre[:0]).size(1)
            numbers.append((_KINDS[layer.kind], message, root, first, stop, width, cache.pre.size(1), out))
        dtype = caches[0].pre.dtype
        widths = [size for row in numbers for size in row[-3:]]
        widest = max(*widths, *(size for matrix in packed.matrices for size in matrix.shape), 1)
        indptr, senders = graph.indptr.numpy(), graph.senders.numpy()
        starts, neighbours = indptr, senders.astype(np.int32)
        if not graph.undirected:
            starts, neighbours = both_directions(indptr, senders)[:2]
        return DeepKernel(
            indptr,
            senders.astype(np.int32),
            starts,
            neighbours,
            weight=self._arc_weights(dtype),
            degree=as_array(torch.stack([cache.degree for cache in caches])),
            loop=as_array(torch.stack([cache.looped() for cache in caches])),
            record=self._record(widest),
            numbers=np.array(numbers, dtype=np.int64),
            radius=self._radius(),
            steps=np.array(packed.table, dtype=np.int64).reshape(-1, 4),
            matrices=packed.padded_matrices(widest, dtype),
            affine=packed.padded_affine(widest, dtype),
        )

    def _radius(self) -> Array:
        """How far from the endpoints each layer can move and be seen."""
        depth, sends = len(self.caches), int(self.caches[0].layer.kind == "gcn")
        return np.array([min(depth - 1 - index, index + sends) for index in range(depth)], dtype=np.int64)

    def _arc_weights(self, dtype: torch.dtype) -> Array:
        given, factors = self.graph.arc_weights(), [cache.arc_factor for cache in self.caches]
        if given is None and all(factor is None for factor in factors):
            return as_array(torch.empty(len(factors), 0, dtype=dtype))
        one = torch.ones(self.graph.senders.numel()) if given is None else given
        weights = [one.to(dtype) if factor is None else one.to(dtype) * factor for factor in factors]
        return as_array(torch.stack(weights))

    def _record(self, widest: int) -> Array:
        rooted = any(cache.root is not None for cache in self.caches)
        size = (len(self.caches), self.graph.num_nodes, 3 if rooted else 2, widest)
        record = np.empty(size, self.caches[0].pre.numpy().dtype)
        for place, cache in zip(torch.from_numpy(record), self.caches, strict=True):
            for part, values in enumerate((cache.message, cache.aggregate, cache.root)):
                if values is not None:
                    place[:, part, : values.size(1)] = values
        return record

    def endpoints(self, pairs: Tensor, insert: Tensor, out: Tensor) -> None:
        """Write the last layer's output after the toggle to `out` [2 L, d]: first nodes, then second ones."""
        threads = self.slots.shape[0]
        # Pairs with a common first node read the same rows: one after the other they find them at hand.
        order = torch.argsort(pairs[0], stable=True)
        cost = _PAIR_COST + self.cost[pairs].sum(dim=0)[order]
        total = torch.cat([cost.new_zeros(1), torch.cumsum(cost, 0)])
        shares = total[-1] * torch.arange(threads + 1) // threads
        block = DeepPairs(
            as_array(pairs),
            as_array(order),
            as_array(torch.searchsorted(total, shares)),
            self._pair_weights(pairs, insert),
        )
        with numba_threads(threads):
            toggle_deep(self.kernel, block, self.slots, out.view(2, -1, out.size(1)).numpy())

    def _pair_weights(self, pairs: Tensor, insert: Tensor) -> Array:
        """Change of the arc into either node and that node's degree after, by layer: [P, L, 2, 2]."""
        weights = np.zeros((pairs.size(1), len(self.caches), 2, 2))
        for side in (0, 1):
            source, target = pairs[1 - side], pairs[side]
            toggled = side == 1 or self.graph.undirected
            change, count = arc_change(self.graph, source, target, insert, self.insert_weight)
            alone = ~insert & (self.graph.indptr[target + 1] - self.graph.indptr[target] == 1)
            for index, cache in enumerate(self.caches):
                degree = cache.degree[target]
                if toggled and cache.layer.kind == "mean":
                    degree = degree + count
                elif toggled:
                    # What is left when a node's only arc goes is its self-loop, without rounding.
                    degree = torch.where(alone, cache.self_loop[target].double(), degree + change)
                factor = cache.factor_between(source, target)
                moved = change if factor is None else change * factor
                weights[:, index, side, 0] = moved.detach().numpy() if toggled else 0.0
                weights[:, index, side, 1] = degree.numpy()
        return weights
