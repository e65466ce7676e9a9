"""Run sweeps in forked children and kill them; writes what happened as JSON. Started by test_sweep_killed.

One import serves all children: a fork takes milliseconds. Half of the kills come at a random operation on a
file of the store (open, mkdir, rename, remove), right before it happens; half at a random time, so that a
file may be half written.
"""

import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from linkcal.data import simulate_graph
from linkcal_lab.cells import SweepPlan
from linkcal_lab.sweep import SweepOptions, run_sweep

KILLS = 20
GRAPH = simulate_graph(120, num_edges=400, num_features=8, seed=0)
PLAN = SweepPlan(
    ["own"],
    ["gcn", "sage"],
    [0],
    [0, 1],
    ["train", "val"],
    {"epochs": 2, "calibrators": ("uncalibrated", "platt")},
)
_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def kill_at_operation(store, number):
    """SIGKILL right before the given operation on the store."""
    left = [number]

    def hook(event, arguments):
        if event in _EVENTS and str(store) in str(arguments[0]):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def kill_at_time(seconds):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()


def start(store, prepare=None):
    """Fork a child that runs the sweep; gives its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if prepare is not None:
            prepare()
        result = run_sweep(PLAN, store, SweepOptions(graphs={"own": GRAPH}))
        code = 0 if result.found + result.done == result.cells else 2
    finally:
        os._exit(code)


def outcome(child):
    """Exit code of a child, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_operations(store):
    """Run to the end and give the number of operations on the store and the seconds it took."""
    log = store.with_name("operations")

    def prepare():
        def hook(event, arguments):
            if event in _EVENTS and str(store) in str(arguments[0]):
                os.write(handle, b".")

        handle = os.open(log, os.O_WRONLY | os.O_CREAT)
        sys.addaudithook(hook)

    begin = time.perf_counter()
    if outcome(start(store, prepare)) != 0:
        sys.exit("the uninterrupted sweep failed")
    return log.stat().st_size, time.perf_counter() - begin


def main(folder, seed):
    rng = random.Random(seed)
    operations, seconds = count_operations(folder / "whole")
    store, codes, rounds = folder / "killed", [], 0
    while codes.count(-signal.SIGKILL) < KILLS:
        if len(codes) % 2:
            moment = rng.uniform(0.1, 0.6) * seconds
            child = start(store, lambda moment=moment: kill_at_time(moment))
        else:
            number = rng.randint(1, operations // 3)
            child = start(store, lambda number=number: kill_at_operation(store, number))
        codes.append(outcome(child))
        if codes[-1] == 0 and codes.count(-signal.SIGKILL) < KILLS:
            # Finished before it could be killed: the rest of the kills meets a store that fills anew.
            rounds += 1
            shutil.rmtree(store)
    codes.append(outcome(start(store)))
    both = [start(folder / "shared"), start(folder / "shared")]
    shared = [outcome(child) for child in both]
    report = {"codes": codes, "rounds": rounds, "shared": shared, "operations": operations}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
