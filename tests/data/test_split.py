from dataclasses import replace

import networkx as nx
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch_geometric.data import Data

from linkcal.data import Graph, LinkPairs, LinkSplit, split_links
from linkcal.exceptions import InputError, ShortageError
from refusals import refuses

from .strategies import graphs, non_edges, pair_set

PARTS = ("train", "val", "test")
# Public case 24: the path 0-1-2-3 stored in both directions.
PATH = Graph.from_edges(torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]), num_nodes=4)


def _positives(pairs):
    return pairs.edge_label_index[:, pairs.edge_label == 1]


def _negatives(pairs):
    return pairs.edge_label_index[:, pairs.edge_label == 0]


def test_case_24_negatives_never_overlap():
    seen = set()
    for seed in range(200):
        split = split_links(PATH, val_fraction=0.4, test_fraction=0.4, seed=seed)
        val, test = pair_set(_negatives(split.val)), pair_set(_negatives(split.test))
        assert len(val) == len(test) == 1
        assert not val & test
        assert val | test <= {(0, 2), (0, 3), (1, 3)}
        seen |= val
    assert seen == {(0, 2), (0, 3), (1, 3)}


def test_case_24_shortage_is_reported():
    with pytest.raises(
        ShortageError, match=r"negatives = 'uniform' .train 2, val 2, test 2.: .* can be drawn, 3, got 6"
    ):
        split_links(PATH, val_fraction=0.4, test_fraction=0.4, negatives_per_positive=2.0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_case_28_index_type_does_not_matter(dtype):
    edges = torch.tensor([[0, 0, 1, 0, 1, 2, 3, 4], [0, 1, 0, 1, 2, 1, 3, 2]])
    reference = split_links(Graph.from_edges(edges, 6), val_fraction=0.34, test_fraction=0.34, seed=1)
    split = split_links(Graph.from_edges(edges.to(dtype), 6), val_fraction=0.34, test_fraction=0.34, seed=1)
    for part in PARTS:
        assert torch.equal(split.part(part).edge_label_index, reference.part(part).edge_label_index)
        assert len(pair_set(split.part(part).edge_label_index)) == 2


@given(graphs(min_nodes=6, max_nodes=10), st.integers(0, 50), st.sampled_from([0.5, 1.0, 1.7]))
def test_split_is_leak_proof(graph, seed, per_positive):
    assume(graph.num_pairs >= 5)
    positives = {"val": graph.num_pairs // 5, "test": graph.num_pairs // 5}
    positives["train"] = graph.num_pairs - sum(positives.values())
    negatives = {part: round(per_positive * n) for part, n in positives.items()}
    options = {"val_fraction": 0.2, "test_fraction": 0.2, "negatives_per_positive": per_positive}
    options |= {"symmetric": True}
    if min(negatives.values()) == 0:
        refuses("at least one negative", split_links, graph, **options)
        return
    if sum(negatives.values()) > len(non_edges(graph)):
        with pytest.raises(ShortageError):
            split_links(graph, **options)
        return
    split = split_links(graph, **options, seed=seed)
    directed = graph.directed
    positive_sets = {p: pair_set(_positives(split.part(p)), directed=directed) for p in PARTS}
    negative_sets = {p: pair_set(_negatives(split.part(p)), directed=directed) for p in PARTS}
    for part in PARTS:
        pairs = split.part(part)
        assert len(positive_sets[part]) == pairs.num_positives == positives[part]
        assert len(negative_sets[part]) == pairs.num_negatives == negatives[part]
        # Positives first, then negatives.
        assert pairs.edge_label.tolist() == sorted(pairs.edge_label.tolist(), reverse=True)
        assert pairs.positive_rate == pytest.approx(positives[part] / graph.num_pairs)
        assert pairs.negative_rate == pytest.approx(negatives[part] / len(non_edges(graph)))
    # The positives partition the edges; the negatives are disjoint non-edges.
    assert set().union(*positive_sets.values()) == pair_set(graph.pairs, directed=directed)
    union = set().union(*negative_sets.values())
    assert len(union) == sum(negatives.values())
    assert union <= non_edges(graph)
    # Messages travel over the training edges only, sorted like every graph's.
    assert pair_set(split.graph.pairs, directed=directed) == positive_sets["train"]
    keys = split.graph.edge_index[0] * graph.num_nodes + split.graph.edge_index[1]
    assert (keys.diff() > 0).all()


def test_sizes_of_cora_like_fractions():
    # 5,278 edges: 10 % is 527 (rounded down), so test has 1,054 pairs, as PyG's RandomLinkSplit gives.
    ring = torch.stack([torch.arange(5278), (torch.arange(5278) + 1) % 5278])
    split = split_links(Graph.from_edges(ring, 5278))
    assert (len(split.test), len(split.val), len(split.train)) == (1054, 1054, 8448)


def test_fraction_that_is_not_a_binary_number():
    # 0.29 * 100 is 28.999999999999996 in floating point; the share is 29.
    ring = torch.stack([torch.arange(100), (torch.arange(100) + 1) % 100])
    assert split_links(Graph.from_edges(ring, 100), test_fraction=0.29).test.num_positives == 29


def test_directed_split_keeps_direction():
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 1], [1, 2, 3, 4, 5, 0, 0]])
    graph = Graph.from_edges(edges, 6, directed=True)
    split = split_links(graph, val_fraction=0.2, test_fraction=0.2, negatives_per_positive=3, seed=0)
    found = torch.cat([_positives(split.part(p)) for p in PARTS], dim=1)
    assert pair_set(found, directed=True) == pair_set(edges, directed=True)
    # 21 of the 23 ordered non-edges are drawn: reversed edges, such as (2, 1), are among them.
    drawn = torch.cat([_negatives(split.part(p)) for p in PARTS], dim=1)
    assert {(2, 1), (3, 2), (4, 3), (5, 4), (0, 5)} & pair_set(drawn, directed=True)


def test_same_seed_same_split_and_streams_are_separate():
    graph = Graph.from_edges(torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40]), 40)
    first, second = split_links(graph, seed=4), split_links(graph, seed=4)
    more = split_links(graph, seed=4, negatives_per_positive=3.0)
    for part in PARTS:
        assert torch.equal(first.part(part).edge_label_index, second.part(part).edge_label_index)
        # More negatives move no positive.
        assert torch.equal(_positives(first.part(part)), _positives(more.part(part)))
    assert not torch.equal(first.test.edge_label_index, split_links(graph, seed=5).test.edge_label_index)


def test_features_are_built_from_training_edges_only():
    seen = []

    def builder(edge_index, num_nodes):
        seen.append(edge_index)
        return torch.bincount(edge_index[0], minlength=num_nodes)[:, None].float()

    ring = torch.stack([torch.arange(20), (torch.arange(20) + 1) % 20])
    graph = Graph.from_edges(ring, 20, feature_builder=builder)
    split = split_links(graph, seed=0)
    assert len(seen) == 1
    assert torch.equal(seen[0], split.graph.edge_index)
    assert split.graph.x.sum() == 32  # 16 training edges, two endpoints each
    assert split.counts()["features"] == 1
    assert split.graph.feature_builder is None
    assert split.graph.features_from_edges


def test_complete_graph_says_that_it_has_no_negatives():
    edges = torch.combinations(torch.arange(6)).T
    with pytest.raises(ShortageError, match="got a complete graph of 6 nodes"):
        split_links(Graph.from_edges(edges, 6))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "got 5 edges: val_fraction = 0.1 and test_fraction = 0.1 leave test without any"),
        ({"val_fraction": 0.0}, r"val_fraction must be in \(0, 1\), got 0.0"),
        ({"val_fraction": 0.5, "test_fraction": 0.5}, "must be < 1, got 0.5 . 0.5"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"negatives_per_positive": 0}, "negatives_per_positive must be a finite number > 0, got 0"),
        ({"negatives_per_positive": float("nan")}, "negatives_per_positive must be a finite .* > 0, got nan"),
        (
            {"val_fraction": 0.2, "test_fraction": 0.2, "negatives_per_positive": 0.1},
            "at least one negative, got 0.1 with 1 test positives",
        ),
    ],
)
def test_bad_arguments(options, message):
    graph = Graph.from_edges([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]], 8)
    refuses(message, split_links, graph, **options)


def test_edgeless_graph():
    with pytest.raises(
        InputError, match="graph must have enough edges for one positive in every part, got 0"
    ):
        split_links(Graph.from_edges(torch.empty(2, 0), 4))


@pytest.mark.parametrize("graph", [Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2), nx.path_graph(9)])
def test_graphs_of_other_libraries_are_named(graph):
    refuses(r"^graph must be a linkcal.data.Graph, got \w+ of .*Graph.from_edges", split_links, graph)


# --- hand-made splits ---

NO_PAIRS = LinkPairs(torch.empty(2, 0, dtype=torch.int64), torch.empty(0))


def _made(directed, *, train=((0, 1),), val=((2, 3),), test=((4, 5),), negatives=None):
    """Message-passing edges 0-1, 1-2; each part has its links and, as negatives, those of `negatives`."""
    negatives = {"train": [(0, 5)], "val": [(1, 5)], "test": [(2, 5)]} | (negatives or {})

    def part(name, links):
        pairs = [*links, *negatives[name]]
        return LinkPairs(torch.tensor(pairs).T, (torch.arange(len(pairs)) < len(links)).float())

    graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), 6, directed=directed)
    return LinkSplit(graph, part("train", train), part("val", val), part("test", test))


@pytest.mark.parametrize("directed", [False, True])
def test_hand_made_split_that_does_not_leak(directed):
    split = _made(directed)
    assert split.counts()["message_edges"] == 2
    assert replace(split, test=NO_PAIRS).counts()["test_positives"] == 0


def test_pairs_beyond_the_nodes_are_refused():
    refuses(r"test.edge_label_index must hold .* < num_nodes = 6, got 6", _made, False, test=[(4, 6)])


# --- labelled pairs ---


def _pairs(**rates):
    return LinkPairs(torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([1.0, 0.0, 0.0]), **rates)


def test_counts_of_links():
    pairs = _pairs()
    assert (len(pairs), pairs.num_positives, pairs.num_negatives) == (3, 1, 2)


def test_label_probability_follows_bayes():
    # 1 in 10 edges and 1 in 100 non-edges drawn: odds 0.2 / 0.8 times 10 = 2.5, so 2.5 / 3.5.
    p = _pairs(positive_rate=0.1, negative_rate=0.01).label_probability(torch.tensor([0.2, 0.0, 1.0]))
    assert p.tolist() == pytest.approx([2.5 / 3.5, 0.0, 1.0], abs=1e-7)


def test_label_probability_without_rates():
    with pytest.raises(InputError, match="negative_rate must be known for label_probability, got None"):
        _pairs().label_probability(torch.tensor([0.2]))


def test_one_label_per_pair():
    refuses(r"edge_label must have shape \[3\], got \[2\]", replace, _pairs(), edge_label=torch.zeros(2))


def test_split_counts_and_parts():
    ring = torch.stack([torch.arange(20), (torch.arange(20) + 1) % 20])
    split = split_links(Graph.from_edges(ring, 20), seed=3)
    counts = split.counts()
    assert (counts["edges"], counts["features"]) == (20, 0)
    assert counts["message_edges"] == counts["train_positives"] == 16
    assert counts["val_negatives"] == counts["test_positives"] == 2
    assert split.part("val") is split.val
    refuses(r"part must be one of train, val, test; got 'tets' .did you mean 'test'", split.part, "tets")
    assert split.to("cpu").counts() == counts


@pytest.mark.parametrize("wrong", [2.0, -1.0, float("nan")])
def test_labels_are_0_or_1(wrong):
    with pytest.raises(InputError, match=f"edge_label must hold only 0 and 1, got {wrong}"):
        LinkPairs(torch.tensor([[0, 1], [1, 2]]), torch.tensor([1.0, wrong]))
    refuses(r"edge_label must be a tensor \[L\], got list", LinkPairs, torch.tensor([[0], [1]]), [1.0])


def test_int32_pairs_are_converted():
    index = torch.tensor([[0], [1]])
    assert LinkPairs(index.int(), torch.ones(1)).edge_label_index.dtype == torch.int64
    assert LinkPairs(index, torch.ones(1)).edge_label_index is index


def test_a_symmetric_list_is_split_as_directed_only_where_asked():
    ring = torch.stack([torch.arange(61), (torch.arange(61) + 1) % 61])
    both = torch.cat([ring, ring.flip(0)], dim=1)
    refuses(
        "declare it undirected, or pass symmetric=True",
        split_links,
        Graph.from_edges(both, 61, directed=True),
    )
    split_links(Graph.from_edges(both[:, 1:], 61, directed=True))
    split = split_links(Graph.from_edges(both, 61, directed=True), symmetric=True)
    links = split.test.edge_label_index[:, split.test.edge_label == 1]
    assert split.graph.has_pairs(links.flip(0)).any()
