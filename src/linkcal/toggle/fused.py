"""The compiled two-layer GCN kernel behind the common interface: when it applies, and its arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._threads import numba_threads
from linkcal.toggle.algebra import Layer, receiver_factor
from linkcal.toggle.cache import LayerCache
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.kernel import AGGREGATE, Z, base_sums, toggled_messages

__all__ = ["FusedGCN", "fused_applies"]


def fused_applies(layers: Sequence[Layer], graph: ToggleGraph, features: Tensor) -> bool:
    """Whether the kernel is exact: two GCN layers, elementwise activation, simple undirected graph, CPU."""
    if len(layers) != 2 or any(
        layer.kind != "gcn" or layer.root is not None or layer.arc_factor is not None for layer in layers
    ):
        return False
    first, second = layers
    return (
        first.elementwise is not None
        and second.message_weight is not None
        and first.self_loop_fill == second.self_loop_fill
        and graph.undirected
        and graph.multiplicity is None
        and features.device.type == "cpu"
        and features.dtype in (torch.float32, torch.float64)
    )


class FusedGCN:
    """Two GCN layers of one graph in the kernel's notation (:mod:`.kernel`).

    Parameters
    ----------
    caches : sequence of two LayerCache
    graph : ToggleGraph
    """

    def __init__(self, caches: Sequence[LayerCache], graph: ToggleGraph) -> None:
        first, second = caches
        elementwise, weight = first.layer.elementwise, second.layer.message_weight
        assert elementwise is not None
        assert weight is not None
        self.update = second.layer.update
        self.indptr = graph.indptr.numpy()
        self.row_length = np.diff(self.indptr)
        self.senders = graph.senders.to(torch.int32).numpy()
        self.loop = _array(first.self_loop)
        r = receiver_factor("gcn", first.degree)
        self.r = _array(r)
        self.e = _array(
            torch.stack([receiver_factor("gcn", first.degree + change) - r for change in (-1, 1)])
        )
        self.p = _array(first.pre * elementwise.scale + elementwise.shift)
        self.record = np.empty((graph.num_nodes, 4, self.p.shape[1]), self.p.dtype)
        self.record[:, Z] = (first.message * elementwise.scale).numpy()
        self.record[:, AGGREGATE] = (first.aggregate * elementwise.scale).numpy()
        self.shift = _array(elementwise.shift)
        self.slope = self.record.dtype.type(elementwise.slope)
        self.weight = _array(weight.T)
        self.has_base = np.zeros((2, graph.num_nodes), dtype=np.bool_)
        self.marks = np.full((max(1, torch.get_num_threads()), graph.num_nodes), -1, dtype=np.int32)

    def endpoints(self, pairs: Tensor, insert: Tensor) -> tuple[Tensor, Tensor]:
        """Node embeddings [L, d] of both endpoints of each pair after its edge is toggled."""
        u, v = (row.to(torch.int32).numpy() for row in pairs)
        inserted = insert.numpy()
        out = np.empty((2, u.size, self.weight.shape[1]), self.record.dtype)
        with numba_threads(self.marks.shape[0]):
            self._need_bases(u, v, inserted)
            swapped = self.row_length[v] > self.row_length[u]
            long_of, short_of = np.where(swapped, v, u), np.where(swapped, u, v)
            order = np.argsort(long_of, kind="stable")
            starts = np.flatnonzero(np.diff(long_of[order], prepend=-1))
            toggled_messages(
                order, np.append(starts, order.size), long_of, short_of, swapped, inserted, self.marks,
                self.indptr, self.senders, self.r, self.e, self.loop, self.p, self.record, self.shift,
                self.slope, self.weight, out,
            )  # fmt: skip
        source, target = torch.from_numpy(out)
        return self.update(source), self.update(target)

    def _need_bases(self, u: NDArray[np.int32], v: NDArray[np.int32], inserted: NDArray[np.bool_]) -> None:
        """Compute the base sums of nodes that no earlier block asked for."""
        for sign in (0, 1):
            chosen = inserted == bool(sign)
            asked = np.zeros(self.row_length.size, dtype=np.bool_)
            asked[u[chosen]] = True
            asked[v[chosen]] = True
            nodes = np.flatnonzero(asked & ~self.has_base[sign])
            if nodes.size:
                base_sums(
                    self.indptr,
                    self.senders,
                    self.r,
                    self.e[sign],
                    self.slope,
                    nodes,
                    sign,
                    self.p,
                    self.record,
                )
                self.has_base[sign] |= asked


def _array(values: Tensor) -> NDArray[np.floating]:
    return values.detach().contiguous().numpy()
