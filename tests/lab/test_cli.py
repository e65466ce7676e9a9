"""``linkcal-lab`` from search and sweep to tables and figures: what one command writes, the next reads."""

import io
import json

import pandas as pd
import pytest

from linkcal.data import simulate_graph
from linkcal_lab import sweep as sweeping
from linkcal_lab.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")

CALIBRATORS = "uncalibrated,isotonic,histogram,in-n-out-plus"


@pytest.fixture
def arguments(small_graph, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeping, "_graph", lambda _config, _options: small_graph)
    return (
        "sweep", "--datasets", "simulated", "--models", "gcn", "--train-seeds", "2",
        "--calibration-seeds", "0-1", "--fit-on", "val", "--epochs", "1",
        "--calibrators", "uncalibrated", "--store", tmp_path / "store",
    )  # fmt: skip


def test_sweep_continues_estimates_and_exports(cli, arguments, tmp_path):
    empty = cli(*arguments, "--dry-run")
    assert (empty.code, (tmp_path / "store").exists()) == (0, False)
    assert "4 cells of 2 trainings (0 measured, 0 extrapolated, 2 unknown): at least 0 s of work" in empty.out
    first = [*arguments]
    first[6] = "1"
    answer = cli(*first)
    assert answer.code == 0
    assert "[2/2] simulated gcn~epochs=1 train-0: 2 cells done in" in answer.err
    dry = cli(*arguments, "--dry-run")
    assert "2 cells of 1 training (1 measured, 0 extrapolated, 0 unknown)" in dry.out
    answer = cli(*arguments)
    assert answer.code == 0
    assert "2 cells found, 2 done, 0 failed" in answer.err
    assert cli(*arguments, "--dry-run").out.strip() == "Nothing is left to do."
    answer = cli("export", tmp_path / "store", "--out", tmp_path / "records.csv.gz", "--remeasure")
    assert answer.code == 0
    assert (tmp_path / "records.csv.gz").stat().st_size > 0
    twice = cli("export", tmp_path / "store", tmp_path / "records.csv.gz", "--out", tmp_path / "r.csv.gz")
    assert (twice.code, twice.err.count("\n")) == (1, 1)
    assert "records must hold each value once" in twice.err
    file = cli("export", tmp_path / "records.csv.gz", "--out", tmp_path / "r.csv.gz", "--remeasure")
    assert "--remeasure needs folders with predictions" in file.err
    assert not (tmp_path / "r.csv.gz").exists()


def test_an_interrupt_says_how_to_go_on(cli, arguments, monkeypatch, tmp_path):
    def interrupt(_config, _options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "_graph", interrupt)
    answer = cli(*arguments)
    assert answer.code == 130
    stays = f"interrupted; what is finished stays in {tmp_path / 'store'}, and the same command goes on"
    assert stays in answer.err
    monkeypatch.undo()
    assert cli(*arguments).code == 0


def test_failed_cells_give_exit_code_1(cli, arguments, monkeypatch):
    def fail(_config, _options):
        raise ValueError("no graph")

    monkeypatch.setattr(sweeping, "_graph", fail)
    answer = cli(*arguments)
    assert answer.code == 1
    assert "failed: simulated gcn~epochs=1 train-0 training: ValueError: no graph" in answer.err
    assert "0 done, 4 failed" in answer.err


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--datasets cora,corra", "did you mean 'cora'"),
        ("--train-seeds 0", "train-seeds must be a whole number >= 1, got 0"),
        ("--train-seeds 1,1", "train-seeds must hold one seed or more, each once, got '1,1'"),
        ("--calibration-seeds 99999", "calibration-seeds must name at most 10,000 seeds, got 99999"),
        ("--fit-on val,val", "fit_on must hold one value or more, each once"),
        ("--calibrators platt,bbq,platt", "calibrators must hold each name once, got platt, bbq, platt"),
        ("--jobs 0", "jobs must be a whole number >= 1, got 0"),
        ("--engine cloud", "engine must be one of local, ray; got 'cloud'"),
        ("--device gpu", "device must be auto, cpu, cuda or cuda:<index>, got 'gpu'"),
        ("--data-root nowhere", "data_root must be an existing folder, got "),
    ],
)
def test_a_wrong_value_is_told_at_once(cli, tmp_path, words, message, dry):
    datasets = [] if "--datasets" in words else ["--datasets", "cora"]
    answer = cli("sweep", "--models", "gcn", "--store", tmp_path, *datasets, *words.split(), *dry)
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert message in answer.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_data_root_that_is_not_there_is_told_once(cli, tmp_path, monkeypatch, dry):
    """Not once for each of six trainings; and who reads no files need not have a folder for them."""
    monkeypatch.setenv("LINKCAL_DATA_ROOT", str(tmp_path / "gone"))
    sweep = ("sweep", "--models", "gcn", "--train-seeds", 3, "--store", tmp_path / "store", *dry)
    answer = cli(*sweep, "--datasets", "cora,citeseer")
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert f"LINKCAL_DATA_ROOT must be an existing folder, got '{tmp_path / 'gone'}'" in answer.err
    assert not (tmp_path / "store").exists()
    if dry:
        assert cli(*sweep, "--datasets", "simulated").code == 0


# Tables and figures.


@pytest.fixture(scope="module")
def store(small_graph, tmp_path_factory):
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
    for number, source in enumerate((store, tmp_path / "r.csv.gz")):
        out = tmp_path / str(number)
        assert cli("tables", "--store", source, "--format", format_, "--out", out).code == 0
        found.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert found[0] == found[1]
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
    assert svg.count("<!-- n: pairs; strips: share of all pairs; noise: ECE that calibrated -->") == 1
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


# Search.


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(
        "linkcal.data.load_dataset",
        lambda name, **options: simulate_graph(150, num_edges=600, num_features=10, seed=0),
    )


def test_search_writes_a_preset_that_run_and_sweep_take(cli, small, tmp_path):
    options = ("--dataset", "simulated", "--model", "gcn")
    preset = tmp_path / "best.json"
    answer = cli(
        "search", *options, "--trials", 3, "--epochs", 5, "--storage", tmp_path / "s.json",
        "--write-preset", preset,
    )  # fmt: skip
    assert answer.code == 0
    assert "Best 3 of 3 trainings by validation AUC" in answer.out
    found = json.loads(preset.read_text())
    assert (found["name"], found["model"], found["hyperparameters"]["epochs"]) == ("best", "gcn", 5)
    assert cli("run", *options, "--preset", preset, "--out", tmp_path / "out").code == 0
    record = json.loads((tmp_path / "out" / "config.json").read_text())
    assert record["config"]["hyperparameters"] == found["hyperparameters"]
    assert record["training"]["lr"] == found["hyperparameters"]["lr"]
    answer = cli(
        "sweep", "--datasets", "simulated", "--models", "gcn", "--train-seeds", 1, "--calibration-seeds", 1,
        "--fit-on", "val", "--calibrators", "platt", "--preset", preset, "--store", tmp_path / "sweep",
    )  # fmt: skip
    assert answer.code == 0
    (training,) = (tmp_path / "sweep").glob("simulated/*/train-0/training/config.json")
    swept = json.loads(training.read_text())
    assert swept["config"]["hyperparameters"] == found["hyperparameters"]
    assert swept["training"] == record["training"]


def test_default_storage(cli, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("--dataset", "simulated", "--model", "gcn", "--sampler", "tpe", "--trials", 1, "--epochs", 5)
    assert cli("search", *options).code == 0
    assert (tmp_path / "searches" / "simulated-gcn-tpe-seed0.json").is_file()


def test_user_errors(cli, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, part in (
        ("--sampler gird", "did you mean 'grid'"),
        ("--write-preset best.txt", "--write-preset must be a .json file in an existing folder"),
        ("--trials 0", "trials must be a whole number >= 1"),
    ):
        answer = cli("search", "--dataset", "simulated", "--model", "gcn", *words.split())
        assert (answer.code, len(answer.err.strip().splitlines())) == (1, 1)
        assert part in answer.err
    assert list(tmp_path.iterdir()) == []
