"""Equal numbers from one process, two processes and a Ray cluster."""

import os
import signal

import pytest

from linkcal.data import simulate_graph
from linkcal.exceptions import InputError, WorkerDiedError
from linkcal_lab import sweep as sweeping
from linkcal_lab.cells import SweepPlan
from linkcal_lab.sweep import SweepOptions, run_jobs, run_sweep, threads_per_job

SETTINGS = {"epochs": 2, "calibrators": ("platt", "in-n-out-plus")}
PLAN = SweepPlan(["own"], ["gcn", "sage"], [0], [0, 1], ["train-loo"], SETTINGS)


def sweep(graph, folder, **options):
    result = run_sweep(PLAN, folder, SweepOptions(graphs={"own": graph}, **options))
    assert (result.done, result.errors) == (4, ())
    names = ("metrics.csv", "predictions.npz", "model.safetensors")
    found = sorted(path for path in folder.rglob("*") if path.name in names)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def one_process(small_graph, tmp_path_factory):
    return sweep(small_graph, tmp_path_factory.mktemp("one"))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own, about its future settings and open files
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_two_processes(one_process, small_graph, tmp_path, engine):
    if engine == "ray":
        pytest.importorskip("ray")
    assert sweep(small_graph, tmp_path, jobs=2, engine=engine) == one_process


def test_any_number_of_threads(tmp_path, monkeypatch):
    # Batch normalisation of this many nodes is cut over torch's threads.
    graph = simulate_graph(2000, num_edges=6000, num_features=8, seed=0)
    plan = SweepPlan(["own"], ["gin"], [0], [0], ["val"], SETTINGS | {"calibrators": ("uncalibrated",)})
    found = []
    for threads in (1, 2):
        monkeypatch.setattr(sweeping, "threads_per_job", lambda _jobs, threads=threads: threads)
        run_sweep(plan, tmp_path / str(threads), SweepOptions(graphs={"own": graph}))
        (weights,) = (tmp_path / str(threads)).rglob("model.safetensors")
        (metrics,) = (tmp_path / str(threads)).rglob("metrics.csv")
        found.append((weights.read_bytes(), metrics.read_bytes()))
    assert found[0] == found[1]


def _kill_worker(number):
    if number:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.slow
def test_a_killed_worker_is_told(tmp_path):
    with pytest.raises(WorkerDiedError, match="a worker process must live until its job is done"):
        list(run_jobs(_kill_worker, [0, 1], num_processes=2))


def test_threads_follow_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert threads_per_job(1) == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads_per_job(1) == max(1, len(os.sched_getaffinity(0)))
    with pytest.raises(InputError, match="jobs must be"):
        threads_per_job(0)
