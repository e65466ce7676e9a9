"""A sweep on a small simulated graph: same numbers as a run, resumable, failures recorded."""

import errno
import json
import shutil
import warnings

import numpy as np
import pytest

from linkcal.data import split_links
from linkcal.exceptions import LinkcalWarning
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
PLACE = "own/gcn~epochs=3/train-0"


def plan(
    datasets=("own",), fit_on=("train", "train-loo", "val", "stacked"), calibrators=CALIBRATORS, model="gcn"
):
    return SweepPlan(datasets, [model], [0], [0, 1], fit_on, SETTINGS | {"calibrators": calibrators})


@pytest.fixture(scope="module")
def options(small_graph):
    return SweepOptions(graphs={"own": small_graph, "other": small_graph})


@pytest.fixture(scope="module")
def store(options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    result = run_sweep(plan(), folder, options)
    assert (result.done, result.failed, result.found) == (8, 0, 0)
    return folder


@pytest.fixture
def part_of(store, tmp_path):
    """The training of the whole store, or a part of it, in a store of its own."""

    def copied(*, without=()):
        shutil.copytree(store, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*without))
        return tmp_path

    return copied


def metric_bytes(store):
    return {path.relative_to(store): path.read_bytes() for path in sorted(store.rglob("metrics.csv"))}


def files(store):
    return sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.name != ".lock")


@pytest.mark.parametrize("fit_on", ["train", "train-loo", "val", "stacked"])
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
    with np.load(store / PLACE / fit_on / "cal-0/predictions.npz") as file:
        for number, name in enumerate(file["calibrator"]):
            assert np.array_equal(file["test_probability"][number], run.test_probability[name])


def test_calibration_seeds_share_the_training_and_draw_their_own_negatives(store):
    assert len(list(store.rglob("training"))) == 1
    values = read_records(store).query("metric == 'nll' and part == 'test'")
    nll = values.set_index(["fit_on", "calibration_seed", "calibrator"])["value"]
    for fit_on in ("train", "train-loo", "val", "stacked"):
        assert nll[fit_on, 0, "uncalibrated"] == nll[fit_on, 1, "uncalibrated"]
        assert nll[fit_on, 0, "platt"] != nll[fit_on, 1, "platt"]
    for seed in (0, 1):
        # Only In-n-Out+ reads the fit to the training links.
        assert nll["stacked", seed, "platt"] == nll["val", seed, "platt"]
        assert nll["stacked", seed, "in-n-out-plus"] != nll["val", seed, "in-n-out-plus"]


@pytest.mark.parametrize("kind", ["uniform", "heart"])
@pytest.mark.parametrize("part", ["train", "val"])
def test_drawn_negatives_meet_no_other_pair(small_graph, part, kind):
    split = split_links(small_graph, seed=0, negatives=kind)
    drawn = draw_calibration_negatives(split, part, 0, 1)
    assert drawn.size(1) == split.part(part).num_negatives
    pairs = set(map(tuple, drawn.T.tolist()))
    assert len(pairs) == drawn.size(1)
    edges = set(map(tuple, small_graph.pairs.T.tolist()))
    others = {"train", "val", "test"} - {part}
    held = {tuple(pair) for name in others for pair in split.part(name).edge_label_index.T.tolist()}
    assert not pairs & (edges | held)
    if kind == "heart":
        links = split.part(part)
        ends = set(links.edge_label_index[:, links.edge_label == 1].flatten().tolist())
        assert all(u in ends or v in ends for u, v in pairs)
    assert pairs != set(map(tuple, draw_calibration_negatives(split, part, 0, 2).T.tolist()))


def test_what_is_there_is_not_made_again(store, options, monkeypatch):
    monkeypatch.setattr(sweeping, "_work", None)
    result = run_sweep(plan(), store, options)
    assert (result.found, result.done, result.failed) == (8, 0, 0)


def test_calibrators_added_later_equal_those_fitted_at_once(store, options, part_of, monkeypatch):
    folder = part_of(without=["cal-*"])
    monkeypatch.setattr(sweeping, "train_and_store", None)  # a training would fail
    run_sweep(plan(calibrators=("uncalibrated", "histogram")), folder, options)
    before = metric_bytes(folder)
    assert run_sweep(plan(), folder, options).done == 8
    assert {path: data for path, data in metric_bytes(folder).items() if path in before} == before
    assert (folder / PLACE / "val/cal-1.2/metrics.csv").exists()
    assert read_records(folder).equals(read_records(store))


def test_metrics_are_computed_anew_from_predictions(part_of, monkeypatch):
    cell = part_of() / PLACE / "val/cal-1"
    before = (cell / "metrics.csv").read_text()
    original = records_module.measure_completely
    monkeypatch.setattr(
        records_module, "measure_completely", lambda *a, **k: {**original(*a, **k), "new": 7.0}
    )
    remeasure_cell(cell)
    changed = (cell / "metrics.csv").read_text()
    assert changed.count(",new,7.0\n") == 2 * len(CALIBRATORS)
    assert "".join(line for line in changed.splitlines(True) if ",new," not in line) == before


def test_a_failed_cell_is_recorded_and_tried_again(store, options, part_of, monkeypatch):
    folder = part_of(without=["cal-*"])
    original = stages.draw_calibration_negatives

    def fail(split, part, seed, calibration_seed):
        if part == "val" and calibration_seed == 1:
            raise RuntimeError("no luck\ntoday")
        return original(split, part, seed, calibration_seed)

    monkeypatch.setattr(stages, "draw_calibration_negatives", fail)
    only = plan(fit_on=["train-loo", "val"])
    result = run_sweep(only, folder, options)
    assert (result.done, result.failed) == (3, 1)
    assert result.errors == ("own gcn~epochs=3 train-0 val/cal-1: RuntimeError: no luck today",)
    (record,) = Store(folder).failures()
    assert (record["error"], record["message"]) == ("RuntimeError", "no luck today")
    assert record["what"] == "own gcn~epochs=3 train-0 val/cal-1"
    monkeypatch.undo()
    result = run_sweep(only, folder, options)
    assert (result.found, result.done, result.failed) == (3, 1, 0)
    assert Store(folder).failures() == []
    assert metric_bytes(folder).items() <= metric_bytes(store).items()


def test_a_failed_calibrator_is_recorded_and_the_others_of_its_cell_are_kept(
    store, options, part_of, monkeypatch
):
    folder = part_of(without=["cal-*"])
    original = stages.fit_calibrators

    def fail(config, name, links, seeds):
        if name == "platt" and 1 in seeds:
            raise RuntimeError("no fit")
        return original(config, name, links, seeds)

    monkeypatch.setattr(stages, "fit_calibrators", fail)
    only = plan(fit_on=["val"])
    result = run_sweep(only, folder, options)
    assert (result.done, result.failed) == (1, 1)
    assert result.errors == ("own gcn~epochs=3 train-0 val/cal-1/platt: RuntimeError: no fit",)
    kept = read_records(folder).groupby("calibration_seed")["calibrator"].unique()
    assert {seed: sorted(names) for seed, names in kept.items()} == {
        0: sorted(CALIBRATORS), 1: sorted(set(CALIBRATORS) - {"platt"}),
    }  # fmt: skip
    assert (folder / PLACE / "failed-val-cal-1-platt.json").exists()
    monkeypatch.undo()
    assert run_sweep(only, folder, options).done == 1
    assert Store(folder).failures() == []
    whole = read_records(store).query("fit_on == 'val'").reset_index(drop=True)
    assert read_records(folder).equals(whole)


def test_a_failed_training_fails_its_cells_and_no_others(options, tmp_path, monkeypatch):
    original = sweeping.train_and_store

    def fail(store, job, *args, **kwargs):
        if job.config.dataset == "own":
            raise ValueError("bad graph")
        return original(store, job, *args, **kwargs)

    monkeypatch.setattr(sweeping, "train_and_store", fail)
    small = plan(datasets=["own", "other"], fit_on=["val"], calibrators=("platt",))
    result = run_sweep(small, tmp_path, options)
    assert (result.done, result.failed) == (2, 2)
    assert (tmp_path / PLACE / "failed-training.json").exists()
    monkeypatch.undo()
    assert run_sweep(small, tmp_path, options).done == 2
    assert Store(tmp_path).failures() == []


def test_a_full_disk_ends_the_sweep_and_loses_nothing(store, options, part_of, monkeypatch):
    folder = part_of(without=["cal-*"])
    original, calls = np.savez_compressed, []

    def full(path, **arrays):
        calls.append(path)
        if len(calls) == 4:
            path.write_bytes(b"PK half a file")
            raise OSError(errno.ENOSPC, "No space left on device")
        original(path, **arrays)

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left"):
        run_sweep(plan(), folder, options)
    assert len(metric_bytes(folder)) == 3
    assert not list(folder.rglob(".writing-*"))
    monkeypatch.undo()
    assert run_sweep(plan(), folder, options).done == 5
    assert files(folder) == files(store)
    assert metric_bytes(folder) == metric_bytes(store)


@pytest.mark.parametrize("file", ["scores-train.npz", "config.json"])
def test_a_damaged_training_fails_its_cells_and_names_the_file(options, part_of, file):
    folder = part_of(without=["cal-*"])
    path = folder / PLACE / "training" / file
    path.write_bytes(path.read_bytes()[:100])
    result = run_sweep(plan(), folder, options)
    assert (result.done, result.failed) == (0, 8)
    (error,) = result.errors
    assert str(path) in error
    (record,) = Store(folder).failures()
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


def test_seconds_memory_versions_and_links_are_kept(store):
    cell = json.loads((store / PLACE / "val/cal-1/config.json").read_text())
    assert 0 < cell["processor_seconds"]["fit platt"] < 2 * cell["seconds"]["fit platt"] + 0.1
    assert cell["peak_memory_mib"] is None or cell["peak_memory_mib"] > 100
    assert set(cell["calibrators"]) == set(CALIBRATORS)
    assert cell["fitting_links"]["positives"] == cell["fitting_links"]["negatives"]
    assert cell["environment"]["versions"]["torch"]
    training = json.loads((store / PLACE / "training/config.json").read_text())
    assert {"load", "split", "train", "toggle", "total"} == set(training["seconds"])
    assert set(training["processor_seconds"]) == set(training["seconds"])
    assert training["counts"]["nodes"] == 300


def test_a_model_read_back_scores_as_it_did(options, tmp_path, monkeypatch):
    """PEG reads positions beside the features: the split's own negatives, scored again, change nothing."""

    def own(split, part, *_):
        pairs = split.part(part)
        return pairs.edge_label_index[:, pairs.edge_label == 0]

    monkeypatch.setattr(stages, "draw_calibration_negatives", own)
    run_sweep(plan(fit_on=["val"], calibrators=("platt",), model="peg"), tmp_path, options)
    seed_0, seed_1 = metric_bytes(tmp_path).values()
    assert seed_0 == seed_1
