"""Stores changed by hand: one line that names the file, or made anew by the next sweep."""

import json
import re
import shutil

import pytest

from linkcal_lab.cells import SweepPlan
from linkcal_lab.estimate import estimate_jobs
from linkcal_lab.records import read_records
from linkcal_lab.store import Store
from linkcal_lab.sweep import SweepOptions, run_sweep
from refusals import refuses

TRAINING = "own/gcn~epochs=2/train-0/training"
CELL = "own/gcn~epochs=2/train-0/val/cal-0"


def plan(*calibrators):
    settings = {"epochs": 2, "calibrators": calibrators or ("platt",)}
    return SweepPlan(["own"], ["gcn"], [0], [0, 1], ["val"], settings)


@pytest.fixture(scope="module")
def options(small_graph):
    return SweepOptions(graphs={"own": small_graph})


@pytest.fixture(scope="module")
def whole(options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert run_sweep(plan(), folder, options).done == 2
    return folder


@pytest.fixture
def store(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "store")


def change(path, *keys, value=None):
    """Put a value, or nothing, in the place of one of a JSON file."""
    record = json.loads(path.read_text())
    inner = record
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]
    if value is not None:
        inner[keys[-1]] = value
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("config",), {}),
        (("config",), [1]),
        (("config", "seed"), "x"),
        (("config", "hyperparameters"), 5),
        (("protocol",), "none"),
        (("calibrators",), 5),
        (("calibration_seed",), "a"),
    ],
)
def test_changed_records_of_a_cell_are_named(store, keys, value):
    path = store / CELL / "config.json"
    change(path, *keys, value=value)
    for read in (read_records, lambda folder: estimate_jobs(plan(), Store(folder))):
        refuses(re.escape(str(path)), read, store)


@pytest.mark.parametrize(
    ("place", "keys", "value"),
    [
        (TRAINING, ("seconds", "total"), None),
        (TRAINING, ("seconds",), [1]),
        (TRAINING, ("counts", "edges"), None),
        (TRAINING, ("environment", "cuda"), None),
        (TRAINING, ("processor_seconds", "total"), None),
        (TRAINING, ("config",), {}),
        (CELL, ("seconds", "evaluate"), "x"),
        (CELL, ("seconds", "evaluate"), None),
        (CELL, ("environment",), {}),
    ],
)
def test_changed_times_are_named(store, place, keys, value):
    path = store / place / "config.json"
    change(path, *keys, value=value)
    refuses(re.escape(str(path)), estimate_jobs, plan(), Store(store))


@pytest.mark.parametrize(
    ("keys", "value"), [(("config", "dataset"), "cora"), (("config", "seed"), 3), (("calibration_seed",), 1)]
)
def test_a_cell_in_the_place_of_another_is_refused(store, keys, value):
    change(store / CELL / "config.json", *keys, value=value)
    refuses(r"must be that of own/gcn/train-0/val/cal-0, got that of", read_records, store)


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("config.json", lambda _: b"{"),
        ("config.json", lambda _: b"[]"),
        ("config.json", None),
        ("metrics.csv", None),
        ("metrics.csv", lambda _: b""),
        ("metrics.csv", lambda _: b"\x1f\x8b\xff"),
        ("metrics.csv", lambda _: b"calibrator,part,metric\nplatt,test,ece\n"),
        ("metrics.csv", lambda _: b"calibrator,part,metric,value\nplatt,test,ece,0.1x\n"),
        *[("metrics.csv", lambda whole, cut=cut: whole[:-cut]) for cut in (1, 3, 30, 400)],
        ("metrics.csv", lambda whole: b"".join(whole.splitlines(keepends=True)[:-2])),
        ("metrics.csv", lambda whole: b"".join(whole.splitlines(keepends=True)[:30])),
    ],
)
def test_a_damaged_cell_is_one_line_of_every_command(cli, store, file, changed):
    path = store / CELL / file
    if changed is None:
        path.unlink()
    else:
        path.write_bytes(changed(path.read_bytes()))
    answer = cli("tables", "--store", store)
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert str(path) in answer.err


def test_damaged_predictions_are_one_line(cli, store, tmp_path):
    path = store / CELL / "predictions.npz"
    path.write_bytes(path.read_bytes()[:200])
    for command in (
        ("figures", "--store", store, "--out", tmp_path / "f"),
        ("export", store, "--out", tmp_path / "r.csv.gz", "--remeasure"),
    ):
        answer = cli(*command)
        assert (answer.code, answer.err.count("\n")) == (1, 1)
        assert f"predictions must be an npz file of plain arrays, got {path}" in answer.err


def test_an_addition_that_was_removed_is_made_anew(store, options):
    for names in (("platt", "beta"), ("platt", "beta", "isotonic")):
        assert run_sweep(plan(*names), store, options).done == 2
    before = read_records(store)
    shutil.rmtree(store / f"{CELL}.2")
    result = run_sweep(plan("platt", "beta", "isotonic"), store, options)
    assert (result.done, result.failed) == (1, 0)
    assert read_records(store).equals(before)


def test_only_what_a_sweep_left_unfinished_is_removed(store, options, tmp_path):
    place = store / "own/gcn~epochs=2/train-0"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    (place / ".writing-cal-0").symlink_to(tmp_path / "mine")
    (place / "val" / ".writing-cal-9").mkdir()
    (place / ".failed-val-cal-1-abc.json").touch()
    (place / ".git").mkdir()
    for name in (".DS_Store", ".git/config", "val/.notes"):
        (place / name).write_text("mine")
    assert run_sweep(plan("platt", "beta"), store, options).done == 2
    hidden = {str(path.relative_to(place)) for path in place.rglob(".*")}
    assert hidden == {".lock", ".git", ".DS_Store", "val/.notes"}
    assert (place / ".git/config").read_text() == (tmp_path / "mine" / "file").read_text() == "mine"
