"""Small networks that give each link a temperature: loss, gradient and their training, many at a time.

All networks of a fit (every ECE weight on every fold) are stacked along a leading axis J and trained in one
loop. The gradient is written out: with one hidden ReLU layer everything follows from one matrix product,
which takes a fraction of the time and memory of automatic differentiation at these sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from linkcal._threads import torch_threads

__all__ = [
    "Losses",
    "NetLinks",
    "Scaling",
    "TemperatureNet",
    "TrainOptions",
    "Trained",
    "bin_gaps",
    "draw_net",
    "link_temperature",
    "loss_and_gradient",
    "temperatures",
    "train",
]

FloatArray = NDArray[np.float64]

#: How the networks' output o scales the logit: ``s / t`` or ``2 s t``, with ``t = softplus(o)``.
Scaling = Literal["divide", "multiply-doubled"]

#: Floor of the temperature: softplus underflows to 0 far below, and s / T would overflow.
SMALLEST_TEMPERATURE = 1e-4

# Held-out losses are looked at every so many epochs.
_LOOK_EVERY = 10

# Up to so many hidden activations an operation takes tens of microseconds, and a second thread costs more
# than it brings: on busy cores a fit took 30 times as long with two threads.
_ONE_THREAD_ACTIVATIONS = 1 << 19

# Adam's constants as in its paper (arXiv 1412.6980), which are PyTorch's defaults.
_BETA1, _BETA2, _ADAM_EPS = 0.9, 0.999, 1e-8


class TemperatureNet(NamedTuple):
    """Weights of J stacked networks ``o = w2 . relu(W1 x + b1) + b2``, with T = softplus(o).

    One head for all links, or one per sign of the logit (0: ``s <= 0``, 1: ``s > 0``). The last column of
    each tensor is the bias.
    """

    hidden: Tensor  # (J, heads, H, k + 1)
    output: Tensor  # (J, heads, H + 1)


class NetLinks(NamedTuple):
    """Links in the layout of the training loop: sorted by head, so that each head's links are one slice."""

    logit: Tensor  # (n,)
    inputs: Tensor  # (k + 1, n), last row ones
    label: Tensor  # (n,)
    slices: tuple[slice, ...]  # one per head
    scaling: Scaling = "divide"


class Losses(NamedTuple):
    """Loss (J,) on the training links and on the held-out links."""

    train: Tensor
    held_out: Tensor


@dataclass(frozen=True)
class TrainOptions:
    """Settings of the training loop; `patience` None trains to the last epoch."""

    n_bins: int
    learning_rate: float
    weight_decay: float
    max_iter: int
    patience: int | None


@dataclass(frozen=True)
class Trained:
    """J trained networks."""

    net: TemperatureNet
    n_iter: NDArray[np.intp]  # (J,) epoch of the returned weights
    stopped: NDArray[np.bool_]  # (J,) the held-out loss had stopped falling
    curve: FloatArray  # (looks, J) training loss, NaN after a network has stopped


def draw_net(rng: np.random.Generator, k: int, width: int, heads: int, dtype: torch.dtype) -> TemperatureNet:
    """One network (J = 1) drawn as PyTorch's ``Linear`` does: uniform within ``1 / sqrt(fan_in)``."""
    hidden_bound = 1.0 / np.sqrt(k) if k else 0.0
    hidden = rng.uniform(-hidden_bound, hidden_bound, (1, heads, width, k + 1))
    output_bound = 1.0 / np.sqrt(width)
    output = rng.uniform(-output_bound, output_bound, (1, heads, width + 1))
    return TemperatureNet(torch.as_tensor(hidden, dtype=dtype), torch.as_tensor(output, dtype=dtype))


def link_temperature(raw: Tensor, scaling: Scaling) -> tuple[Tensor, Tensor]:
    """Temperature T of raw outputs o, so that ``z = s / T``, and its slope ``d log T / do``."""
    t = softplus(raw).clamp_min_(SMALLEST_TEMPERATURE)
    slope = torch.sigmoid(raw).div_(t)
    return (t, slope) if scaling == "divide" else (0.5 / t, slope.neg_())


def temperatures(
    net: TemperatureNet, inputs: Tensor, slices: tuple[slice, ...], scaling: Scaling = "divide"
) -> Tensor:
    """Temperatures (J, n) of links sorted by head; `inputs` (k + 1, n) with a last row of ones."""
    raw, _ = _forward(net, inputs, slices, None)
    return link_temperature(raw, scaling)[0]


def bin_gaps(probability: Tensor, label: Tensor, weight: Tensor, n_bins: int) -> Tensor:
    """Signed sums (J, n_bins) of ``weight (label - probability)`` in bins of equal width.

    Bins are closed on the right, 0 belongs to the first; absolute values add up to the positive-class ECE.
    """
    return _sums(_bin_numbers(probability, n_bins), weight * (label - probability), n_bins)


def loss_and_gradient(
    net: TemperatureNet,
    links: NetLinks,
    train_weight: Tensor,
    held_out_weight: Tensor | None,
    ece_weight: Tensor,
    n_bins: int,
    buffers: list[Tensor] | None = None,
) -> tuple[TemperatureNet, Losses | None]:
    """Gradient of the training loss of J networks and, if `held_out_weight` is given, the losses.

    Parameters
    ----------
    net : TemperatureNet
    links : NetLinks
    train_weight, held_out_weight : Tensor of shape (J, n)
        Rows sum to 1; 0 takes a link out.
    ece_weight : Tensor of shape (J,)
        lambda.
    n_bins : int
    buffers : list of Tensor, optional
        Per head, memory (>= J H, n_head) for the hidden layer. Fresh memory for it would cost more than the
        arithmetic.

    Returns
    -------
    gradient : TemperatureNet
    losses : Losses or None

    Notes
    -----
    The paper's loss ``L_NLL + L_Cal + lambda L_ECE`` with ``z = s / T`` and ``p = sigmoid(z)``:
    ``L_NLL = sum w (softplus(z) - y z)``, ``L_Cal = -sum w (2y - 1) p``,
    ``L_ECE = sum_b |sum_{i in b} w_i (y_i - p_i)|``. With the bins held fixed,

        dL/dz = w [p - y - (2y - 1 + lambda sign_b) p (1 - p)],    dz/do = -z sigmoid(o) / T

    (for ``z = 2 s t`` instead, ``dz/do = z sigmoid(o) / t``).

    Below that, with ``G_h = sum_i dL/do_i 1[h active at i] (x_i, 1)``: ``dL/dW1_h = w2_h G_h`` and
    ``dL/dw2_h = W1_h . G_h``.
    """
    raw, hidden = _forward(net, links.inputs, links.slices, buffers)
    temperature, log_slope = link_temperature(raw, links.scaling)
    z = links.logit / temperature
    p = torch.sigmoid(z)
    bins = _bin_numbers(p, n_bins)
    error = links.label - p
    sums = _sums(bins, train_weight * error, n_bins)
    signed = 2.0 * links.label - 1.0

    losses = None
    if held_out_weight is not None:
        per_link = softplus(z) - links.label * z - signed * p
        held_out_sums = _sums(bins, held_out_weight * error, n_bins)
        losses = Losses(
            (train_weight * per_link).sum(1) + ece_weight * sums.abs().sum(1),
            (held_out_weight * per_link).sum(1) + ece_weight * held_out_sums.abs().sum(1),
        )

    pull = (sums.sign() * ece_weight[:, None]).gather(1, bins).add_(signed)
    slope = (pull * p * (1.0 - p)).add_(error).mul_(train_weight)
    slope.mul_(z).mul_(log_slope)
    return _backward(net, links, hidden, slope), losses


def train(
    net: TemperatureNet,
    links: NetLinks,
    train_weight: Tensor,
    held_out_weight: Tensor,
    ece_weight: Tensor,
    options: TrainOptions,
) -> Trained:
    """Full-batch Adam on J copies of one network; arguments as in :func:`loss_and_gradient`.

    With patience, a network ends when its held-out loss has not fallen for so many epochs and keeps the
    weights of its best look. Without, every network runs to the last epoch and keeps the last weights.
    """
    activations = len(ece_weight) * net.hidden.size(2) * len(links.logit)
    if activations > _ONE_THREAD_ACTIVATIONS:
        return _train(net, links, train_weight, held_out_weight, ece_weight, options)
    with torch_threads(1):
        return _train(net, links, train_weight, held_out_weight, ece_weight, options)


def _train(
    net: TemperatureNet,
    links: NetLinks,
    train_weight: Tensor,
    held_out_weight: Tensor,
    ece_weight: Tensor,
    options: TrainOptions,
) -> Trained:
    count = len(ece_weight)
    theta = _flatten(net).repeat(count, 1)
    moment1, moment2 = torch.zeros_like(theta), torch.zeros_like(theta)
    record = _Record(theta, options)
    width = net.hidden.size(2)
    buffers = [links.logit.new_empty(count * width, rows.stop - rows.start) for rows in links.slices]
    for epoch in range(options.max_iter + 1):
        look = epoch % _LOOK_EVERY == 0 or epoch == options.max_iter
        gradient, losses = loss_and_gradient(
            _unflatten(theta, net),
            links,
            train_weight,
            held_out_weight if look else None,
            ece_weight,
            options.n_bins,
            buffers,
        )
        step = _flatten(gradient)
        if losses is not None:
            going = record.look(epoch, theta, losses)
            if not bool(going.all()):
                # Stopped networks leave the stack and cost nothing any more.
                theta, moment1, moment2, step = theta[going], moment1[going], moment2[going], step[going]
                train_weight, held_out_weight = train_weight[going], held_out_weight[going]
                ece_weight = ece_weight[going]
        if epoch == options.max_iter or not len(theta):
            break
        _adam_step(theta, moment1, moment2, step, epoch + 1, options)
    return record.result(net)


class _Record:
    """Best weights so far of each network, and which are still training."""

    def __init__(self, theta: Tensor, options: TrainOptions) -> None:
        count = len(theta)
        self._patience = options.patience
        self._theta = theta.clone()
        self._loss = torch.full((count,), torch.inf, dtype=theta.dtype)
        self._epoch = torch.zeros(count, dtype=torch.int64)
        self._running = torch.arange(count)
        self._stopped = torch.zeros(count, dtype=torch.bool)
        self._curve: list[Tensor] = []

    def look(self, epoch: int, theta: Tensor, losses: Losses) -> Tensor:
        """Take over improved networks; return which of the running ones go on."""
        running = self._running
        row = torch.full((len(self._theta),), torch.nan, dtype=torch.float64)
        row[running] = losses.train.double()
        self._curve.append(row)
        if epoch == 0:
            # The drawn weights are no result: at least one step is always kept.
            return torch.ones(len(running), dtype=torch.bool)
        better = torch.ones(len(running), dtype=torch.bool)
        if self._patience is not None:
            better = losses.held_out < self._loss[running]
        at = running[better]
        self._theta[at], self._loss[at], self._epoch[at] = theta[better], losses.held_out[better], epoch
        going = torch.ones_like(better)
        if self._patience is not None:
            going = epoch - self._epoch[running] < self._patience
        self._stopped[running[~going]] = True
        self._running = running[going]
        return going

    def result(self, like: TemperatureNet) -> Trained:
        return Trained(
            _unflatten(self._theta, like),
            self._epoch.numpy(),
            self._stopped.numpy(),
            torch.stack(self._curve).numpy(),
        )


def _forward(
    net: TemperatureNet, inputs: Tensor, slices: tuple[slice, ...], buffers: list[Tensor] | None
) -> tuple[Tensor, list[Tensor]]:
    """Raw outputs o (J, n) and, per head, the hidden layer after ReLU (J, H, n_head)."""
    count, _, width, _ = net.hidden.shape
    raw = inputs.new_empty(count, inputs.size(1))
    layers = []
    for head, rows in enumerate(slices):
        # All networks in one product: (J H, k + 1) @ (k + 1, n_head).
        weight = net.hidden[:, head].reshape(count * width, -1)
        out = None if buffers is None else buffers[head][: count * width]
        layer = torch.matmul(weight, inputs[:, rows], out=out).relu_().view(count, width, -1)
        output = torch.matmul(net.output[:, head, None, :-1], layer)[:, 0]
        raw[:, rows] = output + net.output[:, head, -1:]
        layers.append(layer)
    return raw, layers


def _backward(net: TemperatureNet, links: NetLinks, layers: list[Tensor], slope: Tensor) -> TemperatureNet:
    """Gradient from dL/do = `slope` (J, n); overwrites `layers`."""
    count, _, width, columns = net.hidden.shape
    gradient = TemperatureNet(torch.empty_like(net.hidden), torch.empty_like(net.output))
    for head, rows in enumerate(links.slices):
        # After ReLU the sign is 1 where the unit is active.
        active = layers[head].sign_().mul_(slope[:, None, rows])
        g = (active.view(count * width, -1) @ links.inputs[:, rows].T).view(count, width, columns)
        gradient.hidden[:, head] = net.output[:, head, :-1, None] * g
        gradient.output[:, head, :-1] = (net.hidden[:, head] * g).sum(2)
        gradient.output[:, head, -1] = slope[:, rows].sum(1)
    return gradient


def _adam_step(
    theta: Tensor, moment1: Tensor, moment2: Tensor, gradient: Tensor, step: int, options: TrainOptions
) -> None:
    """One Adam step in place, weight decay added to the gradient, as ``torch.optim.Adam``."""
    gradient = gradient + options.weight_decay * theta
    moment1.lerp_(gradient, 1.0 - _BETA1)
    moment2.mul_(_BETA2).addcmul_(gradient, gradient, value=1.0 - _BETA2)
    root = (moment2 / (1.0 - _BETA2**step)).sqrt_().add_(_ADAM_EPS)
    theta.addcdiv_(moment1, root, value=-options.learning_rate / (1.0 - _BETA1**step))


def _bin_numbers(p: Tensor, n_bins: int) -> Tensor:
    return (p * n_bins).ceil_().sub_(1.0).clamp_(0.0, n_bins - 1.0).long()


def _sums(bins: Tensor, values: Tensor, n_bins: int) -> Tensor:
    return values.new_zeros(len(values), n_bins).scatter_add_(1, bins, values)


def _flatten(net: TemperatureNet) -> Tensor:
    return torch.cat((net.hidden.flatten(1), net.output.flatten(1)), dim=1)


def _unflatten(theta: Tensor, like: TemperatureNet) -> TemperatureNet:
    cut = like.hidden[0].numel()
    return TemperatureNet(
        theta[:, :cut].reshape(-1, *like.hidden.shape[1:]), theta[:, cut:].reshape(-1, *like.output.shape[1:])
    )
