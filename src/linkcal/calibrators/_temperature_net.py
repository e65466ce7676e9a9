"""Small networks that give each link a temperature, and their training, many at a time.

A network is ``T = softplus(w2 . relu(W1 x + b1) + b2)`` with one head for all links or one per sign of the
logit. All networks of a batch (every data set, fold and ECE weight) are trained at once by threads in
compiled code; they share links but no arithmetic, so a network's numbers are the same to the last bit
whatever it is trained with.

Notes
-----
The paper's loss ``L_NLL + L_Cal + lambda L_ECE`` with ``z = s / T`` and ``p = sigmoid(z)``:
``L_NLL = sum w (softplus(z) - y z)``, ``L_Cal = -sum w (2y - 1) p``,
``L_ECE = sum_b |sum_{i in b} w_i (y_i - p_i)|``. With the bins held fixed,

    dL/dz = w [p - y - (2y - 1 + lambda sign_b) p (1 - p)],    dz/do = -z sigmoid(o) / T

(for ``z = 2 s t`` instead of ``s / T``, ``dz/do = z sigmoid(o) / t``).

Below that, with ``G_h = sum_i dL/do_i 1[h active at i] (x_i, 1)``: ``dL/dW1_h = w2_h G_h`` and
``dL/dw2_h = W1_h . G_h``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from linkcal.calibrators._net_kernel import Adam, Blocks, Float32, Scratch, total_loss, train_epochs
from linkcal.calibrators._net_tiles import BLOCK, LANES, TILE

__all__ = [
    "Member",
    "Scaling",
    "TemperatureNet",
    "TrainOptions",
    "Trained",
    "bin_gaps",
    "draw_net",
    "link_blocks",
    "packed",
    "scratch_for",
    "train",
    "unpacked",
]

FloatArray = NDArray[np.float64]

#: How the networks' output o scales the logit: ``s / t`` or ``2 s t``, with ``t = softplus(o)``.
Scaling = Literal["divide", "multiply-doubled"]

# Held-out losses are looked at every so many epochs.
_LOOK_EVERY = 10

# Looks until a thread takes the next network: rarely enough that a network's links stay in the cache.
_LOOKS_PER_SLICE = 5


class TemperatureNet(NamedTuple):
    """Weights of a network: first axis the head (0: ``s <= 0``, 1: ``s > 0``), last column the bias."""

    hidden: FloatArray  # (heads, H, k + 1)
    output: FloatArray  # (heads, H + 1)


@dataclass(frozen=True)
class TrainOptions:
    """Settings of the training loop; `patience` None trains to the last epoch."""

    n_bins: int
    learning_rate: float
    weight_decay: float
    max_iter: int
    patience: int | None


@dataclass(frozen=True)
class Member:
    """A network to train: its first weights, its links, and the held-out links that may end its training."""

    net: TemperatureNet
    links: Blocks
    held_out: Blocks | None
    ece_weight: float
    options: TrainOptions


@dataclass(frozen=True)
class Trained:
    """A trained network."""

    net: TemperatureNet
    n_iter: int  # epoch of the returned weights
    stopped: bool  # the held-out loss had stopped falling
    curve: FloatArray  # (looks,) training loss


def draw_net(rng: np.random.Generator, k: int, width: int, heads: int) -> TemperatureNet:
    """Weights drawn as PyTorch's ``Linear`` does: uniform within ``1 / sqrt(fan_in)``."""
    hidden_bound = 1.0 / np.sqrt(k) if k else 0.0
    hidden = rng.uniform(-hidden_bound, hidden_bound, (heads, width, k + 1))
    output_bound = 1.0 / np.sqrt(width)
    return TemperatureNet(hidden, rng.uniform(-output_bound, output_bound, (heads, width + 1)))


def link_blocks(
    logit: FloatArray,
    inputs: FloatArray,
    label: FloatArray,
    weight: FloatArray,
    heads: int,
    scaling: Scaling = "divide",
) -> Blocks:
    """Links (n,) with inputs (n, k) in the layout of the compiled code; weights are scaled to sum 1."""
    head = (logit > 0.0).astype(np.intp) if heads == 2 else np.zeros(len(logit), np.intp)
    count = np.bincount(head, minlength=heads)
    blocks = -(-count // BLOCK)
    order = np.argsort(head, kind="stable")
    place = np.arange(len(head)) + np.repeat(
        np.cumsum(blocks * BLOCK - count) - (blocks * BLOCK - count), count
    )
    rows, size = _round_up(inputs.shape[1]), int(blocks.sum())

    def placed(values: FloatArray) -> Float32:
        filled = np.zeros(size * BLOCK, np.float32)
        filled[place] = values[order]
        return filled.reshape(size, BLOCK)

    filled = np.zeros((size * BLOCK, rows), np.float32)
    filled[place, : inputs.shape[1]] = inputs[order]
    by_row = filled.reshape(size, BLOCK, rows).transpose(0, 2, 1).reshape(size, rows * BLOCK)
    return Blocks(
        np.ascontiguousarray(by_row),
        placed(logit),
        placed(label),
        placed(weight / weight.sum()),
        np.repeat(np.arange(heads), blocks),
        scaling == "multiply-doubled",
    )


def packed(net: TemperatureNet) -> Float32:
    """Weights (heads, parameters) as the compiled code reads them, filled up with zeros to whole tiles."""
    heads, width, columns = net.hidden.shape
    padded, rows = _round_up(width), _round_up(columns - 1)
    first = np.zeros((heads, padded, rows), np.float32)
    first[:, :width, : columns - 1] = net.hidden[:, :, :-1]
    units = np.zeros((2, heads, padded), np.float32)
    units[0, :, :width], units[1, :, :width] = net.hidden[:, :, -1], net.output[:, :-1]
    last = net.output[:, -1:].astype(np.float32)
    return np.concatenate((first.reshape(heads, -1), units[0], units[1], last), axis=1)


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


def scratch_for(links: Blocks, width: int, n_bins: int, old: Scratch | None = None) -> Scratch:
    """Memory for networks of a width on these links; `old` if it fits."""
    shape = links.logit.shape
    hidden, lanes = (shape[0], _round_up(width) * BLOCK), (LANES, n_bins)
    if old is not None and (old.hidden.shape, old.lanes.shape) == (hidden, lanes):
        return old
    z, p, pull = (np.empty(shape, np.float32) for _ in range(3))
    bins, row = np.empty(shape, np.uint32), np.empty(BLOCK, np.float32)
    return Scratch(np.empty(hidden, np.float32), z, p, pull, bins, np.empty(lanes), np.empty(n_bins), row)


def bin_gaps(net: TemperatureNet, links: Blocks, n_bins: int) -> FloatArray:
    """Signed sums (n_bins,) of ``weight (label - probability)`` in bins of equal width.

    Bins are closed on the right, 0 belongs to the first; absolute values add up to the positive-class ECE.
    """
    scratch = scratch_for(links, net.hidden.shape[1], n_bins)
    total_loss(packed(net), links, scratch, 0.0)
    return scratch.sums


def train(members: Sequence[Member]) -> list[Trained]:
    """Full-batch Adam on each member, as many at a time as torch has threads.

    With patience, a network ends when its held-out loss has not fallen for so many epochs and keeps the
    weights of its best look. Without, every network runs to the last epoch and keeps the last weights.
    """
    runs = [_Run(member) for member in members]
    waiting = deque(runs)
    # torch knows the limits that users and worker processes set for themselves.
    threads = min(torch.get_num_threads(), os.cpu_count() or 1, len(members))
    if threads <= 1:
        _work(waiting)
        return [run.result() for run in runs]
    # Threads, not processes: compiled code runs without Python's lock, and links are shared.
    with ThreadPoolExecutor(threads) as pool:
        try:
            for worker in [pool.submit(_work, waiting) for _ in range(threads)]:
                worker.result()
        finally:
            # After an error or an interrupt the other threads end with the slice they are at.
            waiting.clear()
    return [run.result() for run in runs]


def _work(waiting: deque[_Run]) -> None:
    """Train in turn, a slice of epochs each, so that all cores are busy until the end."""
    scratch: Scratch | None = None
    while True:
        try:
            run = waiting.popleft()
        except IndexError:
            return
        scratch = run.advance(scratch)
        if not run.done:
            waiting.append(run)


class _Run:
    """A member on its way: its weights, the best of them so far, and the losses."""

    def __init__(self, member: Member) -> None:
        self._member, self._theta = member, packed(member.net)
        self._state = Adam(self._theta, *(np.zeros_like(self._theta) for _ in range(3)))
        self._best, self._best_loss, self._best_epoch = self._theta.copy(), np.inf, 0
        self._epoch, self._stopped = 0, False
        self._curve: list[float] = []
        self._held_out_loss = _held_out_loss(member, self._theta)

    @property
    def done(self) -> bool:
        return self._stopped or self._epoch >= self._member.options.max_iter

    def advance(self, scratch: Scratch | None) -> Scratch:
        """Train a slice of epochs, in memory that fits or in new one; return the memory."""
        member, options = self._member, self._member.options
        scratch = scratch_for(member.links, member.net.hidden.shape[1], options.n_bins, scratch)
        for _ in range(_LOOKS_PER_SLICE):
            first, last = self._epoch + 1, min(self._epoch + _LOOK_EVERY, options.max_iter)
            weight, rate, decay = _floats(member.ece_weight, options.learning_rate, options.weight_decay)
            loss = train_epochs(self._state, member.links, scratch, weight, rate, decay, first, last)
            self._curve.append(loss)
            self._look(last)
            if self.done:
                self._curve.append(total_loss(self._theta, member.links, scratch, weight))
                break
        return scratch

    def _look(self, epoch: int) -> None:
        self._epoch, patience = epoch, self._member.options.patience
        loss = self._held_out_loss()
        # The drawn weights are no result: at least one step is always kept.
        if patience is None or loss < self._best_loss or self._best_epoch == 0:
            self._best[:], self._best_loss, self._best_epoch = self._theta, loss, epoch
        self._stopped = patience is not None and epoch - self._best_epoch >= patience

    def result(self) -> Trained:
        net = unpacked(self._best, self._member.net)
        return Trained(net, self._best_epoch, self._stopped, np.array(self._curve))


def _held_out_loss(member: Member, theta: Float32) -> Callable[[], float]:
    """Function that gives the loss on the held-out links; infinite where nobody asks for it."""
    held_out, options = member.held_out, member.options
    if held_out is None or options.patience is None:
        return lambda: np.inf
    scratch = scratch_for(held_out, member.net.hidden.shape[1], options.n_bins)
    return lambda: float(total_loss(theta, held_out, scratch, float(member.ece_weight)))


def _floats(*values: float) -> tuple[float, ...]:
    """Python floats: a setting given as a whole number would be compiled anew."""
    return tuple(float(value) for value in values)


def _round_up(count: int) -> int:
    """The next multiple of TILE, at least one tile: without inputs, biases are still summed over links."""
    return max(-(-count // TILE), 1) * TILE
