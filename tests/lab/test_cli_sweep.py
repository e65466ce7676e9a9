"""``linkcal-lab sweep`` and ``export``."""

import pytest

from linkcal_lab import sweep as sweeping

pytestmark = pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")


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


def test_a_wrong_name_is_told_at_once(cli, tmp_path):
    base = ("sweep", "--models", "gcn", "--store", tmp_path)
    answer = cli(*base, "--datasets", "corra")
    assert answer.code == 1
    assert "dataset must be one of" in answer.err
    assert not (tmp_path / "cora").exists()
    for option, value, message in (
        ("--train-seeds", "0", "train-seeds must be a whole number >= 1, got 0"),
        ("--train-seeds", "1,1", "train-seeds must hold one seed or more, each once, got '1,1'"),
        ("--fit-on", "val,val", "fit_on must hold one value or more, each once"),
        ("--calibrators", "platt,bbq,platt", "calibrators must hold each name once, got platt, bbq, platt"),
        ("--jobs", "0", "jobs must be a whole number >= 1, got 0"),
        ("--engine", "cloud", "engine must be one of local, ray; got 'cloud'"),
        ("--device", "gpu", "device must be auto, cpu, cuda or cuda:<index>, got 'gpu'"),
        ("--data-root", "nowhere", "data_root must be an existing folder, got "),
        ("--train-seeds", "9223372036854775807", "train-seeds must be a count"),
        ("--calibration-seeds", "99999", "calibration-seeds must name at most 10,000 seeds, got 99999"),
    ):
        for more in ((), ("--dry-run",)):
            answer = cli(*base, "--datasets", "cora", option, value, *more)
            assert (answer.code, answer.err.count("\n")) == (1, 1)
            assert message in answer.err
    answer = cli(*base, "--datasets", "cora,corra", "--dry-run")
    assert (answer.code, "did you mean 'cora'" in answer.err) == (1, True)
    answer = cli(*base, "--datasets", "cora", "--train-seeds", "many")
    assert (answer.code, "train-seeds must be a count" in answer.err) == (1, True)


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_data_root_that_is_not_there_is_told_once(cli, tmp_path, monkeypatch, dry):
    """Not once for each of six trainings; and who reads no files need not have a folder for them."""
    monkeypatch.setenv("LINKCAL_DATA_ROOT", str(tmp_path / "gone"))
    sweep = ("sweep", "--models", "gcn", "--train-seeds", 3, "--store", tmp_path / "store", *dry)
    answer = cli(*sweep, "--datasets", "cora,citeseer")
    expected = (
        f"linkcal-lab: error: LINKCAL_DATA_ROOT must be an existing folder, got '{tmp_path / 'gone'}'\n"
    )
    assert (answer.code, answer.err) == (1, expected)
    assert not (tmp_path / "store").exists()
    if dry:
        assert cli(*sweep, "--datasets", "simulated").code == 0
