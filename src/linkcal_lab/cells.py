"""What a sweep consists of: cells, grouped by the training that they share, in the order of work.

A cell is (data set, model, training seed, calibration seed, fit_on) under fixed other settings. Its folder is

    STORE/<data set>/<model>[~setting=value...]/train-<seed>/<fit_on>/cal-<seed>/

and the training that its calibrations share lies in ``.../train-<seed>/training/``. Settings appear in the
name where they differ from their default, so a new field of :class:`RunConfig` finds its place by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from linkcal._core.validation import check_choice, check_positive_int
from linkcal.data import DATASETS
from linkcal.exceptions import InputError
from linkcal.features import FIT_ON
from linkcal.workflow.config import RunConfig

__all__ = ["Cell", "SweepPlan", "TrainingJob", "parse_seeds", "settings_of", "settings_suffix"]


#: Fields of RunConfig with their own place in the layout, or that say only which part of a cell is asked.
_PLACED = ("dataset", "model", "seed", "fit_on", "calibrators")
#: What all cells of a sweep may share. No base rate: they are measured at the share of links in the test set.
_SETTINGS = tuple(
    each.name
    for each in fields(RunConfig)
    if each.name not in ("dataset", "model", "seed", "fit_on", "base_rate")
)


@dataclass(frozen=True)
class Cell:
    """One measured unit of a training: a calibration seed and what the calibrators are fitted on.

    Parameters
    ----------
    fit_on : str
        In ``linkcal.features.FIT_ON``.
    calibration_seed : int
    """

    fit_on: str
    calibration_seed: int

    @property
    def name(self) -> str:
        """Folder of the cell inside that of its training."""
        return f"{self.fit_on}/cal-{self.calibration_seed}"


@dataclass(frozen=True)
class TrainingJob:
    """A training and all its cells that a sweep asks for: the unit of work of one process.

    Parameters
    ----------
    config : RunConfig
        `seed` is the training seed; `fit_on` is not used, the cells have their own.
    fit_on : tuple of str
    calibration_seeds : tuple of int
    """

    config: RunConfig
    fit_on: tuple[str, ...]
    calibration_seeds: tuple[int, ...]

    @property
    def suffix(self) -> str:
        """Settings in the model's folder name."""
        return settings_suffix(self.config)

    @property
    def folder(self) -> Path:
        """Place of the training, relative to the store."""
        config = self.config
        return Path(_safe(config.dataset), f"{config.model}{self.suffix}", f"train-{config.seed}")

    @property
    def title(self) -> str:
        """One line for logs."""
        config = self.config
        return f"{config.dataset} {config.model}{self.suffix} train-{config.seed}"

    def cells(self) -> list[Cell]:
        """All cells, ``fit_on`` by ``fit_on``."""
        return [Cell(fit_on, seed) for fit_on in self.fit_on for seed in self.calibration_seeds]

    def config_for(self, fit_on: str) -> RunConfig:
        """Settings of ``linkcal run`` that the cell with calibration seed 0 repeats."""
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
        Other fields of :class:`RunConfig`, the same for all cells.

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
        """Refuse data sets that cannot be loaded by name.

        Raises
        ------
        InputError
            Naming the nearest known one.
        """
        for name in self.datasets:
            check_choice(name, "dataset", DATASETS)

    def jobs(self) -> list[TrainingJob]:
        """Trainings in the order of work: the first seed of everything, then the second."""
        return list(self._jobs())

    def _jobs(self) -> Iterator[TrainingJob]:
        for seed in self.train_seeds:
            for model in self.models:
                for dataset in self.datasets:
                    config = RunConfig(
                        dataset=dataset, model=model, seed=seed, fit_on=self.fit_on[0], **self.settings
                    )
                    yield TrainingJob(config, tuple(self.fit_on), tuple(self.calibration_seeds))


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Settings that differ from their default, in the order of RunConfig's fields.

    Data set, model, seed, fit_on and calibrators are left out.

    Parameters
    ----------
    config : RunConfig

    Returns
    -------
    dict
        Values by field name.

    Examples
    --------
    >>> settings_of(RunConfig("cora", "vgae", seed=3, preset="paper", epochs=20))
    {'preset': 'paper', 'epochs': 20}
    """
    names = [name for name in _setting_names() if name not in _PLACED]
    plain = RunConfig(config.dataset, config.model)
    # A protocol has defaults of its own, which its name already says.
    chosen = {name: getattr(config, name) for name in names if name == "protocol"}
    expected = RunConfig(config.dataset, config.model, **chosen)
    return {
        name: getattr(config, name)
        for name in names
        if getattr(config, name) != getattr(plain if name in chosen else expected, name)
    }


def settings_suffix(config: RunConfig) -> str:
    """The same as part of a folder name.

    Parameters
    ----------
    config : RunConfig

    Returns
    -------
    str

    Examples
    --------
    >>> settings_suffix(RunConfig("cora", "vgae", preset="paper", epochs=20))
    '~preset=paper~epochs=20'
    >>> settings_suffix(RunConfig("cora", "vgae"))
    ''
    """
    return "".join(f"~{_safe(name)}={_safe(value)}" for name, value in settings_of(config).items())


def parse_seeds(text: str, name: str = "seeds") -> tuple[int, ...]:
    """Seeds that a command line names: a count, or numbers and ranges.

    Parameters
    ----------
    text : str
    name : str
        What the message calls it.

    Returns
    -------
    tuple of int

    Raises
    ------
    InputError
        If `text` is neither, or names a seed twice.

    Examples
    --------
    >>> parse_seeds("5"), parse_seeds("3-4"), parse_seeds("0,2-3")
    ((0, 1, 2, 3, 4), (3, 4), (0, 2, 3))
    """
    pattern = r"\d+(-\d+)?(,\d+(-\d+)?)*"
    if not re.fullmatch(pattern, text):
        raise InputError(
            f"{name} must be a count such as 5, or numbers and ranges such as 0,2-4, got {text!r}"
        )
    if text.isdigit():
        return tuple(range(check_positive_int(int(text), name)))
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    if len(set(seeds)) < len(seeds) or not seeds:
        raise InputError(f"{name} must hold one seed or more, each once, got {text!r}")
    return tuple(seeds)


def _setting_names() -> list[str]:
    return [each.name for each in fields(RunConfig)]


def _safe(value: object) -> str:
    """Text that is a file name everywhere, cannot be hidden, and holds none of the layout's own marks."""
    if isinstance(value, tuple):
        return "+".join(
            "-".join(map(_safe, part)) if isinstance(part, tuple) else _safe(part) for part in value
        )
    text = value if isinstance(value, str) else repr(value)
    text = re.sub(r"[^A-Za-z0-9._+-]", "_", text)
    return f"_{text}" if text.startswith(".") else text
