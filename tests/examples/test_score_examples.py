"""The examples on scores run, and calibration lowers the error."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_sklearn_example():
    found = runpy.run_path(str(EXAMPLES / "sklearn_scores.py"))["main"](1500)
    results = found.metrics["results"]
    assert results[found.info["selected"]]["ece"] < 0.5 * results["uncalibrated"]["ece"]


def test_csv_example(tmp_path, capsys):
    rng = np.random.default_rng(0)
    s = rng.normal(size=1000)
    label = rng.random(1000) < 1 / (1 + np.exp(-s))
    rows = "".join(f"u{i},v{i},{3 * s[i]},{label[i]:d}\n" for i in range(1000))
    (tmp_path / "s.csv").write_text(f"source,target,logit,label\n{rows}")
    runpy.run_path(str(EXAMPLES / "scores_csv.py"))["main"](tmp_path / "s.csv", tmp_path / "out")
    page, threshold, _ = capsys.readouterr().out.splitlines()
    assert Path(page).is_file()
    assert threshold.startswith("LinkThreshold(")


@pytest.mark.filterwarnings("ignore")  # what PyKEEN and torch's loader tell each other
def test_pykeen_example(monkeypatch, tmp_path):
    """Run where PyKEEN is installed, which no extra brings."""
    monkeypatch.setenv("PYSTOW_HOME", str(tmp_path))
    pytest.importorskip("pykeen")
    found = runpy.run_path(str(EXAMPLES / "pykeen_umls.py"))["main"](10)
    results = found.metrics["results"]
    assert results[found.info["selected"]]["ece"] < 0.2 * results["uncalibrated"]["ece"]
