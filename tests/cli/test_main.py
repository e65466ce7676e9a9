"""Exit codes, help, lists, and ``linkcal run``."""

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from linkcal.calibrators import CALIBRATORS
from linkcal.data import DATASETS
from linkcal.exceptions import LinkcalWarning
from linkcal.models import MODELS
from linkcal.workflow import check_output_folder

pytestmark = pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")


def test_version(cli):
    answer = cli("--version")
    assert (answer.code, answer.out) == (0, f"linkcal {version('linkcal')}\n")


@pytest.mark.parametrize("command", [(), ("run",), ("fit",), ("score",), ("select",), ("top",), ("list",)])
def test_help(cli, command):
    answer = cli(*command, "--help")
    assert answer.code == 0
    assert "Usage: linkcal" in answer.out


@pytest.mark.parametrize(
    "arguments",
    [("run",), ("run", "--dataset"), ("walk",), ("score", "a"), ("list", "cats"), ("run", "--sed", "1")],
)
def test_wrong_usage_is_2(cli, arguments):
    answer = cli(*arguments)
    assert answer.code == 2
    assert "Error" in answer.err


@pytest.mark.parametrize(
    ("what", "names"), [("datasets", DATASETS), ("models", MODELS), ("calibrators", CALIBRATORS)]
)
def test_list(cli, what, names):
    answer = cli("list", what)
    assert answer.code == 0
    listed = [line.split()[0] for line in answer.out.splitlines()[2:] if line.strip()]
    assert listed == list(names)


def test_six_models_and_nine_data_sets_with_their_sizes_are_listed(cli):
    models = cli("list", "models").out.splitlines()[2:]
    assert [line.split()[0] for line in models] == ["gcn", "sage", "gin", "vgae", "peg", "seal"]
    datasets = {line.split()[0]: line for line in cli("list", "datasets").out.splitlines()[2:]}
    assert len(datasets) == 10
    assert "simulated" in datasets
    assert "4,267 nodes, 1,334,889 edges" in datasets["ogbl-ddi"]
    assert "235,868 nodes" in datasets["ogbl-collab"]


def test_list_of_everything(cli):
    out = cli("list").out
    assert all(f" {name} " in out for name in (*DATASETS, *MODELS, *CALIBRATORS))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--dataset", "coraa"), "did you mean 'cora'"),
        (("--dataset", "simulated", "--model", "vgea"), "did you mean 'vgae'"),
        (
            ("--dataset", "simulated", "--fit-on", "test"),
            "fit_on must be one of val, stacked, train-loo, train",
        ),
        (("--dataset", "simulated", "--seed", "-3"), "seed must be a whole number >= 0"),
        (("--dataset", "simulated", "--epochs", "0"), "epochs must be a whole number >= 1"),
        (("--dataset", "simulated", "--device", "tpu"), "device"),
    ],
)
def test_user_errors_are_1_and_one_line(cli, tmp_path, arguments, part):
    answer = cli("run", *arguments, "--out", tmp_path / "out")
    assert answer.code == 1
    errors = [line for line in answer.err.splitlines() if "error" in line]
    assert len(errors) == 1
    assert errors[0].startswith("linkcal: error: ")
    assert part in errors[0]
    assert "Traceback" not in answer.err
    assert not (tmp_path / "out").exists()


@pytest.fixture
def small_simulation(monkeypatch):
    """``--dataset simulated`` with 250 nodes: what is tested here is the command, not the data."""
    from linkcal.data import simulate_graph

    def load(name, *, data_root=None):
        assert name == "simulated"
        return simulate_graph(250, num_edges=1500, num_features=20, seed=0)

    monkeypatch.setattr("linkcal.data.load_dataset", load)


def test_run_prints_table_and_writes_folder(cli, small_simulation, tmp_path):
    answer = cli("run", "--dataset", "simulated", "--model", "gcn", "--epochs", 3, "--out", tmp_path / "out")
    assert answer.code == 0
    for name in (*CALIBRATORS, "true probability"):
        assert name in answer.out
    assert "error (%)" in answer.out
    assert str(tmp_path / "out" / "report.html") in answer.err.replace("\n", "")
    assert (tmp_path / "out" / "metrics.json").is_file()


def test_a_warning_is_said_once_and_names_what_the_user_sees(cli, monkeypatch, tmp_path):
    """Fewer than 20 test negatives: Hits@20 and Hits@50 say nothing, with each of ten calibrators."""
    from linkcal.data import simulate_graph

    small = simulate_graph(60, num_edges=150, num_features=8, seed=0)
    monkeypatch.setattr("linkcal.data.load_dataset", lambda name, *, data_root=None: small)
    with warnings.catch_warnings():
        warnings.simplefilter("always", LinkcalWarning)
        answer = cli("run", "--dataset", "simulated", "--model", "gcn", "--epochs", 2, "--out", tmp_path)
    assert answer.code == 0
    said = [line for line in answer.err.splitlines() if "warning:" in line]
    for k in (20, 50):
        expected = f"linkcal: warning: Hits@{k} needs at least {k} negatives, got "
        assert sum(line.startswith(expected) for line in said) == 1, answer.err
    assert len(said) == len(set(said)) > 2
    classes = {cls.__name__ for cls in CALIBRATORS.values()} - {"Temperature"}
    assert not [line for line in said if any(name in line for name in classes)]


def test_json_goes_to_stdout_alone(cli, small_simulation, tmp_path):
    out = tmp_path / "out"
    answer = cli("run", "--dataset", "simulated", "--model", "sage", "--epochs", 3, "--out", out, "--json")
    printed = json.loads(answer.out)
    assert printed == json.loads((out / "metrics.json").read_text())
    assert list(printed["results"]) == list(CALIBRATORS)


def test_kind_of_negatives(cli, small_simulation, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ("--dataset", "simulated", "--model", "gcn", "--epochs", 2, "--negatives", "two-hop")
    answer = cli("run", *arguments, "--negatives-per-positive", 2)
    assert answer.code == 0
    assert "2 two-hop negatives per link" in " ".join(answer.out.split())
    # How likely a two-hop pair is an edge is not known from the block model alone.
    assert "True error" not in answer.out
    folder = tmp_path / "runs" / "simulated-gcn-val-two-hop-seed0"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["negatives"] == "two-hop"
    assert metrics["counts"]["test_negatives"] == 2 * metrics["counts"]["test_positives"]


@pytest.mark.parametrize(
    ("option", "value"), [("--negatives", "degree"), ("--negatives-per-positive", "2.0")]
)
def test_official_split_takes_no_negatives(cli, option, value):
    answer = cli("run", "--dataset", "ogbl-ddi", option, value)
    assert answer.code == 1
    assert f"{option} must be left out for ogbl-ddi, whose split is fixed, got {value}" in answer.err


def test_reduced_settings_of_a_preset_are_said_and_recorded(cli, small_simulation, tmp_path, monkeypatch):
    spec = MODELS["seal"]
    reduced = {"num_hops": 1, "feature_channels": 4, "epochs": 2}
    preset = replace(spec.presets["default"], reduced={"simulated": reduced})
    monkeypatch.setitem(MODELS, "seal", replace(spec, presets={**spec.presets, "default": preset}))
    answer = cli("run", "--dataset", "simulated", "--model", "seal", "--epochs", 1, "--out", tmp_path / "out")
    assert answer.code == 0
    said = "preset default reduced to end in minutes: num_hops 1, feature_channels 4, epochs 2"
    assert f"seal on simulated: {said}" in " ".join(answer.err.split())
    record = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (record["model"]["num_hops"], record["model"]["feature_channels"]) == (1, 4)
    assert record["model"]["max_neighbors"] == 50
    # What the command line asks for wins over what the preset was reduced to.
    assert (record["training"]["epochs"], record["training"]["batch_size"]) == (1, 32)


def test_default_folder_is_under_runs(cli, small_simulation, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("run", "--dataset", "simulated", "--model", "gcn", "--epochs", 2).code == 0
    assert (tmp_path / "runs" / "simulated-gcn-val-seed0" / "metrics.json").is_file()


def test_missing_data_names_the_file_and_the_option(cli, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()

    def no_network(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    monkeypatch.setattr("fsspec.open", no_network)
    answer = cli("run", "--dataset", "cora", "--data-root", tmp_path / "data", "--out", tmp_path / "out")
    assert answer.code == 1
    assert "ind.cora" in answer.err
    assert "--data-root" in answer.err
    assert not (tmp_path / "out").exists()


def test_help_and_version_do_not_import_torch():
    code = "import sys; from linkcal.cli import main; main(['--version']); print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ, timeout=120
    )
    assert answer.stdout.splitlines()[-1] == "False"


def test_broken_pipe_is_quiet(tmp_path):
    command = f"{sys.executable} -m linkcal list | head -1"
    answer = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert "Traceback" not in answer.stderr


def test_protocol_and_preset_file(cli, small_simulation, tmp_path):
    preset = {
        "format": "linkcal preset 1", "name": "tiny", "model": "gcn",
        "hyperparameters": {"hidden_channels": 4},
    }  # fmt: skip
    (tmp_path / "tiny.json").write_text(json.dumps(preset))
    answer = cli(
        "run", "--dataset", "simulated", "--model", "gcn", "--epochs", 2, "--protocol", "released-code",
        "--fit-on", "val", "--preset", tmp_path / "tiny.json", "--out", tmp_path / "out",
    )  # fmt: skip
    assert answer.code == 0
    assert "protocol released-code departed from: fit_on is val, not train" in answer.err
    assert "mixes metrics" in answer.out
    record = json.loads((tmp_path / "out" / "config.json").read_text())
    assert record["config"]["hyperparameters"] == {"hidden_channels": 4}
    assert record["model"]["hidden_channels"] == 4
    assert record["calibrators"]["in-n-out"]["scaling"] == "multiply-doubled"
    assert record["input"]["preset_file"]["path"].endswith("tiny.json")
    assert set(record["input"]["preset_file"]) == {"path", "sha256"}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--protocol", "papre"), "protocol must be one of default, paper, released-code"),
        (("--preset", "none.json"), "preset file none.json must be readable JSON"),
        (
            ("--preset", "papre"),
            "preset must be one of default, paper, FILE.json; got 'papre' (did you mean 'paper'",
        ),
        (("--base-rate", "dense"), "base_rate must be a number in (0, 1) or 'density', got 'dense'"),
    ],
)
def test_bad_protocol_or_preset_file_is_one_line(cli, tmp_path, arguments, part):
    answer = cli("run", "--dataset", "simulated", *arguments, "--out", tmp_path / "out")
    assert answer.code == 1
    assert part in answer.err
    assert len(answer.err.strip().splitlines()) == 1


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a file system that takes no files")
def test_folder_that_cannot_be_written_is_told_before_training(cli, small_simulation, monkeypatch):
    def train(*_args, **_options):
        raise AssertionError("a model was trained first")

    monkeypatch.setattr("linkcal.workflow.run_experiment", train)
    answer = cli("run", "--dataset", "simulated", "--out", "/proc/linkcal/out")
    assert answer.code == 1
    assert "out must be in a folder that can be written to, got /proc/linkcal/out" in answer.err
    assert len(answer.err.strip().splitlines()) == 1


def test_output_folder_is_not_made_by_its_check(tmp_path):
    check_output_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_help_fills_its_paragraphs(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = [line.rstrip() for line in cli("score", "--help").out.splitlines()]
    (line,) = [line for line in lines if "uncalibrated score" in line]
    # Longer than any line of the source: the words flow, the source's line breaks do not show.
    assert len(line) > 120
