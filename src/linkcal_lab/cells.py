"""What a sweep consists of: cells, grouped by the training that they share, in the order of work.

A cell is (data set, model, training seed, calibration seed, fit_on) under fixed other settings. Its folder is

    STORE/<data set>/<model>[~setting=value...]/train-<seed>/<fit_on>/cal-<seed>/

and the training that its calibrations share lies in ``.../train-<seed>/training/``. Settings appear in the
name where they differ from their default, so a new field of :class:`RunConfig` finds its place by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from linkcal._core.validation import check_choice, check_positive_int
from linkcal.data import DATASETS
from linkcal.exceptions import InputError
from linkcal.features import FIT_ON
from linkcal.workflow import RunConfig
from linkcal_lab.protocols import departures, run_config

#: Fields of RunConfig with their own place in the layout.
_PLACED = ("dataset", "model", "seed", "fit_on")
#: What all cells of a sweep may share. No base rate: they are measured at that of the test links.
_SETTINGS = tuple(each.name for each in fields(RunConfig) if each.name not in (*_PLACED, "base_rate"))
#: Most seeds that a command line may name.
_MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Cell:
    """One measured unit of a training: a calibration seed and what the calibrators are fitted on."""

    fit_on: str
    calibration_seed: int

    @property
    def name(self) -> str:
        """Folder of the cell inside that of its training."""
        return f"{self.fit_on}/cal-{self.calibration_seed}"


@dataclass(frozen=True)
class TrainingJob:
    """A training and all its cells in a sweep: the unit of work of one process.

    The seed of `config` is the training seed; its `fit_on` is not used, the cells have their own.
    """

    config: RunConfig
    fit_on: tuple[str, ...]
    calibration_seeds: tuple[int, ...]
    protocol: str = "default"

    def named_settings(self, *left_out: str) -> str:
        """Settings that are not the protocol's, each as ``~name=value`` in file-name letters."""
        found = departures(self.config, self.protocol)
        named = {name: used for name, (_, used) in found.items() if name not in (*_PLACED, *left_out)}
        return "".join(f"~{_safe(name)}={_safe(value)}" for name, value in named.items())

    @cached_property
    def suffix(self) -> str:
        """Settings, and the protocol unless it is the default one, as part of the model's folder name.

        Examples
        --------
        >>> config = RunConfig("cora", "vgae", preset="paper", epochs=20)
        >>> TrainingJob(config, ("val",), (0,)).suffix
        '~preset=paper~epochs=20'
        """
        return self.named_settings() + ("" if self.protocol == "default" else f"~protocol={self.protocol}")

    @property
    def folder(self) -> Path:
        """Place of the training, relative to the store."""
        config = self.config
        return Path(_safe(config.dataset), f"{config.model}{self.suffix}", f"train-{config.seed}")

    @property
    def title(self) -> str:
        """One line for logs."""
        return f"{self.config.dataset} {self.config.model}{self.suffix} train-{self.config.seed}"

    def cells(self) -> list[Cell]:
        """All cells, ``fit_on`` by ``fit_on``."""
        return [Cell(fit_on, seed) for fit_on in self.fit_on for seed in self.calibration_seeds]

    def config_for(self, fit_on: str) -> RunConfig:
        """Settings of the run that the cell with calibration seed 0 repeats."""
        return replace(self.config, fit_on=fit_on)


@dataclass(frozen=True)
class SweepPlan:
    """All combinations that a sweep runs.

    Parameters
    ----------
    datasets, models : sequence of str
    train_seeds, calibration_seeds : sequence of int
    fit_on : sequence of str
        See :func:`linkcal.features.calibration_links`.
    settings : mapping of str to object
        Other fields of :class:`RunConfig`, the same for all cells; they win over the protocol's.
    protocol : str

    Raises
    ------
    InputError
        If a list is empty or has an entry twice, a data set's name can be no folder, or a setting is unknown,
        out of range, or none of a sweep.

    Examples
    --------
    >>> plan = SweepPlan(["cora", "citeseer"], ["gcn", "vgae"], range(2), range(3), ["val", "train"])
    >>> [job.title for job in plan.jobs()][1:4]
    ['citeseer gcn train-0', 'cora vgae train-0', 'citeseer vgae train-0']
    >>> sum(len(job.cells()) for job in plan.jobs())
    48
    """

    datasets: Sequence[str]
    models: Sequence[str]
    train_seeds: Sequence[int] = tuple(range(5))
    calibration_seeds: Sequence[int] = tuple(range(5))
    fit_on: Sequence[str] = ("val",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = "default"

    def __post_init__(self) -> None:
        for name in ("datasets", "models", "train_seeds", "calibration_seeds", "fit_on"):
            values = list(getattr(self, name))
            if not values or len(set(values)) < len(values):
                raise InputError(f"{name} must hold one value or more, each once, got {values}")
        for seed in (*self.train_seeds, *self.calibration_seeds):
            check_positive_int(seed, "seed", minimum=0)
        for name in self.fit_on:
            check_choice(name, "fit_on", FIT_ON)
        for name in self.datasets:
            # Two names with one folder would share their cells.
            if _safe(name) != name or not name:
                raise InputError(f"datasets must be named by letters, digits and ._+-, got {name!r}")
        for name in self.settings:
            check_choice(name, "setting", _SETTINGS)
        # Every value is checked by RunConfig before the first training starts.
        self.jobs()

    def check_datasets(self) -> None:
        """Refuse data sets that cannot be loaded by name; the message names the nearest known one."""
        for name in self.datasets:
            check_choice(name, "dataset", DATASETS)

    def jobs(self) -> list[TrainingJob]:
        """Trainings in the order of work: the first seed of everything, then the second."""
        given = {"fit_on": self.fit_on[0], **self.settings}
        return [
            TrainingJob(
                run_config(self.protocol, dataset, model, seed=seed, **given),
                tuple(self.fit_on),
                tuple(self.calibration_seeds),
                self.protocol,
            )
            for seed in self.train_seeds
            for model in self.models
            for dataset in self.datasets
        ]


def parse_names(text: str) -> tuple[str, ...]:
    """Names that a command line separates by commas."""
    return tuple(part.strip() for part in text.split(","))


def parse_seeds(text: str, name: str = "seeds") -> tuple[int, ...]:
    """Seeds that a command line names: a count, or numbers and ranges; `name` stands in the message.

    Examples
    --------
    >>> parse_seeds("5"), parse_seeds("3-4"), parse_seeds("0,2-3")
    ((0, 1, 2, 3, 4), (3, 4), (0, 2, 3))
    """
    if not re.fullmatch(r"\d{1,18}(-\d{1,18})?(,\d{1,18}(-\d{1,18})?)*", text):
        raise InputError(
            f"{name} must be a count such as 5, or numbers and ranges such as 0,2-4, got {text!r}"
        )
    if text.isdigit():
        ranges = [range(check_positive_int(int(text), name))]
    else:
        ends = (part.partition("-") for part in text.split(","))
        ranges = [range(int(first), int(last or first) + 1) for first, _, last in ends]
    if sum(len(each) for each in ranges) > _MOST_SEEDS:
        raise InputError(f"{name} must name at most {_MOST_SEEDS:,} seeds, got {text}")
    seeds = [seed for each in ranges for seed in each]
    if len(set(seeds)) < len(seeds) or not seeds:
        raise InputError(f"{name} must hold one seed or more, each once, got {text!r}")
    return tuple(seeds)


def _safe(value: object) -> str:
    """Text that is a file name everywhere, cannot be hidden, and holds none of the layout's own marks."""
    if isinstance(value, tuple):
        return "+".join(
            "-".join(map(_safe, part)) if isinstance(part, tuple) else _safe(part) for part in value
        )
    text = value if isinstance(value, str) else repr(value)
    text = re.sub(r"[^A-Za-z0-9._+-]", "_", text)
    return f"_{text}" if text.startswith(".") else text
