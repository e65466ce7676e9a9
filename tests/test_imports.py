"""What importing a part of the library loads: torch only above the seam, nothing slow for ``--help``."""

import os
import subprocess
import sys

import pytest


def loaded_by(code: str) -> set[str]:
    """Names of the modules that a fresh process has after `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\nmodules', *sys.modules)"],
        env=os.environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("name", ["metrics", "plots", "report"])
def test_below_the_seam_nothing_loads_torch(name):
    loaded = loaded_by(f"import linkcal.{name}")
    assert f"linkcal.{name}" in loaded
    assert loaded.isdisjoint({"torch", "torch_geometric", "numba", "matplotlib"})


def test_metrics_of_arrays_need_no_torch_and_figures_neither():
    code = (
        "from linkcal.metrics import evaluate_links\n"
        "from linkcal.plots import plot_reliability\n"
        "y, p = [0, 1] * 30, [0.2, 0.7] * 30\n"
        "evaluate_links(y, p, n_resamples=10, extended=True)\n"
        "plot_reliability((y, p))"
    )
    assert "torch" not in loaded_by(code)
