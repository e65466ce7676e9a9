"""The examples on scores run, and calibration lowers the error."""

import ast
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


SHORT = ("embeddings_parquet", "lightgbm_scores", "pykeen_umls", "scores_csv", "sklearn_scores")


@pytest.mark.parametrize("name", [*SHORT, "graph_transformer"])
def test_the_work_is_at_most_twelve_lines(name):
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    (main,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main")
    *work, last = main.body
    assert isinstance(last, ast.Return)
    assert work[-1].end_lineno - work[0].lineno < 12


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


def test_lightgbm_example():
    pytest.importorskip("lightgbm")
    found = runpy.run_path(str(EXAMPLES / "lightgbm_scores.py"))["main"]()
    results = found.metrics["results"]
    assert results[found.info["selected"]]["ece"] < 0.7 * results["uncalibrated"]["ece"]


def test_embeddings_example(tmp_path, capsys):
    """Two files, as two trainers of GraphStorm write them; labels by their dot product, at half its size."""
    rng = np.random.default_rng(0)
    emb, (u, v) = 2.0 * rng.normal(size=(400, 4)), rng.integers(400, size=(2, 3000))
    for part, nodes in enumerate(np.split(rng.permutation(400), 2)):
        names = [f"n{node}" for node in nodes]
        (tmp_path / "emb").mkdir(exist_ok=True)
        table = pd.DataFrame({"nid": names, "emb": list(emb[nodes].astype(np.float32))})
        table.to_parquet(tmp_path / "emb" / f"embed-0000{part}_00000.parquet")
    label = rng.random(3000) < 1 / (1 + np.exp(-(emb[u] * emb[v]).sum(axis=1) / 2))
    pairs = {(min(a, b), max(a, b)): y for a, b, y in zip(u, v, label, strict=True) if a != b}
    rows = [f"n{a},n{b},{y:d}" for (a, b), y in pairs.items()]
    (tmp_path / "pairs.csv").write_text("\n".join(["source,target,label", *rows]) + "\n")
    main = runpy.run_path(str(EXAMPLES / "embeddings_parquet.py"))["main"]
    found = main(tmp_path / "pairs.csv", tmp_path / "emb", tmp_path / "out")
    assert Path(capsys.readouterr().out.splitlines()[0]).is_file()
    results = found.metrics["results"]
    assert results[found.info["selected"]]["ece"] < 0.5 * results["uncalibrated"]["ece"]
    assert found.calibrators["temperature"].temperature_ == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize(("all_nodes", "method"), [(False, "delta"), (True, "naive")])
def test_graph_transformers(all_nodes, method, capsys):
    with torch.random.fork_rng():
        main = runpy.run_path(str(EXAMPLES / "graph_transformer.py"))["main"]
        result = main(300, 20, all_nodes=all_nodes)
    assert result["calibrated"] < result["uncalibrated"]
    assert f"toggled by method {method!r}" in capsys.readouterr().out
