"""``linkcal fit --directed``: links keep their direction, and a symmetric decoder is warned of."""

from __future__ import annotations

import csv
import io
import json

import pytest

from linkcal.predictor import CalibratedLinkPredictor

pytestmark = pytest.mark.filterwarnings("always::linkcal.exceptions.LinkcalWarning")

#: Each of 40 nodes points at the next three.
RING = [(f"n{i:02d}", f"n{(i + step) % 40:02d}") for i in range(40) for step in (1, 2, 3)]
WARNING = "gcn gives both directions of a pair the same score, while the graph is directed"


def write_pairs(path, pairs):
    path.write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in pairs))
    return path


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def fit(cli, tmp_path):
    edges = write_pairs(tmp_path / "ring.csv", RING)

    def run(*options):
        out = tmp_path / "out"
        answer = cli("fit", edges, *options, "--model", "gcn", "--epochs", 2, "--out", out)
        assert answer.code == 0
        return out, " ".join(answer.err.split())

    return run


def test_undirected_graph_warns_of_nothing(fit):
    out, said = fit()
    assert WARNING not in said
    assert not CalibratedLinkPredictor.load(out / "artifact").graph_.directed


def test_direction_is_kept_in_splitting_scoring_and_ranking(fit, cli, tmp_path):
    out, said = fit("--directed")
    assert f"linkcal: warning: {WARNING}" in said
    loaded = CalibratedLinkPredictor.load(out / "artifact")
    assert loaded.graph_.directed
    # 120 ordered links, a tenth of them for validation and as many for the test: none turned or doubled.
    assert loaded.graph_.num_pairs == 96
    assert json.loads((out / "metrics.json").read_text())["counts"]["test_positives"] == 12
    ends = [loaded.node_ids_.decode(row.numpy()) for row in loaded.graph_.pairs]
    known = [tuple(map(str, pair)) for pair in zip(*ends, strict=True)]
    assert set(known) <= set(RING)
    asked = write_pairs(tmp_path / "pairs.csv", [known[0], known[0][::-1]])
    straight, turned = rows(cli("score", out, asked).out)
    assert (straight["in_graph"], turned["in_graph"]) == ("true", "false")
    # The turned pair is missing, so it competes; the links do not.
    listed = [(row["source"], row["target"]) for row in rows(cli("top", out, "-k", 40).out)]
    assert len(set(listed)) == 40
    assert not set(listed) & set(RING)
    everything = {(row["source"], row["target"]) for row in rows(cli("top", out, "-k", 1440).out)}
    assert len(everything) == 40 * 39 - 120
    assert {pair[::-1] for pair in RING} <= everything
