"""The algebra of the layers that can be toggled locally, and one forward pass that keeps its values.

A layer computes, for every node i with in-neighbours N(i),

    pre_i = a(d_i) * (sum_{j in N(i)} q_ij xi_ij b(d_j) m(x_j) + q_ii xi_ii b(d_i) m(x_i)) + r(x_i)
    h_i   = f(pre_i)

with row-wise maps ``m`` (message), ``r`` (root), ``f`` (update), edge weights or multiplicities ``q`` and an
in-degree ``d``: the sum of ``q``, for mean the number of arcs.

    kind   a(d)          b(d)          layers
    gcn    d ** -1/2     d ** -1/2     GCNConv (Kipf & Welling, arXiv 1609.02907, eq. 2)
    mean   1 / max(d,1)  1             SAGEConv, GraphConv with mean (Hamilton et al., arXiv 1706.02216)
    sum    1             1             GINConv (Xu et al., arXiv 1810.00826, eq. 4.1), GraphConv with add

``xi`` is 1 but for PEG (Wang et al., arXiv 2203.00199): a function of the distance of fixed positions. A
toggle of (u, v) changes ``q_uv`` and, through ``a`` and ``b``, the arcs that enter or leave u and v; no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numba import prange
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads
from linkcal.models.peg import arc_distance
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._steps import Step

Array = Any  # NumPy arrays; those of floats have one dtype, for which Numba compiles the code
Kind = Literal["gcn", "mean", "sum"]
RowMap = Callable[[Tensor], Tensor]

#: Kinds of layer in compiled code.
GCN, MEAN, SUM = 0, 1, 2
KINDS = {"gcn": GCN, "mean": MEAN, "sum": SUM}


@dataclass(frozen=True)
class Layer:
    """One layer in the form above; None where it has no such part."""

    kind: Kind
    message: RowMap  # m, row-wise, [n, c] -> [n, k]
    update: RowMap  # f, row-wise: whatever follows up to the next aggregation, [n, k] -> [n, c']
    root: RowMap | None = None  # r, row-wise, [n, c] -> [n, k]
    self_loop_fill: float | None = None  # weight of the self-loop added to each node without one
    message_weight: Tensor | None = None  # [k, c]: matrix of m where it is linear without bias
    root_weight: Tensor | None = None  # [k, c]: likewise of r
    steps: tuple[Step, ...] | None = None  # f for compiled code; the first step is elementwise
    arc_factor: RowMap | None = None  # xi from the distances of the arcs' endpoints, [A] -> [A]


@dataclass(frozen=True, eq=False)
class LayerCache:
    """Values of one layer on the graph as given."""

    layer: Layer
    degree: Tensor  # d with the self-loop, [N], float64, since a toggle subtracts a weight again
    self_loop: Tensor  # q_ii, [N]
    message: Tensor  # m(x_j), [N, k]
    aggregate: Tensor  # sum over N(i), without factor a and self-loop, [N, k]
    root: Tensor | None  # r(x_i), [N, k]
    pre: Tensor  # pre_i, [N, k]
    positions: Tensor | None = None  # [N, p], where the layer has an arc_factor
    arc_factor: Tensor | None = None  # xi of each arc in the order of `senders`, [E]
    loop_factor: Tensor | None = None  # xi of every self-loop, [1]

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

    def arc_weights(self, graph: ToggleGraph) -> Tensor | None:
        """``q_ij xi_ij`` of each arc of the graph, [E]; None where all are 1."""
        given = graph.arc_weights()
        if given is None:
            return self.arc_factor
        given = given.to(self.pre.dtype)
        return given if self.arc_factor is None else given * self.arc_factor


def receiver_factor(kind: Kind, degree: Tensor, dtype: torch.dtype) -> Tensor:
    """``a(d)`` of the receiving node, elementwise; computed in the dtype of `degree`, returned in `dtype`."""
    if kind == "gcn":
        # A node without edges and self-loop has degree 0 and passes nothing on, as in PyG's gcn_norm.
        smallest = torch.finfo(degree.dtype).tiny
        return torch.where(degree > 0, degree.clamp(min=smallest).rsqrt(), 0.0).to(dtype)
    if kind == "mean":
        return (1.0 / degree.clamp(min=1.0)).to(dtype)
    return torch.ones_like(degree, dtype=dtype)


def sender_factor(kind: Kind, degree: Tensor, dtype: torch.dtype) -> Tensor:
    """``b(d)`` of the sending node, elementwise; as :func:`receiver_factor`."""
    return receiver_factor("gcn" if kind == "gcn" else "sum", degree, dtype)


@compiled(forceinline=True)
def receive(kind: int, degree: float) -> float:
    """``a(d)`` of the receiving node, compiled."""
    if kind == GCN:
        return 1.0 / np.sqrt(degree) if degree > 0.0 else 0.0
    if kind == MEAN:
        return 1.0 / max(degree, 1.0)
    return 1.0


@compiled(forceinline=True)
def send(kind: int, degree: float) -> float:
    """``b(d)`` of the sending node, compiled."""
    return receive(GCN, degree) if kind == GCN else 1.0


# One forward pass of a recognised encoder that keeps what toggling needs of every layer.


def forward_with_cache(
    layers: Sequence[Layer], graph: ToggleGraph, features: Tensor, positions: Tensor | None = None
) -> tuple[Tensor, list[LayerCache]]:
    """Node embeddings z [N, d] and each layer's cache, in the dtype of `features`."""
    caches = []
    h = features
    for layer in layers:
        caches.append(_layer_cache(layer, graph, h, positions))
        h = layer.update(caches[-1].pre)
    return h, caches


def _layer_cache(layer: Layer, graph: ToggleGraph, h: Tensor, positions: Tensor | None) -> LayerCache:
    message, root = layer.message(h), None if layer.root is None else layer.root(h)
    self_loop = _self_loop_weight(layer, graph, message.dtype)
    counted = layer.kind == "mean"
    degree = graph.in_degree(weighted=not counted).double()
    degree += (graph.self_loops if counted else self_loop).double()
    arc_factor = loop_factor = None
    if layer.arc_factor is not None:
        assert positions is not None
        distance = arc_distance(positions, torch.stack([graph.senders, graph.receivers]))
        arc_factor, loop_factor = layer.arc_factor(distance), layer.arc_factor(distance.new_zeros(1))
    cache = LayerCache(
        layer, degree, self_loop, message, message, root, message, positions, arc_factor, loop_factor
    )
    sent = message
    if layer.kind == "gcn":  # else the factor is 1
        sent = message * sender_factor(layer.kind, degree, message.dtype)[:, None]
    aggregate = sum_over_senders(graph, sent, cache.arc_weights(graph))
    pre = (sent * cache.looped()[:, None]).add_(aggregate)
    pre *= receiver_factor(layer.kind, degree, message.dtype)[:, None]
    if root is not None:
        pre += root
    return replace(cache, aggregate=aggregate, pre=pre)


def _self_loop_weight(layer: Layer, graph: ToggleGraph, dtype: torch.dtype) -> Tensor:
    """``q_ii`` [N]; with weights, GCNConv keeps that of a loop that is there."""
    loops = graph.self_loops.to(dtype)
    if layer.self_loop_fill is None:
        return loops if graph.loop_weight is None else graph.loop_weight[0].to(dtype)
    # PyG's add_remaining_self_loops: a loop that is there keeps weight 1, however often it is repeated.
    kept = torch.ones_like(loops) if graph.loop_weight is None else graph.loop_weight[1].to(dtype)
    return torch.where(loops > 0, kept, torch.full_like(loops, layer.self_loop_fill))


def sum_over_senders(graph: ToggleGraph, values: Tensor, weights: Tensor | None = None) -> Tensor:
    """``sum_{j in N(i)} weight_ij values_j`` for every node, [N, k]; without `weights` [E] all are 1."""
    if values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64):
        sent = values[graph.senders] if weights is None else values[graph.senders] * weights[:, None]
        return torch.zeros_like(values).index_add_(0, graph.receivers, sent)
    out = torch.empty_like(values, memory_format=torch.contiguous_format)
    weights = values.new_empty(0) if weights is None else weights
    with numba_threads(torch.get_num_threads()):
        _sum_rows(*(as_array(part) for part in (graph.indptr, graph.senders, weights, values)), out.numpy())
    return out


@compiled(parallel=True)
def _sum_rows(starts: Array, columns: Array, weights: Array, values: Array, out: Array) -> None:
    """``out[i] = sum_j weights_ij values[j]`` over the entries j of each row i; no weights are ones."""
    for i in prange(starts.size - 1):
        for c in range(out.shape[1]):
            out[i, c] = 0.0
        for position in range(starts[i], starts[i + 1]):
            j = columns[position]
            if weights.size:
                for c in range(out.shape[1]):
                    out[i, c] += weights[position] * values[j, c]
            else:
                for c in range(out.shape[1]):
                    out[i, c] += values[j, c]


def as_array(values: Tensor) -> Array:
    """A tensor as a contiguous array; nothing is copied if it is one."""
    return values.detach().contiguous().numpy()


# What a toggle changes at its arcs.


def arc_change(
    graph: ToggleGraph, source: Tensor, target: Tensor, insert: Tensor, insert_weight: float
) -> tuple[Tensor, Tensor]:
    """Change of the weight and of the number of each toggled arc, [A], float64."""
    position = graph.find(source, target)[1]
    changes = []
    for values, inserted in ((graph.arc_weights(), insert_weight), (graph.multiplicity, 1.0)):
        present = torch.ones_like(position, dtype=torch.float64)
        if values is not None and values.numel():
            present = values[position].double()
        changes.append(torch.where(insert, inserted, -present))
    return changes[0], changes[1]


def degree_after(
    cache: LayerCache, graph: ToggleGraph, target: Tensor, change: Tensor, count: Tensor
) -> Tensor:
    """In-degree of the toggled arcs' targets after the toggle, [A], float64."""
    if cache.layer.kind == "mean":
        return cache.degree[target] + count
    # What remains when a node's only arc is removed is its self-loop, without the rounding of a difference.
    alone = (count < 0) & (graph.indptr[target + 1] - graph.indptr[target] == 1)
    return torch.where(alone, cache.self_loop[target].double(), cache.degree[target] + change)


class PairWeights:
    """Weights of the arcs between the nodes of pairs, and these nodes' degrees, in every layer."""

    def __init__(self, caches: Sequence[LayerCache], graph: ToggleGraph, insert_weight: float) -> None:
        self.caches = [cache.slim() for cache in caches]
        self.graph, self.insert_weight = graph, insert_weight
        one = torch.ones(graph.senders.numel(), dtype=caches[0].pre.dtype)
        given = [cache.arc_weights(graph) for cache in caches]
        #: Weight of each arc by layer; one more, 0, for arcs that are not there.
        self.arc_weight = [torch.cat([one if w is None else w, one.new_zeros(1)]).detach() for w in given]

    def of(self, pairs: Tensor, insert: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [L, layers, 2, 3] (node; arc into it before and after, its degree after), float64.

        And the change of either node's degree in the first layer, [2, L].
        """
        weights = torch.zeros(pairs.size(1), len(self.caches), 2, 3, dtype=torch.float64)
        changes = torch.zeros(pairs.shape, dtype=torch.float64)
        for side in (0, 1):
            source, target = pairs[1 - side], pairs[side]
            toggled = side == 1 or self.graph.undirected
            found, position = self.graph.find(source, target)
            change, count = arc_change(self.graph, source, target, insert, self.insert_weight)
            if toggled:
                changes[side] = count if self.caches[0].layer.kind == "mean" else change
            for layer, cache in enumerate(self.caches):
                was = self.arc_weight[layer][torch.where(found, position, -1)].double()
                now, degree = was, cache.degree[target]
                if toggled:
                    inserted = torch.full_like(was, self.insert_weight)
                    factor = cache.factor_between(source, target)
                    now = torch.where(insert, inserted if factor is None else inserted * factor, 0.0)
                    degree = degree_after(cache, self.graph, target, change, count)
                weights[:, layer, side] = torch.stack([was, now, degree], dim=1).detach()
        return weights, changes
