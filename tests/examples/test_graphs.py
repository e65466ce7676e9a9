"""The examples of bipartite, directed, weighted and growing graphs run, and show what they say."""

import runpy
from pathlib import Path

import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, **options: int) -> dict[str, float]:
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) < 60
    with torch.random.fork_rng():
        return runpy.run_path(str(path))["main"](**options)


def test_bipartite(capsys):
    result = run("bipartite", users=120, items=60, epochs=30)
    assert result["calibrated"] < result["uncalibrated"]
    listed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("user")]
    for line in listed:
        user, item = (int(part.split()[1]) for part in line.split(":")[0].split(", "))
        assert user < 120
        assert item < 60
    assert len(listed) == 3


def test_directed():
    result = run("directed", num_nodes=150, epochs=40)
    assert result["forward"] > result["backward"] + 0.1


def test_weighted(capsys):
    result = run("weighted", epochs=20)
    assert result["calibrated"] < result["uncalibrated"]
    assert "toggled by method 'kernel'" in capsys.readouterr().out


def test_temporal(capsys):
    result = run("temporal", epochs=30)
    assert result["refreshed with 200 labels"] < result["fitted on the past"]
    assert 0.0 < result["new node"] < 1.0
    assert int(capsys.readouterr().out.split()[0]) > 0  # unseen nodes
