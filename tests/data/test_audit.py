"""What an audit finds, against sets of pairs; LinkSplit refuses each error."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linkcal.data import Graph, LinkPairs, LinkSplit, audit_pairs, audit_split, simulate_graph, split_links
from linkcal.exceptions import EdgeFeaturesWarning, InputError

from .strategies import graphs, pair_set

# Message-passing edges 0-1, 1-2, 2-3, 3-4 of eight nodes.
PATH = Graph.from_edges(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), 8)


def part(*pairs):
    """Triples (u, v, label)."""
    table = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 3).T
    return LinkPairs(table[:2], table[2].float())


CLEAN = {
    "train": part((0, 1, 1), (1, 2, 1), (0, 7, 0)),
    "val": part((4, 5, 1), (0, 4, 0)),
    "test": part((5, 6, 1), (0, 6, 0)),
}


@pytest.mark.parametrize(
    ("kind", "changes", "count", "line"),
    [
        ("held-out-edge", {"val": part((3, 2, 1), (0, 2, 0))}, 1, r"links .*either.* 1 .*as \(3, 2\)"),
        ("missing-edge", {"train": part((0, 1, 1), (6, 7, 1))}, 1, r"links must be .*got 1 .*as \(6, 7\)"),
        ("negative-edge", {"test": part((3, 2, 0), (4, 3, 0))}, 2, r"negatives .*got 2 .*as \(3, 2\)"),
        ("negative-edge", {"train": part((0, 1, 0))}, 1, r"negatives .*such as \(0, 1\)"),
        ("self-pair", {"val": part((4, 4, 1))}, 1, r"pairs must join two different nodes, .*\(4, 4\)"),
        ("both-labels", {"test": part((5, 4, 0))}, 1, r"\(4, 5\) a link in val and a negative in test"),
        ("both-labels", {"val": part((4, 5, 1), (5, 4, 0))}, 1, r"a link in val and a negative in val"),
        ("overlap", {"test": part((5, 4, 1), (4, 0, 0))}, 2, r"2 repeated, such as \(4, 5\) in val and test"),
        ("repeated", {"test": part((5, 6, 1), (5, 6, 1))}, 1, r"part, such as \(5, 6\) in test and test"),
        ("repeated", {"test": part((5, 6, 1), (6, 5, 1), (0, 6, 0))}, 1, r"1 of them in both directions"),
    ],
)  # fmt: skip
def test_each_kind_is_found_and_refused(kind, changes, count, line):
    parts = {**CLEAN, **changes}
    (finding,) = audit_pairs(PATH, **parts).findings
    assert (finding.kind, finding.count, finding.is_error) == (kind, count, True)
    assert re.search(line, str(finding))
    assert 1 <= len(finding.pairs) <= count
    with pytest.raises(InputError, match=f"^{re.escape(str(finding))}$"):
        LinkSplit(PATH, **parts)
    # Alone, the other parts are clean.
    rest = {name: each for name, each in CLEAN.items() if name not in changes}
    assert audit_pairs(PATH, **rest).ok


def test_directions_differ_in_a_directed_graph():
    graph = Graph.from_edges(PATH.pairs, 8, directed=True)
    turned = part((1, 0, 1), (6, 5, 1), (5, 6, 0), (2, 1, 0))
    assert not audit_pairs(graph, val=CLEAN["val"], test=turned).findings
    assert {each.kind for each in audit_pairs(PATH, val=CLEAN["val"], test=turned).findings} == {
        "held-out-edge", "negative-edge", "both-labels"
    }  # fmt: skip


def test_validation_pairs_that_are_training_or_test_pairs():
    split = split_links(simulate_graph(80, seed=0), seed=0)
    links, pairs = split.train.num_positives, len(split.train)
    found = audit_pairs(split.graph, train=split.train, val=split.train).findings
    assert [(each.kind, each.count) for each in found] == [("held-out-edge", links), ("overlap", pairs)]
    (found,) = audit_pairs(split.graph, val=split.test, test=split.test).findings
    assert (found.kind, found.count, len(found.pairs)) == ("overlap", len(split.test), 5)


def test_types_of_a_bipartite_graph():
    graph = Graph.from_edges(torch.tensor([[0, 1], [3, 4]]), 6, node_type=[0, 0, 0, 1, 1, 1])
    (found,) = audit_pairs(graph, test=part((0, 1, 1), (4, 0, 0), (2, 5, 1))).findings
    assert (found.kind, found.count, found.pairs) == ("types", 2, ((0, 1), (4, 0)))
    assert found.places == ("of types (0, 0)", "of types (1, 0)")


def test_a_symmetric_list_that_is_declared_directed_is_reported():
    both = torch.cat([PATH.pairs, PATH.pairs.flip(0)], dim=1)
    graph = Graph.from_edges(both[:, 1:], 8, directed=True)  # without 0 -> 1
    test = part((0, 1, 1), (4, 6, 0))
    (found,) = audit_pairs(graph, test=test).findings
    assert (found.kind, found.count, found.pairs, found.is_error) == ("reversed-edge", 1, ((0, 1),), False)
    assert LinkSplit(graph, part(), part(), test).test is test
    one_way = Graph.from_edges(both[:, [1, 2, 3, 4]], 8, directed=True)
    assert not audit_pairs(one_way, test=test).findings


def test_features_of_all_edges_are_reported():
    graph = simulate_graph(100, num_features=4, seed=0)
    built = Graph(graph.edge_index, 100, x=graph.x, features_from_edges=True)
    with pytest.warns(EdgeFeaturesWarning):
        split = split_links(built)
    audit = audit_split(split)
    assert audit.ok
    assert [each.kind for each in audit.findings] == ["edge-features"]
    assert str(audit).startswith("edge-features: features must not be computed from held-out links")
    own = Graph(graph.edge_index, 100, feature_builder=lambda edges, n: torch.ones(n, 2))
    assert split_links(own).graph.features_from_edges
    assert not audit_split(split_links(own)).findings


@given(graphs(min_nodes=3, max_nodes=6), st.data())
def test_counts_equal_those_of_sets(graph, data):
    node, names = st.integers(0, graph.num_nodes - 1), ("train", "val", "test")
    triples = st.lists(st.tuples(node, node, st.integers(0, 1)).filter(lambda t: t[0] != t[1]), max_size=8)
    rows = {name: data.draw(triples) for name in names}
    found = audit_pairs(graph, **{name: part(*each) for name, each in rows.items()})
    edges = pair_set(graph.edge_index, directed=graph.directed)

    def key(u, v):
        return (u, v) if graph.directed else tuple(sorted((u, v)))

    expected = dict.fromkeys(("held-out-edge", "missing-edge", "negative-edge"), 0)
    stands: dict[tuple, list] = {}
    for name in names:
        for u, v, label in rows[name]:
            stands.setdefault(key(u, v), []).append((name, label))
            is_edge = key(u, v) in edges
            expected["held-out-edge"] += name != "train" and label and is_edge
            expected["missing-edge"] += name == "train" and label and not is_edge
            expected["negative-edge"] += not label and is_edge
    several = [each for each in stands.values() if len(each) > 1]
    mixed = [each for each in several if len({label for _, label in each}) == 2]
    alike = [each for each in several if each not in mixed]
    expected["both-labels"] = len(mixed)
    expected["overlap"] = sum(len({name for name, _ in each}) > 1 for each in alike)
    expected["repeated"] = len(alike) - expected["overlap"]
    counted = dict.fromkeys(expected, 0)
    for each in found.findings:
        if each.kind != "reversed-edge":
            counted[each.kind] += each.count
    assert counted == expected
    assert found.ok == (not any(expected.values()))


def test_nodes_beyond_the_graph_are_refused():
    with pytest.raises(
        InputError, match=r"val.edge_label_index must hold node indices < num_nodes = 8, got 8"
    ):
        audit_pairs(PATH, val=part((0, 8, 1)))
    assert str(audit_pairs(PATH)) == "no problem found"
