"""The sweep: every training and every cell that is not there yet, over any number of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import joblib
from threadpoolctl import threadpool_limits

from linkcal._core.threads import numba_threads, torch_threads
from linkcal._core.validation import check_choice, check_device, check_positive_int
from linkcal.data import OFFICIAL_SPLITS, Graph, LinkSplit
from linkcal.data._raw import find_data_root
from linkcal.exceptions import InputError, WorkerDiedError
from linkcal.workflow.config import RunConfig
from linkcal.workflow.steps import load_graph
from linkcal_lab.cells import Cell, SweepPlan, TrainingJob
from linkcal_lab.stages import Calibration, calibrate_and_store, load_training, train_and_store
from linkcal_lab.store import BusyError, Store, is_disk_full

__all__ = [
    "ENGINES",
    "Engine",
    "JobReport",
    "SweepOptions",
    "SweepResult",
    "pending_jobs",
    "run_jobs",
    "run_sweep",
    "threads_limited",
    "threads_per_job",
]


# Where the jobs of a sweep run: worker processes of this machine, or a Ray cluster.

Engine = Literal["local", "ray"]
ENGINES: tuple[str, ...] = get_args(Engine)

#: Our name for joblib's Ray backend.
_RAY = "linkcal-ray"

Job = TypeVar("Job")
Report = TypeVar("Report")


def threads_per_job(jobs: int, cores: int | None = None) -> int:
    """Threads that each of `jobs` processes may use: a fair share of the cores, at least one.

    Cores are those that this process may use, and a process takes no more than
    ``OMP_NUM_THREADS``, which the libraries obey.

    Examples
    --------
    >>> threads_per_job(2, cores=8), threads_per_job(16, cores=8)
    (4, 1)
    """
    jobs = check_positive_int(jobs, "jobs")
    if cores is None:
        available = int(joblib.cpu_count())
        asked = os.environ.get("OMP_NUM_THREADS", "")
        most = int(asked) if asked.isdigit() and int(asked) > 0 else available
        return min(max(1, available // jobs), most)
    return max(1, cores // jobs)


@contextmanager
def threads_limited(count: int) -> Iterator[None]:
    """Let torch, Numba and the BLAS libraries use `count` threads for a block."""
    with torch_threads(count), numba_threads(count), threadpool_limits(count):
        yield


def run_jobs(
    function: Callable[[Job], Report], jobs: Sequence[Job], *, engine: str = "local", num_processes: int = 1
) -> Iterator[Report]:
    """Apply `function` to every job and give the results as they come.

    Parameters
    ----------
    function : callable
        Sent to other processes, unless there is one process and the engine is local.
    jobs : sequence
        Started in this order.
    engine : {"local", "ray"}
        ``"ray"`` takes the cluster that ``RAY_ADDRESS`` names, else starts one on this machine.
    num_processes : int

    Yields
    ------
    object
        What `function` gave, in the order of completion.

    Raises
    ------
    InputError
        If the engine is unknown, or Ray is not installed.
    WorkerDiedError
        If a worker process was killed, by the system or by somebody.
    """
    check_choice(engine, "engine", ENGINES)
    threads = threads_per_job(num_processes)
    with ExitStack() as stack:
        if engine == "ray":
            stack.enter_context(_ray(num_processes))
            stack.enter_context(joblib.parallel_config(backend=_RAY, n_jobs=num_processes))
        elif num_processes > 1:
            # Libraries of a new process read their thread counts from the environment that this sets.
            config = joblib.parallel_config(
                backend="loky", n_jobs=num_processes, inner_max_num_threads=threads
            )
            stack.enter_context(config)
        parallel = joblib.Parallel(n_jobs=num_processes, return_as="generator_unordered", pre_dispatch="all")
        try:
            yield from parallel(joblib.delayed(function)(job) for job in jobs)
        except _deaths(engine) as error:
            raise WorkerDiedError(
                "a worker process must live until its job is done, got one that was killed, perhaps for want "
                "of memory; what was finished stays: run again, with fewer jobs if it was memory"
            ) from error


def _deaths(engine: str) -> tuple[type[BaseException], ...]:
    """Errors by which an engine tells that a process died, and not that a job failed."""
    if engine != "ray":
        return (BrokenProcessPool,)
    from ray.exceptions import ActorDiedError, NodeDiedError, OutOfMemoryError, WorkerCrashedError

    return (ActorDiedError, NodeDiedError, OutOfMemoryError, WorkerCrashedError)


@contextmanager
def _ray(num_processes: int) -> Iterator[None]:
    """Ray as joblib's backend, on the named cluster or on one of our own."""
    try:
        import ray
        from ray.util.joblib.ray_backend import RayBackend
    except ImportError as error:
        raise InputError(
            "package ray must be installed for the engine ray (pip install 'linkcal[ray]'), got none"
        ) from error

    class StreamingRayBackend(RayBackend):
        """What ``register_ray`` registers, with results as they come.

        Joblib turns that off for pools of forked processes, from which this class descends; Ray's pool hands
        every result to joblib's callback, which is all that it takes.
        """

        supports_return_generator = True

    joblib.register_parallel_backend(_RAY, StreamingRayBackend)
    own = not ray.is_initialized()
    if own:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if not os.environ.get("RAY_ADDRESS"):
            options |= {"num_cpus": num_processes, "include_dashboard": False}
        ray.init(**options)
    try:
        yield
    finally:
        if own:
            ray.shutdown()


# How a sweep runs, and what it tells: options, the report of a training, the counts at the end.


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep runs; nothing here changes its numbers, but for the device.

    Parameters
    ----------
    jobs : int
        Processes.
    engine : {"local", "ray"}
    device : str
        Where models are trained and links scored. Another kind of device rounds otherwise; ``config.json`` of
        the training names it.
    data_root : str, optional
        As for :func:`linkcal.data.load_dataset`.
    graphs : mapping of str to Graph or LinkSplit, optional
        Own graphs, taken before named data sets.

    Raises
    ------
    InputError
        If `jobs` is no whole number above 0, the engine is unknown, or the device or the folder is not there
        (on another machine of a Ray cluster it may be).
    """

    jobs: int = 1
    engine: str = "local"
    device: str = "cpu"
    data_root: str | None = None
    graphs: Mapping[str, Graph | LinkSplit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_positive_int(self.jobs, "jobs")
        check_choice(self.engine, "engine", ENGINES)
        # On other machines of a cluster there may be what is not here.
        if self.engine == "local":
            check_device(self.device)
            if self.data_root is not None and not Path(self.data_root).is_dir():
                raise InputError(f"data_root must be an existing folder, got {self.data_root!r}")

    def check_data_root(self, datasets: Iterable[str]) -> None:
        """Check the folder of the raw data once, before each training of named data sets would fail on it.

        Parameters
        ----------
        datasets : iterable of str

        Raises
        ------
        DataNotFoundError
            If the folder that ``LINKCAL_DATA_ROOT`` names does not exist, or no cache folder can be made.
        """
        read = [name for name in datasets if name not in self.graphs and name != "simulated"]
        if read and self.engine == "local":
            find_data_root(self.data_root)


@dataclass(frozen=True)
class JobReport:
    """What became of a training and its cells.

    Parameters
    ----------
    job : TrainingJob
    cells_done, cells_failed : int
        Of those that were missing when the job began.
    errors : tuple of str
        One line each.
    seconds : float
    busy : bool
        Another process works on it: nothing was done.
    """

    job: TrainingJob
    cells_done: int = 0
    cells_failed: int = 0
    errors: tuple[str, ...] = ()
    seconds: float = 0.0
    busy: bool = False


@dataclass(frozen=True)
class SweepResult:
    """Counts of a finished sweep.

    Parameters
    ----------
    cells : int
        In the plan.
    found, done, failed : int
        Cells that were there, that were made, and that could not be made.
    errors : tuple of str
    """

    cells: int
    found: int
    done: int
    failed: int
    errors: tuple[str, ...]


# The sweep: every training and every cell that is not there yet, over any number of processes.


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
    :func:`run_experiment`; calibration seed k > 0 draws the negatives among the fitting links anew (as
    many, from the stream ``"calibration-negatives-<part>-k"``) and the calibrators' ``random_state`` from
    ``"calibration-k"``. The trained model, the fitting links' positives, validation and test links are the
    same.

    Examples
    --------
    >>> import tempfile
    >>> from linkcal.data import simulate_graph
    >>> from linkcal.workflow import read_records
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
