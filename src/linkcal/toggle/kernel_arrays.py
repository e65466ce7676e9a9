"""What :mod:`.kernel` reads: the arrays of a model on a graph and of a block of pairs, and their columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "AGGREGATE",
    "BASE",
    "DEGREE",
    "GCN",
    "HIDDEN",
    "MARKS",
    "MEAN",
    "MESSAGE",
    "NOW_1",
    "NOW_2",
    "NUM_ROWS",
    "SPARE",
    "SUM",
    "SUMS",
    "WAS_1",
    "WAS_2",
    "Kernel",
    "Pairs",
    "facts_type",
]

Array = Any  # numpy arrays; those of floats have one dtype, on which Numba specialises the code

#: Kinds of layer, and the rows of a node's record: m, aggregate, from BASE on its base sums, the first
#: layer's root last if it has one. The record keeps together what a pair reads of its endpoints; what it
#: reads of neighbours is packed apart.
GCN, MEAN, SUM = 0, 1, 2
MESSAGE, AGGREGATE, BASE = 0, 1, 2
#: Columns of a pair's weights: those of the arc into either endpoint in the two layers, before and after, and
#: the endpoint's degree after.
WAS_1, WAS_2, NOW_1, NOW_2, DEGREE = 0, 1, 2, 3, 4
#: Places of a thread's marks, a power of two. Nodes with the same last bits share one: a table with a place
#: for each node would be read and written at random outside the nearer caches, and this one lies in them.
MARKS = 1 << 14
#: Rows of a thread's workspace, in twos: sums, hidden values, spare.
SUMS, HIDDEN, SPARE, NUM_ROWS = 0, 2, 4, 6


def facts_type(number: np.dtype[Any]) -> np.dtype[Any]:
    """What a pair reads of a node beside its record: the bounds of its row, degree, b(d), self-loops.

    Together and in a part of one cache line, since apart each would be fetched from memory by itself.
    """
    layout: Any = {
        "names": ["start", "degree", "send", "loop_1", "loop_2", "length"],
        "formats": [np.int64, np.float64, number, number, number, np.int32],
        "itemsize": 32 if number.itemsize == 4 else 64,
    }
    kind: np.dtype[Any] = np.dtype(layout)
    return kind


class Kernel(NamedTuple):
    """Arrays of one model on one graph; N nodes, A entries of rows, K channels of the widest row.

    Rows list in- and out-neighbours in increasing order. The first layer's elementwise scale is folded into
    messages, aggregates, roots and `seen`.
    """

    kind: int
    depth: int  # layers: 1 or 2
    weighted: bool  # False: every arc has weight 1 in both directions; `arrive`, `leave` are not read
    facts: Array  # facts_type [N]: what a pair reads of its endpoints beside their records
    nodes: Array  # int32 [A]
    arrive: Array  # float [A]: second layer's weight of the arc from the neighbour
    leave: Array  # float [A]: first layer's weight of the arc to the neighbour
    send: Array  # float [N]: b(d), read of neighbours
    seen: Array  # float [N, K]: what neighbours hold, before the activation of slope `seen_slope`
    seen_slope: Any
    record: Array  # float [N, S, K]
    rooted: bool  # whether the first layer has a root
    shift: Array  # float [K]: of the first layer's first step
    slope: Any
    width: Array  # int64 [4]: first layer's pre-activations, hidden values, output, widest of all
    # int64 [n, 4], see apply_steps: what follows the first layer's first step, and from `middle` on what
    # follows the second layer's shift
    steps: Array
    middle: int
    matrices: Array  # float [M, W, W], W widest of all: the second layer's for messages, for roots if `root`
    affine: Array  # float [n', 3, W]: scale, shift and slope
    root: bool  # whether the second layer has a root
    start: Array  # float [k']: shift of the second layer's first step; its scale is folded into the matrices


class Pairs(NamedTuple):
    """A block of L pairs."""

    order: Array  # int64 [L]: pairs sorted by their longer row
    ends: Array  # int32 [2, L]: endpoint with the longer, the shorter row, in that order
    swapped: Array  # bool [L]: whether the longer row is that of the second node, in that order
    cuts: Array  # int64 [T + 1]: bounds of each thread's share of `order`
    insert: Array  # bool [L]
    base: Array  # int8 [2, L]: base sum of either node, -1: to be computed; read if weighted
    weights: Array  # float64 [L, 5, 2]; read if weighted
