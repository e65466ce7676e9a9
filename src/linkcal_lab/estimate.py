"""How long a sweep will take, from the timings of what is in the store."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Generic, Literal, TypeVar

from linkcal._core.validation import check_positive_int
from linkcal.data import DATASETS
from linkcal.exceptions import InputError
from linkcal_lab.cells import SweepPlan, TrainingJob, settings_suffix
from linkcal_lab.store import CONFIG_FILE, Store, read_cell, read_training

__all__ = ["Basis", "JobEstimate", "Timings", "estimate_jobs", "read_timings", "wall_seconds"]


#: Where an estimate comes from: timings of the same data set and model, of others scaled by the number of
#: edges, or nothing.
Basis = Literal["measured", "extrapolated", "unknown"]

Key = TypeVar("Key")

#: What a record with times has.
_TIMED: dict[str, type] = {"seconds": dict, "environment": dict}


@dataclass(frozen=True)
class JobEstimate:
    """Expected work of one training and its missing cells.

    Parameters
    ----------
    job : TrainingJob
    train : bool
        Whether the training itself is missing.
    cells : int
        How many cells are missing or lack a calibrator.
    seconds : float
        NaN if nothing is known.
    basis : {"measured", "extrapolated", "unknown"}
        The weakest of its parts.
    """

    job: TrainingJob
    train: bool
    cells: int
    seconds: float
    basis: Basis


@dataclass
class _Samples(Generic[Key]):
    """Seconds by key, and for each key the number of edges that they grew with."""

    seconds: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    edges: dict[Key, int] = field(default_factory=dict)

    def add(self, key: Key, value: float, edges: int) -> None:
        self.seconds[key].append(value)
        self.edges[key] = edges

    def typical(self, key: Key) -> float:
        # Not the mean: the first job of a process also compiles kernels.
        return median(self.seconds[key])

    def scaled(self, keys: Iterable[Key], edges: int) -> float | None:
        """Seconds at `edges` in proportion from the key that is nearest in size; None without keys."""
        known = list(keys)
        if not known or not edges:
            return None
        nearest = min(known, key=lambda key: (abs(math.log(self.edges[key] / edges)), str(key)))
        return self.typical(nearest) * edges / self.edges[nearest]


@dataclass
class Timings:
    """What a store tells about time.

    Parameters
    ----------
    training : samples by (data set, model, settings)
        Seconds of a training with toggling and scoring.
    steps : samples by (data set, model, settings, fit_on, step)
        Seconds of one step of a cell, such as ``"fit platt"``; ``"evaluate"`` for one calibrator.
    edges : dict of str to int
        By data set.
    """

    training: _Samples[tuple[str, str, str]] = field(default_factory=_Samples)
    steps: _Samples[tuple[str, str, str, str, str]] = field(default_factory=_Samples)
    edges: dict[str, int] = field(default_factory=dict)

    def edges_of(self, dataset: str) -> int:
        """Edges of a data set: counted where it was used, else as published; 0 if unknown."""
        known = DATASETS[dataset].num_edges if dataset in DATASETS else 0
        return self.edges.get(dataset, known)

    def of_training(self, job: TrainingJob) -> tuple[float, Basis]:
        """Seconds of a job's training."""
        config = job.config
        key = (config.dataset, config.model, settings_suffix(config))
        return self._look_up(self.training, key, config.dataset, lambda k, level: k[level:] == key[level:])

    def of_cell(self, job: TrainingJob, fit_on: str, calibrators: Sequence[str]) -> tuple[float, Basis]:
        """Seconds of one cell that fits `calibrators`."""
        seconds, bases = 0.0, set()
        for step in ("score", "evaluate", *(f"fit {name}" for name in calibrators)):
            value, basis = self._of_step(job, fit_on, step)
            seconds += value * len(calibrators) if step == "evaluate" else value
            bases.add(basis)
        return seconds, _weakest(bases)

    def _of_step(self, job: TrainingJob, fit_on: str, step: str) -> tuple[float, Basis]:
        config = job.config
        key = (config.dataset, config.model, settings_suffix(config), fit_on, step)

        def alike(other: tuple[str, str, str, str, str], level: int) -> bool:
            return other[3:] == key[3:] and other[level:3] == key[level:3]

        return self._look_up(self.steps, key, config.dataset, alike)

    def _look_up(
        self, samples: _Samples[Key], key: Key, dataset: str, alike: Callable[[Key, int], bool]
    ) -> tuple[float, Basis]:
        if key in samples.seconds:
            return samples.typical(key), "measured"
        # Other data sets with the same model, then other models; always with the same settings.
        for level in (1, 2):
            keys = [other for other in samples.seconds if alike(other, level)]
            value = samples.scaled(keys, self.edges_of(dataset))
            if value is not None:
                return value, "extrapolated"
        return math.nan, "unknown"


def read_timings(store: Store) -> Timings:
    """Collect the seconds that every finished training and cell took.

    Raises
    ------
    InputError
        If a record of the store was damaged; it names the file.
    """
    timings = Timings()
    for folder in store.trainings():
        record = read_training(folder, **_TIMED, counts=dict)
        config = record["config"]
        with _read(folder):
            edges, seconds = int(record["counts"]["edges"]), float(_own_seconds(record)["total"])
        timings.edges[config.dataset] = edges
        timings.training.add((config.dataset, config.model, settings_suffix(config)), seconds, edges)
    for folder in store.cells():
        record = read_cell(folder, **_TIMED)
        config = record["config"]
        edges = timings.edges_of(config.dataset)
        # Evaluation is recorded for all calibrators of the cell together.
        fitted = len(record["calibrators"])
        with _read(folder):
            steps = {step: float(seconds) for step, seconds in _own_seconds(record).items()}
            steps["evaluate"] /= fitted
        for step, seconds in steps.items():
            name = (config.dataset, config.model, settings_suffix(config), config.fit_on, step)
            timings.steps.add(name, seconds, edges)
    return timings


@contextmanager
def _read(folder: Path) -> Iterator[None]:
    """Name the file if a time in it is missing or no number."""
    try:
        yield
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder / CONFIG_FILE} must have the seconds of every step, got {type(error).__name__} "
            f"{error}; remove its folder, which is made anew then"
        ) from error


def estimate_jobs(plan: SweepPlan, store: Store) -> list[JobEstimate]:
    """What is to be done for `plan`, in the order of work, with the time it will take.

    Parameters
    ----------
    plan : SweepPlan
    store : Store

    Returns
    -------
    list of JobEstimate
        Trainings of which nothing is missing are left out.
    """
    timings = read_timings(store)
    estimates = (_estimate(job, store, timings) for job in plan.jobs())
    return [estimate for estimate in estimates if estimate.cells]


def wall_seconds(estimates: Sequence[JobEstimate], jobs: int) -> float:
    """Time until all are done by `jobs` processes that take them in order; NaN if one is unknown.

    Parameters
    ----------
    estimates : sequence of JobEstimate
    jobs : int
        Number of processes.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If `jobs` is no whole number above 0.

    Examples
    --------
    >>> from linkcal.workflow import RunConfig
    >>> job = TrainingJob(RunConfig("cora", "gcn"), ("val",), (0,))
    >>> three = [JobEstimate(job, True, 1, seconds, "measured") for seconds in (4.0, 3.0, 2.0)]
    >>> wall_seconds(three, 2)
    5.0
    """
    check_positive_int(jobs, "jobs")
    if any(math.isnan(estimate.seconds) for estimate in estimates):
        return math.nan
    free = [0.0] * jobs
    for estimate in estimates:
        heapq.heapreplace(free, free[0] + estimate.seconds)
    return max(free)


def _estimate(job: TrainingJob, store: Store, timings: Timings) -> JobEstimate:
    train = not store.has_training(job)
    seconds, bases = 0.0, set()
    if train:
        seconds, basis = timings.of_training(job)
        bases.add(basis)
    missing = {cell: store.missing(job, cell) for cell in job.cells()}
    for fit_on in job.fit_on:
        group = {cell: names for cell, names in missing.items() if cell.fit_on == fit_on}
        wanted = [name for name in job.config.calibrators if any(name in names for names in group.values())]
        if wanted:
            # All seeds of a group are fitted together, also those that are there; see calibrate_and_store.
            value, basis = timings.of_cell(job, fit_on, wanted)
            seconds += value * len(group)
            bases.add(basis)
    return JobEstimate(job, train, sum(map(bool, missing.values())), seconds, _weakest(bases))


def _weakest(bases: Iterable[Basis]) -> Basis:
    order: tuple[Basis, ...] = ("unknown", "extrapolated", "measured")
    return next((basis for basis in order if basis in set(bases)), "measured")


def _own_seconds(record: dict[str, Any]) -> dict[str, float]:
    """Seconds by step without those in which other programs kept the processor.

    Of wall-clock and processor time the smaller: steps with several threads take more of the latter. A step
    on a GPU waits for it, so that its processor time says nothing.
    """
    seconds: dict[str, float] = record["seconds"]
    if record["environment"]["cuda"] is not None:
        return seconds
    # Stores of earlier versions have the wall-clock time alone.
    own: dict[str, float] = record.get("processor_seconds", seconds)
    return {step: min(wall, own[step]) for step, wall in seconds.items()}
