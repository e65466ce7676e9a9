"""How long a sweep will take, from the timings of what is in the store."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

from linkcal._core.validation import check_positive_int
from linkcal.data import DATASETS
from linkcal.exceptions import InputError
from linkcal_lab.cells import SweepPlan, TrainingJob
from linkcal_lab.store import CONFIG_FILE, Store, read_cell, read_training

#: Where an estimate comes from: timings of the same data set and model, of others scaled by the number of
#: edges, or nothing.
Basis = Literal["measured", "extrapolated", "unknown"]

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
class Timings:
    """Seconds by (data set, model, settings, step), and the number of edges of each data set.

    A step is ``"training"`` (with toggling and scoring), ``"<fit_on>/fit <calibrator>"``,
    ``"<fit_on>/score"`` or, for one calibrator, ``"<fit_on>/evaluate"``.
    """

    seconds: dict[tuple[str, str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    edges: dict[str, int] = field(default_factory=dict)

    def edges_of(self, dataset: str) -> int:
        """Edges of a data set: counted where it was used, else as published; 0 if unknown."""
        known = DATASETS[dataset].num_edges if dataset in DATASETS else 0
        return self.edges.get(dataset, known)

    def add(self, job: TrainingJob, step: str, seconds: float) -> None:
        """Keep the seconds that a step took."""
        self.seconds[job.config.dataset, job.config.model, job.suffix, step].append(seconds)

    def of(self, job: TrainingJob, step: str) -> tuple[float, Basis]:
        """Seconds that a step of a job will take; NaN if nothing is known."""
        key = (job.config.dataset, job.config.model, job.suffix, step)
        if key in self.seconds:
            # Not the mean: the first job of a process also compiles kernels.
            return median(self.seconds[key]), "measured"
        edges = self.edges_of(job.config.dataset)
        # Other data sets with the same model, then other models; always with the same settings.
        for level in (1, 2):
            others = [other for other in self.seconds if other[level:] == key[level:]]
            if others and edges:
                sizes = {other: self.edges_of(other[0]) for other in others}
                near = min(others, key=lambda other: (abs(math.log(sizes[other] / edges)), str(other)))
                return median(self.seconds[near]) * edges / sizes[near], "extrapolated"
        return math.nan, "unknown"

    def of_cell(self, job: TrainingJob, fit_on: str, calibrators: Sequence[str]) -> tuple[float, Basis]:
        """Seconds of one cell that fits `calibrators`."""
        steps = {"score": 1, "evaluate": len(calibrators), **{f"fit {name}": 1 for name in calibrators}}
        found = {step: self.of(job, f"{fit_on}/{step}") for step in steps}
        seconds = sum(value * steps[step] for step, (value, _) in found.items())
        return seconds, _weakest(basis for _, basis in found.values())


def read_timings(store: Store) -> Timings:
    """Collect the seconds that every finished training and cell took."""
    timings = Timings()
    for folder in store.trainings():
        job, record = read_training(folder, **_TIMED, counts=dict)
        with _read(folder):
            timings.edges[job.config.dataset] = int(record["counts"]["edges"])
            timings.add(job, "training", float(_own_seconds(record)["total"]))
    for folder in store.cells():
        job, cell, record = read_cell(folder, **_TIMED)
        with _read(folder):
            steps = {step: float(seconds) for step, seconds in _own_seconds(record).items()}
            # Evaluation is recorded for all calibrators of the cell together.
            steps["evaluate"] /= len(record["calibrators"])
        for step, seconds in steps.items():
            timings.add(job, f"{cell.fit_on}/{step}", seconds)
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


def _own_seconds(record: dict[str, Any]) -> dict[str, float]:
    """Seconds by step without those in which other programs kept the processor.

    Of wall-clock and processor time the smaller: steps with several threads take more of the latter. A step
    on a GPU waits for it, so that its processor time says nothing.
    """
    seconds: dict[str, float] = record["seconds"]
    if record["environment"]["cuda"] is not None:
        return seconds
    own: dict[str, float] = record["processor_seconds"]
    return {step: min(wall, own[step]) for step, wall in seconds.items()}


def estimate_jobs(plan: SweepPlan, store: Store) -> list[JobEstimate]:
    """What is to be done for `plan`, in the order of work; trainings that lack nothing are left out."""
    timings = read_timings(store)
    estimates = (_estimate(job, store, timings) for job in plan.jobs())
    return [estimate for estimate in estimates if estimate.cells]


def _estimate(job: TrainingJob, store: Store, timings: Timings) -> JobEstimate:
    train = not store.has_training(job)
    parts = [timings.of(job, "training")] if train else []
    missing = {cell: names for cell in job.cells() if (names := store.missing(job, cell))}
    parts += [timings.of_cell(job, cell.fit_on, names) for cell, names in missing.items()]
    seconds = sum(value for value, _ in parts)
    return JobEstimate(job, train, len(missing), seconds, _weakest(basis for _, basis in parts))


def _weakest(bases: Iterable[Basis]) -> Basis:
    found = set(bases)
    order: tuple[Basis, ...] = ("unknown", "extrapolated", "measured")
    return next((basis for basis in order if basis in found), "measured")


def wall_seconds(estimates: Sequence[JobEstimate], jobs: int) -> float:
    """Time until all are done by `jobs` processes, each starting the next one; NaN if one is unknown.

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
