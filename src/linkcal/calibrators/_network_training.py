"""From calibration links to fitted temperature networks, many at a time.

A network is ``T = softplus(w2 . relu(W1 x + b1) + b2)`` with one head for all links or one per sign of the
logit. Threads train all networks of a batch (every data set, fold and ECE weight) in compiled code; they
share no arithmetic, so a network's numbers are the same to the last bit whatever it is trained with.

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
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from linkcal._core.random import numpy_stream
from linkcal.calibrators._network_kernel import (
    BLOCK,
    LANES,
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

FloatArray = NDArray[np.float64]

# Epochs between held-out losses.
_LOOK_EVERY = 10
# Looks until a thread goes on to the next network: rarely, so that a network's links stay in the cache.
_LOOKS_PER_SLICE = 5
# Up to here products of inputs, gradients and logits over the smallest T stay finite in single precision.
_LARGEST_INPUT = 1e12
# Up to this many different links each of three folds is held out once; above, one fifth once.
_MANY_LINKS = 4000
_FEW_FOLDS, _MANY_FOLDS = 3, 5


class TemperatureNet(NamedTuple):
    """Weights of a network: first axis the head (0: ``s <= 0``, 1: ``s > 0``), last column the bias."""

    hidden: FloatArray  # (heads, H, k + 1)
    output: FloatArray  # (heads, H + 1)


def draw_net(rng: np.random.Generator, k: int, width: int, heads: int) -> TemperatureNet:
    """Weights drawn as PyTorch's ``Linear`` does: uniform within ``1 / sqrt(fan_in)``."""
    hidden_bound = 1.0 / np.sqrt(k) if k else 0.0
    hidden = rng.uniform(-hidden_bound, hidden_bound, (heads, width, k + 1))
    output_bound = 1.0 / np.sqrt(width)
    return TemperatureNet(hidden, rng.uniform(-output_bound, output_bound, (heads, width + 1)))


def apply_net(
    net: TemperatureNet, logit: FloatArray, inputs: FloatArray, scaling: Scaling = "divide"
) -> FloatArray:
    """Temperature (n,) of links, in float64, so that ``z = s / T``."""
    head = (logit > 0.0).astype(np.intp) if len(net.hidden) == 2 else np.zeros(len(logit), np.intp)
    temperature = np.empty(len(logit))
    for h, (hidden, output) in enumerate(zip(*net, strict=True)):
        rows = head == h
        layer = np.maximum(inputs[rows] @ hidden[:, :-1].T + hidden[:, -1], 0.0)
        temperature[rows] = np.logaddexp(0.0, layer @ output[:-1] + output[-1])
    temperature = np.maximum(temperature, SMALLEST_TEMPERATURE)
    return temperature if scaling == "divide" else 0.5 / temperature


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


@dataclass(frozen=True)
class LinkArrays:
    """Links as arrays: logit (n,), network inputs (n, k), label (n,) and weight (n,)."""

    logit: FloatArray
    inputs: FloatArray
    label: FloatArray
    weight: FloatArray

    def canonical(self) -> LinkArrays:
        """Equal links merged and sorted, so that neither their order nor copies can change a fit."""
        largest = max(np.abs(self.logit).max(), np.abs(self.inputs).max(initial=0.0))
        if largest > _LARGEST_INPUT:
            raise InputError(
                f"X must be at most {_LARGEST_INPUT:g} in absolute value to train a network, got {largest:g}"
            )
        rows = np.column_stack((self.label, self.logit, self.inputs))
        rows, position = np.unique(rows, axis=0, return_inverse=True)
        weight = bin_sums(position.ravel(), self.weight, len(rows))
        return LinkArrays(rows[:, 1], rows[:, 2:], rows[:, 0], weight)

    def take(self, rows: NDArray[np.bool_]) -> LinkArrays:
        """Some of the links."""
        return LinkArrays(self.logit[rows], self.inputs[rows], self.label[rows], self.weight[rows])

    def blocks(self, heads: int, scaling: Scaling = "divide") -> Blocks:
        """The links in the layout of the compiled code, weights scaled to sum 1."""
        head = (self.logit > 0.0).astype(np.intp) if heads == 2 else np.zeros(len(self.logit), np.intp)
        count = np.bincount(head, minlength=heads)
        blocks = -(-count // BLOCK)
        filling = blocks * BLOCK - count
        order = np.argsort(head, kind="stable")
        place = np.arange(len(head)) + np.repeat(np.cumsum(filling) - filling, count)
        rows, size = _round_up(self.inputs.shape[1]), int(blocks.sum())

        filled = np.zeros((size * BLOCK, rows + 3), np.float32)
        filled[place, : self.inputs.shape[1]] = self.inputs[order]
        filled[place, rows:] = np.column_stack((self.logit, self.label, self.weight / self.weight.sum()))[
            order
        ]
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
    loss_curve: FloatArray  # (looks,) training loss


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
    """Signed sums (n_bins,) of ``weight (label - probability)`` in bins; absolute they add up to the ECE."""
    scratch = scratch_for(links, net.hidden.shape[1], n_bins)
    total_loss(packed(net), links, scratch, 0.0)
    return scratch.sums


def train(members: Sequence[Member]) -> list[Trained]:
    """Full-batch Adam on each member, as many at a time as torch (if it is loaded) or Numba has threads.

    With patience, a network ends when its held-out loss has not fallen for so many epochs and keeps the
    weights of its best look. Without, it runs to the last epoch and keeps the last weights.
    """
    runs = [_Run(member) for member in members]
    waiting = deque(runs)
    # Both know the limits that users and worker processes set for themselves.
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch is not None else numba.get_num_threads()
    threads = max(1, min(threads, os.cpu_count() or 1, len(members)))
    # Threads: compiled code runs without Python's lock, and links are shared.
    with ThreadPoolExecutor(threads) as pool:
        try:
            for worker in [pool.submit(_work, waiting) for _ in range(threads)]:
                worker.result()
        finally:
            # The other threads then end with the slice they are at.
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
        watched = member.held_out if member.patience is not None else None
        self._watched = None if watched is None else (watched, self._scratch(watched))

    @property
    def done(self) -> bool:
        return self._stopped or self._epoch >= self._member.max_iter

    def advance(self, scratch: Scratch | None) -> Scratch:
        """Train a slice of epochs, in memory that fits or in new one; return the memory."""
        member, scratch = self._member, self._scratch(self._member.links, scratch)
        # Python floats: a setting given as a whole number would be compiled anew.
        weight, rate, decay = map(float, (member.ece_weight, member.learning_rate, member.weight_decay))
        for _ in range(_LOOKS_PER_SLICE):
            first, last = self._epoch + 1, min(self._epoch + _LOOK_EVERY, member.max_iter)
            loss = train_epochs(self._state, member.links, scratch, weight, rate, decay, first, last)
            self._curve.append(loss)
            self._look(last)
            if self.done:
                self._curve.append(total_loss(self._theta, member.links, scratch, weight))
                break
        return scratch

    def result(self) -> Trained:
        net = unpacked(self._best, self._member.net)
        weight = self._member.ece_weight
        return Trained(net, weight, self._best_epoch, self._stopped, np.array(self._curve))

    def _look(self, epoch: int) -> None:
        self._epoch, patience, loss = epoch, self._member.patience, np.inf
        if self._watched is not None:
            loss = float(total_loss(self._theta, *self._watched, float(self._member.ece_weight)))
        # The drawn weights are no result: at least one step is always kept.
        if patience is None or loss < self._best_loss or self._best_epoch == 0:
            self._best[:], self._best_loss, self._best_epoch = self._theta, loss, epoch
        self._stopped = patience is not None and epoch - self._best_epoch >= patience

    def _scratch(self, links: Blocks, old: Scratch | None = None) -> Scratch:
        return scratch_for(links, self._member.net.hidden.shape[1], self._member.n_bins, old)


@dataclass(frozen=True)
class NetJob:
    """What one calibrator needs: hyper-parameters, links, and the validation links if there are any."""

    settings: Any  # the calibrator
    seed: int
    heads: int
    scaling: Scaling
    links: LinkArrays
    validation: LinkArrays | None = None


def fit_nets(jobs: Sequence[NetJob]) -> list[Trained]:
    """Train every job's networks together; a job's numbers do not depend on the others.

    With validation links: one network per ECE weight, of which the one with the smallest validation ECE.
    Else: the ECE weight with the smallest pooled held-out ECE, trained anew for the mean epochs of its folds.
    """
    plans = [_Plan(job) for job in jobs]
    trained = iter(train([member for plan in plans for member in plan.members]))
    choices = [plan.choose(list(islice(trained, len(plan.members)))) for plan in plans]
    anew = iter(train([chosen for chosen, _ in choices if isinstance(chosen, Member)]))
    return [
        (next(anew) if isinstance(chosen, Member) else chosen)._replace(converged=converged)
        for chosen, converged in choices
    ]


class _Plan:
    """The networks of one job: all ECE weights on each fold."""

    def __init__(self, job: NetJob) -> None:
        settings = job.settings
        self._job, self._grid = job, [float(value) for value in settings.ece_weights]
        self._links = job.links.canonical()
        rng = numpy_stream(job.seed, "initialisation")
        net = draw_net(rng, self._links.inputs.shape[1], settings.hidden_channels, job.heads)
        self._member = partial(Member, net, settings.n_bins, settings.learning_rate, settings.weight_decay)
        folds: list[tuple[LinkArrays, LinkArrays]] = []
        if job.validation is not None:
            folds = [(self._links, job.validation.canonical())]
        elif len(self._grid) > 1 or settings.early_stopping:
            folds = [
                (self._links.take(~rows), self._links.take(rows))
                for rows in _held_out_folds(job, self._links.label)
            ]
        patience = settings.patience if settings.early_stopping else None
        #: Fold by fold, all ECE weights of a fold together.
        self.members: list[Member] = []
        self._held_out: list[tuple[Blocks, float]] = []
        for links, outside in folds:
            inner, outer = (part.blocks(job.heads, job.scaling) for part in (links, outside))
            self._held_out.append((outer, float(outside.weight.sum())))
            self.members += [
                self._member(inner, outer, weight, settings.max_iter, patience) for weight in self._grid
            ]

    def choose(self, trained: list[Trained]) -> tuple[Trained | Member, bool]:
        """The network of the smallest held-out ECE (after folds, yet to train) and whether it converged."""
        settings, best, epochs, converged = self._job.settings, 0, self._job.settings.max_iter, False
        if trained:
            # Pooled before the absolute value: one ECE of all held-out links.
            gaps = np.zeros((len(self._grid), settings.n_bins))
            for number, network in enumerate(trained):
                fold, place = divmod(number, len(self._grid))
                held_out, total = self._held_out[fold]
                gaps[place] += total * bin_gaps(network.net, held_out, settings.n_bins)
            best = int(np.abs(gaps).sum(axis=1).argmin())
            chosen = trained[best :: len(self._grid)]
            converged = all(network.converged for network in chosen)
            if self._job.validation is not None:
                return chosen[0], converged
            epochs = max(1, round(float(np.mean([network.n_iter for network in chosen]))))
        links = self._links.blocks(self._job.heads, self._job.scaling)
        return self._member(links, None, self._grid[best], epochs), converged


def _held_out_folds(job: NetJob, label: FloatArray) -> NDArray[np.bool_]:
    """Held-out links (F, n) of stratified folds."""
    n = len(label)
    n_folds = used = job.settings.n_folds
    if n_folds is None or used is None:
        n_folds, used = (_FEW_FOLDS, _FEW_FOLDS) if n <= _MANY_LINKS else (_MANY_FOLDS, 1)
    n_folds = min(n_folds, n)
    rng = numpy_stream(job.seed, "folds")
    # One class after the other, dealt out in turn: no fold is empty.
    dealt = np.concatenate([rng.permutation(np.flatnonzero(label == value)) for value in (0.0, 1.0)])
    fold = np.empty(n, np.intp)
    fold[dealt] = np.arange(n) % n_folds
    return np.equal(fold, np.arange(min(n_folds, used))[:, None])


def _round_up(count: int) -> int:
    """The next multiple of TILE, at least one tile: without inputs, biases are still summed over links."""
    return max(-(-count // TILE), 1) * TILE
