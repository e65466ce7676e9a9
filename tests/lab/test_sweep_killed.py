"""A sweep killed with SIGKILL at random moments and continued leaves the store of an uninterrupted one.

Half of the kills come at a random operation on a file of the store, right before it happens; half at a random
time, so that a file may be half written. The children are forks of a process of their own.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from kills import KILLS, before_operations, die_after, die_at_operation, outcome, start
from linkcal.data import simulate_graph
from linkcal_lab.cells import SweepPlan
from linkcal_lab.records import read_records
from linkcal_lab.sweep import SweepOptions, run_sweep

GRAPH = simulate_graph(120, num_edges=400, num_features=8, seed=0)
SETTINGS = {"epochs": 2, "calibrators": ("uncalibrated", "platt")}
PLAN = SweepPlan(["own"], ["gcn", "sage"], [0], [0, 1], ["train", "val"], SETTINGS)


def sweep(store):
    result = run_sweep(PLAN, store, SweepOptions(graphs={"own": GRAPH}))
    return 0 if result.found + result.done == result.cells else 2


def main(folder):
    """Sweeps in forked children: killed until all kills are done, then run to its end, then two at once."""
    rng, log = random.Random(0), folder / "operations"
    handle = os.open(log, os.O_WRONLY | os.O_CREAT)
    begin, whole = time.perf_counter(), folder / "whole"
    if outcome(start(partial(sweep, whole), before_operations, whole, lambda: os.write(handle, b"."))) != 0:
        sys.exit("the uninterrupted sweep failed")
    operations, seconds = log.stat().st_size, time.perf_counter() - begin
    store, codes = folder / "killed", []
    while codes.count(-signal.SIGKILL) < KILLS:
        if codes and codes[-1] == 0:
            # Finished before it could be killed: the rest of the kills meets a store that fills anew.
            shutil.rmtree(store)
        if len(codes) % 2:
            child = start(partial(sweep, store), die_after, rng.uniform(0.1, 0.6) * seconds)
        else:
            child = start(partial(sweep, store), die_at_operation, store, rng.randint(1, operations // 3))
        codes.append(outcome(child))
    codes.append(outcome(start(partial(sweep, store))))
    both = [start(partial(sweep, folder / "shared")) for _ in range(2)]
    sys.stdout.write(json.dumps({"codes": codes, "shared": [outcome(child) for child in both]}) + "\n")


def contents(store):
    """Bytes of every file of a store but for those that say when or how long, and not what."""
    found = {str(path.relative_to(store)): path for path in sorted(store.rglob("*")) if path.is_file()}
    times = ("config.json", ".lock")
    return {name: None if path.name in times else path.read_bytes() for name, path in found.items()}


@pytest.mark.slow
def test_killed_and_continued_or_shared_equals_uninterrupted(tmp_path):
    # A forked child must not inherit the state of a thread pool.
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["codes"].count(-signal.SIGKILL) == KILLS
    assert report["codes"][-1] == 0
    assert set(report["codes"]) <= {-signal.SIGKILL, 0}
    # Two sweeps at once on one store.
    assert report["shared"] == [0, 0]
    expected = contents(tmp_path / "whole")
    assert contents(tmp_path / "killed") == expected
    assert contents(tmp_path / "shared") == expected
    # 2 models x 2 fit_on x 2 calibration seeds x 2 calibrators x 2 parts, each value once.
    assert len(read_records(tmp_path / "killed").query("metric == 'ece'")) == 32


if __name__ == "__main__":
    main(Path(sys.argv[1]))
