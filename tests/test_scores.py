"""Scores of any system: declared, divided, calibrated, measured, saved; and what is refused at the edge."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from linkcal import CalibratedScores, _folder, calibrate_scores
from linkcal.calibrators import Platt, base_rate_offset
from linkcal.data import read_edges, simulate_graph, split_links
from linkcal.decisions import IntervalCalibrator
from linkcal.exceptions import ArtifactError, BaseRateWarning, InputError, LinkcalWarning, RareClassWarning
from linkcal.metrics import expected_calibration_error
from linkcal.scores import SCORE_CALIBRATORS

NUM = 2000
ENDS = ("source", "target")


def table(num: int = NUM, slope: float = 0.5, offset: float = -1.0, **columns: object) -> dict[str, object]:
    """Pairs whose labels follow ``sigmoid(slope s + offset)`` of their logits s."""
    rng = np.random.default_rng(1)
    s = rng.normal(scale=2.0, size=num)
    y = rng.random(num) < 1.0 / (1.0 + np.exp(-slope * s - offset))
    node = np.arange(num)
    return {"source": node, "target": node + num, "logit": s, "label": y.astype(int), **columns}


@pytest.fixture(scope="module")
def found() -> CalibratedScores:
    return calibrate_scores(table())


def asked(score: object, column: str = "logit") -> dict[str, object]:
    return {"source": ["a"] * len(score), "target": ["b"] * len(score), column: score}


# Right numbers.


def test_the_selected_map_is_the_calibrators_own_on_the_calibration_half(found):
    assert found.info["selected"] == "platt"
    direct = Platt().fit(found.calibration.logit[:, None], found.calibration.label)
    query = [-3.0, 0.0, 4.0]
    columns = found.apply(asked(query), interval=0.9)
    assert np.array_equal(columns["probability"], direct.predict_proba(np.array(query)[:, None])[:, 1])
    layer = IntervalCalibrator(Platt()).fit(found.calibration.logit[:, None], found.calibration.label)
    ends = np.column_stack((columns["p_low"], columns["p_high"]))
    assert np.array_equal(ends, layer.predict_interval(np.array(query)[:, None], level=0.9))
    assert list(columns) == ["source", "target", "logit", "probability", "p_low", "p_high"]


def test_metrics_are_those_of_the_test_half(found):
    p = found.apply(asked(found.test.logit))["probability"]
    results = found.metrics["results"]
    assert tuple(results) == SCORE_CALIBRATORS
    assert results["platt"]["ece"] == expected_calibration_error(found.test.label, p)
    assert results["platt"]["ece"] < 0.5 * results["uncalibrated"]["ece"]
    assert repr(found).startswith("CalibratedScores('platt' of 7 calibrator(s), fitted on 1,001 pairs")


def test_halves_are_stratified_seeded_and_hold_each_pair_once(found):
    links, negatives = np.array(found.calibration.counts()), np.array(found.test.counts())
    assert (np.abs(links - negatives) <= 1).all()
    assert not np.isin(found.calibration.logit, found.test.logit).any()
    again, other = calibrate_scores(table()), calibrate_scores(table(), seed=1)
    assert np.array_equal(again.test.logit, found.test.logit)
    assert not np.array_equal(other.test.logit, found.test.logit)
    # A label elsewhere does not move the halves of the other class.
    assert found.info["seed"] == 0


def test_a_split_column_is_followed():
    part = np.where(np.arange(NUM) < 1200, "val", "test")
    found = calibrate_scores(table(split=part))
    assert np.array_equal(found.test.logit, table()["logit"][1200:])
    named = calibrate_scores(table(part=part), split="part", calibrators=["platt"])
    assert np.array_equal(named.calibration.logit, found.calibration.logit)


def test_probabilities_are_their_logits():
    logits = table()
    p = 1.0 / (1.0 + np.exp(-logits.pop("logit")))
    by_p, by_s = calibrate_scores(logits | {"probability": p}), calibrate_scores(table())
    q = [0.001, 0.5, 0.9]
    one = by_p.apply(asked(q, "probability"))["probability"]
    two = by_s.apply(asked(np.log(q) - np.log1p(np.negative(q))))["probability"]
    assert one == pytest.approx(two, rel=1e-9)
    # 0 and 1 have no logit; they are clipped, not refused.
    assert np.isfinite(by_p.apply(asked([0.0, 1.0], "probability"))["probability"]).all()


def test_base_rates_move_odds_exactly():
    """Case 13: 0.5, 0.9 and 0.999 at one negative per link become 0.001, 1 / 112 and 0.5."""
    s = np.log([1.0, 9.0, 999.0])
    even = {"source": range(400), "target": range(400, 800), "logit": np.tile(np.append(s, -1), 100)}
    labels = np.repeat(np.tile([0, 1], 2), 100)
    found = calibrate_scores(even | {"label": labels}, calibrators=["uncalibrated"])
    p = found.apply(asked(s), base_rate=0.001)["probability"]
    assert p == pytest.approx([0.001, 1 / 112, 0.5], abs=1e-9)
    for rate in (0.0, 1.0, 1.2):
        with pytest.raises(InputError, match="base_rate must be in"):
            found.apply(asked(s), base_rate=rate)


def test_a_stated_base_rate_weights_the_metrics_and_stays():
    """Case 14: at a base rate that the test half has not, each negative counts more, and AUC is the same."""
    plain = calibrate_scores(table(offset=0.0), calibrators=["platt"])
    moved = calibrate_scores(table(offset=0.0), calibrators=["platt"], base_rate=0.01)
    query = asked(plain.test.logit)
    shift = base_rate_offset(plain.calibration_rate, 0.01)
    z = plain.calibrators["platt"].decision_function(plain.test.logit[:, None]) + shift
    assert moved.apply(query)["probability"] == pytest.approx(1 / (1 + np.exp(-z)), rel=1e-12)
    row, before = moved.metrics["results"]["platt"], plain.metrics["results"]["platt"]
    assert (row["auc"], row["hits@20"]) == (before["auc"], before["hits@20"])
    assert row["nll"] < 0.2 * before["nll"]
    assert moved.metrics["base_rate"] == moved.base_rate == 0.01


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.RareClassWarning")
def test_equal_scores_get_the_base_rate():
    """Case 12: 1,000 logits of 0 with 100 links are 10 %, which no temperature can say."""
    same = {"source": range(1000), "target": range(1000, 2000), "logit": np.zeros(1000)}
    with pytest.warns(LinkcalWarning, match=r"all logits in column 'logit' lie in \[0, 1\]"):
        found = calibrate_scores(same | {"label": np.arange(1000) < 100})
    p = found.apply(asked([0.0, -9.0]))["probability"]
    assert p[0] == pytest.approx(0.1, abs=1e-3)
    assert "cannot move the base rate" in found.metrics["warnings"]["temperature"][0]


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.RareClassWarning")
def test_ten_links_among_five_thousand():
    """Case A13: the mean is right, and no selected probability is exactly 0 or 1."""
    rng = np.random.default_rng(0)
    y = np.arange(5000) < 10
    pairs = {"source": range(5000), "target": range(5000, 10_000), "logit": rng.normal(size=5000) - 6 + 2 * y}
    found = calibrate_scores(pairs | {"label": y})
    p = found.apply(asked(pairs["logit"]))["probability"]
    assert p.mean() == pytest.approx(0.002, rel=0.3)
    assert 0.0 < p.min() < p.max() < 1.0


def test_selection_keeps_its_rate(found):
    rng = np.random.default_rng(5)
    s = np.concatenate([rng.normal(scale=2.0, size=900), rng.normal(9.0, 1.0, size=300)])
    columns = found.select(asked(s), fdr=0.1)
    assert columns["selected"][900:].mean() > 0.9
    assert columns["selected"][:900].sum() < 0.1 * columns["selected"].sum() * 2
    assert columns["p_value"].min() == pytest.approx(1 / (found.test.counts()[1] + 1))
    bound = found.threshold_for(recall=0.9)
    assert bound.base_rate == found.calibration_rate
    kept = found.apply(asked(found.test.logit[found.test.label == 1]))["probability"] >= bound.probability
    assert kept.mean() >= 0.9


def test_groups_show_what_the_whole_hides():
    columns = table(offset=0.0)
    side = np.where(np.arange(NUM) % 2, "left", "right")
    hidden = columns | {"side": side, "logit": np.where(side == "left", 2.0, 1.9) + 0 * columns["logit"]}
    hidden["label"] = (np.arange(NUM) // 2 % 4 > 0) ^ (side == "right")
    found = calibrate_scores(hidden, calibrators=["histogram"], groups=["side"])
    group = found.metrics["groups"]["side"]
    assert set(group["segments"]) == {"side=left", "side=right"}
    assert abs(group["segments"][group["worst"]]["z"]) > group["bound"]
    assert found.metrics["results"]["histogram"]["ece"] < 0.05
    with pytest.raises(InputError, match="column 'side' must name a group in every row, got 1 of 2000"):
        calibrate_scores(hidden | {"side": [None, *side[1:]]}, groups=["side"])


# What a table may be.


def test_tables_of_every_kind_agree(tmp_path, found):
    """Case A12: the same pairs as CSV, TSV, Parquet, frame and dict give the same numbers."""
    frame = pd.DataFrame(table()).rename(columns={"logit": "score"}).astype({"source": str})
    frame.to_csv(tmp_path / "s.csv", index=False)
    frame.to_csv(tmp_path / "s.tsv.gz", index=False, sep="\t")
    frame.astype({"source": "category"}).to_parquet(tmp_path / "s.parquet")
    for scores in (tmp_path / "s.csv", str(tmp_path / "s.tsv.gz"), tmp_path / "s.parquet", frame):
        same = calibrate_scores(scores, logit="score", calibrators=["platt"])
        assert same.test.logit == pytest.approx(found.test.logit, abs=0)
        assert same.metrics["results"]["platt"]["ece"] == found.metrics["results"]["platt"]["ece"]
        assert list(same.apply(scores)) == ["source", "target", "score", "probability"]


def test_true_and_false_are_labels(tmp_path):
    frame = pd.DataFrame(table())
    frame.assign(label=frame["label"] == 1).to_csv(tmp_path / "s.csv", index=False)
    assert calibrate_scores(tmp_path / "s.csv", calibrators=["platt"]).test.counts()[0] > 0


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.RareClassWarning")
def test_both_orders_of_a_pair_count_once():
    columns = pd.DataFrame(table(500))
    turned = columns.rename(columns={"source": "target", "target": "source"})
    turned["logit"] += 1e-6
    both = pd.concat([columns, turned])
    with pytest.warns(LinkcalWarning, match="500 rows repeat a pair"):
        once = calibrate_scores(both, calibrators=["platt"])
    assert once.metrics["counts"]["repeated_rows"] == 500
    assert len(once.calibration.label) + len(once.test.label) == 500
    twice = calibrate_scores(both, calibrators=["platt"], directed=True)
    assert len(twice.calibration.label) + len(twice.test.label) == 1000


# What is refused, in one line each.


def changed(column: str, rows: dict[int, object]) -> dict[str, object]:
    values = np.array(table()[column], dtype=object)
    for row, value in rows.items():
        values[row] = value
    return table() | {column: values.tolist()}


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (changed("logit", {7: np.nan, 9: np.inf, 11: None}), {}, "'logit' must be finite .* got 3 of"),
        (changed("label", {4: None, 5: ""}), {}, "hold a label, 0 or 1, .* got 2 of 2000 rows .* row 5"),
        (changed("label", {4: 2}), {}, "hold a label, 0 or 1, .* got 1 of 2000 .* 2 in row 5"),
        (changed("label", {4: "yes"}), {}, "column 'label' must be a number .* with 'yes' in row 5"),
        (table(), {"probability": "logit"}, r"hold a probability in \[0, 1\] .*; if these are logits"),
        (table(probability=np.full(NUM, 0.5)), {}, "logit and probability must name .* both"),
        (table() | {"logit": None}, {}, r"column 'logit' must have shape \(n,\), got \(\)"),
        ({"source": [1], "target": [2], "score": [3], "label": [1]}, {}, "got 'source', 'target', 'score'"),
        (table(), {"logit": "s"}, "scores must have the column 's', got 'source'"),
        (changed("source", {3: None}), {}, "'source' must hold a node id in every row, got 1 of 2000"),
        (changed("source", {3: 3 + NUM}), {}, "'source' must hold another node than 'target' .* row 4"),
        (changed("source", {1: 0}) | {"target": [9000] * NUM}, {}, "each pair must have one label, got 1"),
        (table(split=["val"] * 1999 + ["train"]), {}, "'split' must hold val or test .* 'train' in row 2000"),
        (table(split=["val"] * NUM), {}, "test pairs must have both classes, got 0 links and 0 negatives"),
        (table() | {"label": np.zeros(NUM)}, {}, "calibration pairs must have both classes, got 0 links"),
        (table(), {"calibrators": ["plat"]}, "did you mean 'platt'"),
        (table(), {"calibrators": ["in-n-out"]}, "calibrators must be one of uncalibrated"),
        (table(), {"calibrators": []}, "calibrators must name one of"),
        (table(), {"base_rate": "density"}, r"base_rate must be in \(0, 1\), got 'density'"),
        ([1, 2], {}, "scores must be a path or a mapping of columns, got list"),
        ("absent.csv", {}, "scores must be an existing file, got 'absent.csv'"),
    ],
)  # fmt: skip
def test_refusals(scores, options, message):
    with pytest.raises(InputError, match=message) as caught:
        calibrate_scores(scores, **options)
    assert "\n" not in str(caught.value)


def test_one_pair_with_two_scores_is_refused():
    twice = {"source": ["a", "b"], "target": ["b", "a"], "logit": [1.0, 2.0], "label": [1, 1]}
    with pytest.raises(InputError, match=r"one score, .* b, a in rows 1 and 2; if \(u, v\) and"):
        calibrate_scores(twice)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.csv", "source,target,logit,label\na,b,1\n", "got 3 values in row 1"),
        ("s.csv", "a,a,logit\n1,2,3\n", "different names .*, got 'a', 'a', 'logit'"),
        ("s.csv", "", "scores must have a header"),
        ("s.csv", 'source,target\n"a,b\n', "a CSV file in UTF-8"),
        ("s.csv", b"source\xff,target\n", "a CSV file in UTF-8"),
        ("s.parquet", "no parquet", "a valid Parquet file"),
        ("s.txt", "source,target\n", "a file that ends in .csv, .tsv, .parquet, .pq, got"),
        ("s.csv", "source,target,logit,label\n", "calibration pairs must have both classes"),
    ],
)
def test_broken_files(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message):
        calibrate_scores(path)


def test_few_pairs_of_a_class_say_what_the_numbers_can_show():
    with pytest.warns(RareClassWarning, match=r"with fewer than 100 of a class, an ECE up to \d+.\d %"):
        calibrate_scores(table(240, offset=0.0), calibrators=["platt"])
    with pytest.warns(LinkcalWarning) as caught:
        tiny = calibrate_scores(table(8), calibrators=["isotonic"])
    assert any("at least 2 of each class" in str(one.message) for one in caught)
    assert tiny.info["selected"] == "isotonic"


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.RareClassWarning")
def test_halves_with_other_shares_of_links_are_reported():
    y = table(offset=0.0)["label"] == 1
    split = np.where(y & (np.arange(NUM) % 10 > 0), "val", np.where(np.arange(NUM) % 2, "val", "test"))
    with pytest.warns(BaseRateWarning, match="% of the val pairs and .* % of the test pairs are links"):
        calibrate_scores(table(offset=0.0, split=split), calibrators=["platt"])


# Folders.


def test_a_written_folder_gives_the_same_numbers(tmp_path, found):
    paths = found.write(tmp_path / "run", source={"path": "s.csv"})
    assert sorted(paths) == ["artifact", "config", "metrics", "report"]
    loaded = CalibratedScores.load(tmp_path / "run")
    query = asked([-1.0, 0.0, 2.0])
    for options in ({}, {"base_rate": 0.01, "interval": 0.8}, {"calibrator": "isotonic"}):
        for one, two in zip(
            *(each.apply(query, **options).values() for each in (found, loaded)), strict=True
        ):
            assert np.array_equal(one, two)
    assert json.loads(paths["metrics"].read_text())["selected"] == "platt"
    assert json.loads(paths["config"].read_text())["input"] == {"path": "s.csv"}
    page = paths["report"].read_text()
    assert "linkcal apply" in page
    assert "training edges" not in page
    assert loaded.apply(asked([]))["probability"].shape == (0,)
    with pytest.raises(InputError, match="got a loaded artifact"):
        loaded.write(tmp_path / "again")
    found.write(tmp_path / "run")  # replaces a run of its own
    with pytest.raises(InputError, match="with other files"):
        found.save(tmp_path)


@pytest.mark.parametrize(
    "name", ["artifact.json", "calibrators.json", "calibrators.safetensors", "evidence.safetensors"]
)
def test_an_altered_or_missing_file_is_refused(tmp_path, found, name):
    found.save(tmp_path / "saved")
    path = tmp_path / "saved" / name
    content = path.read_bytes()
    path.write_bytes(content.replace(b"0", b"1", 1))
    with pytest.raises(ArtifactError, match="must"):
        CalibratedScores.load(tmp_path / "saved")
    path.unlink()
    with pytest.raises(ArtifactError):
        CalibratedScores.load(tmp_path / "saved")


# A graph beside the scores.


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """Scores of the validation and test links of a simulated graph, and its other edges, as files."""
    split = split_links(simulate_graph(400, seed=0), seed=0)
    rng, folder, halves = np.random.default_rng(0), tmp_path_factory.mktemp("edges"), []
    for half in ("val", "test"):
        pairs, y = split.part(half).edge_label_index.numpy(), split.part(half).edge_label.numpy()
        ends = {name: [f"n{node}" for node in row] for name, row in zip(ENDS, pairs, strict=True)}
        halves.append(pd.DataFrame(ends | {"label": y, "logit": rng.normal(size=len(y)) + y, "split": half}))
    pd.concat(halves).to_csv(folder / "scores.csv", index=False)
    pairs = split.graph.pairs.tolist()
    edges = {name: [f"n{node}" for node in row] for name, row in zip(ENDS, pairs, strict=True)}
    pd.DataFrame(edges).to_csv(folder / "edges.csv", index=False)
    return folder


def test_with_edges_the_calibrator_reads_the_place_of_a_pair(beside, tmp_path):
    with pytest.warns(LinkcalWarning, match=r"nodes without an edge, which count with degree 0: \d+ of"):
        found = calibrate_scores(beside / "scores.csv", graph=read_edges(beside / "edges.csv"))
    graph = nx.from_pandas_edgelist(pd.read_csv(beside / "edges.csv"))
    table = pd.read_csv(beside / "scores.csv").query("split == 'test'")
    graph.add_nodes_from(table[list(ENDS)].to_numpy().flat)
    degrees = np.log1p([[graph.degree(node) for node in table[name]] for name in ENDS])
    common = [len(list(nx.common_neighbors(graph, u, v))) for u, v in table[list(ENDS)].to_numpy()]
    assert found.test.X[:, 1] == pytest.approx(degrees.sum(axis=0), abs=1e-6)
    assert found.test.X[:, 3] == pytest.approx(np.log1p(common), abs=1e-6)
    results = found.metrics["results"]
    assert list(results) == [*SCORE_CALIBRATORS, "in-n-out-plus", "structure-only"]
    gain = results["structure-only"]["nll"] - results["in-n-out-plus"]["nll"]
    assert found.metrics["model_value"]["gain"] == pytest.approx(gain, rel=1e-6)

    found.save(tmp_path / "artifact")
    again = CalibratedScores.load(tmp_path / "artifact")
    with pytest.warns(LinkcalWarning) as once:
        chosen = again.select({"source": [next(iter(graph))], "target": ["zz"], "logit": [9.0]})
    assert [str(each.message).count("degree 0") for each in once] == [1]
    assert len(chosen["selected"]) == 1
    with pytest.warns(LinkcalWarning, match="degree 0"):
        queries = [each.apply(table, interval=0.9, calibrator="in-n-out-plus") for each in (found, again)]
    for name, values in queries[0].items():
        assert np.array_equal(values, queries[1][name]), name
    assert (queries[0]["p_low"] <= queries[0]["probability"]).all()
    known = next(iter(graph.edges))
    with pytest.warns(LinkcalWarning, match="1 of 2 pairs with another, such as 'zz'"):
        other = again.apply({"source": [known[0], "zz"], "target": [known[1], "n3"], "logit": [0.1, 2.0]})
    assert ((other["probability"] > 0.0) & (other["probability"] < 1.0)).all()


@pytest.mark.filterwarnings("ignore:pairs name nodes without an edge")
def test_a_folder_whose_graph_has_no_names_is_refused(beside, tmp_path):
    found = calibrate_scores(beside / "scores.csv", graph=read_edges(beside / "edges.csv"))
    found.save(tmp_path / "whole")
    head = json.loads((tmp_path / "whole" / "artifact.json").read_text())
    rest = {"info": head["info"], "graph": head["graph"]}
    with _folder.signed_folder(tmp_path / "forged", head["format"], head["format_version"], **rest) as folder:
        for name in set(head["files"]) - {"nodes.parquet"}:
            (folder / name).write_bytes((tmp_path / "whole" / name).read_bytes())
    with pytest.raises(ArtifactError, match="a graph must have the ids of its nodes, got none"):
        CalibratedScores.load(tmp_path / "forged")


@pytest.mark.filterwarnings("ignore:pairs name nodes without an edge")
def test_labelled_pairs_that_are_edges(beside):
    """A negative that is an edge is refused; of a link that is one a warning tells."""
    edges, table = pd.read_csv(beside / "edges.csv"), pd.read_csv(beside / "scores.csv")
    graph = _read(pd.concat([edges, table.query("label == 1")[list(ENDS)]]), beside)
    with pytest.warns(LinkcalWarning, match=f"{int(table.label.sum())} of {int(table.label.sum())} labelled"):
        found = calibrate_scores(table, graph=graph, calibrators=["platt", "structure-only"])
    assert found.info["selected"] == "platt"
    with pytest.raises(InputError, match=r"pairs labelled 0 must be no edges, got \d+ that are, such as n"):
        calibrate_scores(table.assign(label=1 - table.label), graph=graph)


def _read(edges, folder):
    edges.to_csv(folder / "all.csv", index=False)
    return read_edges(folder / "all.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibrators": ["in-n-out-plus"]}, "calibrators must be one of .*'in-n-out-plus'"),
        ({"graph": 3}, "graph must be a NamedGraph .linkcal.data.read_edges., got int"),
        ({"graph": "read", "directed": True}, "directed must be as that of the graph, False"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(beside, options, message):
    edges = pd.read_csv(beside / "edges.csv")
    if options.get("graph") == "read":
        options["graph"] = _read(edges, beside)
    with pytest.raises(InputError, match=message):
        calibrate_scores(beside / "scores.csv", **options)


def test_ids_of_two_types_are_two_spaces(tmp_path):
    """User 5 and item 5 are two nodes, and (5, 7) is no reverse of (7, 5)."""
    grid = np.array([(u, v) for u in range(40) for v in range(30)])
    rng = np.random.default_rng(0)
    linked = rng.random(1200) < 0.2
    pd.DataFrame(grid[linked], columns=ENDS).to_csv(tmp_path / "edges.csv", index=False)
    graph = read_edges(tmp_path / "edges.csv", bipartite=True)
    pairs = pd.DataFrame(grid[~linked], columns=ENDS)
    pairs["label"] = rng.random(len(pairs)) < 0.5
    pairs["logit"] = rng.normal(size=len(pairs)) + 3 * pairs["label"] - 1
    found = calibrate_scores(pairs, graph=graph)
    assert len(found.calibration.label) + len(found.test.label) == len(pairs)
    assert found.apply({"source": [5], "target": [5], "logit": [1.5]})["probability"].size == 1
    alone = calibrate_scores(pairs, bipartite=True)
    assert np.array_equal(alone.test.label, found.test.label)
    with pytest.raises(InputError, match=r"hold another node than 'target' .*; if the columns .* bipartite"):
        calibrate_scores(pairs)


def test_pairs_of_other_nodes_are_refused(beside):
    strange = table(200, source=[f"a{i}" for i in range(200)], target=[f"b{i}" for i in range(200)])
    with pytest.raises(InputError, match="pairs must name nodes of the edges or features, got 200 of 200"):
        calibrate_scores(strange, graph=read_edges(beside / "edges.csv"))
