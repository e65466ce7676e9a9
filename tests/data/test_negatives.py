from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linkcal.data import Graph, NegativeSampler, sample_negatives
from linkcal.data.negatives import _pair_numbers, _pairs_of_numbers, distinct_ranks
from linkcal.exceptions import InputError, ShortageError

from .strategies import graphs, non_edges, pair_set


def _rng(seed=0):
    return np.random.default_rng(seed)


@given(st.integers(2, 40), st.booleans())
def test_pair_numbers_are_a_bijection(num_nodes, directed):
    total = num_nodes * (num_nodes - 1) // (1 if directed else 2)
    pairs = _pairs_of_numbers(np.arange(total), num_nodes, directed=directed)
    assert len(pair_set(pairs, directed=directed)) == total
    assert (pairs[0] != pairs[1]).all()
    assert _pair_numbers(pairs, num_nodes, directed=directed).tolist() == list(range(total))


@pytest.mark.parametrize("num_nodes", [3_037_000_499, 3_037_000_498])
@pytest.mark.parametrize("directed", [False, True])
def test_pair_numbers_are_exact_for_the_largest_graphs(num_nodes, directed):
    total = num_nodes * (num_nodes - 1) // (1 if directed else 2)
    numbers = np.concatenate([_rng().integers(total, size=1000), [0, total - 1]])
    pairs = _pairs_of_numbers(numbers, num_nodes, directed=directed)
    assert np.array_equal(_pair_numbers(pairs, num_nodes, directed=directed), numbers)
    assert int(pairs.max()) < num_nodes


@given(graphs(), st.data())
def test_sample_is_a_set_of_non_edges(graph, data):
    possible = non_edges(graph)
    sampler = NegativeSampler(graph)
    assert sampler.num_available == len(possible)
    num = data.draw(st.integers(0, len(possible)))
    pairs = sampler.sample(num, _rng(data.draw(st.integers(0, 99))))
    drawn = pair_set(pairs, directed=graph.directed)
    assert pairs.dtype == torch.int64
    assert pairs.shape == (2, num)
    assert len(drawn) == num
    assert drawn <= possible
    if not graph.directed:
        assert (pairs[0] < pairs[1]).all()


@given(graphs())
def test_asking_one_too_many_reports_the_shortage(graph):
    available = len(non_edges(graph))
    with pytest.raises(ShortageError, match=f"can be drawn, {available}, got {available + 1}$"):
        sample_negatives(graph, available + 1, _rng())


@given(graphs(), st.data())
def test_excluded_pairs_are_never_drawn(graph, data):
    node = st.integers(0, graph.num_nodes - 1)
    listed = data.draw(st.lists(st.tuples(node, node), max_size=8))
    exclude = torch.tensor(listed, dtype=torch.int64).reshape(-1, 2).T
    sampler = NegativeSampler(graph, exclude=exclude)
    expected = non_edges(graph) - pair_set(exclude, directed=graph.directed)
    pairs = sampler.sample(sampler.num_available, _rng())
    assert pair_set(pairs, directed=graph.directed) == expected


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


def testdistinct_ranks_are_uniform_ordered_samples():
    # All 5 * 4 ordered selections of two of five, for the sequential branch (2 * 2 < 5).
    rng, repeats = _rng(2), 20000
    counts = Counter(tuple(distinct_ranks(5, 2, rng).tolist()) for _ in range(repeats))
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


def test_bad_arguments():
    graph = Graph.from_edges([[0, 1], [1, 2]], 5)
    with pytest.raises(InputError, match="num must be a whole number >= 0, got -1"):
        sample_negatives(graph, -1, _rng())
    with pytest.raises(InputError, match=r"generator must be a numpy\.random\.Generator, got Generator"):
        sample_negatives(graph, 1, torch.Generator())
    with pytest.raises(InputError, match="exclude must hold node indices < num_nodes = 5, got 9"):
        sample_negatives(graph, 1, _rng(), exclude=torch.tensor([[0], [9]]))
