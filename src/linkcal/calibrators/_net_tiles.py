"""Compiled arithmetic on one block of links, in single precision: products in tiles, exponential, logarithm.

Links lie side by side in blocks of ``BLOCK``, inputs and hidden units as rows of a block, so that every loop
over links has a fixed length and contiguous memory, which compiles to full vector instructions; tiles of a
few rows are what the vector registers hold. A block's inputs and hidden layer fit into the fastest cache.

Numba's cache looks at the file of a compiled function alone: after a change here, delete the cached code of
``_net_kernel``, which has these functions inside.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

__all__ = [
    "BLOCK",
    "EXACT",
    "FAST",
    "LANES",
    "LINKS",
    "TILE",
    "active_sums",
    "add_to_bins",
    "exp",
    "hidden_layer",
    "log1p",
    "output",
]

#: Links of a block, and the number of which inputs and hidden units must be a multiple.
BLOCK, TILE = 256, 8

#: Histograms that a block's errors are added to in turn.
LANES = 4

#: Compiler options. Sums of a block may be reordered into vector lanes: the order is then fixed by the
#: compiled code. NaN and infinity keep their meaning.
FAST: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz"},
}
EXACT: dict[str, Any] = {**FAST, "fastmath": {"contract"}}

#: BLOCK as the bound of loops. Unsigned: a signed index may be negative, and the check for that keeps a loop
#: from becoming vector code.
LINKS = np.uint64(BLOCK)
_B = LINKS
_0, _1, _2, _3, _4, _5, _6, _7, _8 = (np.uint64(n) for n in range(9))
_B2, _B3, _B4, _B5, _B6, _B7 = (np.uint64(BLOCK * n) for n in range(2, 8))

_ZERO, _HALF, _ONE, _TWO = (np.float32(v) for v in (0.0, 0.5, 1.0, 2.0))
_LOWEST = np.float32(-87.0)  # exp of less is no normal number in single precision
_LOG2_E, _LN2_HIGH = np.float32(1.0 / math.log(2.0)), np.float32(0.693359375)
_LN2_LOW = np.float32(math.log(2.0) - 0.693359375)
_E2, _E3, _E4, _E5, _E6, _E7 = (np.float32(1.0 / math.factorial(n)) for n in range(2, 8))
_L3, _L5, _L7, _L9, _L11, _L13 = (np.float32(2.0 / n) for n in range(3, 14, 2))


@njit(**EXACT)
def exp(x: Any) -> Any:
    """Exp(x) for x <= 0, to 2 units in the last place: ``2**n e**r`` with |r| <= ln(2) / 2."""
    low = x < _LOWEST
    x = _LOWEST if low else x
    n = np.floor(x * _LOG2_E + _HALF)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    e = _ONE + r * (_ONE + r * (_E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * (_E6 + r * _E7))))))
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return _ZERO if low else e * power


@njit(**EXACT)
def log1p(u: Any) -> Any:
    """Log(1 + u) for u in [0, 1]: ``2 artanh(u / (2 + u))``."""
    t = u / (_TWO + u)
    q = t * t
    return t * (_TWO + q * (_L3 + q * (_L5 + q * (_L7 + q * (_L9 + q * (_L11 + q * _L13))))))


@njit(**FAST)
def hidden_layer(x: Any, weight: Any, bias: Any, layer: Any) -> None:
    """``layer = weight x + bias`` of one block: (H, B) = (H, K) (K, B), all flat, in tiles of 4 by 4."""
    width, k_all = np.uint64(len(bias)), np.uint64(len(x)) // _B
    for h in range(_0, width, _4):
        at = h * _B
        a_, b_, c_, d_ = bias[h], bias[h + _1], bias[h + _2], bias[h + _3]
        for k in range(_0, k_all, _4):
            p, x_at = h * k_all + k, k * _B
            a0, a1, a2, a3 = weight[p], weight[p + _1], weight[p + _2], weight[p + _3]
            p += k_all
            b0, b1, b2, b3 = weight[p], weight[p + _1], weight[p + _2], weight[p + _3]
            p += k_all
            c0, c1, c2, c3 = weight[p], weight[p + _1], weight[p + _2], weight[p + _3]
            p += k_all
            d0, d1, d2, d3 = weight[p], weight[p + _1], weight[p + _2], weight[p + _3]
            for i in range(_B):
                x0, x1, x2, x3 = x[x_at + i], x[x_at + _B + i], x[x_at + _B2 + i], x[x_at + _B3 + i]
                # The compiler makes two loops of this one: the first tile starts from the biases.
                if k == _0:
                    a, b, c, d = a_, b_, c_, d_
                else:
                    a, b, c, d = layer[at + i], layer[at + _B + i], layer[at + _B2 + i], layer[at + _B3 + i]
                layer[at + i] = (((a + a0 * x0) + a1 * x1) + a2 * x2) + a3 * x3
                layer[at + _B + i] = (((b + b0 * x0) + b1 * x1) + b2 * x2) + b3 * x3
                layer[at + _B2 + i] = (((c + c0 * x0) + c1 * x1) + c2 * x2) + c3 * x3
                layer[at + _B3 + i] = (((d + d0 * x0) + d1 * x1) + d2 * x2) + d3 * x3


@njit(**FAST)
def active_sums(x: Any, layer: Any, slope: Any, g: Any, g_bias: Any) -> None:
    """Add up `slope` times the inputs (and times 1) over the links where a unit is active, for all units.

    ``g (H, K) += d x^T`` with ``d = slope`` where `layer` (H, B) is above 0, all flat, in tiles of 2 by 8.
    """
    k_all = np.uint64(len(x)) // _B
    for h in range(_0, np.uint64(len(g_bias)), _2):
        at = h * _B
        total_a = total_b = _ZERO
        for k in range(_0, k_all, _8):
            o = k * _B
            a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = _ZERO
            b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = _ZERO
            # The sums without an input come out of every tile alike and cost next to nothing there.
            total_a = total_b = _ZERO
            for i in range(_B):
                a = slope[i] if layer[at + i] > _ZERO else _ZERO
                b = slope[i] if layer[at + _B + i] > _ZERO else _ZERO
                x0, x1, x2, x3 = x[o + i], x[o + _B + i], x[o + _B2 + i], x[o + _B3 + i]
                x4, x5, x6, x7 = x[o + _B4 + i], x[o + _B5 + i], x[o + _B6 + i], x[o + _B7 + i]
                a0, a1, a2, a3 = a0 + a * x0, a1 + a * x1, a2 + a * x2, a3 + a * x3
                a4, a5, a6, a7 = a4 + a * x4, a5 + a * x5, a6 + a * x6, a7 + a * x7
                b0, b1, b2, b3 = b0 + b * x0, b1 + b * x1, b2 + b * x2, b3 + b * x3
                b4, b5, b6, b7 = b4 + b * x4, b5 + b * x5, b6 + b * x6, b7 + b * x7
                total_a, total_b = total_a + a, total_b + b
            _add_eight(g, h * k_all + k, a0, a1, a2, a3, a4, a5, a6, a7)
            _add_eight(g, (h + _1) * k_all + k, b0, b1, b2, b3, b4, b5, b6, b7)
        g_bias[h] += total_a
        g_bias[h + _1] += total_b


@njit(**FAST)
def _add_eight(
    g: Any, p: Any, s0: Any, s1: Any, s2: Any, s3: Any, s4: Any, s5: Any, s6: Any, s7: Any
) -> None:
    g[p] += s0
    g[p + _1] += s1
    g[p + _2] += s2
    g[p + _3] += s3
    g[p + _4] += s4
    g[p + _5] += s5
    g[p + _6] += s6
    g[p + _7] += s7


@njit(**FAST)
def output(layer: Any, weight: Any, bias: Any, o: Any) -> None:
    """``o = weight . relu(layer) + bias`` of one block."""
    for i in range(_B):
        o[i] = bias
    for h in range(_0, np.uint64(len(weight)), _4):
        w0, w1, w2, w3 = weight[h], weight[h + _1], weight[h + _2], weight[h + _3]
        at = h * _B
        for i in range(_B):
            a, b, c, d = layer[at + i], layer[at + _B + i], layer[at + _B2 + i], layer[at + _B3 + i]
            a, b = a if a > _ZERO else _ZERO, b if b > _ZERO else _ZERO
            c, d = c if c > _ZERO else _ZERO, d if d > _ZERO else _ZERO
            o[i] = (((o[i] + w0 * a) + w1 * b) + w2 * c) + w3 * d


@njit(**FAST)
def add_to_bins(p: Any, error: Any, bins: Any, lanes: Any) -> None:
    """Bin of equal width of each p, closed on the right (0 belongs to the first), and the sums of the errors.

    Neighbours add to different lanes: additions to one bin would wait for one another.
    """
    count, last = np.float32(lanes.shape[1]), np.int32(lanes.shape[1] - 1)
    for i in range(_B):
        number = np.int32(np.ceil(p[i] * count)) - np.int32(1)
        number = number if number > np.int32(0) else np.int32(0)
        bins[i] = np.uint32(number if number < last else last)
    first, second, third, fourth = lanes[0], lanes[1], lanes[2], lanes[3]
    for i in range(_0, _B, _4):
        first[bins[i]] += error[i]
        second[bins[i + _1]] += error[i + _1]
        third[bins[i + _2]] += error[i + _2]
        fourth[bins[i + _3]] += error[i + _3]
