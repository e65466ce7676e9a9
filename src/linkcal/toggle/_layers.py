"""The algebra of the layers that can be toggled locally, and one forward pass that keeps its values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from linkcal._core.threads import numba_threads
from linkcal.models.peg import arc_distance
from linkcal.toggle._compiled import MATRIX, STEP, empty_rows
from linkcal.toggle._graph import ToggleGraph, sum_rows

__all__ = [
    "AddBias",
    "Elementwise",
    "Kind",
    "Layer",
    "LayerCache",
    "PackedSteps",
    "Step",
    "after_shift",
    "as_array",
    "bias_step",
    "followed_by_step",
    "forward_with_cache",
    "mlp_steps",
    "receiver_factor",
    "sender_factor",
    "sum_over_senders",
]


# One algebra for the layers that can be toggled by updating only what an edge touches.
#
# A layer computes, for every node i with in-neighbours N(i),
#
#     pre_i = a(d_i) * (sum_{j in N(i)} q_ij b(d_j) m(x_j) + q_ii b(d_i) m(x_i)) + r(x_i)
#     h_i   = f(pre_i)
#
# with row-wise maps ``m`` (message), ``r`` (root), ``f`` (update), edge weights or multiplicities ``q`` and
# an in-degree ``d``: the sum of ``q`` for gcn, the number of arcs for mean. The kinds of aggregation differ
# in the factors ``a`` and ``b`` alone:
#
#     kind   a(d)          b(d)          layers
#     gcn    d ** -1/2     d ** -1/2     GCNConv (Kipf & Welling, arXiv 1609.02907, eq. 2)
#     mean   1 / max(d,1)  1             SAGEConv, GraphConv with mean (Hamilton et al., arXiv 1706.02216)
#     sum    1             1             GINConv (Xu et al., arXiv 1810.00826, eq. 4.1), GraphConv with add
#
# PEG (Wang et al., arXiv 2203.00199) multiplies each arc, self-loops included, by
# ``xi_ij = phi(||Z_i - Z_j||)`` with fixed positions Z, so that ``c_ij = q_ij xi_ij a(d_i) b(d_j)``. The
# toggle does not move ``xi``.
#
# Toggling the edge (u, v) changes ``q_uv`` and the degrees ``d_u``, ``d_v``: so it moves the coefficients of
# arcs that enter (through ``a``) or leave (through ``b``) u and v, and nothing else.

Kind = Literal["gcn", "mean", "sum"]
RowMap = Callable[[Tensor], Tensor]


def receiver_factor(kind: Kind, degree: Tensor, dtype: torch.dtype) -> Tensor:
    """``a(d)`` of the receiving node, elementwise; computed in the dtype of `degree`, returned in `dtype`."""
    if kind == "gcn":
        return _inverse_sqrt(degree).to(dtype)
    if kind == "mean":
        return (1.0 / degree.clamp(min=1.0)).to(dtype)
    return torch.ones_like(degree, dtype=dtype)


def sender_factor(kind: Kind, degree: Tensor, dtype: torch.dtype) -> Tensor:
    """``b(d)`` of the sending node, elementwise; as :func:`receiver_factor`."""
    return _inverse_sqrt(degree).to(dtype) if kind == "gcn" else torch.ones_like(degree, dtype=dtype)


def _inverse_sqrt(degree: Tensor) -> Tensor:
    # A node without edges and self-loop has degree 0 and passes nothing on, as in PyG's gcn_norm.
    positive = degree > 0
    return torch.where(positive, degree.clamp(min=torch.finfo(degree.dtype).tiny).rsqrt(), 0.0)


@dataclass(frozen=True)
class Elementwise:
    """A step ``leaky(scale * value + shift)`` per channel, ``leaky(x) = max(x, slope * x)``.

    Covers bias, batch norm in evaluation mode, identity (slope 1), ReLU (slope 0) and leaky ReLU.

    Parameters
    ----------
    scale, shift : Tensor [k]
    slope : float, in [0, 1]
    """

    scale: Tensor
    shift: Tensor
    slope: float


#: A step of an update that compiled code evaluates itself; a matrix [k', k] stands for ``value @ matrix.T``.
Step = Elementwise | Tensor


@dataclass(frozen=True)
class Layer:
    """One layer in the form above.

    Parameters
    ----------
    kind : {"gcn", "mean", "sum"}
    message : callable, [n, c] -> [n, k]
        ``m``, row-wise.
    update : callable, [n, k] -> [n, c']
        ``f``, row-wise; bias, norm, activation, and whatever follows up to the next aggregation.
    root : callable, [n, c] -> [n, k], optional
        ``r``, row-wise.
    self_loop_fill : float, optional
        Weight of the self-loop that the layer adds to each node without one; None adds none.
    message_weight : Tensor [k, c], optional
        The matrix of ``m`` where it is linear without bias, so that it may be applied after the sum.
    root_weight : Tensor [k, c], optional
        The matrix of ``r`` where it is linear without bias.
    steps : tuple of Elementwise and Tensor, optional
        ``f`` step by step, where compiled code can evaluate it: the first step is elementwise.
    arc_factor : callable, [A] -> [A], optional
        ``phi``: the factor of arcs from the distances of their endpoints' positions.
    conv : nn.Module, optional
        The module whose messages, before coefficients, are ``m(x)``, where there is one.
    """

    kind: Kind
    message: RowMap
    update: RowMap
    root: RowMap | None = None
    self_loop_fill: float | None = None
    message_weight: Tensor | None = None
    root_weight: Tensor | None = None
    steps: tuple[Step, ...] | None = None
    arc_factor: RowMap | None = None
    conv: nn.Module | None = None


# A layer's update written step by step, in the form that compiled code evaluates.


class AddBias(nn.Module):
    """What is left of a linear map once its matrix was applied before the sum."""

    def __init__(self, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """Rows [n, k] plus the bias."""
        return x if self.bias is None else x + self.bias


def bias_step(bias: Tensor | None, weight: Tensor) -> tuple[Step, ...] | None:
    """The bias as an elementwise step on the rows that `weight` [k, c] made."""
    shift = weight.new_zeros(weight.size(0)) if bias is None else bias
    return (Elementwise(torch.ones_like(shift), shift.detach(), slope=1.0),)


def mlp_steps(mlp: nn.Module, first: Any) -> tuple[Step, ...] | None:
    """A GIN's MLP step by step, its first matrix left out; None where it cannot be written so."""
    steps = bias_step(first.bias, first.weight)
    modules: list[nn.Module]
    if isinstance(mlp, pyg.MLP):
        modules, last = [], len(mlp.lins) - 1
        for index, linear in enumerate(mlp.lins):
            modules.append(linear)
            if index < last or not mlp.plain_last:
                activation = [] if mlp.act is None else [mlp.act]
                norm = [mlp.norms[index]]
                modules += activation + norm if mlp.act_first else norm + activation
    else:
        modules = list(mlp) if isinstance(mlp, nn.Sequential) else [mlp]
    for module in modules[1:]:
        steps = followed_by_step(steps, module)
    return steps


def followed_by_step(before: tuple[Step, ...] | None, module: nn.Module) -> tuple[Step, ...] | None:
    """The steps with one more module; None where compiled code has no form for it."""
    if before is None or isinstance(module, nn.Identity | nn.Dropout):
        return before
    if isinstance(module, nn.Linear | pyg.Linear):
        bias = bias_step(module.bias, module.weight)
        assert bias is not None
        return (*before, module.weight.detach(), *bias)
    last = before[-1]
    assert isinstance(last, Elementwise)
    affine = _affine(module)
    if affine is not None:
        if last.slope == 1.0:
            scale, shift = affine
            return (*before[:-1], Elementwise(last.scale * scale, last.shift * scale + shift, 1.0))
        return (*before, Elementwise(*affine, 1.0))
    slope = 0.0 if isinstance(module, nn.ReLU) else getattr(module, "negative_slope", None)
    if not isinstance(module, nn.ReLU | nn.LeakyReLU) or slope is None or not 0.0 <= slope <= 1.0:
        return None
    if last.slope == 1.0:
        return (*before[:-1], replace(last, slope=float(slope)))
    return (*before, Elementwise(torch.ones_like(last.scale), torch.zeros_like(last.scale), float(slope)))


def _affine(module: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Scale and shift of a batch norm in evaluation mode; None for other modules."""
    norm = module.module if isinstance(module, pyg.BatchNorm) else module
    if not isinstance(norm, nn.BatchNorm1d) or norm.running_var is None or norm.running_mean is None:
        return None
    scale = (norm.running_var + norm.eps).rsqrt()
    if not norm.affine:
        return scale, -norm.running_mean * scale
    scale = scale * norm.weight.detach()
    return scale, norm.bias.detach() - norm.running_mean * scale


# Steps of updates packed into the arrays that compiled code reads.

Array = Any


class PackedSteps:
    """Matrices and steps in the form of :func:`.dense_kernel.apply_steps`."""

    def __init__(self) -> None:
        self.matrices: list[Tensor] = []
        self.affine: list[Elementwise] = []
        self.table: list[tuple[int, int, int, int]] = []

    def matrix(self, weight: Tensor) -> int:
        """Store a matrix [k', k] of ``value @ weight.T``; its number."""
        self.matrices.append(weight.detach().T)
        return len(self.matrices) - 1

    def steps(self, steps: Sequence[Step]) -> int:
        """Store the steps; how many there are in all by now."""
        for step in steps:
            if isinstance(step, Elementwise):
                width = step.scale.numel()
                self.table.append((STEP, len(self.affine), width, width))
                self.affine.append(step)
            else:
                self.table.append((MATRIX, self.matrix(step), step.size(1), step.size(0)))
        return len(self.table)

    def padded_matrices(self, widest: int, dtype: torch.dtype) -> Array:
        """All matrices, [M, W, W] with zeros around each."""
        out = torch.zeros(len(self.matrices), widest, widest, dtype=dtype)
        for place, matrix in zip(out, self.matrices, strict=True):
            place[: matrix.size(0), : matrix.size(1)] = matrix
        return as_array(out)

    def padded_affine(self, widest: int, dtype: torch.dtype) -> Array:
        """Scale, shift and slope of all elementwise steps, [n, 3, W]."""
        out = torch.zeros(len(self.affine), 3, widest, dtype=dtype)
        for place, step in zip(out, self.affine, strict=True):
            width = step.scale.numel()
            place[0, :width], place[1, :width], place[2, :width] = step.scale, step.shift, step.slope
        return as_array(out.detach())


def after_shift(step: Elementwise) -> tuple[Step, ...]:
    """What is left of a step once scale and shift are done: its activation, if any."""
    if step.slope == 1.0:
        return ()
    return (Elementwise(torch.ones_like(step.scale), torch.zeros_like(step.shift), step.slope),)


def as_array(values: Tensor) -> Array:
    """A tensor as a contiguous array; nothing is copied if it is one."""
    return values.detach().contiguous().numpy()


# One forward pass of a recognised encoder that keeps what toggling needs of every layer.


@dataclass(frozen=True, eq=False)
class LayerCache:
    """Values of one layer on the graph as given (symbols as in :mod:`linkcal.toggle._layers`).

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
