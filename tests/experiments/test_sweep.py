"""A sweep on a small simulated graph: same numbers as a run, resumable, failures recorded."""

import errno
import json
import warnings

import numpy as np
import pytest

from linkcal.data import split_links
from linkcal.exceptions import InputError, LinkcalWarning
from linkcal.experiments import (
    RunConfig,
    Store,
    SweepOptions,
    SweepPlan,
    export_records,
    read_records,
    remeasure_cell,
    run_experiment,
    run_sweep,
)
from linkcal.experiments import calibration_stage as calibration
from linkcal.experiments import sweep as sweeping
from linkcal.experiments.calibration_links import draw_calibration_negatives
from linkcal.metrics import EVALUATION_KEYS

CALIBRATORS = ("uncalibrated", "platt", "histogram", "in-n-out-plus")
SETTINGS = {"epochs": 3, "calibrators": CALIBRATORS}


def plan(**changes):
    arguments = {
        "datasets": ["own"],
        "models": ["gcn"],
        "train_seeds": [0],
        "calibration_seeds": [0, 1],
        "fit_on": ["train", "train-loo", "val"],
        "settings": SETTINGS,
    }
    return SweepPlan(**arguments | changes)


@pytest.fixture(scope="module")
def options(small_graph):
    return SweepOptions(graphs={"own": small_graph, "other": small_graph})


@pytest.fixture(scope="module")
def store(options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    result = run_sweep(plan(), folder, options)
    assert (result.done, result.failed, result.found) == (6, 0, 0)
    return folder


def metric_bytes(store):
    return {path.relative_to(store): path.read_bytes() for path in sorted(store.rglob("metrics.csv"))}


def files(store):
    return sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.name != ".lock")


@pytest.mark.parametrize("fit_on", ["train", "train-loo", "val"])
def test_calibration_seed_0_has_the_numbers_of_a_run(store, small_graph, fit_on):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        run = run_experiment(RunConfig("own", "gcn", fit_on=fit_on, **SETTINGS), small_graph)
    records = read_records(store)
    rows = records.query("fit_on == @fit_on and calibration_seed == 0 and part == 'test'")
    values = rows.set_index(["calibrator", "metric"])["value"]
    for name, row in run.metrics["results"].items():
        for metric in (*EVALUATION_KEYS, "true_error"):
            assert values[name, metric] == row[metric]
    with np.load(store / f"own/gcn~epochs=3/train-0/{fit_on}/cal-0/predictions.npz") as file:
        for number, name in enumerate(file["calibrator"]):
            assert np.array_equal(file["test_probability"][number], run.test_probability[name])
