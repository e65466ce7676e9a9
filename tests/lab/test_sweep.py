"""A sweep on a small simulated graph: same numbers as a run, resumable, failures recorded."""

import errno
import json
import shutil
import warnings

import numpy as np
import pytest
import torch

from linkcal.data import split_links
from linkcal.exceptions import LinkcalWarning
from linkcal.features import score_links
from linkcal.metrics import EVALUATION_KEYS
from linkcal.workflow import RunConfig, run_experiment
from linkcal_lab import records as records_module
from linkcal_lab import stages
from linkcal_lab import sweep as sweeping
from linkcal_lab.cells import SweepPlan
from linkcal_lab.records import read_records, remeasure_cell
from linkcal_lab.stages import draw_calibration_negatives
from linkcal_lab.store import Store
from linkcal_lab.sweep import SweepOptions, run_sweep

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


def test_stacked_cells_build_on_the_stored_training_links(options, small_graph, tmp_path):
    settings = SETTINGS | {"calibrators": ("platt", "in-n-out-plus")}
    run_sweep(plan(fit_on=["val", "stacked"], calibration_seeds=[0, 1], settings=settings), tmp_path, options)
    records = read_records(tmp_path)
    nll = records.query("part == 'test' and metric == 'nll'").set_index(
        ["fit_on", "calibration_seed", "calibrator"]
    )["value"]
    for seed in (0, 1):
        assert nll["stacked", seed, "platt"] == nll["val", seed, "platt"]
        assert nll["stacked", seed, "in-n-out-plus"] != nll["val", seed, "in-n-out-plus"]
    config = RunConfig("own", "gcn", seed=0, fit_on="stacked", **settings)
    run = run_experiment(config, small_graph).metrics["results"]
    assert run["in-n-out-plus"]["nll"] == nll["stacked", 0, "in-n-out-plus"]


def test_calibration_seeds_share_the_training_and_draw_their_own_negatives(store, small_graph):
    assert files(store / "own/gcn~epochs=3/train-0/training") == [
        "config.json", "model.json", "model.safetensors", "scores-test.npz", "scores-train.npz",
        "scores-val.npz", "true_probability.npz",
    ]  # fmt: skip
    values = read_records(store).set_index(["fit_on", "calibration_seed", "calibrator", "metric", "part"])
    nll = values["value"].xs(("nll", "test"), level=("metric", "part"))
    for fit_on in ("train", "train-loo", "val"):
        assert nll[fit_on, 0, "uncalibrated"] == nll[fit_on, 1, "uncalibrated"]
        assert nll[fit_on, 0, "platt"] != nll[fit_on, 1, "platt"]


@pytest.mark.parametrize("part", ["train", "val"])
def test_drawn_negatives_meet_no_other_pair(small_graph, part):
    split = split_links(small_graph, seed=0)
    drawn = draw_calibration_negatives(split, part, 0, 1)
    assert drawn.size(1) == split.part(part).num_negatives
    pairs = set(map(tuple, drawn.T.tolist()))
    assert len(pairs) == drawn.size(1)
    edges = set(map(tuple, small_graph.pairs.T.tolist()))
    others = {"train", "val", "test"} - {part}
    held = {tuple(pair) for name in others for pair in split.part(name).edge_label_index.T.tolist()}
    assert not pairs & (edges | held)
    assert pairs != set(map(tuple, draw_calibration_negatives(split, part, 0, 2).T.tolist()))


def test_what_is_there_is_not_made_again(store, options, monkeypatch):
    def forbidden(*_args, **_kwargs):
        raise AssertionError

    monkeypatch.setattr(sweeping, "_work", forbidden)
    result = run_sweep(plan(), store, options)
    assert (result.found, result.done, result.failed) == (6, 0, 0)


def test_calibrators_added_later_equal_those_fitted_at_once(store, options, tmp_path, monkeypatch):
    fewer = plan(settings={"epochs": 3, "calibrators": ("uncalibrated", "histogram")})
    run_sweep(fewer, tmp_path, options)
    before = metric_bytes(tmp_path)
    monkeypatch.setattr(sweeping, "train_and_store", None)  # a training would fail
    assert run_sweep(plan(), tmp_path, options).done == 6
    assert {path: data for path, data in metric_bytes(tmp_path).items() if path in before} == before
    assert (tmp_path / "own/gcn~epochs=3/train-0/val/cal-1.2/metrics.csv").exists()
    assert read_records(tmp_path).equals(read_records(store))


def test_metrics_are_computed_anew_from_predictions(store, monkeypatch):
    cell = store / "own/gcn~epochs=3/train-0/val/cal-1"
    before = (cell / "metrics.csv").read_bytes()
    original = records_module.measure_links
    monkeypatch.setattr(records_module, "measure_links", lambda *a, **k: {**original(*a, **k), "new": 7.0})
    remeasure_cell(cell)
    changed = (cell / "metrics.csv").read_text()
    assert changed.count(",new,7.0\n") == 2 * len(CALIBRATORS)
    assert "".join(line for line in changed.splitlines(True) if ",new," not in line).encode() == before
    monkeypatch.undo()
    remeasure_cell(cell)
    assert (cell / "metrics.csv").read_bytes() == before


def test_a_failed_cell_is_recorded_and_tried_again(store, options, tmp_path, monkeypatch):
    original = stages.draw_calibration_negatives

    def fail(split, part, seed, calibration_seed):
        if part == "val" and calibration_seed == 1:
            raise RuntimeError("no luck\ntoday")
        return original(split, part, seed, calibration_seed)

    monkeypatch.setattr(stages, "draw_calibration_negatives", fail)
    result = run_sweep(plan(), tmp_path, options)
    assert (result.done, result.failed) == (5, 1)
    assert result.errors == ("own gcn~epochs=3 train-0 val/cal-1: RuntimeError: no luck today",)
    (record,) = Store(tmp_path).failures()
    assert (record["error"], record["message"]) == ("RuntimeError", "no luck today")
    assert record["what"] == "own gcn~epochs=3 train-0 val/cal-1"
    monkeypatch.undo()
    result = run_sweep(plan(), tmp_path, options)
    assert (result.found, result.done, result.failed) == (5, 1, 0)
    assert files(tmp_path) == files(store)
    assert metric_bytes(tmp_path) == metric_bytes(store)


def test_a_failed_calibrator_is_recorded_and_the_others_of_its_cell_are_kept(
    store, options, tmp_path, monkeypatch
):
    original = stages.fit_calibrators

    def fail(config, name, links, seeds):
        if name == "platt" and 1 in seeds:
            raise RuntimeError("no fit")
        return original(config, name, links, seeds)

    monkeypatch.setattr(stages, "fit_calibrators", fail)
    only = plan(fit_on=["val"])
    result = run_sweep(only, tmp_path, options)
    assert (result.done, result.failed) == (1, 1)
    assert result.errors == ("own gcn~epochs=3 train-0 val/cal-1/platt: RuntimeError: no fit",)
    kept = read_records(tmp_path).groupby("calibration_seed")["calibrator"].unique()
    assert {seed: sorted(names) for seed, names in kept.items()} == {
        0: sorted(CALIBRATORS), 1: sorted(set(CALIBRATORS) - {"platt"}),
    }  # fmt: skip
    assert (tmp_path / "own/gcn~epochs=3/train-0/failed-val-cal-1-platt.json").exists()
    monkeypatch.undo()
    assert run_sweep(only, tmp_path, options).done == 1
    assert Store(tmp_path).failures() == []
    whole = read_records(store).query("fit_on == 'val'").reset_index(drop=True)
    assert read_records(tmp_path).equals(whole)


def test_a_failed_training_fails_its_cells_and_no_others(options, tmp_path, monkeypatch):
    original = sweeping.train_and_store

    def fail(store, job, *args, **kwargs):
        if job.config.dataset == "own":
            raise ValueError("bad graph")
        return original(store, job, *args, **kwargs)

    monkeypatch.setattr(sweeping, "train_and_store", fail)
    small = plan(datasets=["own", "other"], fit_on=["val"])
    result = run_sweep(small, tmp_path, options)
    assert (result.done, result.failed) == (2, 2)
    assert (tmp_path / "own/gcn~epochs=3/train-0/failed-training.json").exists()
    monkeypatch.undo()
    assert run_sweep(small, tmp_path, options).done == 2
    assert Store(tmp_path).failures() == []


def test_a_full_disk_ends_the_sweep_and_loses_nothing(store, options, tmp_path, monkeypatch):
    original, calls = np.savez_compressed, []

    def full(path, **arrays):
        calls.append(path)
        if len(calls) == 4:
            path.write_bytes(b"PK half a file")
            raise OSError(errno.ENOSPC, "No space left on device")
        original(path, **arrays)

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left"):
        run_sweep(plan(), tmp_path, options)
    assert len(metric_bytes(tmp_path)) == 3
    assert not list(tmp_path.rglob(".writing-*"))
    monkeypatch.undo()
    assert run_sweep(plan(), tmp_path, options).done == 3
    assert files(tmp_path) == files(store)
    assert metric_bytes(tmp_path) == metric_bytes(store)


@pytest.mark.parametrize("file", ["scores-train.npz", "config.json"])
def test_a_damaged_training_fails_its_cells_and_names_the_file(store, options, tmp_path, file):
    place = "own/gcn~epochs=3/train-0/training"
    shutil.copytree(store / place, tmp_path / place)
    path = tmp_path / place / file
    path.write_bytes(path.read_bytes()[:100])
    result = run_sweep(plan(), tmp_path, options)
    assert (result.done, result.failed) == (0, 6)
    (error,) = result.errors
    assert str(path) in error
    (record,) = Store(tmp_path).failures()
    assert record["error"] == "InputError"


def test_a_training_that_another_sweep_holds_is_left_alone(options, tmp_path):
    (job,) = plan().jobs()
    store = Store(tmp_path)
    with store.locked(job, wait=False):
        live = tmp_path / job.folder / ".writing-training"
        live.mkdir()
        report = sweeping._run_job(job, root=tmp_path, options=options, wait=False)
        assert report.busy
        assert live.is_dir()
    with store.locked(job, wait=False):
        assert not live.exists()


def test_seconds_memory_versions_and_warnings_are_kept(store):
    cell = json.loads((store / "own/gcn~epochs=3/train-0/val/cal-1/config.json").read_text())
    assert cell["seconds"]["fit platt"] > 0
    assert 0 < cell["processor_seconds"]["fit platt"] < 2 * cell["seconds"]["fit platt"] + 0.1
    assert cell["peak_memory_mib"] is None or cell["peak_memory_mib"] > 100
    assert set(cell["calibrators"]) == set(CALIBRATORS)
    assert cell["fitting_links"]["positives"] == cell["fitting_links"]["negatives"]
    assert cell["environment"]["versions"]["torch"]
    training = json.loads((store / "own/gcn~epochs=3/train-0/training/config.json").read_text())
    assert {"load", "split", "train", "toggle", "total"} == set(training["seconds"])
    assert set(training["processor_seconds"]) == set(training["seconds"])
    assert training["counts"]["nodes"] == 300


@pytest.mark.parametrize("model", ["gcn", "peg"])
def test_a_model_read_back_scores_as_it_did(options, small_graph, tmp_path, model):
    (job,) = plan(models=[model], fit_on=["val"], calibration_seeds=[0]).jobs()
    store = Store(tmp_path)
    with store.locked(job, wait=False):
        sweeping.train_and_store(store, job, lambda: small_graph, resources={})
    stored = sweeping.load_training(store.training_folder(job))
    network, split = stages.Calibration(job, stored, lambda: small_graph)._scorer
    again = score_links(network, split.graph, split.train)
    for name in ("absent", "present", "logit_absent", "logit_present", "in_graph"):
        assert torch.equal(getattr(again.toggled, name), getattr(stored.scores["train"].toggled, name))
    assert torch.equal(again.label, stored.scores["train"].label)
    assert torch.equal(again.structure, stored.scores["train"].structure)
