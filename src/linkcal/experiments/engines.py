"""Where the jobs of a sweep run: worker processes of this machine, or a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, TypeVar, get_args

import joblib
from threadpoolctl import threadpool_limits

from linkcal._threads import numba_threads, torch_threads
from linkcal._validation import check_choice, check_positive_int
from linkcal.exceptions import InputError, WorkerDiedError

__all__ = ["ENGINES", "Engine", "run_jobs", "threads_limited", "threads_per_job"]

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
