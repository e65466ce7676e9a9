"""Thread counts are put back, also when blocks overlap; a fitted predictor serves many threads at once."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numba
import pytest
import torch
from threadpoolctl import threadpool_info

from linkcal import CalibratedLinkPredictor, InNOut, StructuralCalibrator, toggle_edges
from linkcal._core import threads
from linkcal._core.threads import blas_threads, numba_threads
from linkcal.all_pairs import most_probable_pairs
from linkcal.data import simulate_graph, split_links
from linkcal.models import make_model

THREADS, REQUESTS = 16, int(os.environ.get("LINKCAL_REQUESTS", "20"))


@pytest.fixture(params=[1, 2])
def count(request):
    numba.get_num_threads()  # the first call starts Numba's threads, and may change torch's count
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def blas_counts():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_the_first_block_of_a_process_leaves_torch_with_its_threads():
    """Numba starts its threads when it is first asked for their number, and may change torch's count then."""
    code = (
        "import torch; from linkcal._core.threads import numba_threads\n"
        "before = torch.get_num_threads()\n"
        "with numba_threads(1): pass\n"
        "assert torch.get_num_threads() == before"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_the_smallest_of_nested_blas_limits_holds():
    before = blas_counts()
    with blas_threads(1):
        with blas_threads(2):
            assert set(blas_counts()) == {1}
        assert set(blas_counts()) == {1}
    assert blas_counts() == before


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_overlapping_blocks_put_the_first_setting_back(first_ends_first):
    """Two threads enter one after the other and end in either order."""
    before = blas_counts()
    inside, end, seen = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)], []

    def work(i):
        with blas_threads(1):
            inside[i].set()
            end[i].wait(60)
        seen.append(blas_counts())

    workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for i in range(2):
        workers[i].start()
        inside[i].wait(60)
    for i in (0, 1) if first_ends_first else (1, 0):
        end[i].set()
        workers[i].join(60)
    assert blas_counts() == before
    assert seen[-1] == before
    with ThreadPoolExecutor(1) as later:
        assert later.submit(blas_counts).result() == before


def test_one_thread_at_a_time_runs_compiled_parallel_code():
    entered = threading.Event()

    def enter():
        with numba_threads(1):
            entered.set()

    with numba_threads(1), numba_threads(1):  # re-entrant
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.2)
    other.join(60)
    assert entered.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_inside_a_block_of_another_thread_has_a_free_lock():
    inside, end = threading.Event(), threading.Event()

    def hold():
        with numba_threads(1):
            inside.set()
            end.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(60)
    child = os.fork()
    if not child:
        os._exit(0 if threads._shared.kernels.acquire(timeout=5) else 1)
    status = os.waitpid(child, 0)[1]
    end.set()
    holder.join(60)
    assert os.waitstatus_to_exitcode(status) == 0


def test_toggling_and_fitting_leave_torch_with_its_threads(count):
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    toggled = toggle_edges(make_model("gcn", 3), torch.eye(3), path, torch.tensor([[0], [2]]))
    assert toggled.method == "kernel"
    assert torch.get_num_threads() == count
    X, y = [[-1.0, 0.5], [-2.0, 0.1], [1.0, 0.0], [2.0, 0.3]], [0, 1, 0, 1]
    InNOut(max_iter=2, learning_rate=0.1).fit(X, y)
    assert torch.get_num_threads() == count


def serve():
    """Many threads ask a fitted predictor for one of six things again and again, as one did before."""
    split = split_links(simulate_graph(120, num_edges=400, num_features=6, seed=0), seed=0)
    model = make_model("gcn", 6, seed=0).train()
    clp = CalibratedLinkPredictor(model, StructuralCalibrator()).fit(split)
    graph, scorer = split.graph, clp.scorer()
    chunks = split.test.edge_label_index.split(9, dim=1)
    kinds = [
        lambda pairs: [clp.predict_proba(pairs)],
        lambda pairs: [clp.probability_of(scorer.score(pairs))],
        lambda pairs: [clp.select(pairs, fdr=0.3).p_value],
        lambda pairs: [clp.predict_interval(pairs)],
        lambda pairs: [most_probable_pairs(clp, 5 + pairs.size(1)).probability],
        lambda pairs: list(vars(toggle_edges(model, graph.x, graph.edge_index, pairs)).values())[:4],
    ]
    flags = [module.training for module in clp.modules()]

    def ask(number):
        if [module.training for module in clp.modules()] != flags:
            raise AssertionError("train and eval flags changed")
        return kinds[number % len(kinds)](chunks[number // len(kinds) % len(chunks)])

    expected = [ask(number) for number in range(REQUESTS)]

    def client(first):
        numbers = [(first + i) % REQUESTS for i in range(REQUESTS)]
        return [(number, ask(number)) for number in numbers]

    with ThreadPoolExecutor(THREADS) as pool:
        answers = [answer for answers in pool.map(client, range(THREADS)) for answer in answers]
    assert len(answers) == THREADS * REQUESTS
    different = {
        number % len(kinds) for number, parts in answers if not all(map(torch.equal, parts, expected[number]))
    }
    assert not different, f"kinds of requests whose numbers differ: {different}"
    assert [module.training for module in clp.modules()] == flags


@pytest.mark.parametrize("layer", ["default", "workqueue"])
def test_case_a6_many_threads_get_the_numbers_of_one(layer):
    """In a process of its own: Numba fixes its threading layer at the first parallel call."""
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert layer == "default" or done.stdout.strip() == "workqueue"


if __name__ == "__main__":
    serve()
    sys.stdout.write(numba.threading_layer())
