"""``linkcal score --base-rate``: the asked share of links, and what the side file says about it."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.cli import main
from linkcal.data import simulate_graph, split_links
from linkcal.models import make_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base-rate")
    split = split_links(simulate_graph(150, num_edges=600, num_features=8, seed=1), seed=1)
    clp = CalibratedLinkPredictor(make_model("gcn", 8, seed=0), Platt()).fit(split)
    clp.save(folder / "artifact")
    (folder / "pairs.csv").write_text("source,target\n0,1\n5,9\n7,70\n")
    return folder, split.graph.num_pairs / split.graph.num_possible_pairs


def _score(folder, *options):
    out = folder / "scores.csv"
    code = main(["score", str(folder), str(folder / "pairs.csv"), "--out", str(out), *options])
    assert code == 0
    rows = csv.DictReader(out.read_text().splitlines())
    p = [float(row["probability"]) for row in rows]
    return np.array(p), json.loads((folder / "scores.csv.meta.json").read_text())


def test_without_the_option_the_ratio_is_stated(saved):
    _, side = _score(saved[0])
    assert side["base_rate"] == 0.5
    assert side["base_rate_origin"] == "calibration links"
    assert side["statement"].endswith("Probabilities hold for 1 negative per link.")


def test_given_rate(saved):
    plain, _ = _score(saved[0])
    shifted, side = _score(saved[0], "--base-rate", "0.001")
    odds = plain / (1 - plain) * (0.001 / 0.999)
    np.testing.assert_allclose(shifted, odds / (1 + odds), rtol=1e-5)
    assert (side["base_rate"], side["base_rate_origin"]) == (0.001, "given")
    assert "for a base rate of 0.001 (given), moved there from 1 negative per link" in side["statement"]


def test_density(saved):
    folder, density = saved
    by_word, side = _score(folder, "--base-rate", "density")
    assert side["base_rate"] == density
    assert side["base_rate_origin"] == "density of the message-passing graph"
    assert np.array_equal(by_word, _score(folder, "--base-rate", repr(density))[0])


@pytest.mark.parametrize("rate", ["0", "1", "1.2", "nan"])
def test_impossible_rates_leave_nothing(saved, capsys, tmp_path, rate):
    folder, out = saved[0], tmp_path / "scores.csv"
    code = main(["score", str(folder), str(folder / "pairs.csv"), "--out", str(out), "--base-rate", rate])
    assert code == 1
    assert "base_rate must be in (0, 1), got " in capsys.readouterr().err
    assert not out.exists()


def test_unknown_word(saved, capsys):
    assert main(["score", str(saved[0]), str(saved[0] / "pairs.csv"), "--base-rate", "dense"]) == 1
    assert "base_rate must be a number in (0, 1) or 'density', got 'dense'" in capsys.readouterr().err
