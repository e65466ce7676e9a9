"""From calibration links to fitted temperature networks.

A network is ``T = softplus(w2 . relu(W1 x + b1) + b2)`` with one head for all links or one per sign of the
logit. Threads train the networks of all folds and ECE weights in compiled code and share no arithmetic: a
network's numbers do not depend on what else is trained.

The loss (arXiv 2403.04605) is ``L_NLL + L_Cal + lambda L_ECE`` with ``z = s / T`` and ``p = sigmoid(z)``:
``L_NLL = sum w (softplus(z) - y z)``, ``L_Cal = -sum w (2y - 1) p``,
``L_ECE = sum_b |sum_{i in b} w_i (y_i - p_i)|``. With the bins held fixed,

    dL/dz = w [p - y - (2y - 1 + lambda sign_b) p (1 - p)],    dz/do = -z sigmoid(o) / T

(``dz/do = z sigmoid(o) / t`` for ``z = 2 s t``). With ``G_h = sum_i dL/do_i 1[h active at i] (x_i, 1)``:
``dL/dW1_h = w2_h G_h`` and ``dL/dw2_h = W1_h . G_h``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from linkcal._core.maths import FloatArray
from linkcal._core.random import numpy_stream
from linkcal.calibrators._network_kernel import (
    BLOCK,
    SMALLEST_TEMPERATURE,
    TILE,
    Adam,
    Blocks,
    Float32,
    Scratch,
    total_loss,
    train_epochs,
)
from linkcal.calibrators.binning import bin_sums
from linkcal.calibrators.networks import Scaling
from linkcal.exceptions import InputError

# Epochs between held-out losses.
_LOOK_EVERY = 10
# Up to here products of inputs, gradients and logits over the smallest T stay finite in single precision.
_LARGEST_INPUT = 1e12
# Up to this many different links each of three folds is held out once; above, one fifth once.
_MANY_LINKS = 4000


class TemperatureNet(NamedTuple):
    """Weights of a network: first axis the head (0: ``s <= 0``, 1: ``s > 0``), last column the bias."""

    hidden: FloatArray  # (heads, H, k + 1)
    output: FloatArray  # (heads, H + 1)


def draw_net(rng: np.random.Generator, k: int, width: int, heads: int) -> TemperatureNet:
    """Weights drawn as PyTorch's ``Linear`` does: uniform within ``1 / sqrt(fan_in)``."""
    first, last = 1.0 / np.sqrt(k) if k else 0.0, 1.0 / np.sqrt(width)
    hidden = rng.uniform(-first, first, (heads, width, k + 1))
    return TemperatureNet(hidden, rng.uniform(-last, last, (heads, width + 1)))


def head_of(logit: FloatArray, heads: int) -> NDArray[np.intp]:
    """Head (n,) that each link belongs to: the only one, or that of the sign of its logit."""
    return (logit > 0.0).astype(np.intp) * (heads - 1)


def apply_net(net: TemperatureNet, logit: FloatArray, inputs: FloatArray, scaling: Scaling) -> FloatArray:
    """Temperature (n,) of links, in float64, so that ``z = s / T``."""
    head, temperature = head_of(logit, len(net.hidden)), np.empty(len(logit))
    for h, (hidden, output) in enumerate(zip(*net, strict=True)):
        rows = head == h
        layer = np.maximum(inputs[rows] @ hidden[:, :-1].T + hidden[:, -1], 0.0)
        temperature[rows] = np.logaddexp(0.0, layer @ output[:-1] + output[-1])
    temperature = np.maximum(temperature, SMALLEST_TEMPERATURE)
    return temperature if scaling == "divide" else 0.5 / temperature


def packed(net: TemperatureNet) -> Float32:
    """Weights (heads, parameters) as the compiled code reads them, filled up with zeros to whole tiles."""
    heads, width, columns = net.hidden.shape
    units, inputs = (0, _round_up(width) - width), (0, _round_up(columns - 1) - columns + 1)
    first = np.pad(net.hidden[:, :, :-1], ((0, 0), units, inputs)).reshape(heads, -1)
    bias, out = (np.pad(part, ((0, 0), units)) for part in (net.hidden[:, :, -1], net.output[:, :-1]))
    return np.concatenate((first, bias, out, net.output[:, -1:]), axis=1).astype(np.float32)


def unpacked(theta: Float32, like: TemperatureNet) -> TemperatureNet:
    """Inverse of :func:`packed`, in double precision."""
    heads, width, columns = like.hidden.shape
    padded, rows = _round_up(width), _round_up(columns - 1)
    cut = padded * rows
    first = theta[:, :cut].reshape(heads, padded, rows)[:, :width, : columns - 1]
    bias, out = theta[:, cut : cut + padded], theta[:, cut + padded : cut + 2 * padded]
    return TemperatureNet(
        np.concatenate((first, bias[:, :width, None]), axis=2).astype(np.float64),
        np.concatenate((out[:, :width], theta[:, -1:]), axis=1).astype(np.float64),
    )


class LinkArrays(NamedTuple):
    """Links as arrays: logit (n,), network inputs (n, k), label (n,) and weight (n,)."""

    logit: FloatArray
    inputs: FloatArray
    label: FloatArray
    weight: FloatArray

    def canonical(self) -> LinkArrays:
        """Equal links merged and sorted, so that neither their order nor copies can change a fit."""
        largest = max(np.abs(self.logit).max(), np.abs(self.inputs).max(initial=0.0))
        if largest > _LARGEST_INPUT:
            raise InputError(f"X of a network must be within +-{_LARGEST_INPUT:g}, got {largest:g}: scale X")
        rows = np.column_stack((self.label, self.logit, self.inputs))
        rows, position = np.unique(rows, axis=0, return_inverse=True)
        weight = bin_sums(position.ravel(), self.weight, len(rows))
        return LinkArrays(rows[:, 1], rows[:, 2:], rows[:, 0], weight)

    def take(self, rows: NDArray[np.bool_]) -> LinkArrays:
        return LinkArrays(*(values[rows] for values in self))

    def blocks(self, heads: int, scaling: Scaling = "divide") -> Blocks:
        """The links in the layout of the compiled code, weights scaled to sum 1."""
        head = head_of(self.logit, heads)
        count = np.bincount(head, minlength=heads)
        blocks = -(-count // BLOCK)
        filling = blocks * BLOCK - count
        order = np.argsort(head, kind="stable")
        place = np.arange(len(head)) + np.repeat(np.cumsum(filling) - filling, count)
        rows, size = _round_up(self.inputs.shape[1]), int(blocks.sum())

        filled = np.zeros((size * BLOCK, rows + 3), np.float32)
        filled[place, : self.inputs.shape[1]] = self.inputs[order]
        columns = np.column_stack((self.logit, self.label, self.weight / self.weight.sum()))
        filled[place, rows:] = columns[order]
        by_row = filled.reshape(size, BLOCK, rows + 3).transpose(0, 2, 1)
        inputs = np.ascontiguousarray(by_row[:, :rows]).reshape(size, rows * BLOCK)
        logit, label, weight = (np.ascontiguousarray(by_row[:, rows + i]) for i in range(3))
        doubled = scaling == "multiply-doubled"
        return Blocks(inputs, logit, label, weight, np.repeat(np.arange(heads), blocks), doubled)


@dataclass(frozen=True)
class Member:
    """A network to train: its first weights, its links, the held-out links that may end its training."""

    net: TemperatureNet
    n_bins: int
    learning_rate: float
    weight_decay: float
    links: Blocks
    held_out: Blocks | None
    ece_weight: float
    max_iter: int
    patience: int | None = None  # None trains to the last epoch


class Trained(NamedTuple):
    """A trained network."""

    net: TemperatureNet
    ece_weight: float
    n_iter: int  # epoch of the returned weights
    converged: bool  # the held-out loss had stopped falling


def scratch_for(links: Blocks, width: int, n_bins: int) -> Scratch:
    """Memory for a network of a width on these links."""
    shape = links.logit.shape
    hidden = np.empty((shape[0], _round_up(width) * BLOCK), np.float32)
    z, p, pull = (np.empty(shape, np.float32) for _ in range(3))
    bins, row = np.empty(shape, np.uint32), np.empty(BLOCK, np.float32)
    return Scratch(hidden, z, p, pull, bins, np.empty(n_bins), row)


def bin_gaps(net: TemperatureNet, links: Blocks, n_bins: int) -> FloatArray:
    """Sums (n_bins,) of ``weight (label - probability)`` in bins; their absolute values add up to the ECE."""
    scratch = scratch_for(links, net.hidden.shape[1], n_bins)
    total_loss(packed(net), links, scratch, 0.0)
    return scratch.sums


def train(members: Sequence[Member]) -> list[Trained]:
    """Full-batch Adam on each member, as many at a time as torch (if it is loaded) or Numba has threads.

    With patience, a network ends when its held-out loss has not fallen for so many epochs and keeps the
    weights of its best look. Without, it runs to the last epoch and keeps the last weights.
    """
    # Both know the limits that users and worker processes set for themselves.
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch is not None else numba.get_num_threads()
    threads = max(1, min(threads, os.cpu_count() or 1, len(members)))
    given_up = Event()
    # Threads: compiled code runs without Python's lock, and links are shared.
    with ThreadPoolExecutor(threads) as pool:
        try:
            return list(pool.map(partial(_trained, given_up=given_up), members))
        finally:
            # After an error or an interrupt the other threads end at their next look.
            given_up.set()


def _trained(member: Member, given_up: Event) -> Trained:
    """One network, trained until its last epoch, its patience, or the batch ends."""
    links, watched, patience, width = member.links, None, member.patience, member.net.hidden.shape[1]
    theta, scratch = packed(member.net), scratch_for(links, width, member.n_bins)
    if patience is not None and member.held_out is not None:
        watched = member.held_out, scratch_for(member.held_out, width, member.n_bins)
    state = Adam(theta, *(np.zeros_like(theta) for _ in range(3)))
    # Python floats: a setting given as a whole number would be compiled anew.
    weight, rate, decay = map(float, (member.ece_weight, member.learning_rate, member.weight_decay))
    best, best_loss, best_epoch, epoch, stopped = theta.copy(), np.inf, 0, 0, False
    while epoch < member.max_iter and not stopped and not given_up.is_set():
        first, epoch = epoch + 1, min(epoch + _LOOK_EVERY, member.max_iter)
        train_epochs(state, links, scratch, weight, rate, decay, first, epoch)
        loss = float(total_loss(theta, *watched, weight)) if watched else np.inf
        # The drawn weights are no result: at least one step is always kept.
        if patience is None or loss < best_loss or best_epoch == 0:
            best, best_loss, best_epoch = theta.copy(), loss, epoch
        stopped = patience is not None and epoch - best_epoch >= patience
    return Trained(unpacked(best, member.net), weight, best_epoch, stopped)


def fit_net(
    settings: Any, seed: int, heads: int, links: LinkArrays, validation: LinkArrays | None = None
) -> Trained:
    """Train the network of one calibrator (`settings`), with every ECE weight.

    With validation links: the one with the smallest validation ECE. Else: the ECE weight with the smallest
    pooled held-out ECE, trained anew for the mean epochs of its folds.
    """
    grid, distinct = [float(value) for value in settings.ece_weights], links.canonical()
    rng = numpy_stream(seed, "initialisation")
    net = draw_net(rng, distinct.inputs.shape[1], settings.hidden_channels, heads)
    member = partial(Member, net, settings.n_bins, settings.learning_rate, settings.weight_decay)
    blocks = partial(LinkArrays.blocks, heads=heads, scaling=settings.scaling)
    folds: list[tuple[LinkArrays, LinkArrays]] = []
    if validation is not None:
        folds = [(distinct, validation.canonical())]
    elif len(grid) > 1 or settings.early_stopping:
        folds = [
            (distinct.take(~rows), distinct.take(rows)) for rows in _held_out_folds(seed, distinct.label)
        ]
    best, epochs, converged = 0, settings.max_iter, False
    if folds:
        patience = settings.patience if settings.early_stopping else None
        sides = [(blocks(inside), blocks(outside)) for inside, outside in folds]
        trained = train([member(*both, w, settings.max_iter, patience) for both in sides for w in grid])
        # Pooled before the absolute value: one ECE of all held-out links.
        gaps = np.zeros((len(grid), settings.n_bins))
        for number, network in enumerate(trained):
            fold, place = divmod(number, len(grid))
            total = float(folds[fold][1].weight.sum())
            gaps[place] += total * bin_gaps(network.net, sides[fold][1], settings.n_bins)
        best = int(np.abs(gaps).sum(axis=1).argmin())
        chosen = trained[best :: len(grid)]
        converged = all(network.converged for network in chosen)
        if validation is not None:
            return chosen[0]._replace(converged=converged)
        epochs = max(1, round(float(np.mean([network.n_iter for network in chosen]))))
    (last,) = train([member(blocks(distinct), None, grid[best], epochs)])
    return last._replace(converged=converged)


def _held_out_folds(seed: int, label: FloatArray) -> list[NDArray[np.bool_]]:
    """Held-out links (n,) of each stratified fold."""
    n = len(label)
    n_folds, used = (min(3, n), 3) if n <= _MANY_LINKS else (5, 1)
    rng = numpy_stream(seed, "folds")
    # One class after the other, dealt out in turn: no fold is empty.
    dealt = np.concatenate([rng.permutation(np.flatnonzero(label == value)) for value in (0.0, 1.0)])
    fold = np.empty(n, np.intp)
    fold[dealt] = np.arange(n) % n_folds
    return [fold == k for k in range(min(n_folds, used))]


def _round_up(count: int) -> int:
    """The next multiple of TILE, at least one tile: without inputs, biases are still summed over links."""
    return max(-(-count // TILE), 1) * TILE
