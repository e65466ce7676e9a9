"""A layer's update step by step: read from modules, packed into arrays, run by compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from linkcal._core.compiled import compiled

Array = Any  # NumPy arrays; those of floats have one dtype, for which Numba compiles the code

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

    def activation(self) -> tuple[Step, ...]:
        """What remains once scale and shift are applied, if anything."""
        if self.slope == 1.0:
            return ()
        return (Elementwise(torch.ones_like(self.scale), torch.zeros_like(self.shift), self.slope),)


#: A step of an update; a matrix [k', k] stands for ``value @ matrix.T``.
Step = Elementwise | Tensor


class AddBias(nn.Module):
    """What remains of a linear map whose matrix was applied before the sum over neighbours."""

    def __init__(self, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """Rows [n, k] plus the bias."""
        return x if self.bias is None else x + self.bias


def bias_step(bias: Tensor | None, weight: Tensor) -> tuple[Step, ...]:
    """The bias as an elementwise step on the rows that `weight` [k, c] made."""
    shift = weight.new_zeros(weight.size(0)) if bias is None else bias
    return (Elementwise(torch.ones_like(shift), shift.detach(), slope=1.0),)


def mlp_steps(mlp: nn.Module, first: Any) -> tuple[Step, ...] | None:
    """A GIN's MLP step by step, its first matrix left out; None where it cannot be written so."""
    steps: tuple[Step, ...] | None = bias_step(first.bias, first.weight)
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
        return (*before, module.weight.detach(), *bias_step(module.bias, module.weight))
    last = before[-1]
    assert isinstance(last, Elementwise)
    affine = _affine(module)
    if affine is not None:
        scale, shift = affine
        if last.slope == 1.0:
            return (*before[:-1], Elementwise(last.scale * scale, last.shift * scale + shift, 1.0))
        return (*before, Elementwise(scale, shift, 1.0))
    slope = 0.0 if isinstance(module, nn.ReLU) else getattr(module, "negative_slope", None)
    if not isinstance(module, nn.ReLU | nn.LeakyReLU) or slope is None or not 0.0 <= slope <= 1.0:
        return None
    if last.slope == 1.0:
        return (*before[:-1], replace(last, slope=float(slope)))
    return (*before, *replace(last, slope=float(slope)).activation())


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

    def widest(self, widths: Sequence[int]) -> int:
        """The largest of the widths and of all matrices' sizes."""
        return max(*widths, *(size for matrix in self.matrices for size in matrix.shape), 1)

    def padded_matrices(self, widest: int, dtype: torch.dtype) -> Array:
        """All matrices, [M, W, W] with zeros around each."""
        out = torch.zeros(len(self.matrices), widest, widest, dtype=dtype)
        for place, matrix in zip(out, self.matrices, strict=True):
            place[: matrix.size(0), : matrix.size(1)] = matrix
        return out.numpy()

    def padded_affine(self, widest: int, dtype: torch.dtype) -> Array:
        """Scale, shift and slope of all elementwise steps, [n, 3, W]."""
        out = torch.zeros(len(self.affine), 3, widest, dtype=dtype)
        for place, step in zip(out, self.affine, strict=True):
            width = step.scale.numel()
            place[0, :width], place[1, :width], place[2, :width] = step.scale, step.shift, step.slope
        return out.detach().numpy()


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
