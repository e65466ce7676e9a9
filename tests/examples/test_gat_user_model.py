"""The example runs, and its calibrated probabilities have the smaller error."""

import runpy
from pathlib import Path

import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "gat_user_model.py"


def test_gat_example(capsys):
    with torch.random.fork_rng():
        result = runpy.run_path(str(EXAMPLE))["main"](num_nodes=300, epochs=20)
    assert result["calibrated"] < result["uncalibrated"]
    assert "toggled by method 'delta'" in capsys.readouterr().out
