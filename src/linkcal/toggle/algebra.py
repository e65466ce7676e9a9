"""One algebra for the layers that can be toggled by updating only what an edge touches.

A layer computes, for every node i with in-neighbours N(i),

    pre_i = a(d_i) * (sum_{j in N(i)} q_ij b(d_j) m(x_j) + q_ii b(d_i) m(x_i)) + r(x_i)
    h_i   = f(pre_i)

with row-wise maps ``m`` (message), ``r`` (root), ``f`` (update), edge weights or multiplicities ``q`` and an
in-degree ``d``: the sum of ``q`` for gcn, the number of arcs for mean. The kinds of aggregation differ in the
factors ``a`` and ``b`` alone:

    kind   a(d)          b(d)          layers
    gcn    d ** -1/2     d ** -1/2     GCNConv (Kipf & Welling, arXiv 1609.02907, eq. 2)
    mean   1 / max(d,1)  1             SAGEConv, GraphConv with mean (Hamilton et al., arXiv 1706.02216)
    sum    1             1             GINConv (Xu et al., arXiv 1810.00826, eq. 4.1), GraphConv with add

PEG (Wang et al., arXiv 2203.00199) multiplies each arc, self-loops included, by
``xi_ij = phi(||Z_i - Z_j||)`` with fixed positions Z, so that ``c_ij = q_ij xi_ij a(d_i) b(d_j)``. The
toggle does not move ``xi``.

Toggling the edge (u, v) changes ``q_uv`` and the degrees ``d_u``, ``d_v``: so it moves the coefficients of
arcs that enter (through ``a``) or leave (through ``b``) u and v, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["Elementwise", "Kind", "Layer", "Step", "receiver_factor", "sender_factor"]

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
