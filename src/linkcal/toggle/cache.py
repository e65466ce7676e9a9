"""One forward pass of a recognised encoder that keeps what toggling needs of every layer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from linkcal._threads import numba_threads
from linkcal.models.peg import arc_distance
from linkcal.toggle.algebra import Layer, receiver_factor, sender_factor
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.graph_kernel import sum_rows
from linkcal.toggle.memory import empty_rows
from linkcal.toggle.packing import as_array

__all__ = ["LayerCache", "forward_with_cache", "sum_over_senders"]


@dataclass(frozen=True, eq=False)
class LayerCache:
    """Values of one layer on the graph as given (symbols as in :mod:`linkcal.toggle.algebra`).

    Parameters
    ----------
    layer : Layer
    degree : Tensor [N], float64
        ``d``: weights (for mean the number) of in-arcs plus the self-loop's. In float64, since a toggle takes
        a weight off again.
    self_loop : Tensor [N]
        ``q_ii``.
    message : Tensor [N, k]
        ``m(x_j)``.
    aggregate : Tensor [N, k]
        ``sum_{j in N(i)} q_ij b(d_j) m(x_j)``, without factor ``a`` and self-loop.
    root : Tensor [N, k] or None
        ``r(x_i)``.
    pre : Tensor [N, k]
        ``pre_i``.
    positions : Tensor [N, p] or None
        Z, where the layer has an ``arc_factor``.
    arc_factor : Tensor [E] or None
        ``xi`` of each arc, in the order of the graph's `senders`.
    loop_factor : Tensor [1] or None
        ``xi`` of every self-loop.
    """

    layer: Layer
    degree: Tensor
    self_loop: Tensor
    message: Tensor
    aggregate: Tensor
    root: Tensor | None
    pre: Tensor
    positions: Tensor | None = None
    arc_factor: Tensor | None = None
    loop_factor: Tensor | None = None

    def looped(self) -> Tensor:
        """Weight of every self-loop, ``q_ii xi_ii``, [N]."""
        return self.self_loop if self.loop_factor is None else self.self_loop * self.loop_factor

    def slim(self) -> LayerCache:
        """Copy without the large arrays, for a kernel that has packed them."""
        nothing = self.pre.new_empty(0, self.pre.size(1))
        return replace(self, message=nothing, aggregate=nothing, root=None, pre=nothing)

    def factor_between(self, source: Tensor, target: Tensor) -> Tensor | None:
        """``xi`` of arcs source -> target, [A], whether or not they are in the graph; None if all are 1."""
        if self.layer.arc_factor is None:
            return None
        assert self.positions is not None
        return self.layer.arc_factor(arc_distance(self.positions, torch.stack([source, target])))


def sum_over_senders(graph: ToggleGraph, values: Tensor, arc_factor: Tensor | None = None) -> Tensor:
    """``sum_{j in N(i)} q_ij xi_ij values_j`` for every node, [N, k]; without `arc_factor` xi is 1."""
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        return _sum_compiled(graph, values, arc_factor)
    weights = torch.ones(1, dtype=values.dtype, device=values.device).expand(graph.senders.numel())
    arc_weights = graph.arc_weights()
    if arc_weights is not None:
        weights = arc_weights.to(values.dtype)
    if arc_factor is not None:
        weights = weights * arc_factor
    with warnings.catch_warnings():
        # torch announces on first use that compressed tensors are in beta; only their product is used here.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
        adjacency = torch.sparse_csr_tensor(
            graph.indptr,
            graph.senders,
            weights.contiguous(),
            size=(graph.num_nodes, graph.num_nodes),
            check_invariants=False,
        )
    return adjacency @ values


def _sum_compiled(graph: ToggleGraph, values: Tensor, arc_factor: Tensor | None) -> Tensor:
    """The same by :func:`.graph_kernel.sum_rows`, which asks for the senders' values ahead."""
    weights = values.new_empty(0)
    arc_weights = graph.arc_weights()
    if arc_weights is not None:
        weights = arc_weights.to(values.dtype)
    if arc_factor is not None:
        weights = arc_factor if arc_weights is None else weights * arc_factor
    out = empty_rows(values.size(0), values.size(1), values)
    with numba_threads(torch.get_num_threads()):
        sum_rows(
            graph.indptr.numpy(), graph.senders.numpy(), as_array(weights), as_array(values), out.numpy()
        )
    return out


def forward_with_cache(
    layers: Sequence[Layer],
    graph: ToggleGraph,
    features: Tensor,
    positions: Tensor | None = None,
    sent: Mapping[nn.Module, Tensor] | None = None,
) -> tuple[Tensor, list[LayerCache]]:
    """Node embeddings z [N, d] and each layer's cache, in the dtype of `features`.

    `sent` may hold what modules passed as messages in the model's own forward pass, by the layers' `conv`: a
    layer's ``m(x)`` is then taken from there, not computed again.
    """
    caches = []
    h = features
    for layer in layers:
        message = None if sent is None or layer.conv is None else sent.get(layer.conv)
        if message is None:
            message = layer.message(h)
        root = None if layer.root is None else layer.root(h)
        h = features[:0]  # what is freed here is taken again at once
        cache = _layer_cache(layer, graph, message, root, positions)
        del message, root
        caches.append(cache)
        h = layer.update(cache.pre)
    return h, caches


def _layer_cache(
    layer: Layer, graph: ToggleGraph, message: Tensor, root: Tensor | None, positions: Tensor | None
) -> LayerCache:
    self_loop = _self_loop_weight(layer, graph, message.dtype)
    counted = layer.kind == "mean"
    degree = graph.in_degree(weighted=not counted).double()
    degree += (graph.self_loops if counted else self_loop).double()
    sent = message
    if layer.kind == "gcn":  # else the factor is 1
        sent = empty_rows(message.size(0), message.size(1), message)
        torch.mul(message, sender_factor(layer.kind, degree, message.dtype)[:, None], out=sent)
    arc_factor, loop_factor = _arc_factors(layer, graph, positions)
    aggregate = sum_over_senders(graph, sent, arc_factor)
    looped = self_loop if loop_factor is None else self_loop * loop_factor
    # In place, and where `sent` was: with many nodes a new matrix costs more than the operation.
    pre = sent if sent is not message else empty_rows(message.size(0), message.size(1), message)
    torch.mul(sent, looped[:, None], out=pre)
    pre += aggregate
    pre *= receiver_factor(layer.kind, degree, message.dtype)[:, None]
    if root is not None:
        pre += root
    return LayerCache(
        layer, degree, self_loop, message, aggregate, root, pre, positions, arc_factor, loop_factor
    )


def _arc_factors(
    layer: Layer, graph: ToggleGraph, positions: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """``xi`` of the graph's arcs [E] and of self-loops [1]; None where all are 1."""
    if layer.arc_factor is None:
        return None, None
    assert positions is not None
    distance = arc_distance(positions, torch.stack([graph.senders, graph.receivers]))
    return layer.arc_factor(distance), layer.arc_factor(distance.new_zeros(1))


def _self_loop_weight(layer: Layer, graph: ToggleGraph, dtype: torch.dtype) -> Tensor:
    """``q_ii`` [N]; with weights, GCNConv keeps that of a loop that is there."""
    loops = graph.self_loops.to(dtype)
    if layer.self_loop_fill is None:
        return loops if graph.loop_weight is None else graph.loop_weight[0].to(dtype)
    # PyG's add_remaining_self_loops: a loop that is there keeps weight 1, however often it is repeated.
    kept = torch.ones_like(loops) if graph.loop_weight is None else graph.loop_weight[1].to(dtype)
    return torch.where(loops > 0, kept, torch.full_like(loops, layer.self_loop_fill))
