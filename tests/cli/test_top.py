"""``linkcal top`` on a folder that ``linkcal fit`` made."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
import torch

from linkcal import Identity
from linkcal.data import Graph, LinkPairs, LinkSplit
from linkcal.models import make_model
from linkcal.predictor import CalibratedLinkPredictor

pytestmark = pytest.mark.filterwarnings("always::linkcal.exceptions.BaseRateWarning")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_lists_missing_pairs_by_name_and_states_the_ratio(cli, files, fitted):
    answer = cli("top", fitted, "-k", 7)
    assert answer.code == 0
    listed = rows(answer.out)
    assert len(listed) == 7
    names = {tuple(sorted((files.names[u], files.names[v]))) for u, v in files.edges}
    assert not {tuple(sorted((row["source"], row["target"]))) for row in listed} & names
    logits = [float(row["logit"]) for row in listed]
    assert logits == sorted(logits, reverse=True)
    assert "Probabilities hold for 1 negative per link (base rate 0.5)" in answer.err.replace("\n", " ")
    assert "linkcal: warning: among all pairs links are far rarer than the 0.5" in answer.err
    predictor = CalibratedLinkPredictor.load(fitted / "artifact")
    assert predictor.held_out_.size(1) > 0


def test_rerank_lists_the_most_probable_of_the_best(cli, fitted):
    answer = cli("top", fitted, "-k", 7, "--rerank", 60, "--calibrator", "in-n-out-plus")
    assert answer.code == 0
    assert "7 most probable of the 60 highest-scoring of all missing pairs." in " ".join(answer.err.split())
    best = rows(cli("top", fitted, "-k", 60, "--calibrator", "in-n-out-plus").out)
    best.sort(key=lambda row: -float(row["probability"]))
    listed = rows(answer.out)
    probabilities = [float(row["probability"]) for row in listed]
    assert probabilities == pytest.approx([float(row["probability"]) for row in best[:7]], rel=1e-6)
    assert probabilities == sorted(probabilities, reverse=True)
    logits = [float(row["logit"]) for row in listed]
    assert logits != sorted(logits, reverse=True)
    refused = cli("top", fitted, "-k", 7, "--rerank", 6)
    assert refused.code == 1
    assert "rerank must be at least k = 7, got 6" in refused.err


def test_chunk_size_and_output_file_change_nothing(cli, fitted, tmp_path):
    expected = cli("top", fitted, "-k", 7).out
    assert cli("top", fitted, "-k", 7, "--chunk-size", 100).out == expected
    assert cli("top", fitted, "-k", 7, "--out", tmp_path / "top.csv").out == ""
    assert (tmp_path / "top.csv").read_text() == expected


@pytest.mark.parametrize("k", [0, -3])
def test_bad_number(cli, fitted, k):
    answer = cli("top", fitted, "-k", k)
    assert answer.code == 1
    assert "k must be a whole number >= 1" in answer.err


def test_base_rate_moves_the_probabilities_and_silences_the_warning(cli, fitted):
    plain, moved = cli("top", fitted, "-k", 5), cli("top", fitted, "-k", 5, "--base-rate", "0.01")
    assert "warning" not in moved.err
    assert "99 negatives per link (base rate 0.01)" in moved.err
    for before, after in zip(rows(plain.out), rows(moved.out), strict=True):
        assert before["logit"] == after["logit"]
        p = float(before["probability"])
        odds = p / (1 - p) * 0.01 / 0.99
        assert float(after["probability"]) == pytest.approx(odds / (1 + odds), rel=1e-4)
    by_density = cli("top", fitted, "-k", 5, "--base-rate", "density")
    assert "warning" not in by_density.err
    answer = cli("top", fitted, "-k", 5, "--base-rate", "1.2")
    assert answer.code == 1
    assert "base_rate must be in (0, 1), got 1.2" in answer.err


@pytest.mark.parametrize("out", ["nowhere/top.csv", "."])
def test_output_that_cannot_be_written_is_told_before_the_work(cli, fitted, tmp_path, monkeypatch, out):
    def work(*_args, **_options):
        raise AssertionError("pairs were ranked first")

    monkeypatch.setattr("linkcal.all_pairs.most_probable_pairs", work)
    answer = cli("top", fitted, "--out", tmp_path / out)
    assert answer.code == 1
    expected = f"linkcal: error: out must be a file in an existing folder, got {tmp_path / out}"
    assert answer.err.strip() == expected
    assert list(tmp_path.iterdir()) == []


def test_top_warns_of_another_kind_of_negatives(cli, two_hop):
    for options in ((), ("--base-rate", 0.01)):
        answer = cli("top", two_hop, "-k", 3, *options)
        said = " ".join(answer.err.split())
        assert answer.code == 0
        assert "were fitted with two-hop negatives and hold for pairs like those" in said
        # It would be refused.
        assert "density" not in said
    refused = cli("top", two_hop, "-k", 3, "--base-rate", "density")
    assert (refused.code, refused.out) == (1, "")
    assert "got 'density', which is the share of links among all pairs" in " ".join(refused.err.split())


def test_output_file_that_cannot_be_written_is_refused_before_the_work(cli, fitted, tmp_path, monkeypatch):
    def too_late(*args, **kwargs):
        raise AssertionError("the folder was read first")

    monkeypatch.setattr(CalibratedLinkPredictor, "load", too_late)
    for out in (tmp_path, tmp_path / "gone" / "top.csv"):
        answer = cli("top", fitted, "--out", out)
        assert answer.code == 1
        assert f"out must be a file in an existing folder, got {out}" in answer.err


def test_a_folder_that_holds_no_artifact(cli, tmp_path):
    answer = cli("top", tmp_path / "gone")
    assert answer.code == 1
    assert answer.err.count("\n") == 1


def test_more_pairs_than_are_missing(cli, files, fitted):
    listed = rows(cli("top", fitted, "-k", 10**6).out)
    held_out = CalibratedLinkPredictor.load(fitted).held_out_.size(1)
    known = json.loads((fitted / "metrics.json").read_text())["counts"]["message_edges"] + held_out
    assert len(listed) == 120 * 119 // 2 - known


def predictor_on(graph, name, folder, *, negatives="uniform", **options):
    """A folder of an untrained model: what is said of pairs does not depend on it."""
    every = torch.triu_indices(graph.num_nodes, graph.num_nodes, 1)[:, :40]
    asked = LinkPairs(every, (torch.arange(every.size(1)) % 2).float())
    held_out = Graph.from_edges(every[:, asked.edge_label == 1], graph.num_nodes)
    graph = replace(graph, edge_index=graph.edge_index[:, ~held_out.has_pairs(graph.edge_index)])
    nothing = LinkPairs(torch.empty(2, 0, dtype=torch.int64), torch.empty(0))
    model = make_model(name, graph.x.size(1), **options)
    split = LinkSplit(model.prepare(graph), nothing, asked, nothing)
    predictor = CalibratedLinkPredictor(model, Identity()).fit(split)
    predictor.info_ |= {"negatives": negatives}
    predictor.save(folder)
    return folder


@pytest.fixture
def ring():
    """Twenty nodes in a ring: each has two at distance 2."""
    nodes = torch.arange(20)
    return Graph.from_edges(torch.stack([nodes, (nodes + 1) % 20]), 20, x=torch.rand(20, 4))


def test_of_seal_only_pairs_at_distance_two_are_spoken_of(cli, ring, tmp_path):
    answer = cli("top", predictor_on(ring, "seal", tmp_path / "uniform", sort_k=10), "-k", 3)
    said = " ".join(answer.err.split())
    assert len(rows(answer.out)) == 3
    assert "3 highest-scoring of missing pairs at distance 2." in said
    assert "among the missing pairs at distance 2, which are ranked here, links are far rarer than" in said
    assert "among all pairs" not in said
    assert "density" not in said
    assert (
        "fitted with uniform negatives and hold for pairs like those, not for the pairs at distance 2" in said
    )
    assert "make the folder with --negatives two-hop" in said


def test_of_seal_with_two_hop_negatives_there_is_nothing_to_warn_of_but_the_rate(cli, ring, tmp_path):
    folder = predictor_on(ring, "seal", tmp_path / "two-hop", negatives="two-hop", sort_k=10)
    assert "warning" not in cli("top", folder, "-k", 3, "--base-rate", 0.01).err
    assert cli("top", folder, "-k", 3).err.count("warning") == 1


@pytest.mark.parametrize("known", ["a path of two nodes", "a complete graph"])
def test_seal_says_when_no_pair_has_a_common_neighbour(cli, tmp_path, known):
    edges = torch.tensor([[0], [1]]) if "path" in known else torch.triu_indices(20, 20, 1)
    graph = Graph.from_edges(edges, 20, x=torch.rand(20, 4))
    answer = cli("top", predictor_on(graph, "seal", tmp_path / "artifact", sort_k=10), "-k", 3)
    assert (answer.code, rows(answer.out)) == (0, [])
    said = " ".join(answer.err.split())
    assert "No pair to list: SEAL ranks pairs with a common neighbour in the message-passing graph" in said
    assert "warning" not in said


def test_a_complete_graph_has_nothing_to_list(cli, tmp_path):
    graph = Graph.from_edges(torch.triu_indices(20, 20, 1), 20, x=torch.rand(20, 4))
    answer = cli("top", predictor_on(graph, "gcn", tmp_path / "artifact"))
    assert (answer.code, rows(answer.out)) == (0, [])
    assert answer.err.strip() == "No pair to list: all pairs are known edges."


@pytest.mark.parametrize(
    ("name", "from_edges", "expected"),
    [
        ("gcn", False, None),
        ("gcn", True, "Node features were computed from the edges"),
        ("peg", False, "The nodes' positions that PEG reads were computed from the edges"),
        ("peg", True, "Node features and the nodes' positions that PEG reads were computed"),
    ],
)
def test_score_says_which_inputs_were_computed_from_the_edges(
    cli, ring, tmp_path, name, from_edges, expected
):
    folder = predictor_on(replace(ring, features_from_edges=from_edges), name, tmp_path / "artifact")
    predictor = CalibratedLinkPredictor.load(folder)
    predictor.info_ |= {"features_from_edges": from_edges}  # as a run notes it
    predictor.save(folder)
    asked = tmp_path / "pairs.csv"
    asked.write_text("source,target\n0,2\n")
    answer = cli("score", folder, asked)
    said = " ".join(answer.err.split())
    assert answer.code == 0
    assert expected is None or expected in said
    assert ("trace of a known edge" in said) == (expected is not None)
    assert ("node features" in said.lower()) == from_edges
