"""Weighted common neighbours and paths of length three, against networkx and walks counted one by one."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
import torch

from linkcal.data import Graph
from linkcal.exceptions import InputError
from linkcal.features import pair_paths


def random_graph(seed: int, num_nodes: int = 24, chance: float = 0.25) -> tuple[Graph, nx.Graph]:
    plain = nx.gnp_random_graph(num_nodes, chance, seed=seed)
    edges = torch.tensor(list(plain.edges), dtype=torch.int64).T
    return Graph.from_edges(edges, num_nodes=num_nodes), plain


def by_hand(plain: nx.Graph, u: int, v: int) -> tuple[float, float, float]:
    """The three sums on the graph without the target link, but with the degrees of the graph as it is.

    The target link counts in the degrees of u and v alone, which none of the sums reads.
    """
    without = plain.copy()
    if without.has_edge(u, v):
        without.remove_edge(u, v)
    common = sorted(nx.common_neighbors(without, u, v))
    paths = sum(
        1 / math.sqrt(without.degree(a) * without.degree(b))
        for a, b in itertools.product(without[u], without[v])
        if without.has_edge(a, b)
    )
    return (
        sum(1 / math.log(without.degree(w)) for w in common),
        sum(1 / without.degree(w) for w in common),
        paths,
    )


@pytest.mark.parametrize("seed", range(4))
def test_every_pair_of_a_random_graph(seed):
    graph, plain = random_graph(seed)
    pairs = list(itertools.permutations(range(24), 2))
    found = pair_paths(graph, torch.tensor(pairs).T)
    wanted = np.array([by_hand(plain, u, v) for u, v in pairs])
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_networkx_agrees_on_missing_pairs():
    graph, plain = random_graph(7)
    pairs = list(nx.non_edges(plain))
    found = pair_paths(graph, torch.tensor(pairs).T).numpy()
    assert found[:, 0] == pytest.approx([score for *_, score in nx.adamic_adar_index(plain, pairs)])
    assert found[:, 1] == pytest.approx([score for *_, score in nx.resource_allocation_index(plain, pairs)])


def test_repeats_order_and_ends_of_pairs_change_nothing():
    graph, _ = random_graph(1)
    pairs = torch.tensor([[0, 5, 0, 9], [3, 2, 3, 1]])
    found = pair_paths(graph, pairs)
    assert torch.equal(found[0], found[2])
    # The other end may be walked: sums in another order.
    torch.testing.assert_close(pair_paths(graph, pairs.flip(0)), found, rtol=1e-12, atol=1e-14)
    assert torch.equal(pair_paths(graph, pairs[:, [3, 1, 0, 2]]), found[[3, 1, 0, 2]])


def test_isolated_nodes_stars_and_no_pairs():
    star = Graph.from_edges(torch.tensor([[0, 0, 0], [1, 2, 3]]), num_nodes=5)
    found = pair_paths(star, torch.tensor([[1, 0, 4], [2, 1, 0]]))
    assert found[0].tolist() == pytest.approx([1 / math.log(3), 1 / 3, 0.0])
    assert found[1:].tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert pair_paths(star, torch.empty(2, 0, dtype=torch.int64)).shape == (0, 3)


def test_a_pair_with_itself_is_refused():
    graph, _ = random_graph(0)
    with pytest.raises(InputError, match="edge_label_index"):
        pair_paths(graph, torch.tensor([[1], [1]]))
