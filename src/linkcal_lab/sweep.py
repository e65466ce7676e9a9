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
from typing import Any, TypeVar

import joblib
from threadpoolctl import threadpool_limits

from linkcal._core.validation import check_choice, check_device, check_positive_int
from linkcal.data import OFFICIAL_SPLITS, Graph, LinkSplit
from linkcal.data._raw import find_data_root
from linkcal.exceptions import InputError, WorkerDiedError
from linkcal.workflow import RunConfig, load_graph
from linkcal_lab.cells import Cell, SweepPlan, TrainingJob
from linkcal_lab.stages import Calibration, calibrate_and_store, load_training, torch_threads, train_and_store
from linkcal_lab.store import BusyError, Store, is_disk_full

# Where the jobs of a sweep run: worker processes of this machine, or a Ray cluster.

ENGINES = ("local", "ray")

#: Our name for joblib's Ray backend.
_RAY = "linkcal-ray"

Job = TypeVar("Job")
Report = TypeVar("Report")


def threads_per_job(jobs: int) -> int:
    """Threads that each of `jobs` processes may use: a fair share of the cores, at least one.

    Cores are those that this process may use. No process uses more than ``OMP_NUM_THREADS``, which the
    libraries obey.
    """
    share = max(1, int(joblib.cpu_count()) // check_positive_int(jobs, "jobs"))
    most = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(most)) if most.isdigit() and int(most) > 0 else share


@contextmanager
def threads_limited(count: int) -> Iterator[None]:
    """Let torch and the BLAS libraries use `count` threads for a block; compiled code follows torch."""
    with torch_threads(count), threadpool_limits(count):
        yield


def run_jobs(
    function: Callable[[Job], Report], jobs: Sequence[Job], *, engine: str = "local", num_processes: int = 1
) -> Iterator[Report]:
    """Apply `function` to every job, started in this order, and give the results as they are completed.

    The engine ``"ray"`` uses the cluster that ``RAY_ADDRESS`` names, else starts one on this machine. A
    worker process that was killed, by the system or by somebody, raises ``WorkerDiedError``.
    """
    check_choice(engine, "engine", ENGINES)
    if not jobs:
        return
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
            "package ray must be installed for the engine ray (pip install 'linkcal[lab]'), got none"
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


# Options of a sweep, the report of a training, the counts at the end.


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
        Own graphs; their names win over those of data sets.
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
        """Check the folder of the raw data once, before each training of named data sets would fail on it."""
        read = [name for name in datasets if name not in self.graphs and name != "simulated"]
        if read and self.engine == "local":
            find_data_root(self.data_root)


@dataclass(frozen=True)
class JobReport:
    """What became of a training and its cells, of those that were missing when the job began.

    A cell has failed if one of its calibrators has; `errors` has a line for each failure. `busy`: another
    process works on the training, and nothing was done.
    """

    job: TrainingJob
    cells_done: int = 0
    cells_failed: int = 0
    errors: tuple[str, ...] = ()
    seconds: float = 0.0
    busy: bool = False


@dataclass(frozen=True)
class SweepResult:
    """Cells of a plan, those that were found, made and could not be made, and a line for each failure."""

    cells: int
    found: int
    done: int
    failed: int
    errors: tuple[str, ...]


# The sweep: every training and every cell that is not there yet, over any number of processes.


def pending_jobs(plan: SweepPlan, store: Store) -> tuple[list[TrainingJob], int]:
    """Trainings with a missing cell, in the order of work, and the number of cells that are there."""
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
    being written is removed and made again. Several sweeps may fill one store at the same time. A calibrator
    that fails is recorded in the store and fitted again by the next sweep; the others of its cell are kept.

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
    On one machine the numbers depend on the plan alone; another processor or other versions of the libraries
    may round otherwise, and a training can make much of that. Calibration seed 0 gives those of
    :func:`linkcal.workflow.run_experiment`; calibration seed k > 0 draws the negatives among the fitting
    links anew (as many, from the stream ``"calibration-negatives-<part>-k"``) and the calibrators'
    ``random_state`` from ``"calibration-k"``. The trained model, the fitting links' positives, validation and
    test links are the same.

    Examples
    --------
    >>> import tempfile
    >>> from linkcal.data import simulate_graph
    >>> from linkcal_lab.records import read_records
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
        worker = partial(work, wait=wait)
        for report in run_jobs(worker, jobs, engine=options.engine, num_processes=options.jobs):
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
    failed: dict[tuple[Cell, str], Exception] = {}
    for fit_on in job.fit_on:
        group = {cell: names for cell, names in wanted.items() if cell.fit_on == fit_on and names}
        if group:
            failed |= calibrate_and_store(store, calibration, group, resources=resources)
    errors = [
        _failed(store, job, f"{cell.name}/{name}".rstrip("/"), error)
        for (cell, name), error in failed.items()
    ]
    broken = len({cell for cell, _ in failed})
    return total - broken, broken, tuple(errors)


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
    return _cached_graph(config.dataset, config.forward_only, options.data_root)


@lru_cache(maxsize=4)
def _cached_graph(name: str, forward_only: bool, data_root: str | None) -> Graph | LinkSplit:
    """A data set that does not depend on a seed, kept for the next job of this process."""
    return load_graph(RunConfig(name, "gcn", forward_only=forward_only), data_root=data_root)
