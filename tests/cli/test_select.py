"""``linkcal select``, ``score --interval`` and a base rate for a whole run."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
import torch

from linkcal.predictor import CalibratedLinkPredictor

pytestmark = pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")


@pytest.fixture(scope="module")
def asked(files, fitted, tmp_path_factory):
    """300 pairs by name, two known edges first, and their numbers."""
    loaded = CalibratedLinkPredictor.load(fitted / "artifact")
    rng = np.random.default_rng(0)
    number = np.array([pair for pair in rng.choice(120, (400, 2)) if pair[0] != pair[1]])[:298]
    names = [(files.names[u], files.names[v]) for u, v in number]
    known = loaded.node_ids_.decode(loaded.graph_.pairs[:, :2].flatten()).to_pylist()
    names = [(known[0], known[2]), (known[1], known[3]), *names]
    path = tmp_path_factory.mktemp("asked") / "pairs.csv"
    path.write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in names))
    index = np.stack([loaded.node_ids_.encode([pair[i] for pair in names]) for i in (0, 1)])
    return path, names, torch.from_numpy(index), loaded


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_lists_what_the_wrapper_selects(cli, fitted, asked, tmp_path):
    path, names, index, loaded = asked
    answer = cli("select", fitted, path, "--fdr", 0.95)
    assert answer.code == 0
    found = loaded.select(index, fdr=0.95)
    assert 0 < found.selected.sum() < 300
    listed = rows(answer.out)
    expected = [pair for pair, taken in zip(names, found.selected.tolist(), strict=True) if taken]
    assert [(row["source"], row["target"]) for row in listed] == expected
    np.testing.assert_allclose([float(row["p_value"]) for row in listed], found.p_value[found.selected])
    p = loaded.predict_proba(index[:, found.selected])
    np.testing.assert_allclose([float(row["probability"]) for row in listed], p, rtol=1e-6)
    said = " ".join(answer.err.split())
    assert "known edges left out" in said
    assert ", uniform; the bound holds" in said
    assert "Probabilities hold for a base rate of 0.5." in said
    moved = cli("select", fitted, path, "--fdr", 0.95, "--base-rate", 0.01)
    assert "Probabilities hold for a base rate of 0.01." in " ".join(moved.err.split())
    assert cli("select", fitted, path, "--fdr", 0.95, "--out", tmp_path / "s.csv").out == ""
    assert (tmp_path / "s.csv").read_text() == answer.out


def test_why_nothing_is_selected(cli, fitted, asked):
    path, _, index, loaded = asked
    answer = cli("select", fitted, path, "--fdr", 0.001)
    found = loaded.select(index, fdr=0.001)
    assert answer.code == 0
    assert rows(answer.out) == []
    different = len({tuple(sorted(pair)) for pair in index.T[~found.known].tolist()})
    assert found.num_tested == different < 300
    said = " ".join(answer.err.split())
    assert (
        f"the smallest p-value is {found.p_value[~found.known].min():.4g}. Of {different} different" in said
    )
    assert f"k times {0.001 / different:.4g}; no p-value can be below" in said
    assert "No pair is selected" not in cli("select", fitted, path, "--fdr", 0.95).err


def test_kind_of_the_null_pairs_is_the_folders(cli, two_hop, asked):
    answer = cli("select", two_hop, asked[0], "--fdr", 0.95)
    assert answer.code == 0
    assert ", two-hop; the bound holds" in " ".join(answer.err.split())


def test_score_says_that_the_share_is_that_of_a_refresh(cli, fitted, asked, tmp_path):
    loaded = CalibratedLinkPredictor.load(fitted / "artifact")
    loaded.refresh(asked[2][:, 2:102], np.arange(100) % 10 == 0).save(tmp_path / "fresh")
    out = tmp_path / "scores.csv"
    assert cli("score", tmp_path / "fresh", asked[0], "--out", out).code == 0
    side = json.loads((tmp_path / "scores.csv.meta.json").read_text())
    assert (side["base_rate"], side["base_rate_origin"]) == (pytest.approx(0.1), "labels of the refresh")


def test_null_pairs_of_the_user(cli, fitted, asked):
    path, _, _, loaded = asked
    answer = cli("select", fitted, path, "--fdr", 0.9, "--null", path)
    assert answer.code == 0
    known = int(loaded.known_edges(asked[2]).sum())
    assert f"Null pairs: {300 - known}, given;" in answer.err.replace("\n", " ")


@pytest.mark.parametrize(("option", "value", "part"), [
    ("--fdr", "1.5", "fdr must be in (0, 1), got 1.5"),
    ("--base-rate", "dens", "base_rate must be a number in (0, 1) or 'density', got 'dens'"),
])  # fmt: skip
def test_bad_options(cli, fitted, asked, option, value, part):
    answer = cli("select", fitted, asked[0], option, value)
    assert answer.code == 1
    assert part in answer.err
    assert answer.out == ""


def test_interval_columns(cli, fitted, asked, tmp_path):
    path, _, index, loaded = asked
    out = tmp_path / "scores.csv"
    assert cli("score", fitted, path, "--interval", 0.9, "--out", out, "--chunk-size", 64).code == 0
    listed = rows(out.read_text())
    assert list(listed[0])[-2:] == ["p_low", "p_high"]
    expected = loaded.predict_interval(index, level=0.9)
    ends = np.array([[float(row["p_low"]), float(row["p_high"])] for row in listed])
    np.testing.assert_allclose(ends, expected, rtol=1e-4, atol=1e-6)
    p = np.array([float(row["probability"]) for row in listed])
    assert ((ends[:, 0] <= p + 1e-6) & (p <= ends[:, 1] + 1e-6)).all()
    side = json.loads((tmp_path / "scores.csv.meta.json").read_text())
    assert side["interval_level"] == 0.9
    bad = cli("score", fitted, path, "--interval", 1.5)
    assert bad.code == 1
    assert "interval must be in (0, 1), got 1.5" in bad.err


def test_base_rate_of_a_run_is_in_every_output(cli, files, fitted, tmp_path):
    # As the folder of the fixture, but for the base rate.
    arguments = [
        "fit", files.folder / "edges.csv", "--features", files.folder / "features.csv",
        "--epochs", 20, "--seed", 1,
    ]  # fmt: skip
    rare = tmp_path / "rare"
    answer = cli(*arguments, "--out", rare, "--base-rate", "0.02")
    assert answer.code == 0
    assert "base rate of 0.02 (given)" in " ".join(answer.out.split())
    before, after = (json.loads((folder / "metrics.json").read_text()) for folder in (fitted, rare))
    assert "base_rate" not in before
    assert after["base_rate"] == 0.02
    # Ranking is untouched; probabilities are small, so that the Brier score of weighted links is too.
    for name in before["results"]:
        assert after["results"][name]["hits@20"] == before["results"][name]["hits@20"]
        assert after["results"][name]["auc"] == pytest.approx(before["results"][name]["auc"])
        assert after["results"][name]["brier"] < 0.05
    page = " ".join((rare / "report.html").read_text().split())
    assert "They hold where 2 % of the query pairs are links (49 negatives for each link)" in page
    assert "fitted with 1 for each link; the probabilities were then moved" in page
    loaded = CalibratedLinkPredictor.load(rare)
    assert loaded.base_rate == 0.02
    pairs = loaded.graph_.pairs[:, :5]
    expected = CalibratedLinkPredictor.load(fitted).predict_proba(pairs, base_rate=0.02)
    torch.testing.assert_close(loaded.predict_proba(pairs), expected)
    assert "warning" not in cli("top", rare, "-k", 3).err
    wrong = cli(*arguments, "--out", tmp_path / "wrong", "--base-rate", "2")
    assert wrong.code == 1
    assert "base_rate must be in (0, 1), got 2.0" in wrong.err
