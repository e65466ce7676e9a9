"""A process forked after scoring scores as its parent did; killed and interrupted ones leave nothing half."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from linkcal.cli import main as linkcal
from linkcal.data import simulate_graph

#: Seconds from Ctrl-C to the end; the promise is 2, and this machine may be busy with other tests.
PATIENCE = 10
FORKED = """
import multiprocessing
import numba, torch
from linkcal import CalibratedLinkPredictor, StructuralCalibrator, InNOut
from linkcal.all_pairs import most_probable_pairs
from linkcal.data import simulate_graph, split_links
from linkcal.models import make_model, train_link_predictor, TrainingConfig

torch.set_num_threads(2)
split = split_links(simulate_graph(300, num_edges=900, num_features=20, seed=0), seed=0)
pairs = split.test.edge_label_index
large = torch.randn(400_000)  # torch starts threads of its own for it
large.sum()
predictors = [
    CalibratedLinkPredictor(make_model(name, 20, **options), StructuralCalibrator()).fit(split)
    for name, options in [("gcn", {}), ("sage", {"num_layers": 3}), ("seal", {})]
]
held = predictors[0].scorer()

def ask(_):
    large.sum()
    found = [p.predict_proba(pairs) for p in predictors]
    found.append(predictors[0].probability_of(held.score(pairs)))
    return [*found, most_probable_pairs(predictors[0], 9).probability]

def learn(seed):
    model = make_model("gcn", 20, seed=0)
    train_link_predictor(model, split, TrainingConfig(epochs=2), seed=0)
    clp = CalibratedLinkPredictor(model, InNOut(max_iter=3, random_state=0)).fit(split)
    return [clp.predict_proba(pairs)]

if __name__ == "__main__":
    expected = ask(0), learn(0)
    held._lock.acquire(), held._engine._lock.acquire()  # as by a thread that is scoring meanwhile
    with multiprocessing.get_context("fork").Pool(2) as pool:
        asked, learnt = pool.map_async(ask, range(2)), pool.map_async(learn, range(2))
        for answers, want in [(asked.get(200), expected[0]), (learnt.get(200), expected[1])]:
            for answer in answers:
                for got, number in zip(answer, want):
                    torch.testing.assert_close(got, number, rtol=0, atol=2e-6)
    print(numba.threading_layer())
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
@pytest.mark.parametrize("layer", ["default", "workqueue"])
def test_children_forked_after_scoring_score_as_their_parent(tmp_path, layer):
    """In a process of its own: Numba fixes its threading layer at the first parallel call."""
    script = tmp_path / "forked.py"
    script.write_text(FORKED)
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, env=environment, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert layer == "default" or done.stdout.strip() == "workqueue"


# A shell's background jobs ignore Ctrl-C, and so would their children.
READY = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); import {0}.cli; "
    "print('ready', flush=True); sys.exit({0}.cli.main())"
)
LONG = {
    "fit": ("linkcal", "fit", "edges.csv", "--model", "seal", "--out", "out"),
    "score": ("linkcal", "score", "fitted", "pairs.csv", "--chunk-size", "9", "--out", "out.csv"),
    "top": ("linkcal", "top", "fitted", "-k", "9", "--chunk-size", "9", "--out", "out.csv"),
    "sweep": (
        "linkcal_lab", "sweep", "--datasets", "simulated", "--models", "seal", "--train-seeds", "1",
        "--store", "out",
    ),
    "search": ("linkcal_lab", "search", "--dataset", "simulated", "--model", "seal", "--storage", "out.json"),
    "run": ("linkcal", "run", "--dataset", "simulated", "--model", "seal", "--out", "out"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fitted folder, edges and query pairs for commands that take minutes (SEAL trains for long)."""
    folder = tmp_path_factory.mktemp("long")
    edges = simulate_graph(20_000, num_edges=40_000, num_features=4, seed=0).pairs.T.tolist()
    rows = [f"{u},{v}\n" for u, v in edges]
    (folder / "edges.csv").write_text("source,target\n" + "".join(rows))
    (folder / "pairs.csv").write_text("source,target\n" + "".join(rows) * 50)
    short = ("--model", "gcn", "--calibrators", "platt", "--epochs", "1", "--out", str(folder / "fitted"))
    assert linkcal(["fit", str(folder / "edges.csv"), *short]) == 0
    return folder


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGINT to send")
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
@pytest.mark.parametrize(("name", "after"), [("run", 0.5), *((name, 5.0) for name in LONG)])
def test_an_interrupt_ends_with_one_line_and_code_130(folder, name, after):
    """While it imports, and while it works."""
    package, *command = LONG[name]
    process = subprocess.Popen(
        [sys.executable, "-c", READY.format(package), *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
    )  # fmt: skip
    process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    _, printed = process.communicate(timeout=60)
    took = time.monotonic() - sent
    assert process.returncode == 130, printed
    assert sum("interrupted" in line for line in printed.splitlines()) == 1
    assert "interrupted" in printed.splitlines()[-1]
    assert "Traceback" not in printed
    assert took < PATIENCE
    print(f"{name}: {took:.2f} s")  # noqa: T201  pytest -s shows them
    left = {path.name for path in folder.iterdir()} - {"fitted", "edges.csv", "pairs.csv"}
    assert left <= {"out", ".out.json.lock"}  # of a sweep, which goes on from there
    assert not (folder / "out" / "metrics.json").exists()
