"""Exit codes, help, lists, and what the command loads before it works."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from linkcal.calibrators import CALIBRATORS
from linkcal.data import DATASETS
from linkcal.models import MODELS


def test_version(cli):
    answer = cli("--version")
    assert (answer.code, answer.out) == (0, f"linkcal {version('linkcal')}\n")


@pytest.mark.parametrize("command", ["", "run", "fit", "audit", "score", "select", "top", "list"])
def test_help(cli, command):
    answer = cli(*command.split(), "--help")
    assert answer.code == 0
    assert f"Usage: linkcal {command}" in answer.out


def test_help_fills_its_paragraphs(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (line,) = [line for line in cli("score", "--help").out.splitlines() if "uncalibrated score" in line]
    # Longer than any line of the source: the source's line breaks do not show.
    assert len(line.rstrip()) > 120


@pytest.mark.parametrize(
    "arguments", ["run", "run --dataset", "walk", "score a", "list cats", "run --sed 1", "top a -k many"]
)
def test_wrong_usage_is_2(cli, arguments):
    answer = cli(*arguments.split())
    assert answer.code == 2
    assert "Error" in answer.err


@pytest.mark.parametrize(
    ("what", "names"), [("datasets", DATASETS), ("models", MODELS), ("calibrators", CALIBRATORS)]
)
def test_list(cli, what, names):
    answer = cli("list", what)
    assert answer.code == 0
    assert [line.split()[0] for line in answer.out.splitlines()[2:] if line.strip()] == list(names)
    assert all(f" {name} " in cli("list").out for name in names)


def test_sizes_of_data_sets_are_listed(cli):
    lines = {line.split()[0]: line for line in cli("list", "datasets").out.splitlines()[2:]}
    assert "4,267 nodes, 1,334,889 edges" in lines["ogbl-ddi"]
    assert "235,868 nodes" in lines["ogbl-collab"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("--dataset coraa", "did you mean 'cora'"),
        ("--model vgea", "did you mean 'vgae'"),
        ("--fit-on test", "fit_on must be one of val, stacked, train-loo, train"),
        ("--seed -3", "seed must be a whole number >= 0"),
        ("--epochs 0", "epochs must be a whole number >= 1"),
        ("--device tpu", "device must be auto, cpu, cuda or cuda:<index>, got 'tpu'"),
        ("--preset none.json", "preset file must be readable JSON, got none.json"),
        ("--preset papre", "preset must be one of default, paper, FILE.json; got 'papre' (did you mean"),
        ("--base-rate dense", "base_rate must be a number in (0, 1) or 'density', got 'dense'"),
        ("--negatives-per-positive 1e308", "negatives_per_positive must be at most 1e+09, got 1e+308"),
        (f"--seed {10**120}", "seed must be a whole number < 2**63, got 1000"),
        ("--dataset ogbl-ddi --negatives degree", "--negatives must be left out for ogbl-ddi, whose split"),
        ("--dataset ogbl-ddi --negatives-per-positive 2", "--negatives-per-positive must be left out for"),
    ],
)  # fmt: skip
def test_user_errors_are_1_and_one_line(fails, tmp_path, arguments, part):
    dataset = () if "--dataset" in arguments else ("--dataset", "simulated")
    fails("run", *dataset, *arguments.split(), "--out", tmp_path / "out", parts=(part,))
    assert not (tmp_path / "out").exists()


def test_missing_data_names_the_file_and_the_option(fails, tmp_path, monkeypatch):
    def no_network(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    monkeypatch.setattr("fsspec.open", no_network)
    fails("run", "--dataset", "cora", "--data-root", tmp_path, parts=("ind.cora", "--data-root"))


def test_broken_pipe_is_quiet(tmp_path):
    command = f"{sys.executable} -m linkcal list | head -1"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=99, cwd=tmp_path)
    assert "Traceback" not in answer.stderr
