"""The algebra of the layers that can be toggled locally, and one forward pass that keeps its values.

A layer computes, for every node i with in-neighbours N(i),

    pre_i = a(d_i) * (sum_{j in N(i)} q_ij xi_ij b(d_j) m(x_j) + q_ii xi_ii b(d_i) m(x_i)) + r(x_i)
    h_i   = f(pre_i)

with linear maps ``m`` (message) and ``r`` (root), a row-wise ``f`` (update), edge weights or multiplicities
``q`` and an in-degree ``d``: the sum of ``q``, for mean the number of arcs.

    kind   a(d)          b(d)          layers
    gcn    d ** -1/2     d ** -1/2     GCNConv (Kipf & Welling, arXiv 1609.02907, eq. 2)
    mean   1 / max(d,1)  1             SAGEConv, GraphConv with mean (Hamilton et al., arXiv 1706.02216)
    sum    1             1             GINConv (Xu et al., arXiv 1810.00826, eq. 4.1), GraphConv with add

``xi`` is 1 but for PEG (Wang et al., arXiv 2203.00199): a function of the distance of fixed positions. A
toggle of (u, v) changes ``q_uv`` and, through ``a`` and ``b``, the arcs that enter or leave u and v; no more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from linkcal._core.compiled import compiled
from linkcal.models.peg import arc_distance
from linkcal.toggle._graph import ToggleGraph

Array = Any  # NumPy arrays; those of floats have one dtype, for which Numba compiles the code
Kind = Literal["gcn", "mean", "sum"]
RowMap = Callable[[Tensor], Tensor]

#: Kinds of layer in compiled code.
GCN, MEAN, SUM = 0, 1, 2
KINDS = {"gcn": GCN, "mean": MEAN, "sum": SUM}


#: Kinds of step: ``leaky(scale * x + shift)``, or a matrix.
STEP, MATRIX = 0, 1
# Lets the channel loops vectorise; reorders nothing, so results do not depend on threads or blocks.
FAST = {"contract", "nsz"}


@dataclass(frozen=True)
class Elementwise:
    """A step ``leaky(scale * value + shift)`` per channel, ``leaky(x) = max(x, slope * x)``.

    Covers bias, batch norm in evaluation mode, identity (slope 1), ReLU (slope 0) and leaky ReLU.
    """

    scale: Tensor
    shift: Tensor
    slope: float


#: A step of an update; a matrix [k', k] stands for ``value @ matrix.T``.
Step = Elementwise | Tensor


@dataclass(frozen=True)
class Layer:
    """One layer in the form above; None where it has no such part."""

    kind: Kind
    weight: Tensor | None  # [k, c]: m(x) = x weight^T; None: x itself
    self_loop_fill: float | None = None  # weight of the self-loop added to each node without one
    arc_factor: RowMap | None = None  # xi from the distances of the arcs' endpoints, [A] -> [A]
    positions: Tensor | None = None  # [N, p], where there is an arc_factor
    # Of the layers of a chain alone:
    update: RowMap | None = (
        None  # f, row-wise: whatever follows up to the next aggregation, [n, k] -> [n, c']
    )
    steps: tuple[Step, ...] | None = None  # f for compiled code; the first step is elementwise
    root_weight: Tensor | None = None  # [k, c]: likewise of r
    root: Tensor | None = None  # [N, k]: instead of r in the first layer, whose input no toggle changes

    def updated(self, pre: Tensor) -> Tensor:
        """``f`` of rows [n, k]."""
        return pre if self.update is None else self.update(pre)


@dataclass(frozen=True)
class Attention:
    """A convolution whose arcs are weighted by a softmax over those that enter a node, for each head.

    ``out_i = sum_j alpha_ij v_j`` with ``alpha_ij = softmax_j score(s_j, t_i)``: GATConv (arXiv 1710.10903),
    GATv2Conv (arXiv 2105.14491), TransformerConv (arXiv 2009.03509). `s` and `t` are row-wise. A toggle of an
    arc changes the softmax of its target alone.
    """

    heads: int
    scored: slice  # columns of s_j that the score reads
    values: slice  # columns that are v_j, the heads side by side
    score: Callable[[Tensor, Tensor], Tensor]  # [A, s] and [A, t] -> [A, heads]
    self_loops: bool  # whether a node attends to itself once, instead of by its self-loops

    def __call__(
        self, table: Tensor, index: Tensor, receivers: Tensor, row: Tensor, weight: Tensor, number: int
    ) -> Tensor:
        """Outputs [number, heads * c] of arcs into `row` [A], each `weight` [A] times there.

        Their senders are rows `index` [A] of `table` [n, s]; `receivers` is [number, t].
        """
        row, order = row.sort(stable=True)
        index, weight = index[order], weight[order]
        score = self.score(table[:, self.scored][index], receivers[row])
        places = row[:, None].expand_as(score)
        largest = score.new_full((number, self.heads), -torch.inf).scatter_reduce(0, places, score, "amax")
        share = (score - largest[row]).exp() * weight[:, None].to(score.dtype)
        # As PyG's softmax: a node without arcs gets 0.
        share /= (score.new_zeros(number, self.heads).index_add_(0, row, share) + 1e-16)[row]
        start = torch.searchsorted(row, torch.arange(number + 1, device=row.device))
        parts = zip(share.T, table[:, self.values].chunk(self.heads, dim=1), strict=True)
        return torch.cat([_weighted_sums(start, index, part, values) for part, values in parts], dim=1)


@dataclass(frozen=True, eq=False)
class LayerCache:
    """Values of one layer on the graph as given."""

    layer: Layer
    degree: Tensor  # d with the self-loop, [N], float64, since a toggle subtracts a weight again
    self_loop: Tensor  # q_ii, [N]
    loop: Tensor  # q_ii xi_ii, [N]
    arc_weight: Tensor | None  # q_ij xi_ij in the order of the graph's `senders`, [E]; None where all are 1
    message: Tensor  # m(x_j), [N, k]
    aggregate: Tensor  # sum over N(i), without factor a and self-loop, [N, k]
    root: Tensor | None  # r(x_i), [N, k]
    pre: Tensor  # pre_i, [N, k]

    def factor_between(self, source: Tensor, target: Tensor) -> Tensor | None:
        """``xi`` of arcs source -> target, [A], whether or not they are in the graph; None if all are 1."""
        if self.layer.arc_factor is None:
            return None
        assert self.layer.positions is not None
        return self.layer.arc_factor(arc_distance(self.layer.positions, torch.stack([source, target])))


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
    layers: Sequence[Layer], graph: ToggleGraph, features: Tensor
) -> tuple[Tensor, list[LayerCache]]:
    """Node embeddings z [N, d] of a chain and each layer's cache, in the dtype of `features`."""
    caches = []
    h = features
    for layer in layers:
        caches.append(layer_cache(layer, graph, h))
        h = layer.updated(caches[-1].pre)
    return h, caches


def messages(layer: Layer, h: Tensor) -> Tensor:
    """``m`` of rows [n, c], [n, k]."""
    return h if layer.weight is None else F.linear(h, layer.weight)


def layer_cache(layer: Layer, graph: ToggleGraph, h: Tensor) -> LayerCache:
    """Values of a layer that reads h [N, c]."""
    message = messages(layer, h)
    root = layer.root if layer.root_weight is None else F.linear(h, layer.root_weight)
    self_loop = _self_loop_weight(layer, graph, message.dtype)
    counted = layer.kind == "mean"
    degree = graph.in_degree(weighted=not counted).double()
    degree += (graph.self_loops if counted else self_loop).double()
    loop, arc_weight = self_loop, graph.arc_weights()
    if arc_weight is not None:
        arc_weight = arc_weight.to(message.dtype)
    if layer.arc_factor is not None:
        assert layer.positions is not None
        distance = arc_distance(layer.positions, torch.stack([graph.senders, graph.receivers]))
        factor = layer.arc_factor(distance)
        arc_weight = factor if arc_weight is None else arc_weight * factor
        loop = self_loop * layer.arc_factor(distance.new_zeros(1))
    sent = message * sender_factor(layer.kind, degree, message.dtype)[:, None]
    ones = sent.new_ones(graph.senders.numel()) if arc_weight is None else arc_weight
    aggregate = _weighted_sums(graph.indptr, graph.senders, ones, sent)
    pre = (sent * loop[:, None]).add_(aggregate)
    pre *= receiver_factor(layer.kind, degree, message.dtype)[:, None]
    if root is not None:
        pre += root
    return LayerCache(layer, degree, self_loop, loop, arc_weight, message, aggregate, root, pre)


def _self_loop_weight(layer: Layer, graph: ToggleGraph, dtype: torch.dtype) -> Tensor:
    """``q_ii`` [N]; with weights, GCNConv keeps that of a loop that is there."""
    loops = graph.self_loops.to(dtype)
    if layer.self_loop_fill is None:
        return loops if graph.loop_weight is None else graph.loop_weight[0].to(dtype)
    # PyG's add_remaining_self_loops: a loop that is there keeps weight 1, however often it is repeated.
    kept = torch.ones_like(loops) if graph.loop_weight is None else graph.loop_weight[1].to(dtype)
    return torch.where(loops > 0, kept, torch.full_like(loops, layer.self_loop_fill))


def _weighted_sums(indptr: Tensor, senders: Tensor, weights: Tensor, values: Tensor) -> Tensor:
    """``sum weight value_sender`` over the entries of each compressed row, [R, k]."""
    if values.device.type != "cpu":
        rows = torch.repeat_interleave(indptr.diff())
        out = values.new_zeros(indptr.numel() - 1, values.size(1))
        return out.index_add_(0, rows, values[senders] * weights[:, None])
    size = (indptr.numel() - 1, values.size(0))
    sparse = csr_array(tuple(as_array(part) for part in (weights, senders, indptr)), size)
    return torch.from_numpy(sparse @ as_array(values))


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
        nothing = caches[0].pre.new_empty(0)  # instead of the large arrays, which the kernel has packed
        bare: dict[str, Any] = {"message": nothing, "aggregate": nothing, "root": None, "pre": nothing}
        self.caches = [replace(cache, **bare) for cache in caches]
        self.graph, self.insert_weight = graph, insert_weight
        one = torch.ones(graph.senders.numel(), dtype=caches[0].pre.dtype)
        given = [one if cache.arc_weight is None else cache.arc_weight for cache in caches]
        #: Weight of each arc by layer; one more, 0, for arcs that are not there.
        self.arc_weight = [torch.cat([weight, one.new_zeros(1)]).detach() for weight in given]

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


# A layer's update step by step: packed into arrays, run by compiled code.


class PackedSteps:
    """Matrices and steps in the form that :func:`apply_steps` reads."""

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

    def packed(self, widths: Sequence[int], dtype: torch.dtype) -> tuple[int, Array, Array, Array]:
        """The widest row W of all; steps [n, 4]; matrices [M, W, W], zeros around; affine maps [n', 3, W]."""
        widest = max(*widths, *(size for matrix in self.matrices for size in matrix.shape), 1)
        matrices = torch.zeros(len(self.matrices), widest, widest, dtype=dtype)
        for place, matrix in zip(matrices, self.matrices, strict=True):
            place[: matrix.size(0), : matrix.size(1)] = matrix
        affine = torch.zeros(len(self.affine), 3, widest, dtype=dtype)
        for place, step in zip(affine, self.affine, strict=True):
            width = step.scale.numel()
            place[0, :width], place[1, :width], place[2, :width] = step.scale, step.shift, step.slope
        table = np.array(self.table, dtype=np.int64).reshape(-1, 4)
        return widest, table, matrices.numpy(), affine.detach().numpy()


# Compiled maps of two rows of a workspace `rows` [R, K]; row numbers, since Numba counts references to views.


@compiled(forceinline=True)
def leaky(value: Any, slope: Any) -> Any:
    """``max(value, slope * value)``: ReLU for slope 0, the identity for slope 1."""
    low = value * slope
    return value if value > low else low


@compiled(forceinline=True, fastmath=FAST)
def apply_matrix(
    matrices: Array, number: int, depth: int, width: int, rows: Array, source: int, target: int
) -> None:
    """Rows target, target + 1 += rows source, source + 1 times ``matrices[number, :depth, :width]``."""
    # Eight terms at a time, so that targets are read less often; loop counters as indices, to vectorise.
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
    steps: Array, first: int, stop: int, matrices: Array, affine: Array, rows: Array, source: int, spare: int
) -> int:
    """Run ``steps[first:stop]`` on rows source, source + 1, with two spare rows; where the result is.

    A step is (kind, number in `matrices` or `affine`, width in, width out).
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
