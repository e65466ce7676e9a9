"""The compiled two-layer GCN kernel behind the common interface: when it applies, and its arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal.toggle.algebra import Layer, receiver_factor
from linkcal.toggle.cache import LayerCache
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.kernel import base_sums, toggled_sums

__all__ = ["fused_applies", "fused_endpoints"]


def fused_applies(layers: Sequence[Layer], graph: ToggleGraph, features: Tensor) -> bool:
    """Whether the kernel is exact: two GCN layers, elementwise activation, simple undirected graph, CPU."""
    if len(layers) != 2 or any(layer.kind != "gcn" or layer.root is not None for layer in layers):
        return False
    first, second = layers
    return (
        first.elementwise is not None
        and second.message_is_linear
        and first.self_loop_fill == second.self_loop_fill
        and graph.undirected
        and graph.multiplicity is None
        and features.device.type == "cpu"
        and features.dtype in (torch.float32, torch.float64)
    )


def fused_endpoints(
    caches: Sequence[LayerCache], graph: ToggleGraph, pairs: Tensor, insert: Tensor
) -> tuple[Tensor, Tensor]:
    """Node embeddings of both endpoints of each pair after its edge is toggled; see :mod:`.kernel`.

    Parameters and return values as in :func:`linkcal.toggle.delta.delta_endpoints`.
    """
    first, second = caches
    sums = torch.empty(2, pairs.size(1), first.pre.size(1), dtype=first.pre.dtype)
    operands = _Operands(first, graph)
    with _numba_threads(torch.get_num_threads()):
        for inserted in (True, False):
            chosen = torch.nonzero(insert == inserted).flatten()
            if chosen.numel():
                sums[:, chosen] = operands.toggle(pairs[:, chosen], inserted=inserted)
    layer = second.layer
    return layer.update(layer.message(sums[0])), layer.update(layer.message(sums[1]))


class _Operands:
    """Arrays of one graph and first layer, in the kernel's notation."""

    def __init__(self, cache: LayerCache, graph: ToggleGraph) -> None:
        elementwise = cache.layer.elementwise
        assert elementwise is not None
        self.indptr = graph.indptr.numpy()
        self.senders = graph.senders.numpy()
        self.degree = cache.degree
        self.loop = cache.self_loop.numpy()
        self.r = receiver_factor("gcn", cache.degree)
        self.z = _contiguous(cache.message * elementwise.scale)
        self.p = _contiguous(cache.pre * elementwise.scale + elementwise.shift)
        self.aggregate = _contiguous(cache.aggregate * elementwise.scale)
        self.shift = _contiguous(elementwise.shift)
        self.slope = self.z.dtype.type(elementwise.slope)

    def toggle(self, pairs: Tensor, *, inserted: bool) -> Tensor:
        """Second-layer sums [2, L, k] of both endpoints."""
        e = _contiguous(receiver_factor("gcn", self.degree + (1 if inserted else -1)) - self.r)
        r = self.r.numpy()
        base = np.empty_like(self.z)
        used = torch.unique(pairs).numpy()
        base_sums(self.indptr, self.senders, r, e, self.z, self.p, self.slope, used, base)
        u, v = pairs[0].numpy(), pairs[1].numpy()
        row_length = np.diff(self.indptr)
        swap = row_length[v] > row_length[u]
        long_of, short_of = np.where(swap, v, u), np.where(swap, u, v)
        order = np.argsort(long_of, kind="stable")
        starts = np.flatnonzero(np.diff(long_of[order], prepend=-1))
        group = np.append(starts, order.size)
        out_long, out_short = (np.empty((u.size, self.z.shape[1]), self.z.dtype) for _ in range(2))
        toggled_sums(
            order, long_of, short_of, group, inserted, numba.get_num_threads(),
            self.indptr, self.senders, r, e, self.loop,
            self.z, self.p, self.aggregate, self.shift, base, self.slope, out_long, out_short,
        )  # fmt: skip
        swap_rows = torch.from_numpy(swap)[:, None]
        long, short = torch.from_numpy(out_long), torch.from_numpy(out_short)
        return torch.stack([torch.where(swap_rows, short, long), torch.where(swap_rows, long, short)])


def _contiguous(values: Tensor) -> NDArray[np.floating]:
    return values.detach().contiguous().numpy()


@contextmanager
def _numba_threads(count: int) -> Iterator[None]:
    """Use as many threads as torch does, and put Numba's own setting back."""
    before = numba.get_num_threads()
    numba.set_num_threads(max(1, min(count, numba.config.NUMBA_NUM_THREADS)))
    try:
        yield
    finally:
        numba.set_num_threads(before)
