"""Compiled training of one temperature network in single precision: loss, gradient and Adam.

Links lie side by side in blocks of ``BLOCK``, inputs and hidden units as rows of a block, so that every loop
over links compiles to full vector instructions; tiles of a few rows are what the registers hold. An epoch is
two sweeps over the blocks: z = s / T, p = sigmoid(z) and the sums of the bins, then the gradient, which needs
the signs of those sums. Sums run in a fixed order.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linkcal._core.compiled import compiled

Float32 = NDArray[np.float32]

#: Links of a block, and the number of which inputs and hidden units must be a multiple.
BLOCK, TILE = 256, 8
#: Floor of the temperature: softplus underflows to 0, and s / T would overflow.
SMALLEST_TEMPERATURE = 1e-4

# Sums of a block may be reordered into vector lanes, in an order that the compiled code fixes.
_FAST: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
_EXACT: dict[str, Any] = {**_FAST, "fastmath": {"contract"}}

# Unsigned bounds and indices: the check for negative ones keeps a loop from becoming vector code.
_0, _1, _2, _3, _4, _5, _6, _7, _8 = (np.uint64(n) for n in range(9))
_B, _B2, _B3, _B4, _B5, _B6, _B7 = (np.uint64(BLOCK * n) for n in range(1, 8))

_ZERO, _HALF, _ONE, _TWO = (np.float32(v) for v in (0.0, 0.5, 1.0, 2.0))
_FLOOR, _LOWEST = np.float32(SMALLEST_TEMPERATURE), np.float32(-87.0)  # exp of less is no normal number
_LOG2_E, _LN2_HIGH = np.float32(1.0 / math.log(2.0)), np.float32(0.693359375)
_LN2_LOW = np.float32(math.log(2.0) - 0.693359375)
_E2, _E3, _E4, _E5, _E6, _E7 = (np.float32(1.0 / math.factorial(n)) for n in range(2, 8))
_L3, _L5, _L7, _L9, _L11, _L13 = (np.float32(2.0 / n) for n in range(3, 14, 2))

# Adam's constants (arXiv 1412.6980), PyTorch's defaults.
_BETA1, _BETA2, _ADAM_EPS = 0.9, 0.999, np.float32(1e-8)
# 1 - beta in single precision would be off by 1e-5 of itself.
_KEPT2, _NEW1, _NEW2 = np.float32(_BETA2), np.float32(1.0 - _BETA1), np.float32(1.0 - _BETA2)


class Blocks(NamedTuple):
    """Links of one data set, ordered by head; blocks are filled up with links of weight 0."""

    inputs: Float32  # (blocks, K BLOCK), K rows of a block one after the other
    logit: Float32  # (blocks, BLOCK)
    label: Float32
    weight: Float32  # sums to 1
    head: NDArray[np.intp]  # (blocks,)
    doubled: bool = False  # z = 2 s softplus(o) in place of s / softplus(o)


class Scratch(NamedTuple):
    """Memory that a network works in."""

    hidden: Float32  # (blocks, H BLOCK), before ReLU
    z: Float32  # (blocks, BLOCK)
    p: Float32
    pull: Float32  # -dz/do times the link's weight
    bins: NDArray[np.uint32]
    sums: NDArray[np.float64]  # (bins,)
    row: Float32  # (BLOCK,)


class Adam(NamedTuple):
    """Weights of a network and what Adam remembers of its gradients, all (heads, parameters)."""

    theta: Float32
    gradient: Float32
    moment1: Float32
    moment2: Float32


@compiled(**_EXACT)
def exp(x: Any) -> Any:
    """Exp(x) for x <= 0, to 2 units in the last place: ``2**n e**r`` with |r| <= ln(2) / 2."""
    low = x < _LOWEST
    x = _LOWEST if low else x
    n = np.floor(x * _LOG2_E + _HALF)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    e = _ONE + r * (_ONE + r * (_E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * (_E6 + r * _E7))))))
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return _ZERO if low else e * power


@compiled(**_EXACT)
def log1p(u: Any) -> Any:
    """Log(1 + u) for u in [0, 1]: ``2 artanh(u / (2 + u))``."""
    t = u / (_TWO + u)
    q = t * t
    return t * (_TWO + q * (_L3 + q * (_L5 + q * (_L7 + q * (_L9 + q * (_L11 + q * _L13))))))


@compiled(**_FAST)
def _hidden_layer(x: Any, weight: Any, bias: Any, layer: Any) -> None:
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


@compiled(**_FAST)
def _active_sums(x: Any, layer: Any, slope: Any, g: Any, g_bias: Any) -> None:
    """``g (H, K) += d x^T``, `g_bias` += sums of d, ``d = slope`` where `layer` > 0; tiles of 2 by 8."""
    k_all = np.uint64(len(x)) // _B
    for h in range(_0, np.uint64(len(g_bias)), _2):
        at = h * _B
        total_a = total_b = _ZERO
        for k in range(_0, k_all, _8):
            o = k * _B
            a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = _ZERO
            b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = _ZERO
            # The same in every tile.
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
            p, q = h * k_all + k, (h + _1) * k_all + k
            for n, total in enumerate((a0, a1, a2, a3, a4, a5, a6, a7)):
                g[p + np.uint64(n)] += total
            for n, total in enumerate((b0, b1, b2, b3, b4, b5, b6, b7)):
                g[q + np.uint64(n)] += total
        g_bias[h] += total_a
        g_bias[h + _1] += total_b


@compiled(**_FAST)
def _output(layer: Any, weight: Any, bias: Any, o: Any) -> None:
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


@compiled(**_FAST)
def _add_to_bins(p: Any, error: Any, bins: Any, sums: Any) -> None:
    """Bin of equal width of each p, closed on the right, 0 in the first; `sums` adds up the errors."""
    count, last = np.float32(len(sums)), np.int32(len(sums) - 1)
    for i in range(_B):
        number = np.int32(np.ceil(p[i] * count)) - np.int32(1)
        number = number if number > np.int32(0) else np.int32(0)
        bins[i] = np.uint32(number if number < last else last)
    for i in range(_B):
        sums[bins[i]] += error[i]


@compiled(**_EXACT)
def _logits(o: Any, logit: Any, weight: Any, doubled: bool, z: Any, pull: Any) -> None:
    """``z = s / t`` or `doubled` ``2 s t``, with ``t = softplus(o)``, and ``pull = -weight dz/do``."""
    for i in range(_B):
        e = exp(-abs(o[i]))
        softplus = (o[i] if o[i] > _ZERO else _ZERO) + log1p(e)
        t = softplus if softplus > _FLOOR else _FLOOR
        sigmoid = (_ONE if o[i] > _ZERO else e) / (_ONE + e)
        if doubled:
            z[i] = _TWO * logit[i] * t
            pull[i] = -_TWO * weight[i] * logit[i] * sigmoid
        else:
            inverse = _ONE / t
            z[i] = logit[i] * inverse
            pull[i] = weight[i] * z[i] * sigmoid * inverse


@compiled(**_EXACT)
def _probabilities(z: Any, label: Any, weight: Any, p: Any, error: Any) -> None:
    """``p = sigmoid(z)`` and the weighted error ``weight (label - p)``."""
    for i in range(_B):
        e = exp(-abs(z[i]))
        p[i] = (_ONE if z[i] > _ZERO else e) / (_ONE + e)
        error[i] = weight[i] * (label[i] - p[i])


@compiled(**_FAST)
def _forward(theta: Any, links: Any, scratch: Any) -> None:
    """All of `scratch` from the weights (heads, parameters) of one network."""
    width = scratch.hidden.shape[1] // BLOCK
    cut = width * (links.inputs.shape[1] // BLOCK)
    row = scratch.row
    scratch.sums[:] = 0.0
    for b in range(len(links.head)):
        own, layer, z, p = theta[links.head[b]], scratch.hidden[b], scratch.z[b], scratch.p[b]
        _hidden_layer(links.inputs[b], own[:cut], own[cut : cut + width], layer)
        _output(layer, own[cut + width : cut + 2 * width], own[cut + 2 * width], row)
        _logits(row, links.logit[b], links.weight[b], links.doubled, z, scratch.pull[b])
        _probabilities(z, links.label[b], links.weight[b], p, row)
        _add_to_bins(p, row, scratch.bins[b], scratch.sums)


@compiled(**_FAST)
def total_loss(theta: Any, links: Any, scratch: Any, ece_weight: float) -> float:
    """``L_NLL + L_Cal + ece_weight L_ECE``; the signed sums of the bins are in ``scratch.sums``."""
    _forward(theta, links, scratch)
    total = ece_weight * float(np.abs(scratch.sums).sum())
    for b in range(len(links.head)):
        z, p, label, weight = scratch.z[b], scratch.p[b], links.label[b], links.weight[b]
        part = _ZERO
        for i in range(_B):
            softplus = (z[i] if z[i] > _ZERO else _ZERO) + log1p(exp(-abs(z[i])))
            part += weight[i] * (softplus - label[i] * z[i] - (_TWO * label[i] - _ONE) * p[i])
        total += float(part)
    return total


@compiled(**_FAST)
def _slope(label: Any, p: Any, pull: Any, bins: Any, sign: Any, slope: Any) -> None:
    """``dL/do`` of one block."""
    for i in range(_B):
        slope[i] = sign[bins[i]]
    for i in range(_B):
        ece = _TWO * label[i] - _ONE + slope[i]
        slope[i] = pull[i] * ((label[i] - p[i]) + p[i] * (_ONE - p[i]) * ece)


@compiled(**_FAST)
def _backward(theta: Any, links: Any, scratch: Any, ece_weight: Any, gradient: Any) -> None:
    """Gradient (heads, parameters) of the loss after :func:`_forward`, bins held fixed.

    A head's parameters are W1 (H, K), b1 (H,), w2 (H,) and b2.
    """
    width, k_all = scratch.hidden.shape[1] // BLOCK, links.inputs.shape[1] // BLOCK
    cut = width * k_all
    sign = (ece_weight * np.sign(scratch.sums)).astype(np.float32)
    gradient[:] = _ZERO
    for b in range(len(links.head)):
        own, slope, layer = gradient[links.head[b]], scratch.row, scratch.hidden[b]
        _slope(links.label[b], scratch.p[b], scratch.pull[b], scratch.bins[b], sign, slope)
        own[cut + 2 * width] += slope.sum()
        _active_sums(links.inputs[b], layer, slope, own[:cut], own[cut : cut + width])
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


@compiled(**_FAST)
def _adam_step(state: Any, epoch: int, learning_rate: float, weight_decay: float) -> None:
    """Step number `epoch` (from 1), weight decay added to the gradient, as ``torch.optim.Adam``."""
    decay = np.float32(weight_decay)
    rate = np.float32(learning_rate / (1.0 - _BETA1**epoch))
    correction = np.float32(1.0 / (1.0 - _BETA2**epoch))
    theta, gradient = state.theta.ravel(), state.gradient.ravel()
    moment1, moment2 = state.moment1.ravel(), state.moment2.ravel()
    for i in range(len(theta)):
        g = gradient[i] + decay * theta[i]
        moment1[i] += _NEW1 * (g - moment1[i])
        moment2[i] = _KEPT2 * moment2[i] + _NEW2 * g * g
        theta[i] -= rate * moment1[i] / (np.sqrt(moment2[i] * correction) + _ADAM_EPS)


@compiled(**_FAST)
def train_epochs(
    state: Any, links: Any, scratch: Any, ece_weight: float, rate: float, decay: float, first: int, last: int
) -> None:
    """Epochs `first` to `last` (from 1, both included) of full-batch Adam, in place."""
    for epoch in range(first, last + 1):
        _forward(state.theta, links, scratch)
        _backward(state.theta, links, scratch, ece_weight, state.gradient)
        _adam_step(state, epoch, rate, decay)
