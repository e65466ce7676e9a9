"""Steps of updates packed into the arrays that compiled code reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal.toggle.algebra import Elementwise, Step
from linkcal.toggle.dense_kernel import MATRIX, STEP

__all__ = ["PackedSteps", "after_shift", "as_array"]

Array = NDArray[Any]


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
