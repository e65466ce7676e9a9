"""``linkcal score``, ``select`` and ``top`` on a fitted folder."""

import hashlib
import itertools
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from linkcal import Identity
from linkcal.data import Graph, LinkPairs, LinkSplit
from linkcal.models import make_model
from linkcal.predictor import CalibratedLinkPredictor

pytestmark = pytest.mark.filterwarnings("always::linkcal.exceptions.LinkcalWarning")


@pytest.fixture(scope="module")
def queries(files, loaded, tmp_path_factory):
    """300 pairs in a file, two known edges first; their names and node numbers."""
    rng = np.random.default_rng(0)
    number = np.array([pair for pair in rng.choice(120, (400, 2)) if pair[0] != pair[1]])[:298]
    number = np.concatenate([loaded.graph_.pairs[:, :2].T.numpy(), number])
    names = [tuple(loaded.node_ids_.decode(pair).to_pylist()) for pair in number]
    path = tmp_path_factory.mktemp("queries") / "pairs.csv"
    path.write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in names))
    return path, names, torch.from_numpy(number.T)


def column(rows, name):
    return np.array([float(row[name]) for row in rows])


def shifted(probability, factor):
    odds = probability / (1 - probability) * factor
    return odds / (1 + odds)


# --- score --------------------------------------------------------------------------------------------------


def test_score_keeps_order_and_flags_known_edges(cli, fitted, queries, loaded):
    path, names, index = queries
    answer = cli("score", fitted, path)
    assert answer.code == 0
    assert list(answer.rows[0]) == ["source", "target", "logit", "probability", "in_graph"]
    assert [(row["source"], row["target"]) for row in answer.rows] == names
    known = loaded.known_edges(index).tolist()
    assert known[:2] == [True, True]
    assert [row["in_graph"] == "true" for row in answer.rows] == known
    np.testing.assert_allclose(column(answer.rows, "probability"), loaded.predict_proba(index), rtol=1e-5)
    assert "Scored on the calibrator's message-passing graph (120 nodes" in answer.err
    assert "hold for 1 negative per link" in answer.err


def test_output_file_has_a_side_file_and_chunks_change_nothing(cli, fitted, queries, tmp_path):
    out = tmp_path / "scores.csv"
    whole = cli("score", fitted, queries[0]).rows
    assert cli("score", fitted, queries[0], "--out", out, "--chunk-size", 7).out == ""
    lines = [line.split(",") for line in out.read_text().splitlines()[1:]]
    assert [(*x[:2], x[4]) for x in lines] == [(r["source"], r["target"], r["in_graph"]) for r in whole]
    for place, name in ((2, "logit"), (3, "probability")):
        values = [float(line[place]) for line in lines]
        np.testing.assert_allclose(values, column(whole, name), rtol=1e-5, atol=1e-6)
    side = json.loads((tmp_path / "scores.csv.meta.json").read_text())
    assert (side["pairs"], side["fit_on"], side["message_graph"]["nodes"]) == (300, "val", 120)
    assert (side["base_rate"], side["base_rate_origin"]) == (0.5, "calibration links")
    assert side["table_sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert side["statement"].endswith("Probabilities hold for 1 negative per link.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.csv", "scores.csv.meta.json"]


def test_a_clock_that_goes_backwards_changes_nothing(cli, files, fitted, write_pairs, tmp_path, monkeypatch):
    """Files from the year 2100, read and replaced while each look at the clock is a day earlier."""
    pairs = write_pairs("pairs.csv", files.names[files.edges[:9]])
    fit = (
        "fit",
        files.folder / "edges.csv",
        "--epochs",
        "2",
        "--calibrators",
        "platt",
        "--out",
        tmp_path / "f",
    )
    score = ("score", tmp_path / "f", pairs, "--out", tmp_path / "scores.csv")
    assert (cli(*fit).code, cli(*score).code) == (0, 0)
    table = (tmp_path / "scores.csv").read_text()
    for path in tmp_path.rglob("*"):
        os.utime(path, (4.1e9, 4.1e9))
    days = itertools.count(1)
    monkeypatch.setattr("time.time", lambda: 1e9 - 86400 * next(days))
    monkeypatch.setattr("time.time_ns", lambda: 10**18 - 86400 * 10**9 * next(days))
    assert (cli(*fit, "--force").code, cli(*score).code) == (0, 0)
    assert (tmp_path / "scores.csv").read_text() == table
    assert min(json.loads((tmp_path / "f" / "config.json").read_text())["outcome"]["seconds"].values()) >= 0


def test_calibrator_by_name(cli, fails, fitted, queries):
    rows = cli("score", fitted, queries[0], "--calibrator", "uncalibrated").rows
    p = 1 / (1 + np.exp(-column(rows, "logit")))
    np.testing.assert_allclose(column(rows, "probability"), p, rtol=1e-5)
    fails("score", fitted, queries[0], "--calibrator", "plat", parts=("did you mean 'platt'",))


@pytest.mark.parametrize("command", ["score", "select", "top"])
@pytest.mark.parametrize("rate", [0.001, "density"])
def test_base_rate_moves_the_odds_everywhere(cli, fitted, queries, loaded, tmp_path, command, rate):
    pairs = {"top": ("-k", 5), "select": (queries[0], "--fdr", 0.95)}.get(command, (queries[0],))
    value = loaded.resolve_base_rate(rate)
    plain, moved = cli(command, fitted, *pairs).rows, cli(command, fitted, *pairs, "--base-rate", rate)
    expected = shifted(column(plain, "probability"), value / (1 - value))
    np.testing.assert_allclose(column(moved.rows, "probability"), expected, rtol=1e-4)
    assert "linkcal: warning: among" not in moved.err
    if command == "score":
        origin = "given" if rate == 0.001 else "density of the message-passing graph"
        assert f"for a base rate of {value:.6g} ({origin}), moved there from 1 negative per" in moved.message
    else:
        assert f"base rate {'of ' if command == 'select' else ''}{value:.4g}" in moved.message


@pytest.mark.parametrize("command", ["score", "select", "top"])
@pytest.mark.parametrize("rate", ["0", "1.2", "nan", "dense"])
def test_impossible_base_rates_leave_no_output(fails, fitted, queries, tmp_path, command, rate):
    pairs = () if command == "top" else (queries[0],)
    options = ("--base-rate", rate, "--out", tmp_path / "out.csv")
    fails(command, fitted, *pairs, *options, parts=("base_rate must be ",))
    assert list(tmp_path.iterdir()) == []


def test_base_rate_of_a_refresh_is_that_of_its_labels(cli, fitted, queries, tmp_path):
    loaded = CalibratedLinkPredictor.load(fitted / "artifact")
    pairs = torch.unique(queries[2][:, 2:202].sort(dim=0).values, dim=1)[:, :100]
    loaded.refresh(pairs, np.arange(100) % 10 == 0).save(tmp_path / "fresh")
    assert cli("score", tmp_path / "fresh", queries[0], "--out", tmp_path / "scores.csv").code == 0
    side = json.loads((tmp_path / "scores.csv.meta.json").read_text())
    assert (side["base_rate"], side["base_rate_origin"]) == (pytest.approx(0.1), "labels of the refresh")


def test_base_rate_of_a_run_is_in_every_output(cli, fails, files, fitted, loaded, tmp_path):
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
    # Ranking is unchanged; probabilities are small, so the Brier score of weighted links is small too.
    for name in before["results"]:
        assert after["results"][name]["hits@20"] == before["results"][name]["hits@20"]
        assert after["results"][name]["auc"] == pytest.approx(before["results"][name]["auc"])
        assert after["results"][name]["brier"] < 0.05
    page = " ".join((rare / "report.html").read_text().split())
    assert "They hold where 2 % of the query pairs are links (49 negatives for each link)" in page
    assert "fitted with 1 for each link; the probabilities were then moved" in page
    pairs = loaded.graph_.pairs[:, :5]
    moved = CalibratedLinkPredictor.load(rare)
    torch.testing.assert_close(moved.predict_proba(pairs), loaded.predict_proba(pairs, base_rate=0.02))
    assert "warning" not in cli("top", rare, "-k", 3).err


def test_interval_columns(cli, fails, fitted, queries, loaded, tmp_path):
    path, _, index = queries
    out = tmp_path / "scores.csv"
    rows = cli("score", fitted, path, "--interval", 0.9, "--chunk-size", 64).rows
    assert list(rows[0])[-2:] == ["p_low", "p_high"]
    ends = np.stack([column(rows, "p_low"), column(rows, "p_high")], axis=1)
    np.testing.assert_allclose(ends, loaded.predict_interval(index, level=0.9), rtol=1e-4, atol=1e-6)
    p = column(rows, "probability")
    assert ((ends[:, 0] <= p + 1e-6) & (p <= ends[:, 1] + 1e-6)).all()
    assert cli("score", fitted, path, "--interval", 0.9, "--out", out).code == 0
    assert json.loads((tmp_path / "scores.csv.meta.json").read_text())["interval_level"] == 0.9
    fails("score", fitted, path, "--interval", 1.5, parts=("interval must be in (0, 1), got 1.5",))


def test_unknown_nodes_are_counted_and_nothing_is_written(fails, fitted, write_pairs, tmp_path):
    ghosts = [(f"ghost-{i}", "user-001") for i in range(8)]
    pairs = write_pairs("pairs.csv", [("user-001", "user-002"), *ghosts])
    fails(
        "score", fitted, pairs, "--out", tmp_path / "s.csv",
        parts=("8 unknown ids", "'ghost-0' in line 3"),
    )  # fmt: skip
    late = write_pairs("late.csv", [("user-001", "user-002")] * 20 + [("nobody", "user-001")])
    fails("score", fitted, late, "--chunk-size", 5, parts=("'nobody' in line 22",))
    fails("score", fitted, late, "--chunk-size", 5, "--out", tmp_path / "s", parts=("'nobody' in line 22",))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["late.csv", "pairs.csv"]


def test_unknown_nodes_can_be_left_out(cli, fails, fitted, write_pairs, tmp_path):
    """The rest as if they were not there, from files and folders; missing ids and loops are refused."""
    known = [("user-001", "user-002"), ("user-003", "user-010"), ("user-004", "user-005")]
    ghosts = [("ghost", "user-001"), ("ghost", "ghost")]
    mixed = write_pairs("mixed.csv", [ghosts[0], *known[:2], ghosts[1], known[2]])
    expected = cli("score", fitted, write_pairs("known.csv", known)).out
    for size in (1, 2, 100):
        answer = cli("score", fitted, mixed, "--unknown", "skip", "--chunk-size", size)
        assert answer.out == expected
        assert "Left out: 2 rows of nodes" in answer.err
    assert cli("score", fitted, mixed, "--unknown", "skip", "--out", tmp_path / "o.csv").code == 0
    assert (tmp_path / "o.csv").read_text() == expected
    assert json.loads((tmp_path / "o.csv.meta.json").read_text())["skipped"] == 2
    only = write_pairs("only.csv", ghosts)
    assert cli("score", fitted, only, "--unknown", "skip").out.splitlines() == expected.splitlines()[:1]
    (tmp_path / "many").mkdir()
    pd.read_csv(mixed).to_parquet(tmp_path / "many" / "a.parquet")
    answer = cli("score", fitted, tmp_path / "many", "--out", tmp_path / "scored", "--unknown", "skip")
    assert "3 pairs of 1 files" in answer.message
    assert "Left out: 2 rows of nodes" in answer.message
    written = pd.read_parquet(tmp_path / "scored" / "a.parquet")
    assert written.probability.tolist() == pd.read_csv(tmp_path / "o.csv").probability.tolist()
    loop = write_pairs("loop.csv", [*ghosts, ("user-001", "user-001")])
    fails("score", fitted, loop, "--unknown", "skip", parts=("'user-001' with itself in line 4",))
    fails("score", fitted, mixed, "--unknown", "drop", parts=("unknown must be one of error, skip",))


def test_columns_by_name(cli, fails, fitted, tmp_path):
    (tmp_path / "pairs.csv").write_text("from,to\nuser-001,user-002\n")
    fails("score", fitted, tmp_path / "pairs.csv", parts=("source", "from"))
    renamed = cli("score", fitted, tmp_path / "pairs.csv", "--source", "from", "--target", "to")
    assert (renamed.code, len(renamed.rows)) == (0, 1)


def test_damaged_and_foreign_folders(fails, fitted, queries, tmp_path):
    shutil.copytree(fitted, tmp_path / "copy")
    weights = tmp_path / "copy" / "artifact" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    fails("score", tmp_path / "copy", queries[0], parts=("model.safetensors", "truncated or altered"))
    for command in (("score", tmp_path / "gone", queries[0]), ("top", tmp_path / "gone")):
        fails(*command, parts=("artifact must be a folder",))


@pytest.mark.parametrize("command", ["score", "select", "top"])
@pytest.mark.parametrize("out", ["nowhere/out.csv", "."])
def test_unwritable_output_file_is_refused_before_the_work(
    fails, fitted, queries, tmp_path, monkeypatch, command, out
):
    def too_late(*args, **kwargs):
        raise AssertionError("the folder was read first")

    monkeypatch.setattr(CalibratedLinkPredictor, "load", too_late)
    pairs = () if command == "top" else (queries[0],)
    expected = f"out must be a file in an existing folder, got {tmp_path / out}"
    fails(command, fitted, *pairs, "--out", tmp_path / out, parts=(expected,))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "from_edges", "expected"),
    [
        ("gcn", False, None),
        ("gcn", True, "Node features were computed from the edges"),
        ("peg", False, "The nodes' positions that PEG reads were computed from the edges"),
        ("peg", True, "Node features and the nodes' positions that PEG reads were computed"),
    ],
)
def test_score_names_the_inputs_that_were_computed_from_the_edges(
    cli, ring, write_pairs, tmp_path, name, from_edges, expected
):
    folder = predictor_on(replace(ring, features_from_edges=from_edges), name, tmp_path / "artifact")
    predictor = CalibratedLinkPredictor.load(folder)
    predictor.info_ |= {"features_from_edges": from_edges}  # as a run notes it
    predictor.save(folder)
    answer = cli("score", folder, write_pairs("pairs.csv", [(0, 2)]))
    assert answer.code == 0
    assert expected is None or expected in answer.message
    assert ("trace of a known edge" in answer.message) == (expected is not None)
    assert ("node features" in answer.message.lower()) == from_edges


# --- select -------------------------------------------------------------------------------------------------


def test_select_lists_what_the_predictor_selects(cli, fitted, queries, loaded, tmp_path):
    path, names, index = queries
    answer = cli("select", fitted, path, "--fdr", 0.95)
    assert answer.code == 0
    found = loaded.select(index, fdr=0.95)
    assert 0 < found.selected.sum() < 300
    expected = [pair for pair, chosen in zip(names, found.selected.tolist(), strict=True) if chosen]
    assert [(row["source"], row["target"]) for row in answer.rows] == expected
    np.testing.assert_allclose(column(answer.rows, "p_value"), found.p_value[found.selected])
    p = loaded.predict_proba(index[:, found.selected])
    np.testing.assert_allclose(column(answer.rows, "probability"), p, rtol=1e-6)
    assert "known edges left out" in answer.message
    assert ", uniform; the bound holds" in answer.message
    assert cli("select", fitted, path, "--fdr", 0.95, "--out", tmp_path / "s.csv").out == ""
    assert (tmp_path / "s.csv").read_text() == answer.out


def test_select_explains_why_nothing_is_selected(cli, fitted, queries, loaded):
    path, _, index = queries
    answer = cli("select", fitted, path, "--fdr", 0.001)
    found = loaded.select(index, fdr=0.001)
    assert (answer.code, answer.rows) == (0, [])
    different = len({tuple(sorted(pair)) for pair in index.T[~found.known].tolist()})
    assert found.num_tested == different < 300
    smallest = found.p_value[~found.known].min()
    assert f"the smallest p-value is {smallest:.4g}. Of {different} different" in answer.message
    assert f"k times {0.001 / different:.4g}; no p-value can be below" in answer.message


def test_null_pairs_are_the_users_or_of_the_folders_kind(cli, fails, fitted, two_hop, queries, loaded):
    path, _, index = queries
    answer = cli("select", fitted, path, "--fdr", 0.9, "--null", path)
    assert answer.code == 0
    assert f"Null pairs: {300 - int(loaded.known_edges(index).sum())}, given;" in answer.message
    assert ", two-hop; the bound holds" in cli("select", two_hop, path, "--fdr", 0.95).message
    fails("select", fitted, path, "--fdr", "1.5", parts=("fdr must be in (0, 1), got 1.5",))


# --- top ----------------------------------------------------------------------------------------------------


def predictor_on(graph, name, folder, *, negatives="uniform", **options):
    """A folder of an untrained model: the messages about its pairs do not depend on training."""
    every = torch.triu_indices(graph.num_nodes, graph.num_nodes, 1)[:, :40]
    label = (torch.arange(every.size(1)) % 2).float()
    kept = (label == 1) | ~graph.has_pairs(every)  # no negative is an edge
    every, links = every[:, kept], LinkPairs(every[:, kept], label[kept])
    held_out = Graph.from_edges(every[:, links.edge_label == 1], graph.num_nodes)
    graph = replace(graph, edge_index=graph.edge_index[:, ~held_out.has_pairs(graph.edge_index)])
    nothing = LinkPairs(torch.empty(2, 0, dtype=torch.int64), torch.empty(0))
    model = make_model(name, graph.x.size(1), **options)
    split = LinkSplit(model.prepare(graph), nothing, links, nothing)
    predictor = CalibratedLinkPredictor(model, Identity()).fit(split)
    predictor.info_ |= {"negatives": negatives}
    predictor.save(folder)
    return folder


@pytest.fixture
def ring():
    """Twenty nodes in a ring: each has two at distance 2."""
    nodes = torch.arange(20)
    return Graph.from_edges(torch.stack([nodes, (nodes + 1) % 20]), 20, x=torch.rand(20, 4))


def test_top_lists_missing_pairs_by_name_and_states_the_ratio(cli, files, fitted, loaded, tmp_path):
    answer = cli("top", fitted, "-k", 7)
    assert (answer.code, len(answer.rows)) == (0, 7)
    edges = {tuple(sorted((files.names[u], files.names[v]))) for u, v in files.edges}
    assert loaded.held_out_.size(1) > 0
    assert not {tuple(sorted((row["source"], row["target"]))) for row in answer.rows} & edges
    logits = column(answer.rows, "logit").tolist()
    assert logits == sorted(logits, reverse=True)
    assert "Probabilities hold for 1 negative per link (base rate 0.5)" in answer.message
    assert "linkcal: warning: among all pairs links are far rarer than the 0.5" in answer.err
    # Neither chunks nor a file change anything.
    assert cli("top", fitted, "-k", 7, "--chunk-size", 100).out == answer.out
    assert cli("top", fitted, "-k", 7, "--out", tmp_path / "top.csv").out == ""
    assert (tmp_path / "top.csv").read_text() == answer.out
    # More than there are: all missing pairs.
    known = json.loads((fitted / "metrics.json").read_text())["counts"]["message_edges"]
    assert len(cli("top", fitted, "-k", 10**6).rows) == 120 * 119 // 2 - known - loaded.held_out_.size(1)


def test_candidates_are_listed_by_falling_probability(cli, fails, fitted):
    words = ("top", fitted, "--candidates", 60, "--calibrator", "in-n-out-plus")
    answer = cli(*words, "-k", 7)
    assert answer.code == 0
    assert "candidates by score, resource allocation, paths of length three" in answer.message
    p = column(answer.rows, "probability").tolist()
    assert len(p) == 7
    assert p == sorted(p, reverse=True)
    assert cli(*words, "-k", 5).rows == answer.rows[:5]
    fails(*words, "-k", 61, parts=("candidates must be at least k = 61, got 60",))


@pytest.mark.parametrize(
    ("option", "name"), [("-k", "k"), ("--candidates", "candidates"), ("--chunk-size", "chunk_size")]
)
@pytest.mark.parametrize(("value", "range_"), [(0, ">= 1"), (-3, ">= 1"), (10**120, "< 2**63")])
def test_counts_out_of_range_are_one_line(fails, fitted, option, name, value, range_):
    fails("top", fitted, option, value, parts=(f"{name} must be a whole number {range_}, got {value}"[:150],))


def test_top_leaves_out_the_pairs_of_a_file(cli, fails, fitted, tmp_path):
    """Case A11: known pairs by the user's ids, in either order."""
    whole = [(row["source"], row["target"]) for row in cli("top", fitted, "-k", 9).rows]
    path = tmp_path / "known.csv"
    path.write_text("a;b\n" + "".join(f"{v};{u}\n" for u, v in whole[1::2]))
    options = ("--exclude", path, "--source", "a", "--target", "b", "--delimiter", ";")
    answer = cli("top", fitted, "-k", 5, *options)
    assert [(row["source"], row["target"]) for row in answer.rows] == whole[::2]
    path.write_text("a;b\nuser-000;nobody\n")
    fails("top", fitted, *options, parts=("pairs must name nodes of the graph", "'nobody' in line 2"))


def test_top_warns_of_another_kind_of_negatives(cli, fails, two_hop):
    for options in ((), ("--base-rate", 0.01)):
        answer = cli("top", two_hop, "-k", 3, *options)
        assert answer.code == 0
        assert "were fitted with two-hop negatives and hold for pairs like those" in answer.message
        assert "density" not in answer.message  # it would be refused
    refused = "got 'density', which is the share of links among all pairs"
    fails("top", two_hop, "-k", 3, "--base-rate", "density", parts=(refused,))


def test_seal_orders_what_paths_nominate(cli, ring, tmp_path):
    answer = cli("top", predictor_on(ring, "seal", tmp_path / "uniform", sort_k=10), "-k", 3)
    assert len(answer.rows) == 3
    assert "candidates by resource allocation, paths of length three. Prob" in answer.message
    assert answer.err.count("warning") == 1


# All pairs of 20 nodes but the negatives of the calibration, which become known edges later.
ALMOST_COMPLETE = torch.triu_indices(20, 20, 1)[:, [i for i in range(190) if i >= 40 or i % 2]]


@pytest.mark.parametrize(
    ("model", "edges", "message"),
    [
        ("seal", torch.tensor([[0], [1]]), "no short path joins a missing pair."),
        ("seal", ALMOST_COMPLETE, "no short path joins a missing pair."),
        ("gcn", ALMOST_COMPLETE, "all pairs are known edges."),
    ],
    ids=["one edge", "complete", "complete, gcn"],
)
def test_top_explains_an_empty_list(cli, tmp_path, model, edges, message):
    graph = Graph.from_edges(edges, 20, x=torch.rand(20, 4))
    options = {"sort_k": 10} if model == "seal" else {}
    folder = predictor_on(graph, model, tmp_path / "artifact", **options)
    if edges is ALMOST_COMPLETE:
        loaded = CalibratedLinkPredictor.load(folder)
        loaded.held_out_ = torch.triu_indices(20, 20, 1)[:, :40]
        loaded.save(folder)
    answer = cli("top", folder, "-k", 3)
    assert (answer.code, answer.rows) == (0, [])
    assert f"No pair to list: {message}" in answer.message
    assert "warning" not in answer.err
