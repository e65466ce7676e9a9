"""``linkcal calibrate`` and ``apply``, and ``select`` on a folder without a model."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from linkcal import CalibratedScores
from linkcal.artifact import load_artifact
from linkcal.data import simulate_graph, split_links
from linkcal.exceptions import ArtifactError

NUM = 1200


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    """Scores in a column of another name, with a kind of pair and a ready split."""
    rng = np.random.default_rng(0)
    s = rng.normal(scale=2.0, size=NUM)
    y = rng.random(NUM) < 1.0 / (1.0 + np.exp(1.0 - 0.5 * s))
    path = tmp_path_factory.mktemp("scores") / "mine.csv"
    lines = [
        f"a{i},b{i},{s[i]:.4f},{y[i]:d},{'xy'[i % 2]},{'val' if i < 700 else 'test'}" for i in range(NUM)
    ]
    path.write_text("source,target,score,label,kind,split\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def folder(cli, scores, tmp_path):
    answer = cli("calibrate", scores, "--logit", "score", "--group", "kind", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "\n > " in answer.out
    assert "Groups by kind: the largest deviation is in kind=" in answer.message
    assert "cannot move the base rate" not in answer.err  # a temperature's, which nobody chose
    return tmp_path / "out"


def test_calibrate_writes_a_run(folder, scores):
    metrics = json.loads((folder / "metrics.json").read_text())
    assert (metrics["dataset"], metrics["counts"]["test_positives"] > 0) == ("mine", True)
    assert json.loads((folder / "config.json").read_text())["input"]["path"] == str(scores)
    page = (folder / "report.html").read_text()
    assert f"Calibration of {metrics['selected']} by kind" in page
    assert "700 labelled pairs (val in column" in page


def test_json_is_the_file(cli, scores, tmp_path):
    answer = cli("calibrate", scores, "--logit", "score", "--out", tmp_path / "o", "--json")
    assert json.loads(answer.out) == json.loads((tmp_path / "o" / "metrics.json").read_text())


def test_apply_writes_the_probabilities_of_the_library(cli, folder, scores, tmp_path):
    found = CalibratedScores.load(folder).apply(scores, base_rate=0.01, interval=0.8)
    answer = cli("apply", folder, scores, "--base-rate", 0.01, "--interval", 0.8)
    assert list(answer.rows[0]) == list(found)
    for name in ("score", "probability", "p_low", "p_high"):
        assert [float(row[name]) for row in answer.rows] == found[name].tolist()
    assert "1,200 pairs. Probabilities are for a base rate of 0.01, moved there from" in answer.message
    assert cli("apply", folder, scores, "--out", tmp_path / "new.csv").out == ""
    with (tmp_path / "new.csv").open() as file:
        assert len(list(csv.DictReader(file))) == NUM


def test_select_works_without_a_model(cli, folder, scores, fails):
    found = CalibratedScores.load(folder).select(scores, fdr=0.3)
    answer = cli("select", folder, scores, "--fdr", 0.3)
    assert [row["source"] for row in answer.rows] == found["source"][found["selected"]].tolist()
    assert "Null scores: " in answer.message
    fails("select", folder, scores, "--null", scores, parts=("--null, --calibrator, ",))
    fails("select", folder, scores, "--comment", "", parts=("--comment and --raw-ids must be left out",))
    fails("select", folder, scores, "--source", "from", parts=("--source must be 'source'", "got 'from'"))


def test_select_knows_the_columns_of_the_folder(cli, fails, scores, tmp_path):
    named = pd.read_csv(scores).rename(columns={"source": "u", "target": "v"})
    named.to_csv(tmp_path / "named.csv", index=False)
    ends = "--source", "u", "--target", "v"
    folder = tmp_path / "out"
    assert cli("calibrate", tmp_path / "named.csv", "--logit", "score", *ends, "--out", folder).code == 0
    by_default, named = (
        cli("select", folder, tmp_path / "named.csv", "--fdr", 0.5, *some) for some in ((), ends)
    )
    assert by_default.out == named.out
    assert len(named.rows) > 0
    fails("select", folder, tmp_path / "named.csv", "--target", "w", parts=("must be 'v'",))


def test_folders_are_not_mixed_up(cli, fails, folder, fitted, scores, write_pairs):
    pairs = write_pairs("p.csv", [("user-001", "user-002")])
    fails("score", folder, pairs, parts=("linkcal-artifact", "`linkcal apply`"))
    fails("apply", fitted, scores, parts=("linkcal-scores", "`linkcal score`"))
    with pytest.raises(ArtifactError, match="linkcal apply"):
        load_artifact(folder)


def test_refusals_are_one_line(fails, folder, scores, tmp_path):
    fails("calibrate", scores, parts=("'logit' or 'probability'",))
    fails("calibrate", scores, "--probability", "score", parts=("[0, 1]", "if these are logits"))
    fails("apply", folder, scores, "--column", "none", parts=("must have the column 'none'",))
    fails("apply", folder, scores, "--out", scores, parts=("another file",))
    fails("apply", tmp_path, scores, parts=("artifact.json",))
    fails("apply", folder, scores, "--calibrator", "plat", parts=("did you mean 'platt'",))


@pytest.mark.filterwarnings("ignore:pairs name nodes without an edge")
def test_embeddings_are_decoded_calibrated_and_applied(cli, tmp_path):
    """From a system's embeddings to probabilities in three commands, with the graph beside the scores."""
    split = split_links(simulate_graph(500, seed=0), seed=0)
    x = np.random.default_rng(0).normal(size=(500, 4)) + split.graph.x.numpy()[:, :4]
    pd.DataFrame({"nid": range(500), "emb": list(x)}).to_parquet(tmp_path / "embed-00000_00000.parquet")
    pairs = np.concatenate([part.edge_label_index.numpy() for part in (split.val, split.test)], axis=1)
    label = np.concatenate([part.edge_label.numpy() for part in (split.val, split.test)])
    ends = dict(zip(("source", "target"), pairs, strict=True))
    pd.DataFrame(ends | {"label": label}).to_csv(tmp_path / "pairs.csv", index=False)
    edges = dict(zip(("source", "target"), split.graph.pairs.numpy(), strict=True))
    pd.DataFrame(edges).to_csv(tmp_path / "edges.csv", index=False)

    decoded = tmp_path / "decoded.csv"
    answer = cli("decode", tmp_path / "pairs.csv", tmp_path, "--decoder", "dot", "--out", decoded)
    assert answer.code == 0, answer.err
    table = pd.read_csv(decoded)
    assert list(table) == ["source", "target", "label", "logit"]
    assert table["logit"].to_numpy() == pytest.approx((x[pairs[0]] * x[pairs[1]]).sum(axis=1))
    answer = cli("calibrate", decoded, "--edges", tmp_path / "edges.csv", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "Beyond degrees, paths and feature similarity the model" in answer.out + answer.err
    answer = cli("apply", tmp_path / "out", decoded)
    assert len(answer.rows) == len(label)
