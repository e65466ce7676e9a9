"""A process forked after scoring scores as its parent did; killed and interrupted ones leave nothing half."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

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
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); import linkcal.cli; "
    "print('ready', flush=True); sys.exit(linkcal.cli.main())"
)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGINT to send")
@pytest.mark.parametrize("after", [0.5, 6.0])
def test_an_interrupt_ends_with_one_line_and_code_130(tmp_path, after):
    """While it imports, and while it trains."""
    command = ["run", "--dataset", "simulated", "--epochs", "1000000", "--out", tmp_path / "out"]
    process = subprocess.Popen(
        [sys.executable, "-c", READY, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert printed.splitlines()[-1] == "linkcal: interrupted"
    assert "Traceback" not in printed
    assert time.monotonic() - sent < PATIENCE
    assert not (tmp_path / "out" / "metrics.json").exists()
