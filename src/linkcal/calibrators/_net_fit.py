"""From calibration links to fitted temperature networks: seeds, folds, choice of the ECE weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal._random import numpy_stream
from linkcal._validation import check_flag, check_positive_int
from linkcal.calibrators._bins import bin_sums
from linkcal.calibrators._net_kernel import SMALLEST_TEMPERATURE, Blocks
from linkcal.calibrators._temperature_net import (
    Member,
    Scaling,
    Trained,
    TrainOptions,
    bin_gaps,
    draw_net,
    link_blocks,
    train,
)
from linkcal.exceptions import InputError

__all__ = ["LinkArrays", "NetFit", "NetJob", "NetSettings", "apply_net", "fit_nets", "seed_from"]

FloatArray = NDArray[np.float64]

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

    def take(self, rows: NDArray[np.bool_]) -> LinkArrays:
        """Some of the links."""
        return LinkArrays(self.logit[rows], self.inputs[rows], self.label[rows], self.weight[rows])

    def blocks(self, heads: int, scaling: Scaling) -> Blocks:
        """The links as the compiled code reads them, weights scaled to sum 1."""
        return link_blocks(self.logit, self.inputs, self.label, self.weight, heads, scaling)


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
        check_flag(self.early_stopping, "early_stopping")
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
class NetJob:
    """What one calibrator asks for: its settings, its links, and the validation links if there are any."""

    settings: NetSettings
    links: LinkArrays
    heads: int
    validation: LinkArrays | None = None


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


def fit_nets(jobs: Sequence[NetJob]) -> list[NetFit]:
    """Train every job's networks together; a job's numbers do not depend on the others.

    Given validation links, one network per ECE weight is trained on all links and the one with the smallest
    validation ECE is returned. Else the ECE weight with the smallest ECE of the pooled held-out links is
    taken, and a new network is trained on all links for as many epochs as its fold networks took on average.
    """
    plans = [_Plan(job) for job in jobs]
    candidates = _train_groups([plan.members() for plan in plans])
    choices = [plan.choose(trained) for plan, trained in zip(plans, candidates, strict=True)]
    again = [[] if choice.fit else [plan.last(choice)] for plan, choice in zip(plans, choices, strict=True)]
    last = _train_groups(again)
    return [
        choice.fit or _net_fit(trained[0], choice.ece_weight, choice.converged)
        for choice, trained in zip(choices, last, strict=True)
    ]


@dataclass(frozen=True)
class _Choice:
    """The chosen ECE weight and, if no network must be trained anew, the network."""

    ece_weight: float
    epochs: int
    converged: bool
    fit: NetFit | None = None


class _Plan:
    """The networks of one job: all ECE weights on each fold."""

    def __init__(self, job: NetJob) -> None:
        for part in (job.links, job.validation):
            if part is not None:
                _check_size(part)
        self._settings, self._heads = job.settings, job.heads
        self._grid = [float(value) for value in job.settings.ece_weights]
        self._links = job.links.canonical()
        self._validated = job.validation is not None
        draw = numpy_stream(self._settings.seed, "initialisation")
        self._net = draw_net(draw, self._links.inputs.shape[1], self._settings.hidden_channels, job.heads)
        # Links to train on and links held out from it.
        folds: list[tuple[LinkArrays, LinkArrays]] = []
        if job.validation is not None:
            folds = [(self._links, job.validation.canonical())]
        elif len(self._grid) > 1 or self._settings.early_stopping:
            outside = _held_out_folds(self._settings, self._links.label)
            folds = [(self._links.take(~rows), self._links.take(rows)) for rows in outside]
        layout = (job.heads, job.settings.scaling)
        self._folds = [(links.blocks(*layout), held_out.blocks(*layout)) for links, held_out in folds]
        self._held_out_weight = [float(held_out.weight.sum()) for _, held_out in folds]

    def members(self) -> list[Member]:
        """Networks numbered fold by fold, all ECE weights of a fold together."""
        options = self._settings.options(patience=self._settings.early_stopping)
        return [
            Member(self._net, links, held_out, weight, options)
            for links, held_out in self._folds
            for weight in self._grid
        ]

    def choose(self, trained: list[Trained]) -> _Choice:
        """ECE weight with the smallest ECE on the held-out links; the first of equals."""
        if not trained:
            return _Choice(self._grid[0], self._settings.max_iter, converged=False)
        # Folds are pooled before the absolute value: one ECE of all held-out links, not a mean of noisier
        # ones.
        gaps = np.zeros((len(self._grid), self._settings.n_bins))
        for number, network in enumerate(trained):
            fold, place = divmod(number, len(self._grid))
            share = bin_gaps(network.net, self._folds[fold][1], self._settings.n_bins)
            gaps[place] += self._held_out_weight[fold] * share
        best = int(np.abs(gaps).sum(axis=1).argmin())
        chosen = trained[best :: len(self._grid)]
        epochs = max(1, round(float(np.mean([network.n_iter for network in chosen]))))
        converged = all(network.stopped for network in chosen)
        fit = _net_fit(chosen[0], self._grid[best], converged) if self._validated else None
        return _Choice(self._grid[best], epochs, converged, fit)

    def last(self, choice: _Choice) -> Member:
        """The network on all links."""
        options = self._settings.options(patience=False, max_iter=choice.epochs)
        links = self._links.blocks(self._heads, self._settings.scaling)
        return Member(self._net, links, None, choice.ece_weight, options)


def _train_groups(groups: Sequence[Sequence[Member]]) -> list[list[Trained]]:
    """Train the members of all groups as one batch."""
    trained = iter(train([member for group in groups for member in group]))
    return [list(islice(trained, len(group))) for group in groups]


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


def _net_fit(trained: Trained, ece_weight: float, converged: bool) -> NetFit:
    return NetFit(
        trained.net.hidden, trained.net.output, ece_weight, trained.n_iter, converged, trained.curve
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
