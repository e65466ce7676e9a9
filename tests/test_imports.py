"""What a fresh process loads: torch only above the seam, nothing slow for ``--help``."""

import os
import subprocess
import sys

import pytest


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\nmodules', *sys.modules)"],
        env=os.environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("name", ["calibrators", "decisions", "metrics", "plots", "report"])
def test_below_the_seam_nothing_loads_torch(name):
    loaded = loaded_by(f"import linkcal.{name}")
    assert f"linkcal.{name}" in loaded
    assert loaded.isdisjoint({"torch", "torch_geometric", "matplotlib"})


def test_metrics_and_figures_of_arrays_load_no_torch_and_no_pyplot():
    loaded = loaded_by(
        "from linkcal.metrics import evaluate_links\n"
        "from linkcal.plots import plot_reliability\n"
        "y, p = [0, 1] * 30, [0.2, 0.7] * 30\n"
        "evaluate_links(y, p, n_resamples=10, extended=True)\n"
        "plot_reliability((y, p))"
    )
    assert "matplotlib" in loaded
    assert loaded.isdisjoint({"torch", "matplotlib.pyplot"})


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["score", "--help"], ["run", "--sed", "1"]])
def test_help_and_usage_errors_load_nothing_slow(arguments):
    loaded = loaded_by(f"from linkcal.cli import main; main({arguments})")
    assert "typer" in loaded
    assert loaded.isdisjoint({"torch", "numba", "pandas", "sklearn", "scipy", "matplotlib"})
