"""``linkcal search``: from the grid to a preset file that ``linkcal run`` and ``linkcal-lab sweep`` take."""

import json

import pytest

from linkcal.data import simulate_graph


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(
        "linkcal.data.load_dataset",
        lambda name, *, data_root=None: simulate_graph(150, num_edges=600, num_features=10, seed=0),
    )


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
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


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--sampler", "gird"), "did you mean 'grid'"),
        (("--write-preset", "best.txt"), "--write-preset must be a .json file in an existing folder"),
        (("--trials", "0"), "trials must be a whole number >= 1"),
    ],
)
def test_user_errors(cli, small, tmp_path, monkeypatch, arguments, part):
    monkeypatch.chdir(tmp_path)
    answer = cli("search", "--dataset", "simulated", "--model", "gcn", *arguments)
    assert answer.code == 1
    assert part in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
