"""Compiled arithmetic of one temperature network on blocks of links, in single precision.

Links lie side by side in blocks of ``BLOCK``, inputs as rows of a block, so that every loop over links is a
loop of fixed length over contiguous memory, which compiles to full vector instructions. A block's inputs and
hidden layer fit into the fastest cache.

One epoch is two sweeps over the blocks. The first gives z = s / T, p = sigmoid(z) and the sums of the bins; the
second needs the signs of those sums for the gradient. Nothing is shared between networks and sums run in
a fixed order, so a network's numbers do not depend on what else is trained.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "BLOCK",
    "SMALLEST_TEMPERATURE",
    "TILE",
    "Adam",
    "Blocks",
    "Scratch",
    "link_loss",
    "loss_gradient",
    "train_epochs",
]

#: Links of a block, and the number of which inputs and hidden units must be a multiple.
BLOCK, TILE = 128, 4

#: Floor of the temperature: softplus underflows to 0 far below, and s / T would overflow.
SMALLEST_TEMPERATURE = 1e-4

Float32 = NDArray[np.float32]


class Blocks(NamedTuple):
    """Links of one data set, ordered by head; blocks are filled up with links of weight 0."""

    inputs: Float32  # (blocks, K BLOCK), K rows of a block one after the other
    logit: Float32  # (blocks, BLOCK)
    label: Float32  # (blocks, BLOCK)
    weight: Float32  # (blocks, BLOCK), sums to 1
    head: NDArray[np.intp]  # (blocks,)


class Scratch(NamedTuple):
    """Memory that a network works in."""

    hidden: Float32  # (blocks, H BLOCK), before ReLU
    z: Float32  # (blocks, BLOCK)
    p: Float32  # (blocks, BLOCK)
    pull: Float32  # (blocks, BLOCK), -dz/do times the link's weight
    bins: NDArray[np.int32]  # (blocks, BLOCK)
    sums: NDArray[np.float64]  # (bins,)
    row: Float32  # (BLOCK,)


class Adam(NamedTuple):
    """Weights of a network and what Adam remembers of its gradients, all (heads, parameters)."""

    theta: Float32
    gradient: Float32
    moment1: Float32
    moment2: Float32


# Adam's constants as in its paper (arXiv 1412.6980), which are PyTorch's defaults.
_BETA1, _BETA2, _ADAM_EPS = np.float32(0.9), np.float32(0.999), np.float32(1e-8)

# Sums of a block may be reordered into vector lanes: the order is then fixed by the compiled code. NaN and
# infinity keep their meaning.
_FAST: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz"},
}
_EXACT: dict[str, Any] = {**_FAST, "fastmath": {"contract"}}

# Unsigned: a signed index may be negative, and the check for that keeps a loop from becoming vector code.
_B = np.uint64(BLOCK)
_0, _1, _4 = np.uint64(0), np.uint64(1), np.uint64(TILE)

_ZERO, _HALF, _ONE, _TWO = (np.float32(v) for v in (0.0, 0.5, 1.0, 2.0))
_FLOOR = np.float32(SMALLEST_TEMPERATURE)
_LOWEST = np.float32(-87.0)  # exp of less is no normal number in single precision
_LOG2_E, _LN2_HIGH = np.float32(1.0 / math.log(2.0)), np.float32(0.693359375)
_LN2_LOW = np.float32(math.log(2.0) - 0.693359375)
_E2, _E3, _E4, _E5, _E6, _E7 = (np.float32(1.0 / math.factorial(n)) for n in range(2, 8))
_L3, _L5, _L7, _L9, _L11, _L13 = (np.float32(2.0 / n) for n in range(3, 14, 2))


@njit(**_EXACT)
def _exp(x: Any) -> Any:
    """Exp(x) for x <= 0, to 2 units in the last place: ``2**n e**r`` with |r| <= ln(2) / 2."""
    low = x < _LOWEST
    x = _LOWEST if low else x
    n = np.floor(x * _LOG2_E + _HALF)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    e = _ONE + r * (_ONE + r * (_E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * (_E6 + r * _E7))))))
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return _ZERO if low else e * power


@njit(**_EXACT)
def _log1p(u: Any) -> Any:
    """Log(1 + u) for u in [0, 1]: ``2 artanh(u / (2 + u))``."""
    t = u / (_TWO + u)
    q = t * t
    return t * (_TWO + q * (_L3 + q * (_L5 + q * (_L7 + q * (_L9 + q * (_L11 + q * _L13))))))


@njit(**_FAST)
def _hidden_layer(x: Any, weight: Any, bias: Any, layer: Any) -> None:
    """``layer = weight x + bias`` of one block: (H, B) = (H, K) (K, B), all flat, in tiles of 4 by 4."""
    width, k_all = np.uint64(len(bias)), np.uint64(len(x)) // _B
    for h in range(_0, width, _4):
        for j in range(h, h + _4):
            for i in range(_B):
                layer[j * _B + i] = bias[j]
        for k in range(_0, k_all, _4):
            p0 = h * k_all + k
            p1, p2, p3 = p0 + k_all, p0 + k_all + k_all, p0 + k_all + k_all + k_all
            a0, a1, a2, a3 = weight[p0], weight[p0 + _1], weight[p0 + _1 + _1], weight[p0 + _1 + _1 + _1]
            b0, b1, b2, b3 = weight[p1], weight[p1 + _1], weight[p1 + _1 + _1], weight[p1 + _1 + _1 + _1]
            c0, c1, c2, c3 = weight[p2], weight[p2 + _1], weight[p2 + _1 + _1], weight[p2 + _1 + _1 + _1]
            d0, d1, d2, d3 = weight[p3], weight[p3 + _1], weight[p3 + _1 + _1], weight[p3 + _1 + _1 + _1]
            x_at, at = k * _B, h * _B
            for i in range(_B):
                x0, x1 = x[x_at + i], x[x_at + _B + i]
                x2, x3 = x[x_at + _B + _B + i], x[x_at + _B + _B + _B + i]
                layer[at + i] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                layer[at + _B + i] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
                layer[at + _B + _B + i] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                layer[at + _B + _B + _B + i] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3


@njit(**_FAST)
def _outer_sums(x: Any, d: Any, g: Any) -> None:
    """``g += d x^T`` of one block: (H, K) += (H, B) (B, K), all flat, in tiles of 4 by 4."""
    k_all = np.uint64(len(x)) // _B
    for h in range(_0, np.uint64(len(d)) // _B, _4):
        for k in range(_0, k_all, _4):
            x_at, at = k * _B, h * _B
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = _ZERO
            c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = _ZERO
            for i in range(_B):
                x0, x1 = x[x_at + i], x[x_at + _B + i]
                x2, x3 = x[x_at + _B + _B + i], x[x_at + _B + _B + _B + i]
                a, b = d[at + i], d[at + _B + i]
                c, e = d[at + _B + _B + i], d[at + _B + _B + _B + i]
                a0, a1, a2, a3 = a0 + a * x0, a1 + a * x1, a2 + a * x2, a3 + a * x3
                b0, b1, b2, b3 = b0 + b * x0, b1 + b * x1, b2 + b * x2, b3 + b * x3
                c0, c1, c2, c3 = c0 + c * x0, c1 + c * x1, c2 + c * x2, c3 + c * x3
                d0, d1, d2, d3 = d0 + e * x0, d1 + e * x1, d2 + e * x2, d3 + e * x3
            tile = ((a0, a1, a2, a3), (b0, b1, b2, b3), (c0, c1, c2, c3), (d0, d1, d2, d3))
            for row in range(TILE):
                for column in range(TILE):
                    g[(h + np.uint64(row)) * k_all + k + np.uint64(column)] += tile[row][column]


@njit(**_FAST)
def _output(layer: Any, weight: Any, bias: Any, o: Any) -> None:
    """``o = weight . relu(layer) + bias`` of one block."""
    for i in range(_B):
        o[i] = bias
    for h in range(_0, np.uint64(len(weight)), _4):
        w0, w1, w2, w3 = weight[h], weight[h + _1], weight[h + _1 + _1], weight[h + _1 + _1 + _1]
        at = h * _B
        for i in range(_B):
            a, b = layer[at + i], layer[at + _B + i]
            c, d = layer[at + _B + _B + i], layer[at + _B + _B + _B + i]
            a, b = a if a > _ZERO else _ZERO, b if b > _ZERO else _ZERO
            c, d = c if c > _ZERO else _ZERO, d if d > _ZERO else _ZERO
            o[i] += w0 * a + w1 * b + w2 * c + w3 * d


@njit(**_EXACT)
def _probability(o: Any, logit: Any, weight: Any, z: Any, pull: Any) -> None:
    """``z = s / T`` with ``T = softplus(o)``, and ``pull = weight z sigmoid(o) / T``."""
    for i in range(_B):
        e = _exp(-abs(o[i]))
        softplus = (o[i] if o[i] > _ZERO else _ZERO) + _log1p(e)
        temperature = softplus if softplus > _FLOOR else _FLOOR
        sigmoid = (_ONE if o[i] > _ZERO else e) / (_ONE + e)
        z[i] = logit[i] / temperature
        pull[i] = weight[i] * z[i] * sigmoid / temperature


@njit(**_EXACT)
def _bins(z: Any, p: Any, bins: Any, n_bins: int) -> None:
    """``p = sigmoid(z)`` and its bin of equal width, closed on the right; 0 belongs to the first."""
    count, last = np.float32(n_bins), np.int32(n_bins - 1)
    for i in range(_B):
        e = _exp(-abs(z[i]))
        p[i] = (_ONE if z[i] > _ZERO else e) / (_ONE + e)
    for i in range(_B):
        number = np.int32(np.ceil(p[i] * count)) - np.int32(1)
        number = number if number > np.int32(0) else np.int32(0)
        bins[i] = number if number < last else last


@njit(**_FAST)
def _forward(theta: Any, links: Any, scratch: Any) -> None:
    """All of `scratch` from the weights (heads, parameters) of one network."""
    width, n_bins = scratch.hidden.shape[1] // BLOCK, len(scratch.sums)
    cut = width * (links.inputs.shape[1] // BLOCK)
    scratch.sums[:] = 0.0
    for b in range(len(links.head)):
        own, layer, o = theta[links.head[b]], scratch.hidden[b], scratch.row
        _hidden_layer(links.inputs[b], own[:cut], own[cut : cut + width], layer)
        _output(layer, own[cut + width : cut + 2 * width], own[cut + 2 * width], o)
        z, p, bins = scratch.z[b], scratch.p[b], scratch.bins[b]
        weight, label = links.weight[b], links.label[b]
        _probability(o, links.logit[b], weight, z, scratch.pull[b])
        _bins(z, p, bins, n_bins)
        for i in range(BLOCK):
            scratch.sums[bins[i]] += weight[i] * (label[i] - p[i])


@njit(**_FAST)
def link_loss(theta: Any, links: Any, scratch: Any) -> float:
    """``L_NLL + L_Cal`` on the links; leaves the sums of the bins in ``scratch.sums``."""
    _forward(theta, links, scratch)
    total = 0.0
    for b in range(len(links.head)):
        z, p, label, weight = scratch.z[b], scratch.p[b], links.label[b], links.weight[b]
        part = _ZERO
        for i in range(_B):
            softplus = (z[i] if z[i] > _ZERO else _ZERO) + _log1p(_exp(-abs(z[i])))
            part += weight[i] * (softplus - label[i] * z[i] - (_TWO * label[i] - _ONE) * p[i])
        total += part
    return total


@njit(**_FAST)
def _slope(links_label: Any, p: Any, pull: Any, bins: Any, sign: Any, slope: Any) -> None:
    """``dL/do`` of one block."""
    for i in range(_B):
        ece = sign[bins[i]]
        y = links_label[i]
        slope[i] = pull[i] * ((y - p[i]) + p[i] * (_ONE - p[i]) * (_TWO * y - _ONE + ece))


@njit(**_FAST)
def _hidden_slope(slope: Any, layer: Any, bias_gradient: Any) -> None:
    """Overwrite the hidden layer by `slope` where a unit is active and by 0 elsewhere; add up its rows."""
    for h in range(_0, np.uint64(len(bias_gradient))):
        total = _ZERO
        for i in range(_B):
            value = slope[i] if layer[h * _B + i] > _ZERO else _ZERO
            layer[h * _B + i] = value
            total += value
        bias_gradient[h] += total


@njit(**_FAST)
def loss_gradient(theta: Any, links: Any, scratch: Any, ece_weight: Any, gradient: Any) -> None:
    """Gradient (heads, parameters) of ``L_NLL + L_Cal + ece_weight L_ECE``, bins held fixed.

    A head's parameters are W1 (H, K), b1 (H,), w2 (H,) and b2. See :mod:`~linkcal.calibrators._temperature_net`.
    """
    _forward(theta, links, scratch)
    width = scratch.hidden.shape[1] // BLOCK
    k_all = links.inputs.shape[1] // BLOCK
    cut = width * k_all
    sign = (ece_weight * np.sign(scratch.sums)).astype(np.float32)
    gradient[:] = _ZERO
    for b in range(len(links.head)):
        own, slope, layer = gradient[links.head[b]], scratch.row, scratch.hidden[b]
        _slope(links.label[b], scratch.p[b], scratch.pull[b], scratch.bins[b], sign, slope)
        own[cut + 2 * width] += slope.sum()
        _hidden_slope(slope, layer, own[cut : cut + width])
        _outer_sums(links.inputs[b], layer, own[:cut])
    for head in range(len(theta)):
        for h in range(width):
            # So far the sums G over active links; dL/dw2 = W1 . G and dL/dW1 = w2 G.
            out, total = theta[head, cut + width + h], _ZERO
            for at in range(h * k_all, (h + 1) * k_all):
                total += theta[head, at] * gradient[head, at]
                gradient[head, at] *= out
            total += theta[head, cut + h] * gradient[head, cut + h]
            gradient[head, cut + h] *= out
            gradient[head, cut + width + h] = total


@njit(**_FAST)
def _adam_step(state: Any, epoch: int, learning_rate: float, weight_decay: float) -> None:
    """Step number `epoch` (from 1), weight decay added to the gradient, as ``torch.optim.Adam``."""
    decay = np.float32(weight_decay)
    rate = np.float32(learning_rate / (1.0 - float(_BETA1) ** epoch))
    correction = np.float32(1.0 / (1.0 - float(_BETA2) ** epoch))
    theta, gradient = state.theta.ravel(), state.gradient.ravel()
    moment1, moment2 = state.moment1.ravel(), state.moment2.ravel()
    for i in range(len(theta)):
        g = gradient[i] + decay * theta[i]
        moment1[i] += (_ONE - _BETA1) * (g - moment1[i])
        moment2[i] = _BETA2 * moment2[i] + (_ONE - _BETA2) * g * g
        theta[i] -= rate * moment1[i] / (np.sqrt(moment2[i] * correction) + _ADAM_EPS)


@njit(**_FAST)
def train_epochs(
    state: Any,
    links: Any,
    scratch: Any,
    ece_weight: Any,
    learning_rate: float,
    weight_decay: float,
    first: int,
    last: int,
) -> None:
    """Epochs `first` to `last` (from 1, both included) of full-batch Adam, in place."""
    for epoch in range(first, last + 1):
        loss_gradient(state.theta, links, scratch, ece_weight, state.gradient)
        _adam_step(state, epoch, learning_rate, weight_decay)
