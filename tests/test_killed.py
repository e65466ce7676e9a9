"""SIGKILL at random moments of commands that write, and two writers at once: what is there is whole.

Half of the kills come right before a random operation on a file, half after a random time, so that a file may
be half written. The children are forks of a process of their own. ``run`` is killed in workflow/test_run.py,
``sweep`` in lab/test_sweep_killed.py.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import pytest

from kills import KILLS, before_operations, die_after, die_at_operation, outcome, start
from linkcal import CalibratedLinkPredictor
from linkcal.cli import main as linkcal
from linkcal.data import simulate_graph
from linkcal.workflow import RunConfig
from linkcal_lab.search import search_hyperparameters

GRAPH = simulate_graph(120, num_edges=400, num_features=8, seed=0)
SPACE = {"lr": [0.1, 0.01], "hidden_channels": [4, 8], "num_layers": [1, 2], "epochs": [2]}
RATES = ("0.1", "0.2")


def run_of(folder):
    """Seed and numbers of a finished run, whose files must agree."""
    metrics = json.loads((folder / "metrics.json").read_text())
    config = json.loads((folder / "config.json").read_text())["config"]
    clp = CalibratedLinkPredictor.load(folder, calibrator="platt")
    assert config["seed"] == metrics["seed"]
    assert (folder / "reliability.png").read_bytes().endswith(b"IEND\xaeB`\x82")
    assert (folder / "report.html").read_text().rstrip().endswith("</html>")
    p = clp.predict_proba(clp.graph_.pairs[:, :9]).tolist()
    return metrics["seed"], metrics["results"]["platt"]["nll"], p


def table_of(folder):
    """Text of a table; its side file says how it was scored, or names another table by its checksum."""
    text = (folder / "t.csv").read_text()
    side = folder / "t.csv.meta.json"
    if side.exists():
        found = json.loads(side.read_text())
        if found["table_sha256"] == hashlib.sha256(text.encode()).hexdigest():
            (home,) = (
                each for each in folder.parent.glob("score-[01]") if (each / "t.csv").read_text() == text
            )
            assert home.name == f"score-{RATES.index(str(found['base_rate']))}"
    return text


def command_line(*arguments):
    return linkcal([str(each) for each in arguments])


def search(folder):
    search_hyperparameters(RunConfig("small", "gcn"), GRAPH, folder / "s.json", space=SPACE)
    return 0


def trials_of(folder):
    file = folder / "s.json"
    return json.loads(file.read_text())["trials"] if file.exists() else []


def attack(folder, name, work, state):
    """Both variants by themselves; then one over the other, killed; then both at once."""
    rng, log, place = random.Random(name), folder / "operations", folder / name
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    expected, names = [], []
    for variant in range(2):
        whole, begin = folder / f"{name}-{variant}", time.perf_counter()
        whole.mkdir()
        count = partial(os.write, handle, b".")
        assert not outcome(start(partial(work, whole, variant), before_operations, whole, count))
        seconds, operations = time.perf_counter() - begin, log.stat().st_size // (variant + 1)
        expected.append(state(whole))
        names.append(sorted(path.name for path in whole.iterdir()))
    assert expected[0] != expected[1]
    shutil.copytree(folder / f"{name}-0", place)
    seen, killed, tries = {0: 0, 1: 0}, 0, 0
    while killed < KILLS:
        tries += 1
        # Over the other variant, so that each finished call changes what is there.
        child = partial(work, place, 1 - expected.index(state(place)))
        if tries % 2:
            child = start(child, die_at_operation, place, rng.randint(1, operations))
        else:
            child = start(child, die_after, rng.uniform(0.2, 1.1) * seconds)
        code = outcome(child)
        assert code in (0, -signal.SIGKILL)
        killed += code != 0
        seen[expected.index(state(place))] += 1
    assert not work(place, 0)
    assert (state(place), sorted(path.name for path in place.iterdir())) == (expected[0], names[0])
    for target in (place, folder / f"{name}-new"):  # over what is there, and into a new folder
        target.mkdir(exist_ok=True)
        codes = [outcome(child) for child in [start(partial(work, target, each)) for each in range(2)]]
        assert 0 in codes
        assert set(codes) <= {0, 1}
        assert state(target) in expected
        assert sorted(path.name for path in target.iterdir()) == names[0]
    return {"killed": killed, "finished": tries - killed, "seen": seen}


def attack_search(folder):
    """Killed and gone on with until all kills are done: each file is a part of the unbroken search."""
    rng, place, begin = random.Random("search"), folder / "search", time.perf_counter()
    (folder / "search-whole").mkdir()
    place.mkdir()
    assert not outcome(start(partial(search, folder / "search-whole")))
    seconds, whole, killed = time.perf_counter() - begin, trials_of(folder / "search-whole"), 0
    while killed < KILLS:
        if trials_of(place) == whole:
            (place / "s.json").unlink()
        if killed % 2:
            child = start(partial(search, place), die_at_operation, place, rng.randint(1, 12))
        else:
            child = start(partial(search, place), die_after, rng.uniform(0.05, 0.6) * seconds)
        killed += outcome(child) != 0
        assert trials_of(place) == whole[: len(trials_of(place))]
    search(place)
    assert trials_of(place) == whole
    assert {path.name for path in place.iterdir()} <= {"s.json", ".s.json.lock"}
    (folder / "both").mkdir()
    codes = [outcome(child) for child in [start(partial(search, folder / "both")) for _ in range(2)]]
    assert 0 in codes
    assert trials_of(folder / "both") == whole
    return {"killed": killed}


def main(folder):
    warnings.simplefilter("ignore")
    silent = os.open(os.devnull, os.O_WRONLY)
    answers = os.dup(1)
    os.dup2(silent, 1)
    lines = "".join(f"n{u},n{v}\n" for u, v in GRAPH.pairs.T.tolist())
    edges, fitted = folder / "edges.csv", folder / "fitted"
    edges.write_text("source,target\n" + lines)
    fit = ("fit", edges, "--model", "gcn", "--epochs", 2, "--calibrators", "platt", "--out")
    assert not command_line(*fit, fitted)

    def fits(out, variant):
        return command_line(*fit, out / "run", "--force", "--seed", variant)

    def scores(out, variant):
        return command_line("score", fitted, edges, "--out", out / "t.csv", "--base-rate", RATES[variant])

    def ranks(out, variant):
        return command_line("top", fitted, "-k", 99 + variant, "--out", out / "t.csv")

    found = {
        "fit": attack(folder, "fit", fits, lambda out: run_of(out / "run")),
        "score": attack(folder, "score", scores, table_of),
        "top": attack(folder, "top", ranks, table_of),
        "search": attack_search(folder),
    }
    os.write(answers, json.dumps(found).encode())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_killed_commands_and_two_writers_leave_whole_files(tmp_path):
    # A forked child must not inherit the state of a thread pool.
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)  # noqa: T201  pytest -s shows the counts
    assert {name: row["killed"] for name, row in found.items()} == dict.fromkeys(found, KILLS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
