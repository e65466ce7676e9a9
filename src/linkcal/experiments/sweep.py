"""The sweep: every training and every cell that is not there yet, over any number of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from linkcal.data import OFFICIAL_SPLITS, Graph, LinkSplit
from linkcal.experiments.calibration_stage import Calibration, calibrate_and_store
from linkcal.experiments.cells import Cell, SweepPlan, TrainingJob
from linkcal.experiments.config import RunConfig
from linkcal.experiments.engines import run_jobs, threads_limited, threads_per_job
from linkcal.experiments.graphs import load_graph
from linkcal.experiments.store import BusyError, Store, is_disk_full
from linkcal.experiments.sweep_options import JobReport, SweepOptions, SweepResult
from linkcal.experiments.training_stage import load_training, train_and_store

__all__ = ["pending_jobs", "run_sweep"]


def pending_jobs(plan: SweepPlan, store: Store) -> tuple[list[TrainingJob], int]:
    """Trainings with a missing cell, in the order of work, and the number of cells that are there.

    Parameters
    ----------
    plan : SweepPlan
    store : Store

    Returns
    -------
    jobs : list of TrainingJob
    found : int
    """
    jobs, found = [], 0
    for job in plan.jobs():
        missing = sum(bool(store.missing(job, cell)) for cell in job.cells())
        found += len(job.cells()) - missing
        if missing:
            jobs.append(job)
    return jobs, found


def run_sweep(
    plan: SweepPlan,
    store: str | os.PathLike[str],
    options: SweepOptions | None = None,
    *,
    progress: Callable[[JobReport], None] | None = None,
) -> SweepResult:
    """Run all cells of `plan` that `store` does not hold.

    It may be stopped at any moment, by any means, and run again: finished trainings and cells stay, what was
    being written is removed and made again. Several sweeps may fill one store at the same time. A cell that
    fails is recorded in the store and tried again by the next sweep.

    Parameters
    ----------
    plan : SweepPlan
    store : path
    options : SweepOptions, optional
    progress : callable, optional
        Called with a :class:`JobReport` after each training and its cells.

    Returns
    -------
    SweepResult

    Raises
    ------
    InputError
        If a file of the store was damaged from outside.
    DataNotFoundError
        If a data set must be read and the folder of raw data that ``LINKCAL_DATA_ROOT`` names is not there.
    WorkerDiedError
        If a process of the sweep was killed; everything that was finished stays.
    OSError
        If the disk is full; everything that was finished stays.

    Notes
    -----
    On one machine the numbers depend on the plan alone; another processor or other versions of the
    libraries may round otherwise, and a training can make much of that. Calibration seed 0 gives those of
    :func:`run_experiment`; calibration seed k > 0 draws the non-links among the fitting links anew (as
    many, from the stream ``"calibration-negatives-<part>-k"``) and the calibrators' ``random_state`` from
    ``"calibration-k"``. The trained model, the fitting links' positives, validation and test links are the
    same.

    Examples
    --------
    >>> import tempfile
    >>> from linkcal.data import simulate_graph
    >>> from linkcal.experiments import read_records
    >>> graph = simulate_graph(300, num_edges=1500, num_features=8, seed=0)
    >>> settings = {"epochs": 2, "calibrators": ("uncalibrated", "platt")}
    >>> plan = SweepPlan(["own"], ["gcn"], [0], [0, 1], ["val"], settings)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run_sweep(plan, folder, SweepOptions(graphs={"own": graph}))
    ...     records = read_records(folder)
    >>> result.done, records["calibrator"].unique().tolist()
    (2, ['platt', 'uncalibrated'])
    """
    options = options or SweepOptions()
    place = Store(store)
    jobs = pending_jobs(plan, place)[0]
    options.check_data_root(job.config.dataset for job in jobs)
    work = partial(_run_job, root=place.root.resolve(), options=options)
    done = failed = 0
    errors: list[str] = []
    # A training that another sweep holds is left to it; what it does not finish is done in the second round.
    for wait in (False, True):
        busy = []
        for report in _reports(partial(work, wait=wait), jobs, options):
            if report.busy:
                busy.append(report.job)
                continue
            done += report.cells_done
            failed += report.cells_failed
            errors += report.errors
            if progress is not None:
                progress(report)
        jobs = busy
    total = sum(len(job.cells()) for job in plan.jobs())
    return SweepResult(total, total - done - failed, done, failed, tuple(errors))


def _reports(
    work: Callable[[TrainingJob], JobReport], jobs: list[TrainingJob], options: SweepOptions
) -> Iterable[JobReport]:
    if not jobs:
        return ()
    return run_jobs(work, jobs, engine=options.engine, num_processes=options.jobs)


def _run_job(job: TrainingJob, *, root: Path, options: SweepOptions, wait: bool) -> JobReport:
    """Do what is missing of a training and its cells; runs in a worker process."""
    start = time.perf_counter()
    store = Store(root)
    threads = threads_per_job(options.jobs)
    resources = {"engine": options.engine, "jobs": options.jobs, "threads": threads}
    try:
        with threads_limited(threads), store.locked(job, wait=wait):
            done, failed, errors = _work(store, job, options, resources)
    except BusyError:
        return JobReport(job, busy=True)
    return JobReport(job, done, failed, errors, time.perf_counter() - start)


def _work(
    store: Store, job: TrainingJob, options: SweepOptions, resources: dict[str, Any]
) -> tuple[int, int, tuple[str, ...]]:
    """Cells done and failed, and errors; the lock is held."""
    wanted = {cell: store.missing(job, cell) for cell in job.cells()}
    total = sum(bool(names) for names in wanted.values())
    if not total:
        return 0, 0, ()

    def load() -> Graph | LinkSplit:
        return _graph(job.config, options)

    try:
        if not store.has_training(job):
            train_and_store(store, job, load, device=options.device, resources=resources)
        store.clear_failure(job, "training")
        stored = load_training(store.training_folder(job))
    except Exception as error:
        return 0, total, (_failed(store, job, "training", error),)
    calibration = Calibration(job, stored, load, options.device)
    failed: dict[Cell, str] = {}
    for fit_on in job.fit_on:
        group = {cell: names for cell, names in wanted.items() if cell.fit_on == fit_on}
        if any(group.values()):
            failed |= _calibrate(store, calibration, group, resources)
    return total - len(failed), len(failed), tuple(failed.values())


def _calibrate(
    store: Store, calibration: Calibration, wanted: Mapping[Cell, tuple[str, ...]], resources: dict[str, Any]
) -> dict[Cell, str]:
    """Make the cells of one ``fit_on`` together; if that fails, each alone. Gives the errors."""
    try:
        calibrate_and_store(store, calibration, wanted, resources=resources)
    except Exception as error:
        if len(wanted) == 1:
            (cell,) = wanted
            return {cell: _failed(store, calibration.job, cell.name, error)}
        if is_disk_full(error):
            raise
    else:
        return {}
    errors: dict[Cell, str] = {}
    for cell in wanted:
        names = store.missing(calibration.job, cell)
        try:
            if names:
                calibrate_and_store(store, calibration, {cell: names}, resources=resources)
        except Exception as error:
            errors[cell] = _failed(store, calibration.job, cell.name, error)
    return errors


def _failed(store: Store, job: TrainingJob, name: str, error: Exception) -> str:
    """Record a failure and give its one line; a full disk ends the sweep."""
    if is_disk_full(error):
        raise error
    store.record_failure(job, name, error)
    return f"{job.title} {name}: {type(error).__name__}: {' '.join(str(error).split())}"


def _graph(config: RunConfig, options: SweepOptions) -> Graph | LinkSplit:
    if config.dataset in options.graphs:
        return options.graphs[config.dataset]
    if config.dataset in OFFICIAL_SPLITS:
        return load_graph(config, data_root=options.data_root)
    return _cached_graph(config.dataset, config.protocol, options.data_root)


@lru_cache(maxsize=4)
def _cached_graph(name: str, protocol: str, data_root: str | None) -> Graph | LinkSplit:
    """A data set that does not depend on a seed, kept for the next job of this process."""
    return load_graph(RunConfig(name, "gcn", protocol=protocol), data_root=data_root)
