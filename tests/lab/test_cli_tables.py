"""From a sweep to its tables and figures by commands: what one writes, the next one reads."""

import io

import pandas as pd
import pytest

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


def test_csv_on_stdout_is_one_table(cli, store):
    one = cli("tables", "--store", store, "--format", "csv", "--table", "nll-val")
    assert pd.read_csv(io.StringIO(one.out))["n"].tolist() == [2] * 4
    for arguments, message in (
        (("--format", "csv"), "csv on stdout must be one table: give --table or --out, got 15 tables"),
        (("--format", "html"), "format must be one of markdown, csv, latex; got 'html'"),
        (("--table", "ece-vall"), "did you mean 'ece-val'"),
    ):
        answer = cli("tables", "--store", store, *arguments)
        assert (answer.code, message in answer.err) == (1, True)


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
