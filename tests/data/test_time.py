"""Links split in the order of their time: the past trains, what follows validates, the last is tested."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from linkcal.cli import main
from linkcal.data import Graph, LinkPairs, LinkSplit, read_edges, simulate_graph, split_links
from linkcal.data.named import read_bitcoin
from linkcal.exceptions import InputError, LinkcalWarning, ShortageError
from linkcal.workflow import RunConfig, split_graph
from refusals import refuses

NAMES = ("train", "val", "test")


def timed(num_nodes=60, num_edges=200, seed=0, directed=False):
    """A graph whose links have one of 40 times, and the time of each pair."""
    plain = simulate_graph(num_nodes, num_edges=num_edges, num_features=3, seed=seed)
    time = np.random.default_rng(seed).integers(0, 40, plain.num_pairs)
    rest = {"x": plain.x, "directed": directed, "edge_time": time}
    graph = Graph.from_edges(plain.pairs, num_nodes, **rest)
    return graph, dict(zip(map(tuple, plain.pairs.T.tolist()), time.tolist(), strict=True))


def pairs_of(part, label):
    return [tuple(pair) for pair in part.edge_label_index[:, part.edge_label == label].T.tolist()]


def test_the_first_time_of_an_edge_counts_in_any_direction():
    edges, time = [[0, 1, 0, 2, 3], [1, 0, 1, 1, 3]], [5, 2, 9, 7, 1]
    graph = Graph.from_edges(edges, 4, edge_time=time)
    assert dict(zip(map(tuple, graph.edge_index.T.tolist()), graph.edge_time.tolist(), strict=True)) == {
        (0, 1): 2, (1, 0): 2, (1, 2): 7, (2, 1): 7,
    }  # fmt: skip
    assert Graph.from_edges(edges, 4, edge_time=time, directed=True).edge_time.tolist() == [5, 2, 7]
    for wrong, message in (
        ([1, 2], r"a datetime64 per edge \[5\], got int64 \[2\]"),
        ([1, 2, 3, np.nan, 5], "1 NaN"),
    ):
        refuses(message, Graph.from_edges, edges, 4, edge_time=wrong)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["uniform", "degree", "two-hop", "heart"])
def test_parts_follow_each_other_and_negatives_are_of_their_time(kind, directed):
    graph, time = timed(directed=directed)
    split = split_links(graph, time=graph.edge_time, val_fraction=0.2, test_fraction=0.3, negatives=kind)
    links = {name: pairs_of(split.part(name), 1) for name in NAMES}
    ordered = sorted(time.values())
    # The fractions' cuts fall on these times, and all links of a cut's time stand in the later part.
    val_start, test_start = (
        ordered[len(ordered) - len(ordered) // 5 - 3 * len(ordered) // 10],
        ordered[-(3 * len(ordered) // 10)],
    )
    assert ordered.count(val_start) > 1
    assert set(links["train"]) == {pair for pair, t in time.items() if t < val_start}
    assert set(links["val"]) == {pair for pair, t in time.items() if val_start <= t < test_start}
    assert set(links["test"]) == {pair for pair, t in time.items() if t >= test_start}
    assert {tuple(pair) for pair in split.graph.pairs.T.tolist()} == set(links["train"])
    past, drawn = set(), []
    for name in NAMES:
        part = split.part(name)
        assert part.time[: len(links[name])].tolist() == sorted(time[pair] for pair in links[name])
        assert part.time[len(links[name]) :].isnan().all()
        past |= set(links[name])
        negatives = pairs_of(part, 0)
        assert len(negatives) == len(links[name])
        assert not past & set(negatives)
        drawn += negatives
        if kind == "heart":
            kept = [{u for u, _ in links[name]}, {v for _, v in links[name]}]
            kept = kept if directed else [kept[0] | kept[1]] * 2
            assert all(u in kept[0] or v in kept[1] for u, v in negatives)
        if kind == "two-hop":
            ends = {frozenset(pair) for pair in past}
            near = {u: {v for v in range(60) if frozenset((u, v)) in ends} for u in range(60)}
            assert all(near[u] & near[v] for u, v in negatives)
    assert len(set(drawn)) == len(drawn)


def test_a_negative_may_become_a_link():
    """Of 45 pairs 40 are edges in the end: most pairs without an edge at first have one later."""
    pairs = torch.combinations(torch.arange(10)).T[:, torch.randperm(45)]
    graph = Graph.from_edges(pairs[:, :40], 10, x=torch.eye(10), edge_time=range(40))
    options = {"val_fraction": 0.25, "test_fraction": 0.25, "negatives_per_positive": 0.2}
    split = split_links(graph, time=graph.edge_time, **options)
    later = {name: set(pairs_of(split.part(name), 1)) for name in NAMES}
    none = LinkPairs(torch.empty(2, 0, dtype=torch.int64), torch.empty(0))
    assert replace(split, test=none).counts()["val_positives"] == 10  # without its test pairs
    assert set(pairs_of(split.train, 0)) & (later["val"] | later["test"])
    with pytest.raises(ShortageError, match=r"negatives = 'uniform' \(test 10\): .*, 5, got 10"):
        split_links(graph, time=graph.edge_time, val_fraction=0.25, test_fraction=0.25)


def test_unseen_nodes_are_counted():
    # 0-1-2-3-4-5 grows by one node a step; the last two links have nodes 4 and 5, of which training saw none.
    edges, x = [[0, 1, 2, 0, 3, 4], [1, 2, 3, 2, 4, 5]], torch.eye(6)
    graph = Graph.from_edges(edges, 6, x=x, edge_time=range(6))
    options = {"val_fraction": 0.17, "test_fraction": 0.17, "time": graph.edge_time}
    counts = split_links(graph, **options).counts()
    assert [
        counts[f"{part}_{what}"]
        for part in ("val", "test")
        for what in ("unseen_nodes", "links_of_unseen_nodes")
    ] == [1, 1, 2, 1]
    plain = Graph.from_edges(edges, 6)
    with pytest.warns(LinkcalWarning, match="^1 of 1 test links have a node without a training edge, whose"):
        split_links(plain, **options)


def test_times_that_cannot_cut():
    graph, _ = timed()
    with pytest.raises(InputError, match=r"got none for train of .* stay together, and .* are of 3$"):
        split_links(graph, time=torch.full((graph.edge_index.size(1),), 3.0))
    refuses("the same in both directions", split_links, graph, time=range(graph.edge_index.size(1)))
    config = RunConfig("mine", "gcn", by_time=True)
    assert split_graph(config, graph).val.time is not None
    with pytest.raises(InputError, match="by_time must be False for mine, whose edges have no times"):
        split_graph(config, simulate_graph(60))


def test_training_on_the_future_is_refused():
    graph, _ = timed()
    split = split_links(graph, time=graph.edge_time)
    train, val, test = (split.part(name) for name in NAMES)
    late = train.time.clone()
    late[3] = 1e6
    pair = tuple(train.edge_label_index[:, 3].tolist())
    train = LinkPairs(train.edge_label_index, train.edge_label, time=late)
    with pytest.raises(InputError, match="train links must be earlier than all val links, got 1") as caught:
        LinkSplit(split.graph, train, val, test)
    assert f"such as {pair} at 1000000" in str(caught.value)
    # A negative of the test part that was a link before has two labels, as without times.
    wrong = torch.cat([test.edge_label_index, val.edge_label_index[:, :1]], dim=1)
    label, time = torch.cat([test.edge_label, torch.zeros(1)]), torch.cat([test.time, torch.tensor([np.nan])])
    with pytest.raises(InputError, match="must give each pair one label"):
        LinkSplit(split.graph, split.train, val, LinkPairs(wrong, label, time=time))
    refuses("time must be a number for a link", LinkPairs, wrong, torch.ones_like(label), time=time)


DATES = ["2020-01-03", "2020-01-01T12:00:00", "2020-01-02T01:00:00+02:00"]
SECONDS = [1578009600.0, 1577880000.0, 1577919600.0]


@pytest.mark.parametrize(
    ("column", "expected"),
    [(["3", "1.5", "2e9"], [3.0, 1.5, 2e9]), (DATES, SECONDS), (["2020-01-03"] * 3, SECONDS[:1] * 3)],
)
def test_times_in_text(tmp_path, column, expected):
    path = tmp_path / "edges.csv"
    path.write_text("source,target,when\n" + "".join(f"{i},{i + 1},{t}\n" for i, t in enumerate(column)))
    graph = read_edges(path, time="when").graph
    assert graph.edge_time[graph.places_of(graph.pairs)].tolist() == expected


@pytest.mark.parametrize("kind", ["date", "stamp", "zone", "text", "npz", "number"])
def test_times_in_tables(tmp_path, kind):
    days = np.array(["2020-01-03", "2020-01-01", "2020-01-02"], dtype="datetime64[D]")
    expected = (days - np.datetime64("1970-01-01")).astype(float) * 86400
    columns = {"source": [0, 1, 2], "target": [1, 2, 3]}
    if kind == "npz":
        path = tmp_path / "edges.npz"
        np.savez(path, **columns, when=days.astype("datetime64[s]"))
    else:
        path, stamps = tmp_path / "edges.parquet", days.astype("datetime64[us]")
        when = {
            "date": pa.array(days), "stamp": pa.array(stamps), "text": pa.array(days.astype(str)),
            "zone": pa.array(stamps, pa.timestamp("us", "Europe/Zurich")), "number": pa.array(expected),
        }[kind]  # fmt: skip
        pq.write_table(pa.table({**columns, "when": when}), path)
    graph = read_edges(path, time="when").graph
    assert graph.edge_time[graph.places_of(graph.pairs)].tolist() == expected.tolist()


@pytest.mark.parametrize(("wrong", "shown"), [("soon", "'soon'"), ("2020-01-01", "'2020-01-01'"), ("", "")])
def test_a_row_without_a_time_is_named(tmp_path, wrong, shown):
    path = tmp_path / "edges.csv"
    path.write_text(f"source,target,when\na,b,1\nb,c,{wrong}\n")
    refuses(rf"numbers or ISO 8601 dates.* got 1 .*{shown}.* in line 3", read_edges, path, time="when")
    refuses("must have the column 'then' once", read_edges, path, time="then")


def test_command_line(tmp_path, capsys, monkeypatch):
    graph, time = timed(80, 400)
    path = tmp_path / "edges.csv"
    path.write_text("source,target,t\n" + "".join(f"{u},{v},{t}\n" for (u, v), t in time.items()))
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr("linkcal.cli._fitting.run_on_graph", lambda *given, **names: seen.append(given))
        assert main(["fit", str(path), "--time", "t", "--out", str(tmp_path / "out")]) == 0
    config, read, *_, record = seen[0]
    assert (config.by_time, record["time"]) == (True, "t")
    expected = split_links(graph, time=graph.edge_time).counts()
    counts = split_graph(config, read).counts()
    for name in ("message_edges", "test_positives", "test_unseen_nodes"):
        assert counts[name] == expected[name]
    assert main(["run", "--dataset", "simulated", "--by-time", "--out", str(tmp_path / "run")]) == 1
    assert "by_time must be False for simulated" in capsys.readouterr().err


def test_bitcoin_files_keep_the_first_rating(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("7,5,10,1289241911\n5,7,-3,1289241942.7\n40,2,1,1289243140\n")
    graph = read_bitcoin(path, name="market")
    assert graph.edge_time[graph.places_of(graph.pairs)].tolist() == [1289243140.0, 1289241911.0]


@pytest.mark.parametrize("wrong", [[1.0, 2.0], torch.tensor([1.0]), torch.tensor([[1.0, 2.0]])])
def test_times_of_pairs_are_one_number_each(wrong):
    with pytest.raises(InputError, match=r"^time must be a tensor \[2\], as edge_label, got "):
        LinkPairs(torch.tensor([[0, 1], [1, 2]]), torch.ones(2), time=wrong)
