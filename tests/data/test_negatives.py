"""Negatives: exact sets, exact frequencies, disjoint parts."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from linkcal._core.random import numpy_stream
from linkcal.data import NEGATIVE_KINDS, Graph, NegativeSampler, negatives, sample_negatives, split_links
from linkcal.data.negatives import _distinct_ranks, _pair_numbers, _pairs_of_numbers
from linkcal.exceptions import InputError, ShortageError

from .strategies import graphs, non_edges, pair_set


def _rng(seed=0):
    return np.random.default_rng(seed)


@given(st.integers(2, 40), st.booleans())
@example(2, True)
def test_pair_numbers_are_a_bijection(num_nodes, directed):
    total = num_nodes * (num_nodes - 1) // (1 if directed else 2)
    pairs = _pairs_of_numbers(np.arange(total), num_nodes, directed=directed)
    assert len(pair_set(pairs, directed=directed)) == total
    assert (pairs[0] != pairs[1]).all()
    assert int(pairs.max()) < num_nodes
    assert _pair_numbers(pairs, num_nodes, directed=directed).tolist() == list(range(total))


@pytest.mark.parametrize("num_nodes", [3_037_000_499, 3_037_000_498])
@pytest.mark.parametrize("directed", [False, True])
def test_pair_numbers_are_exact_for_the_largest_graphs(num_nodes, directed):
    total = num_nodes * (num_nodes - 1) // (1 if directed else 2)
    numbers = np.concatenate([_rng().integers(total, size=1000), [0, total - 1]])
    pairs = _pairs_of_numbers(numbers, num_nodes, directed=directed)
    assert np.array_equal(_pair_numbers(pairs, num_nodes, directed=directed), numbers)
    assert int(pairs.max()) < num_nodes


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_case_28_isolated_nodes_are_in_the_pool(dtype):
    edges = torch.tensor([[0, 0, 1, 0, 1, 2, 3], [0, 1, 0, 1, 2, 1, 3]], dtype=dtype)
    graph = Graph.from_edges(edges, num_nodes=5)
    drawn = pair_set(sample_negatives(graph, 8, _rng(28)))
    assert drawn == {(0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)}


def test_every_non_edge_is_equally_likely():
    graph = Graph.from_edges(torch.tensor([[0, 1, 2, 0, 4], [1, 2, 3, 5, 5]]), num_nodes=6)
    sampler, rng, repeats, num = NegativeSampler(graph), _rng(1), 8000, 3
    counts = Counter()
    first = Counter()
    for _ in range(repeats):
        pairs = [tuple(p) for p in sampler.sample(num, rng).T.tolist()]
        counts.update(pairs)
        first.update(pairs[:1])
    assert set(counts) == non_edges(graph)
    for tally, share in ((counts, num / 10), (first, 1 / 10)):
        error = 4 * np.sqrt(repeats * share * (1 - share))  # 4 standard errors
        assert max(abs(tally[p] - repeats * share) for p in tally) < error


def test_distinct_ranks_are_uniform_ordered_samples():
    # All 5 * 4 ordered selections of two of five, for the sequential branch (2 * 2 < 5).
    rng, repeats = _rng(2), 20000
    counts = Counter(tuple(_distinct_ranks(5, 2, rng).tolist()) for _ in range(repeats))
    assert len(counts) == 20
    assert max(abs(c - repeats / 20) for c in counts.values()) < 4 * np.sqrt(repeats * 0.05 * 0.95)


def test_dense_large_graph_needs_no_rejection():
    # Complete on 1,500 nodes less three pairs: 1,124,247 edges, and the three come out at once.
    gone = {(0, 1), (3, 700), (1498, 1499)}
    present = np.triu(np.ones((1500, 1500), dtype=bool), k=1)
    present[tuple(zip(*gone, strict=True))] = False
    graph = Graph.from_edges(np.stack(np.nonzero(present)), 1500)
    assert pair_set(sample_negatives(graph, 3, _rng())) == gone


def test_same_generator_same_pairs():
    graph = Graph.from_edges([[0, 1], [1, 2]], 50)
    first, second, other = (sample_negatives(graph, 20, _rng(s)) for s in (5, 5, 6))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


# --- kinds ---

# A hub with leaves, a triangle, a square, an isolated node: unequal degrees and unequal common neighbours.
_EIGHT = [[0, 0, 0, 0, 1, 4, 5, 6, 4], [1, 2, 3, 4, 2, 5, 6, 7, 7]]
UNDIRECTED = Graph.from_edges(torch.tensor(_EIGHT), num_nodes=9)
DIRECTED = Graph.from_edges(
    torch.tensor([[0, 0, 0, 3, 1, 4, 5, 4], [1, 2, 3, 0, 2, 5, 0, 1]]), num_nodes=7, directed=True
)
GRAPHS = pytest.mark.parametrize("graph", [UNDIRECTED, DIRECTED], ids=["undirected", "directed"])


def _neighbours(graph):
    """Sets of neighbours in any direction, by brute force."""
    out = {u: set() for u in range(graph.num_nodes)}
    for u, v in graph.edge_index.T.tolist():
        out[u].add(v)
        out[v].add(u)
    return out


def _eligible(graph, kind):
    """All non-edges of a kind with their weights, by brute force."""
    pairs = non_edges(graph)
    if kind == "uniform":
        return dict.fromkeys(pairs, 1.0)
    if kind == "two-hop":
        near = _neighbours(graph)
        return {(u, v): 1.0 for u, v in pairs if near[u] & near[v]}
    out = torch.bincount(graph.edge_index[0], minlength=graph.num_nodes).tolist()
    into = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes).tolist()
    if kind == "heart":  # with so few nodes all pairs that keep an end of an edge are candidates
        return {(u, v): 1.0 for u, v in pairs if out[u] or into[v]}
    return {(u, v): out[u] * into[v] for u, v in pairs if out[u] * into[v]}


@given(graphs(), st.sampled_from(NEGATIVE_KINDS), st.data())
def test_sample_is_a_set_of_non_edges_of_the_kind(graph, kind, data):
    possible = set(_eligible(graph, kind))
    num = data.draw(st.integers(0, len(possible)))
    pairs = sample_negatives(graph, num, _rng(data.draw(st.integers(0, 99))), kind=kind)
    drawn = pair_set(pairs, directed=graph.directed)
    assert pairs.dtype == torch.int64
    assert pairs.shape == (2, num)
    assert len(drawn) == num
    assert drawn <= possible
    if not graph.directed:
        assert (pairs[0] < pairs[1]).all()


@given(graphs(), st.sampled_from(NEGATIVE_KINDS))
def test_asking_one_too_many_reports_the_shortage(graph, kind):
    available = len(_eligible(graph, kind))
    everything = sample_negatives(graph, available, _rng(), kind=kind)
    assert pair_set(everything, directed=graph.directed) == set(_eligible(graph, kind))
    with pytest.raises(ShortageError, match=rf"^num must be at most .*, {available}, got {available + 1}$"):
        sample_negatives(graph, available + 1, _rng(), kind=kind)


@given(graphs(), st.sampled_from(NEGATIVE_KINDS), st.data())
def test_excluded_pairs_are_never_drawn(graph, kind, data):
    node = st.integers(0, graph.num_nodes - 1)
    listed = data.draw(st.lists(st.tuples(node, node), max_size=8))
    exclude = torch.tensor(listed, dtype=torch.int64).reshape(-1, 2).T
    expected = set(_eligible(graph, kind)) - pair_set(exclude, directed=graph.directed)
    pairs = sample_negatives(graph, len(expected), _rng(), kind=kind, exclude=exclude)
    assert pair_set(pairs, directed=graph.directed) == expected


# In each pair the first way lists or walks everything, the second draws and rejects.
_WAYS = pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("degree", {"_LISTED": 1000}),
        ("degree", {"_LISTED": 0, "_LISTED_DENSE": 0}),
        ("two-hop", {"_WALKED": 1000}),
        ("two-hop", {"_WALKED": 0}),
    ],
    ids=["listed", "drawn", "walked", "rejected"],
)


def _limit(monkeypatch, limits):
    for name, value in limits.items():
        monkeypatch.setattr(negatives, name, value)


@GRAPHS
@_WAYS
def test_frequencies_of_the_first_pair(monkeypatch, graph, kind, limits):
    _limit(monkeypatch, limits)
    weight, rng, repeats = _eligible(graph, kind), _rng(7), 6000
    drawn = (sample_negatives(graph, 1, rng, kind=kind)[:, 0] for _ in range(repeats))
    counts = Counter(tuple(pair.tolist()) for pair in drawn)
    assert set(counts) <= set(weight)
    expected = np.array(list(weight.values())) / sum(weight.values()) * repeats
    assert chisquare([counts[pair] for pair in weight], expected).pvalue > 1e-3


@GRAPHS
@_WAYS
def test_frequencies_of_ordered_samples(monkeypatch, graph, kind, limits):
    _limit(monkeypatch, limits)
    # The second pair follows the weights of the pairs left over by the first.
    weight = _eligible(graph, kind)
    rng, repeats, total = _rng(8), 6000, sum(weight.values())
    counts = Counter()
    for _ in range(repeats):
        first, second = map(tuple, sample_negatives(graph, 2, rng, kind=kind).T.tolist())
        counts[first, second] += 1
    observed, expected = [], []
    for a, b in combinations(weight, 2):
        observed.append(counts[a, b] + counts[b, a])
        both = weight[a] * weight[b] / total
        expected.append(repeats * (both / (total - weight[a]) + both / (total - weight[b])))
    assert sum(observed) == repeats
    assert chisquare(observed, np.array(expected) * repeats / sum(expected)).pvalue > 1e-3


@_WAYS
def test_drawing_everything_ends(monkeypatch, kind, limits):
    _limit(monkeypatch, limits)
    everything = _eligible(UNDIRECTED, kind)
    assert pair_set(sample_negatives(UNDIRECTED, len(everything), _rng(), kind=kind)) == set(everything)


def test_degree_matched_pairs_of_a_dense_graph_are_listed():
    # 97 % of the pairs of 2,200 nodes are edges: drawing would reject nearly everything.
    rng = _rng(3)
    present = np.triu(rng.random((2200, 2200)) < 0.97, k=1)
    graph = Graph.from_edges(np.stack(np.nonzero(present)), 2200)
    pairs = sample_negatives(graph, 60_000, rng, kind="degree")
    assert len(pair_set(pairs)) == 60_000
    assert not graph.has_pairs(pairs).any()


def test_two_hop_pairs_of_a_large_graph_are_drawn_and_not_walked():
    # A hub joined to 6,000 nodes: 36 million paths; all pairs of leaves share the hub.
    leaves = torch.arange(1, 6001)
    graph = Graph.from_edges(torch.stack([torch.zeros_like(leaves), leaves]), 6001)
    pairs = sample_negatives(graph, 5000, _rng(), kind="two-hop")
    assert len(pair_set(pairs)) == 5000
    assert int(pairs.min()) >= 1
    # Uniform over leaves: a leaf's mean number is 3,000.5 with standard error 6000 / sqrt(12 * 10,000).
    assert abs(float(pairs.double().mean()) - 3000.5) < 4 * 6000 / np.sqrt(12 * 10_000)


@given(graphs(min_nodes=6, max_nodes=10), st.integers(0, 20), st.sampled_from(["degree", "two-hop"]))
def test_parts_of_a_split_are_disjoint_and_of_the_kind(graph, seed, kind):
    if graph.num_pairs < 5:
        return
    eligible = set(_eligible(graph, kind))
    options = {"symmetric": True, "val_fraction": 0.2, "test_fraction": 0.2, "seed": seed, "negatives": kind}
    if len(eligible) < graph.num_pairs:
        with pytest.raises(ShortageError):
            split_links(graph, **options)
        return
    split, uniform = split_links(graph, **options), None
    if len(non_edges(graph)) >= graph.num_pairs:
        uniform = split_links(graph, **(options | {"negatives": "uniform"}))
    drawn = [p.edge_label_index[:, p.edge_label == 0] for p in (split.train, split.val, split.test)]
    union = pair_set(torch.cat(drawn, dim=1), directed=graph.directed)
    assert len(union) == graph.num_pairs
    assert union <= eligible
    assert split.val.negative_rate is None
    # The kind of non-edges moves no link.
    assert uniform is not None
    for name in ("train", "val", "test"):
        a, b = split.part(name), uniform.part(name)
        assert torch.equal(a.edge_label_index[:, a.edge_label == 1], b.edge_label_index[:, b.edge_label == 1])


def test_split_draws_the_documented_stream():
    graph = Graph.from_edges(torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40]), 40)
    for kind in ("uniform", "degree", "two-hop"):
        split = split_links(graph, seed=3, negatives=kind)
        pairs = sample_negatives(graph, 40, numpy_stream(3, "negatives"), kind=kind)
        assert torch.equal(split.test.edge_label_index[:, 4:], pairs[:, :4])


def test_shortage_names_kind_and_parts():
    edges = torch.tensor([[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]])
    message = (
        r"^negatives = 'two-hop' \(train 3, val 1, test 1\): num must be at most the number of non-edges "
        r"with a common neighbour, 0, got 5$"
    )
    options = {"val_fraction": 0.2, "test_fraction": 0.2, "negatives": "two-hop"}
    with pytest.raises(ShortageError, match=message):
        split_links(Graph.from_edges(edges, 10), **options)


def test_bad_arguments():
    with pytest.raises(InputError, match="did you mean 'two-hop'"):
        sample_negatives(UNDIRECTED, 1, _rng(), kind="two-hops")
    with pytest.raises(InputError, match="num must be a whole number >= 0, got -1"):
        sample_negatives(UNDIRECTED, -1, _rng(), kind="degree")
    with pytest.raises(InputError, match=r"generator must be a numpy\.random\.Generator, got int"):
        sample_negatives(UNDIRECTED, 1, 3, kind="degree")
    with pytest.raises(InputError, match="exclude must hold node indices < num_nodes = 9, got 9"):
        sample_negatives(UNDIRECTED, 1, _rng(), exclude=torch.tensor([[0], [9]]))
    with pytest.raises(InputError, match="negatives must be one of uniform, degree, two-hop, heart; got"):
        split_links(UNDIRECTED, val_fraction=0.2, test_fraction=0.2, negatives="hard")
