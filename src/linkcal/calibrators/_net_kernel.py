"""Compiled training of one temperature network: loss, gradient and Adam, in single precision.

One epoch is two sweeps over the blocks of links. The first gives z = s / T, p = sigmoid(z) and the sums of
the bins; the second needs the signs of those sums for the gradient. Nothing is shared between networks and
sums run in a fixed order, so a network's numbers do not depend on what else is trained.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from linkcal.calibrators._net_tiles import (
    BLOCK,
    EXACT,
    FAST,
    LINKS,
    active_sums,
    add_to_bins,
    exp,
    hidden_layer,
    log1p,
    output,
)

__all__ = ["SMALLEST_TEMPERATURE", "Adam", "Blocks", "Float32", "Scratch", "total_loss", "train_epochs"]

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
    doubled: bool = False  # z = 2 s softplus(o) in place of s / softplus(o)


class Scratch(NamedTuple):
    """Memory that a network works in."""

    hidden: Float32  # (blocks, H BLOCK), before ReLU
    z: Float32  # (blocks, BLOCK)
    p: Float32  # (blocks, BLOCK)
    pull: Float32  # (blocks, BLOCK), -dz/do times the link's weight
    bins: NDArray[np.uint32]  # (blocks, BLOCK)
    lanes: NDArray[np.float64]  # (LANES, bins)
    sums: NDArray[np.float64]  # (bins,)
    row: Float32  # (BLOCK,)


class Adam(NamedTuple):
    """Weights of a network and what Adam remembers of its gradients, all (heads, parameters)."""

    theta: Float32
    gradient: Float32
    moment1: Float32
    moment2: Float32


# Adam's constants as in its paper (arXiv 1412.6980), which are PyTorch's defaults.
_BETA1, _BETA2, _ADAM_EPS = 0.9, 0.999, np.float32(1e-8)
# 1 - beta in single precision would be off by 1e-5 of itself.
_KEPT2, _NEW1, _NEW2 = np.float32(_BETA2), np.float32(1.0 - _BETA1), np.float32(1.0 - _BETA2)

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)
_FLOOR = np.float32(SMALLEST_TEMPERATURE)


@njit(**EXACT)
def _logits(o: Any, logit: Any, weight: Any, z: Any, pull: Any) -> None:
    """``z = s / T`` with ``T = softplus(o)``, and ``pull = weight z sigmoid(o) / T``."""
    for i in range(LINKS):
        e = exp(-abs(o[i]))
        softplus = (o[i] if o[i] > _ZERO else _ZERO) + log1p(e)
        temperature = softplus if softplus > _FLOOR else _FLOOR
        sigmoid = (_ONE if o[i] > _ZERO else e) / (_ONE + e)
        inverse = _ONE / temperature
        z[i] = logit[i] * inverse
        pull[i] = weight[i] * z[i] * sigmoid * inverse


@njit(**EXACT)
def _doubled_logits(o: Any, logit: Any, weight: Any, z: Any, pull: Any) -> None:
    """``z = 2 s t`` with ``t = softplus(o)``, and ``pull = -weight z sigmoid(o) / t``."""
    for i in range(LINKS):
        e = exp(-abs(o[i]))
        softplus = (o[i] if o[i] > _ZERO else _ZERO) + log1p(e)
        t = softplus if softplus > _FLOOR else _FLOOR
        sigmoid = (_ONE if o[i] > _ZERO else e) / (_ONE + e)
        z[i] = _TWO * logit[i] * t
        pull[i] = -_TWO * weight[i] * logit[i] * sigmoid


@njit(**EXACT)
def _probabilities(z: Any, label: Any, weight: Any, p: Any, error: Any) -> None:
    """``p = sigmoid(z)`` and the weighted error ``weight (label - p)``."""
    for i in range(LINKS):
        e = exp(-abs(z[i]))
        p[i] = (_ONE if z[i] > _ZERO else e) / (_ONE + e)
        error[i] = weight[i] * (label[i] - p[i])


@njit(**FAST)
def _forward(theta: Any, links: Any, scratch: Any, binned: bool) -> None:
    """All of `scratch` from the weights (heads, parameters) of one network; without `binned`, sums of 0."""
    width = scratch.hidden.shape[1] // BLOCK
    cut = width * (links.inputs.shape[1] // BLOCK)
    row = scratch.row
    scratch.lanes[:] = 0.0
    for b in range(len(links.head)):
        own, layer, z, p = theta[links.head[b]], scratch.hidden[b], scratch.z[b], scratch.p[b]
        hidden_layer(links.inputs[b], own[:cut], own[cut : cut + width], layer)
        output(layer, own[cut + width : cut + 2 * width], own[cut + 2 * width], row)
        if links.doubled:
            _doubled_logits(row, links.logit[b], links.weight[b], z, scratch.pull[b])
        else:
            _logits(row, links.logit[b], links.weight[b], z, scratch.pull[b])
        _probabilities(z, links.label[b], links.weight[b], p, row)
        if binned:
            add_to_bins(p, row, scratch.bins[b], scratch.lanes)
    for number in range(len(scratch.sums)):
        scratch.sums[number] = scratch.lanes[:, number].sum()


@njit(**FAST)
def _likelihood(links: Any, scratch: Any) -> float:
    """``L_NLL + L_Cal`` after :func:`_forward`."""
    total = 0.0
    for b in range(len(links.head)):
        z, p, label, weight = scratch.z[b], scratch.p[b], links.label[b], links.weight[b]
        part = _ZERO
        for i in range(LINKS):
            softplus = (z[i] if z[i] > _ZERO else _ZERO) + log1p(exp(-abs(z[i])))
            part += weight[i] * (softplus - label[i] * z[i] - (_TWO * label[i] - _ONE) * p[i])
        total += float(part)
    return total


@njit(**FAST)
def total_loss(theta: Any, links: Any, scratch: Any, ece_weight: float) -> float:
    """``L_NLL + L_Cal + ece_weight L_ECE``; leaves the signed sums of the bins in ``scratch.sums``."""
    _forward(theta, links, scratch, True)
    likelihood: float = _likelihood(links, scratch)
    return likelihood + ece_weight * float(np.abs(scratch.sums).sum())


@njit(**FAST)
def _slope(label: Any, p: Any, pull: Any, bins: Any, sign: Any, binned: bool, slope: Any) -> None:
    """``dL/do`` of one block."""
    for i in range(LINKS):
        slope[i] = sign[bins[i]] if binned else _ZERO
    for i in range(LINKS):
        ece = _TWO * label[i] - _ONE + slope[i]
        slope[i] = pull[i] * ((label[i] - p[i]) + p[i] * (_ONE - p[i]) * ece)


@njit(**FAST)
def _backward(theta: Any, links: Any, scratch: Any, ece_weight: Any, gradient: Any) -> None:
    """Gradient (heads, parameters) of the loss after :func:`_forward`, bins held fixed.

    A head's parameters are W1 (H, K), b1 (H,), w2 (H,) and b2.
    """
    width, k_all = scratch.hidden.shape[1] // BLOCK, links.inputs.shape[1] // BLOCK
    cut, binned = width * k_all, ece_weight != 0.0
    sign = (ece_weight * np.sign(scratch.sums)).astype(np.float32)
    gradient[:] = _ZERO
    for b in range(len(links.head)):
        own, slope, layer = gradient[links.head[b]], scratch.row, scratch.hidden[b]
        _slope(links.label[b], scratch.p[b], scratch.pull[b], scratch.bins[b], sign, binned, slope)
        own[cut + 2 * width] += slope.sum()
        active_sums(links.inputs[b], layer, slope, own[:cut], own[cut : cut + width])
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


@njit(**FAST)
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


@njit(**FAST)
def train_epochs(
    state: Any,
    links: Any,
    scratch: Any,
    ece_weight: float,
    learning_rate: float,
    weight_decay: float,
    first: int,
    last: int,
) -> float:
    """Epochs `first` to `last` (from 1, both included) of full-batch Adam, in place; the loss before them."""
    loss = 0.0
    for epoch in range(first, last + 1):
        _forward(state.theta, links, scratch, ece_weight != 0.0)
        if epoch == first:
            loss = _likelihood(links, scratch) + ece_weight * np.abs(scratch.sums).sum()
        _backward(state.theta, links, scratch, ece_weight, state.gradient)
        _adam_step(state, epoch, learning_rate, weight_decay)
    return loss
