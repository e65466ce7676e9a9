"""From a sweep to its tables and figures by commands: what one writes, the next one reads."""

import pytest
from tests.lab.sample import frame, record

from linkcal_lab import sweep as sweeping

pytestmark = pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")

CALIBRATORS = "uncalibrated,isotonic,histogram,in-n-out-plus"


@pytest.fixture(scope="module")
def store(small_graph, tmp_path_factory):
    from linkcal_lab.cli import main

    folder = tmp_path_factory.mktemp("reproduction") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeping, "_graph", lambda _config, _options: small_graph)
        code = main([
            "sweep", "--datasets", "simulated", "--models", "gcn", "--train-seeds", "1", "--fit-on", "val",
            "--calibration-seeds", "2", "--epochs", "3", "--calibrators", CALIBRATORS, "--store", str(folder),
        ])  # fmt: skip
    assert code == 0
    return folder


@pytest.mark.parametrize("format_", ["markdown", "csv", "latex"])
def test_tables_of_store_and_export_are_the_same_bytes(cli, store, tmp_path, format_):
    assert cli("export", store, "--out", tmp_path / "r.csv.gz").code == 0
    found = []
    for number, source in enumerate((store, store, tmp_path / "r.csv.gz")):
        out = tmp_path / str(number)
        assert cli("tables", "--store", source, "--format", format_, "--out", out).code == 0
        found.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 15
    # Nothing undefined is printed as a number.
    assert not [name for name, data in found[0].items() if b"nan" in data.lower().replace(b"nano", b"")]


def test_one_training_seed_is_said_to_be_one(cli, store):
    ece = cli("tables", "--store", store, "--table", "ece-val").out
    assert "nothing to test: one seed" in ece
    (line,) = [line for line in ece.splitlines() if line.startswith("| simulated |")]
    assert line.endswith("| one seed |")
    tested = cli("tables", "--store", store, "--table", "wilcoxon-in-n-out-plus-val").out
    (line,) = [line for line in tested.splitlines() if line.startswith("| simulated |")]
    assert line.count("| one seed ") == 2


def test_figures_of_a_sweep(cli, store, tmp_path):
    answer = cli("figures", "--store", store, "--out", tmp_path, "--each", "--calibrator", "isotonic")
    assert answer.code == 0, answer.err
    names = ["simulated-gcn~epochs=3-val", "simulated-val", "uncalibrated"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{name}.{suffix}" for name in names for suffix in ("png", "svg")
    )
    svg = (tmp_path / "simulated-gcn~epochs=3-val.svg").read_text(encoding="utf-8")
    assert svg.count("<!-- n: pairs; noise: ECE that a calibrated predictor stays below") == 1
    for name in CALIBRATORS.split(","):
        assert f"<!-- {name} -->" in svg


def test_figures_show_what_the_sweep_has(cli, store, tmp_path):
    answer = cli("figures", "--store", store, "--out", tmp_path, "--format", "svg")
    assert answer.code == 0, answer.err
    svg = (tmp_path / "simulated-val.svg").read_text(encoding="utf-8")
    # The sweep has no in-n-out, one of the columns that are usual.
    assert all(f" / {name} -->" in svg for name in CALIBRATORS.split(","))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", b"{", "must be a JSON file, got"),
        ("config.json", b"[]", "must have an object, got list"),
        ("config.json", None, "must be there, got a folder without it"),
        ("metrics.csv", b"", "must be a whole file of measured values, got"),
        ("metrics.csv", b"\x1f\x8b\xff", "must be a whole file of measured values, got"),
        (
            "metrics.csv",
            b"calibrator,part,metric\nplatt,test,ece\n",
            "must have the columns calibrator, part",
        ),
        ("metrics.csv", b"calibrator,part,metric,value\nplatt,test,ece,0.1x\n", "could not convert"),
        ("metrics.csv", 50, "must have as many values for each of uncalibrated, isotonic"),
        ("metrics.csv", None, "must be a whole file of measured values, got"),
    ],
)
def test_a_damaged_cell_is_one_line(cli, store, file, content, message):
    path = store / "simulated/gcn~epochs=3/train-0/val/cal-1" / file
    whole = path.read_bytes()
    try:
        if content is None:
            path.unlink()
        else:
            lines = whole.splitlines(keepends=True)
            path.write_bytes(b"".join(lines[:content]) if isinstance(content, int) else content)
        answer = cli("tables", "--store", store)
    finally:
        path.write_bytes(whole)
    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert message in answer.err
    assert str(path) in answer.err


def test_a_damaged_export_is_one_line(cli, store, tmp_path):
    whole = tmp_path / "whole.csv.gz"
    cli("export", store, "--out", whole)
    (tmp_path / "half.csv.gz").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    twice = frame(record(), record(value=0.2))
    twice.to_csv(tmp_path / "twice.csv", index=False)
    twice.head(1).assign(train_seed="x").to_csv(tmp_path / "seed.csv", index=False)
    for name, message in (
        ("half.csv.gz", "must be a whole file of measured values, got"),
        ("twice.csv", "records must hold each value once, got 1 again, first cora, gcn"),
        ("seed.csv", "must have whole numbers as train_seed, calibration_seed, got"),
    ):
        answer = cli("tables", "--store", tmp_path / name)
        assert (answer.code, answer.err.count("\n")) == (1, 1)
        assert message in answer.err


def test_damaged_predictions_are_one_line(cli, store, tmp_path):
    path = store / "simulated/gcn~epochs=3/train-0/val/cal-0/predictions.npz"
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[: len(whole) // 2])
        figures = cli("figures", "--store", store, "--out", tmp_path)
        export = cli("export", store, "--out", tmp_path / "r.csv.gz", "--remeasure")
    finally:
        path.write_bytes(whole)
    for answer in (figures, export):
        assert (answer.code, answer.err.count("\n")) == (1, 1)
        assert f"predictions must be an npz file of plain arrays, got {path}" in answer.err


def test_an_empty_store(cli, tmp_path):
    for arguments in (
        ("tables", "--store", tmp_path),
        ("figures", "--store", tmp_path, "--out", tmp_path / "f"),
    ):
        answer = cli(*arguments)
        assert (answer.code, answer.err.count("\n")) == (1, 1)
        assert "store must hold a finished cell, got none in" in answer.err
