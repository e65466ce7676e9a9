"""From calibration links to a fitted temperature network: seeds, folds, choice of the ECE weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from linkcal._random import numpy_stream
from linkcal._validation import check_positive_int
from linkcal.calibrators._bins import bin_sums
from linkcal.calibrators._temperature_net import (
    SMALLEST_TEMPERATURE,
    NetLinks,
    Scaling,
    TemperatureNet,
    Trained,
    TrainOptions,
    bin_gaps,
    draw_net,
    temperatures,
    train,
)
from linkcal.exceptions import InputError

__all__ = ["LinkArrays", "NetFit", "NetSettings", "apply_net", "fit_net", "seed_from"]

FloatArray = NDArray[np.float64]

# Single precision takes 60 to 65 % of the time on 17,000 links. Probabilities differ from those of double
# precision by about 1e-3 on average, since the gradient of the ECE term jumps where a bin's error changes
# sign; ECE and likelihood on new links are the same.
_DTYPE = torch.float32

# Up to here products of inputs, gradients and logits over the smallest T stay finite in single precision.
_LARGEST_INPUT = 1e12

# Up to this many different links every fold of three is held out once; above, one fifth is held out once,
# because the ECE of thousands of held-out links is steady enough and each further fold costs a training.
_MANY_LINKS = 4000
_FEW_FOLDS, _MANY_FOLDS = 3, 5


@dataclass(frozen=True)
class LinkArrays:
    """Links as arrays: logit (n,), network inputs (n, k), label (n,) and weight (n,)."""

    logit: FloatArray
    inputs: FloatArray
    label: FloatArray
    weight: FloatArray

    def canonical(self) -> LinkArrays:
        """Equal links merged and sorted, so that neither their order nor copies can change a fit."""
        rows = np.column_stack((self.label, self.logit, self.inputs))
        rows, position = np.unique(rows, axis=0, return_inverse=True)
        weight = bin_sums(position.ravel(), self.weight, len(rows))
        return LinkArrays(rows[:, 1], rows[:, 2:], rows[:, 0], weight)


@dataclass(frozen=True)
class NetSettings:
    """Hyper-parameters of the network calibrators, checked on construction."""

    hidden_channels: int
    ece_weights: Sequence[float]
    n_bins: int
    learning_rate: float
    weight_decay: float
    max_iter: int
    early_stopping: bool
    patience: int
    n_folds: int | None
    seed: int
    scaling: Scaling = "divide"

    def __post_init__(self) -> None:
        for name in ("hidden_channels", "n_bins", "max_iter", "patience"):
            check_positive_int(getattr(self, name), name)
        if self.n_folds is not None:
            check_positive_int(self.n_folds, "n_folds", minimum=2)
        if not len(self.ece_weights):
            raise InputError("ece_weights must hold at least one weight, got none")
        for value in self.ece_weights:
            _check_number(value, "ece_weights")
        _check_number(self.weight_decay, "weight_decay")
        if _check_number(self.learning_rate, "learning_rate") == 0.0:
            raise InputError("learning_rate must be > 0, got 0")

    @classmethod
    def of(cls, estimator: Any) -> NetSettings:
        """Read the settings off an estimator whose parameters have these names."""
        names = set(cls.__dataclass_fields__) - {"seed", "scaling"}
        return cls(
            seed=seed_from(estimator.random_state),
            scaling=estimator._scaling(),
            **{name: getattr(estimator, name) for name in names},
        )

    def options(self, *, patience: bool, max_iter: int | None = None) -> TrainOptions:
        """Return the settings of one call of the training loop."""
        return TrainOptions(
            self.n_bins,
            float(self.learning_rate),
            float(self.weight_decay),
            self.max_iter if max_iter is None else max_iter,
            self.patience if patience else None,
        )


@dataclass(frozen=True)
class NetFit:
    """A fitted network, heads along the first axis; the last column of a weight array is the bias."""

    hidden: FloatArray  # (heads, H, k + 1)
    output: FloatArray  # (heads, H + 1)
    ece_weight: float
    n_iter: int
    converged: bool
    loss_curve: FloatArray


def seed_from(random_state: Any) -> int:
    """Seed >= 0 from an integer, a NumPy generator or RandomState, or None (a fresh one)."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return check_positive_int(random_state, "random_state", minimum=0)


def apply_net(
    hidden: FloatArray,
    output: FloatArray,
    logit: FloatArray,
    inputs: FloatArray,
    scaling: Scaling = "divide",
) -> FloatArray:
    """Temperature (n,) of links, in float64, so that ``z = s / T``; heads as in :class:`NetFit`."""
    head = (logit > 0.0).astype(np.intp) if len(hidden) == 2 else np.zeros(len(logit), np.intp)
    temperature = np.empty(len(logit))
    for h in range(len(hidden)):
        rows = head == h
        layer = np.maximum(inputs[rows] @ hidden[h, :, :-1].T + hidden[h, :, -1], 0.0)
        temperature[rows] = np.logaddexp(0.0, layer @ output[h, :-1] + output[h, -1])
    temperature = np.maximum(temperature, SMALLEST_TEMPERATURE)
    return temperature if scaling == "divide" else 0.5 / temperature


def fit_net(
    settings: NetSettings, links: LinkArrays, heads: int, validation: LinkArrays | None = None
) -> NetFit:
    """Train, with the ECE weight chosen on `validation` or, without it, by folds of `links`.

    Given validation links, one network per ECE weight is trained on all `links` and the one with the
    smallest validation ECE is returned. Else the ECE weight with the smallest ECE of the pooled held-out
    links is taken, and a new network is trained on all links for as many epochs as its fold networks took on
    average.
    """
    for part in (links, validation):
        if part is not None:
            _check_size(part)
    links = links.canonical()
    draw = numpy_stream(settings.seed, "initialisation")
    net = draw_net(draw, links.inputs.shape[1], settings.hidden_channels, heads, _DTYPE)
    if validation is not None:
        return _fit_with_validation(settings, net, links, validation.canonical())
    return _fit_with_folds(settings, net, links)


def _fit_with_validation(
    settings: NetSettings, net: TemperatureNet, links: LinkArrays, validation: LinkArrays
) -> NetFit:
    both = LinkArrays(
        *(
            np.concatenate((getattr(links, name), getattr(validation, name)))
            for name in ("logit", "inputs", "label", "weight")
        )
    )
    held_out = np.arange(len(both.label)) >= len(links.label)
    return _fit_held_out(settings, net, both, held_out[None])[0]


def _fit_with_folds(settings: NetSettings, net: TemperatureNet, links: LinkArrays) -> NetFit:
    best, epochs, converged = float(settings.ece_weights[0]), settings.max_iter, False
    if len(settings.ece_weights) > 1 or settings.early_stopping:
        fit, epochs = _fit_held_out(settings, net, links, _held_out_folds(settings, links.label))
        best, converged = fit.ece_weight, fit.converged
    prepared, order = _net_links(links, net.hidden.size(1), settings.scaling)
    weight = _normalised(links.weight[order][None])
    options = settings.options(patience=False, max_iter=epochs)
    trained = train(net, prepared, weight, weight, torch.tensor([best], dtype=_DTYPE), options)
    return _net_fit(trained, 0, best, converged)


def _fit_held_out(
    settings: NetSettings, net: TemperatureNet, links: LinkArrays, held_out: NDArray[np.bool_]
) -> tuple[NetFit, int]:
    """Best network by ECE on the held-out links, and the mean number of epochs of its folds.

    `held_out` (F, n) marks the links that are held out from each fold's training.
    """
    folds, grid = len(held_out), np.asarray(settings.ece_weights, dtype=np.float64)
    prepared, order = _net_links(links, net.hidden.size(1), settings.scaling)
    # Networks are numbered fold by fold, all ECE weights of a fold together.
    outside = np.repeat(held_out[:, order], len(grid), axis=0)
    train_weight = _normalised(np.where(outside, 0.0, links.weight[order]))
    held_out_weight = _normalised(np.where(outside, links.weight[order], 0.0))
    ece_weight = torch.as_tensor(np.tile(grid, folds), dtype=_DTYPE)
    options = settings.options(patience=settings.early_stopping)
    trained = train(net, prepared, train_weight, held_out_weight, ece_weight, options)

    temperature = temperatures(trained.net, prepared.inputs, prepared.slices, settings.scaling)
    probability = torch.sigmoid(prepared.logit / temperature)
    # Folds are pooled before the absolute value: one ECE of all held-out links, not a mean of noisier ones.
    weight = torch.as_tensor(np.where(outside, links.weight[order], 0.0), dtype=_DTYPE)
    gaps = bin_gaps(probability, prepared.label, weight, settings.n_bins)
    ece = gaps.view(folds, len(grid), -1).sum(0).abs().sum(1)
    best = int(ece.argmin())
    members = np.arange(folds) * len(grid) + best
    converged = bool(trained.stopped[members].all())
    epochs = max(1, round(float(trained.n_iter[members].mean())))
    return _net_fit(trained, best, float(grid[best]), converged), epochs


def _held_out_folds(settings: NetSettings, label: FloatArray) -> NDArray[np.bool_]:
    """Held-out links (F, n) of stratified folds."""
    n = len(label)
    n_folds, used = settings.n_folds, settings.n_folds
    if n_folds is None:
        n_folds, used = (_FEW_FOLDS, _FEW_FOLDS) if n <= _MANY_LINKS else (_MANY_FOLDS, 1)
    n_folds = min(n_folds, n)
    rng = numpy_stream(settings.seed, "folds")
    # One class after the other, dealt out in turn: every fold gets its share of both and none is empty.
    dealt = np.concatenate([rng.permutation(np.flatnonzero(label == value)) for value in (0.0, 1.0)])
    fold = np.empty(n, np.intp)
    fold[dealt] = np.arange(n) % n_folds
    return np.equal(fold, np.arange(min(n_folds, used or n_folds))[:, None])


def _net_links(links: LinkArrays, heads: int, scaling: Scaling) -> tuple[NetLinks, NDArray[np.intp]]:
    """Links sorted by head, and the order that sorts them."""
    head = (links.logit > 0.0).astype(np.intp) if heads == 2 else np.zeros(len(links.logit), np.intp)
    order = np.argsort(head, kind="stable")
    ends = np.cumsum(np.bincount(head, minlength=heads))
    slices = tuple(
        slice(int(end - size), int(end)) for end, size in zip(ends, np.diff(ends, prepend=0), strict=True)
    )
    inputs = np.vstack((links.inputs[order].T, np.ones(len(order))))
    prepared = NetLinks(
        torch.as_tensor(links.logit[order]).to(_DTYPE),
        torch.as_tensor(inputs).to(_DTYPE),
        torch.as_tensor(links.label[order]).to(_DTYPE),
        slices,
        scaling,
    )
    return prepared, order


def _normalised(weight: FloatArray) -> torch.Tensor:
    return torch.as_tensor(weight / weight.sum(axis=1, keepdims=True)).to(_DTYPE)


def _net_fit(trained: Trained, j: int, ece_weight: float, converged: bool) -> NetFit:
    curve = trained.curve[:, j]
    return NetFit(
        trained.net.hidden[j].double().numpy(),
        trained.net.output[j].double().numpy(),
        ece_weight,
        int(trained.n_iter[j]),
        converged,
        curve[~np.isnan(curve)],
    )


def _check_size(links: LinkArrays) -> None:
    largest = max(np.abs(links.logit).max(), np.abs(links.inputs).max(initial=0.0))
    if largest > _LARGEST_INPUT:
        raise InputError(
            f"X must be at most {_LARGEST_INPUT:g} in absolute value to train a network, got {largest:g}"
        )


def _check_number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 <= float(value) < np.inf:
        raise InputError(f"{name} must be finite and >= 0, got {value!r}")
    return float(value)
