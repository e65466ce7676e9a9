"""Compiled row-wise maps of two rows at once: matrices, and updates given step by step.

Rows live in one workspace `rows` [R, K]; maps name their source and target rows. Helpers index whole arrays:
handing them views would be easier to read, but Numba counts references to every view, atomically, for each
pair.
"""

from __future__ import annotations

from typing import Any

from numba import njit

__all__ = ["FAST", "MATRIX", "STEP", "apply_matrix", "apply_steps", "leaky"]

Array = Any  # numpy arrays of one floating dtype; Numba specialises the code on it

# Contraction into fused multiply-adds and free signs of zero let the channel loops vectorise; nothing is
# reordered across channels or neighbours, so results do not depend on threads or blocks.
FAST = {"contract", "nsz"}

#: Kinds of step: ``leaky(scale * x + shift)``, or a matrix.
STEP, MATRIX = 0, 1


@njit(forceinline=True)
def leaky(value: Any, slope: Any) -> Any:
    """``max(value, slope * value)``: ReLU for slope 0, the identity for slope 1."""
    low = value * slope
    return value if value > low else low


@njit(cache=True, forceinline=True, fastmath=FAST)
def apply_matrix(
    matrices: Array, number: int, depth: int, width: int, rows: Array, source: int, target: int
) -> None:
    """Rows target, target + 1 += rows source, source + 1 times ``matrices[number, :depth, :width]``.

    Always summed in the same order.
    """
    # Eight terms at a time: both targets are then read and written an eighth as often. Indices that are loop
    # counters are known not to be negative; any other would keep the loop from being vectorised.
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


@njit(cache=True, fastmath=FAST)
def apply_steps(
    steps: Array, first: int, stop: int, matrices: Array, affine: Array, rows: Array, source: int, spare: int
) -> int:
    """Run ``steps[first:stop]`` on rows source, source + 1, with two spare rows; where the result is.

    A step is (kind, number in `matrices` or `affine`, width in, width out); ``affine[n]`` are scale, shift
    and slope.
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
