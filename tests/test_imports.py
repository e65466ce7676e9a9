"""What a fresh process loads: torch only above the seam, nothing slow for ``--help``."""

import os
import subprocess
import sys


def loaded_after(*steps: str) -> list[set[str]]:
    """Modules that a process has loaded after each of several steps of code."""
    code = "\n".join(f"{step}\nprint('modules', *sys.modules)" for step in ("import sys", *steps))
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("modules ")]
    return [set(line.split()) for line in lines[1:]]


def test_below_the_seam_nothing_loads_torch():
    threads, imported, fitted, drawn = loaded_after(
        "import linkcal._core.threads",
        "import linkcal.calibrators, linkcal.decisions, linkcal.metrics, linkcal.plots, linkcal.report",
        "y, p = [0, 1] * 30, [0.2, 0.7] * 30\n"
        "linkcal.calibrators.make_calibrator('in-n-out-plus').fit([[s] for s in p], y)\n"
        "linkcal.metrics.evaluate_links(y, p, n_resamples=10)",
        "linkcal.plots.plot_reliability((y, p))",
    )
    assert "linkcal._core.threads" in threads
    assert threads.isdisjoint({"torch", "numba"})
    assert "linkcal.report" in imported
    assert imported.isdisjoint({"torch", "torch_geometric", "matplotlib"})
    assert fitted.isdisjoint({"torch", "torch_geometric", "matplotlib"})
    assert "matplotlib" in drawn
    assert drawn.isdisjoint({"torch", "torch_geometric", "matplotlib.pyplot"})


def test_help_and_usage_errors_load_nothing_slow():
    commands = [["--help"], ["--version"], ["score", "--help"], ["run", "--sed", "1"]]
    (loaded,) = loaded_after(f"from linkcal.cli import main\nfor words in {commands}: main(words)")
    assert "typer" in loaded
    assert loaded.isdisjoint({"torch", "numba", "pandas", "sklearn", "scipy", "matplotlib"})
