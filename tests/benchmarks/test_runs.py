"""Benchmarks run from end to end on a small simulated graph; what they then say of themselves is checked."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.benchmarks.documented import ROOT, commands_in, errors_of

from linkcal.workflow import RunConfig


@pytest.fixture
def graph(small_graph):
    """Under a name that no data set has."""
    return replace(small_graph, name="small")


def commands_parse(page: Path, module) -> bool:
    """Whether a page says by which command it was made, as the script itself would take it."""
    found = [
        words for script, words in commands_in(page.read_text(encoding="utf-8")) if "benchmarks/" in script
    ]
    assert found
    return [errors_of(module.parser(), words) for words in found] == [None] * len(found)


def test_calibrators(run, load, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    made = load("calibrators").Links

    def sets(_root):
        logit = [rng.normal(size=200) for _ in range(2)]
        return [made(z, rng.normal(size=(200, 3)), (rng.random(200) < 0.5).astype(float)) for z in logit]

    monkeypatch.setattr(load("toggle"), "MIB", 1 << 12)  # copies less
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    words = ("--epochs", 2, "--rounds", 1, "--marks", 1, 20, "--out", tmp_path)
    module = run("calibrators", *words, calibration_sets=sets)
    result = json.loads((tmp_path / "calibrators.json").read_text())
    assert {row["method"] for row in result["rows"]} == {"plain loop", "linkcal"}
    assert all(abs(row["linkcal"] - row["plain_double"]) < 1e-4 for row in result["losses"])
    assert commands_parse(tmp_path / "calibrators.md", module)


def test_toggle(run, tmp_path, graph, capsys):
    words = ("--graphs", "cora", "--models", "gcn", "--repeats", 2, "--out", tmp_path)
    run(
        "toggle",
        *words,
        load=lambda _name, _root: graph,
        MIB=1 << 12,
        THREADS=1,
        SAMPLES={"cora": (5, 20, 40)},
    )
    (result,) = json.loads((tmp_path / "toggle.json").read_text())["measurements"]
    methods = [row["method"] for row in result["rows"]]
    assert methods == ["forward pass", "naive", "k_hop_subgraph", "khop", "kernel"]
    assert "| cora | gcn | kernel |" in capsys.readouterr().out


def test_toggle_depth(run, tmp_path, graph):
    page = tmp_path / "depth.md"
    words = ("--graphs", "small", "--models", "gcn", "peg", "--depths", 1, 3, "--repeats", 1, "--out", page)
    module = run("toggle_depth", *words, load=lambda _name, _root: graph, THREADS=1)
    assert "| small | peg | 3 |" in page.read_text()
    assert commands_parse(page, module)


def test_fallback(run, tmp_path, graph):
    page = tmp_path / "fallback.md"
    words = ("--graphs", "cora", "--repeats", 1, "--out", page)
    module = run("fallback", *words, load=lambda _name, _root: graph, THREADS=1, SAMPLES={"cora": 300})
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| cora |")]
    assert rows[0][1] == "300"
    nodes, rim, common, arcs, inside, into_rim = (
        int(word.strip(" |").replace(",", "")) for word in rows[0][2:]
    )
    assert common < rim < nodes
    assert inside + into_rim < arcs
    assert len(rows[1]) == 5
    assert commands_parse(page, module)


def test_decisions(run, tmp_path):
    page = tmp_path / "decisions.md"
    words = ("--nodes", 300, "--size", 200, "--draws", 1, "--interval-draws", 1, "--methods", "windows")
    module = run("decisions", *words, "--out", page)
    assert "| in-n-out-plus | windows (predict_interval) |" in page.read_text()
    assert commands_parse(page, module)


def test_simulated_bound(run, tmp_path, graph):
    page = tmp_path / "bound.md"
    words = ("--models", "gcn", "--seeds", 0, "--store", tmp_path, "--out", page)
    replaced = {"load_dataset": lambda _name, seed: graph, "LIMITLESS": 500, "MEASURED": 200}
    module = run("simulated_bound", *words, **replaced)
    assert "| isotonic, validation links |" in page.read_text()
    assert commands_parse(page, module)


def test_seal(run, tmp_path, graph):
    out = tmp_path / "made" / "seal.json"  # the folder is made
    words = ("--graphs", "small", "--sample", 10, "--threads", 1, "--out", out)
    module = run("seal", *words, load_dataset=lambda _name: graph, REPEATS=1, PRESETS=("default",))
    result = json.loads(out.read_text())
    assert [row["labels_equal"] for row in result["extraction"]["small"]] == [True, True]
    assert result["epochs"]["default"]["pairs"] > 0
    assert commands_parse(out.with_suffix(".md"), module)


def test_seal_quality(run, tmp_path, graph):
    out = tmp_path / "quality.json"
    replaced = {"load_dataset": lambda _name: graph, "RunConfig": partial(RunConfig, epochs=1)}
    module = run("seal_quality", "--dataset", "small", "--seeds", 1, "--out", out, **replaced)
    assert list(json.loads(out.read_text())["seeds"]) == ["0"]
    assert commands_parse(out.with_suffix(".md"), module)


def test_every_cell(run, tmp_path, graph):
    out = tmp_path / "cells.json"
    words = ("--datasets", "cora", "--models", "gcn", "--out", out)
    module = run("every_cell", *words, load_dataset=lambda _name: graph)
    rows = json.loads(out.read_text())
    assert {name: row["toggle_method"] for name, row in rows.items()} == {"cora/gcn": "kernel"}
    assert commands_parse(out.with_suffix(".md"), module)


@pytest.mark.slow
def test_scale(run, load, tmp_path, monkeypatch):
    out = tmp_path / "scale.json"
    module = load("scale")

    def in_this_process(words, *, check):
        assert check
        monkeypatch.setattr(sys, "argv", words[1:])
        module.main()

    # Two threads on a graph of this size wait for each other.
    monkeypatch.setattr("torch.set_num_threads", lambda _number: None)
    sizes = {"NODES": 300, "EDGES": 1500, "FEATURES": 24, "FILE_NODES": 50, "FILE_EDGES": 200, "EPOCHS": 1}
    run("scale", "--out", out, **sizes, subprocess=SimpleNamespace(run=in_this_process))
    parts = json.loads(out.read_text())["parts"]
    assert list(parts) == list(module.PARTS)
    counts = [row["counts"] for part, row in parts.items() if part.startswith("read-")]
    assert counts == [counts[0]] * 4
    assert commands_parse(out.with_suffix(".md"), module)


def test_structural(run, load, tmp_path, graph, monkeypatch):
    page = tmp_path / "structural.md"
    monkeypatch.setattr(load("_cells"), "load_graph", lambda _config: graph)
    store = ("--resamples", 1, "--store", tmp_path)
    module = run(
        "structural", "--datasets", "simulated", "--models", "gcn", "--seeds", 2, *store, "--out", page
    )
    assert "| simulated | gcn |" in page.read_text()
    assert commands_parse(page, module)


def test_structural_speed(run, load, tmp_path, graph, monkeypatch):
    page = tmp_path / "speed.md"
    monkeypatch.setattr(load("_cells"), "load_graph", lambda _config: graph)
    words = ("--dataset", "simulated", "--model", "gcn", "--repeats", 2, "--store", tmp_path, "--out", page)
    module = run("structural_speed", *words, PREDICTIONS=3000)
    assert "| 3,000 predictions, stacked |" in page.read_text()
    assert commands_parse(page, module)


def test_rare_links(run, load, tmp_path, graph, monkeypatch):
    page = tmp_path / "rare_links.md"
    for module in ("rare_links", "_cells"):
        monkeypatch.setattr(load(module), "load_graph", lambda _config: graph)
    words = ("--datasets", "simulated", "--models", "gcn", "--seeds", 1, "--negatives", 2000)
    module = run("rare_links", *words, "--store", tmp_path, "--out", page)
    text = page.read_text()
    assert "0.69315, 0.05600, 0.00791" in text
    answers = list(module.answers_of("simulated", "gcn", 0, tmp_path, 2000))
    (ours,) = (answer for answer in answers if answer.calibrator == "in-n-out-plus")
    assert len(ours.negative) == 2000
    # At one to one: the plain mean over both classes.
    expected = (np.log1p(np.exp(-ours.link)).mean() + np.log1p(np.exp(ours.negative)).mean()) / 2
    assert ours.loss(0.5) == pytest.approx(expected)
    assert f"| in-n-out-plus | {expected:.5f} (" in text
    assert commands_parse(page, module)


def test_top_order(run, load, tmp_path, graph, monkeypatch):
    page = tmp_path / "top_order.md"
    for module in ("top_order", "_cells"):
        monkeypatch.setattr(load(module), "load_graph", lambda _config: graph)
    words = ("--datasets", "simulated", "--models", "gcn", "--seeds", 1, "--store", tmp_path)
    module = run("top_order", *words, "--out", page, KEPT=(20, 50), CANDIDATES=(50, 200, 400))
    assert commands_parse(page, module)
    monkeypatch.setattr(module, "KEPT", (20, 50))
    monkeypatch.setattr(module, "CANDIDATES", (50, 200, 400))
    counts = module.counts_of("simulated", "gcn", 0, tmp_path)
    edges = graph.num_pairs
    assert counts.links == pytest.approx(0.1 * edges, abs=1.0)
    # All pairs but the message-passing edges, four fifths to nine tenths of all, and the validation links.
    assert counts.missing == graph.num_nodes * (graph.num_nodes - 1) // 2 - edges + counts.links
    # The 50 best of 50 are the same in any order.
    assert counts.found[1, 0] == counts.found[1, 1] > 0
    assert f"| {counts.found[0, 0]:.1f} | {counts.found[0, 1]:.1f} (" in page.read_text()
    last = counts.found[1]
    assert f"| simulated | gcn | {last[0]:.1f} | {last[2]:.1f} | {last[3]:.1f} |" in page.read_text()


@pytest.mark.slow
def test_negatives(run, load, tmp_path, graph, monkeypatch):
    for module in ("_kinds", "_cells"):
        monkeypatch.setattr(load(module), "load_graph", lambda _config: graph)
    words = ("--datasets", "simulated", "--models", "gcn", "--seeds", 0, 1, "--store", tmp_path, "--out")
    module = run("negatives", *words, tmp_path / "negatives")
    assert "| two-hop |" in (tmp_path / "negatives.md").read_text()
    assert set(json.loads((tmp_path / "negatives.json").read_text())) > {
        "main",
        "ablation",
        "gain",
        "transfer",
    }
    assert commands_parse(tmp_path / "negatives.md", module)
    module = run("negatives_form", *words, tmp_path / "form.md")
    assert "| two-hop | with products |" in (tmp_path / "form.md").read_text()
    assert commands_parse(tmp_path / "form.md", module)


def documented_pages():
    """Commands of docs/reproduction that make pages from the records beside them."""
    text = (ROOT / "docs" / "reproduction" / "README.md").read_text(encoding="utf-8")
    return [(Path(script).stem, words) for script, words in commands_in(text)]


@pytest.mark.parametrize(("name", "words"), documented_pages(), ids=[w[-1] for _, w in documented_pages()])
def test_documented_page(name, words, run, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert words[-2] == "--out"
    run(name, *words[:-1], tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == Path(words[-1]).read_text(encoding="utf-8")
