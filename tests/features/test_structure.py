"""A pair's place in the graph without the target link: by hand, against sets, networkx and walks."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linkcal.data import Graph
from linkcal.exceptions import InputError
from linkcal.features import pair_structure


def brute_force(graph: Graph, pairs: torch.Tensor) -> list[list[int]]:
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    out = []
    for u, v in pairs.T.tolist():
        left = edges - ({(u, v)} if graph.directed else {(u, v), (v, u)})
        around = [
            {b for a, b in left if a == w} | {a for a, b in left if b == w} for w in range(graph.num_nodes)
        ]
        degree = [sum(w in edge for edge in left) // (1 if graph.directed else 2) for w in (u, v)]
        out.append([*degree, len(around[u] & around[v])])
    return out


def degrees(graph, pairs):
    """Degrees and common neighbours."""
    return pair_structure(graph, pairs)[:, :3]


def paths(graph, pairs):
    return pair_structure(graph, pairs)[:, 3:]


@st.composite
def graphs(draw):
    n = draw(st.integers(2, 12))
    node = st.integers(0, n - 1)
    columns = draw(st.lists(st.tuples(node, node), max_size=40))
    edges = torch.tensor(columns, dtype=torch.int64).reshape(-1, 2).T
    return Graph.from_edges(edges, n, directed=draw(st.booleans()))


def all_pairs(n: int) -> torch.Tensor:
    return torch.tensor([(u, v) for u in range(n) for v in range(n) if u != v]).T


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_equals_counting_on_sets(graph):
    pairs = all_pairs(graph.num_nodes)
    assert degrees(graph, pairs).tolist() == brute_force(graph, pairs)


# Path 0-1-2 closed by 0-2, and a pendant 3 at node 2.
def test_target_link_is_left_out_by_hand():
    graph = Graph.from_edges(torch.tensor([[0, 1, 0, 2], [1, 2, 2, 3]]), num_nodes=5)
    pairs = torch.tensor([[0, 2, 3, 0], [2, 0, 2, 3]])
    assert degrees(graph, pairs).tolist() == [[1, 2, 1], [2, 1, 1], [0, 2, 0], [2, 1, 1]]


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_an_edge_counts_as_if_it_were_not_there(graph):
    for column in graph.pairs.T[:5]:
        pair = column[:, None]
        same = (graph.edge_index == pair).all(dim=0)
        if not graph.directed:
            same |= (graph.edge_index == pair.flip(0)).all(dim=0)
        without = Graph.from_edges(graph.edge_index[:, ~same], graph.num_nodes, directed=graph.directed)
        torch.testing.assert_close(pair_structure(graph, pair), pair_structure(without, pair))


def test_a_hub_and_its_leaves():
    # Node 0 joined to 1 .. 199; node 200 joined to 5, 77 and 199; node 201 to nothing.
    hub = torch.stack([torch.zeros(199, dtype=torch.int64), torch.arange(1, 200)])
    other = torch.tensor([[200, 200, 200], [5, 77, 199]])
    graph = Graph.from_edges(torch.cat([hub, other], dim=1), num_nodes=202)
    pairs = torch.tensor([[0, 200, 0, 5], [200, 0, 201, 77]])
    assert degrees(graph, pairs).tolist() == [[199, 3, 3], [3, 199, 3], [199, 0, 0], [2, 2, 2]]


def test_no_pairs_and_no_edges():
    graph = Graph.from_edges(torch.empty((2, 0), dtype=torch.int64), num_nodes=3)
    assert pair_structure(graph, torch.empty((2, 0), dtype=torch.int64)).shape == (0, 6)
    assert pair_structure(graph, torch.tensor([[0], [2]])).tolist() == [[0] * 6]


def test_self_pairs_and_strangers_are_refused():
    graph = Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=3)
    with pytest.raises(InputError, match=r"must join two different nodes, got \(2, 2\)"):
        pair_structure(graph, torch.tensor([[0, 2], [1, 2]]))
    with pytest.raises(InputError, match="edge_label_index must hold node indices < num_nodes = 3, got 3"):
        pair_structure(graph, torch.tensor([[0], [3]]))


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


@pytest.mark.parametrize("seed", range(2))
def test_every_pair_of_a_random_graph(seed):
    graph, plain = random_graph(seed)
    pairs = list(itertools.permutations(range(24), 2))
    found = paths(graph, torch.tensor(pairs).T)
    wanted = np.array([by_hand(plain, u, v) for u, v in pairs])
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_networkx_agrees_on_missing_pairs():
    graph, plain = random_graph(7)
    pairs = list(nx.non_edges(plain))
    found = paths(graph, torch.tensor(pairs).T).numpy()
    assert found[:, 0] == pytest.approx([score for *_, score in nx.adamic_adar_index(plain, pairs)])
    assert found[:, 1] == pytest.approx([score for *_, score in nx.resource_allocation_index(plain, pairs)])


def test_repeats_order_and_ends_of_pairs_change_nothing():
    graph, _ = random_graph(1)
    pairs = torch.tensor([[0, 5, 0, 9], [3, 2, 3, 1]])
    found = paths(graph, pairs)
    assert torch.equal(found[0], found[2])
    # The other end may be walked: sums in another order.
    torch.testing.assert_close(paths(graph, pairs.flip(0)), found, rtol=1e-12, atol=1e-14)
    assert torch.equal(paths(graph, pairs[:, [3, 1, 0, 2]]), found[[3, 1, 0, 2]])


def test_isolated_nodes_stars_and_no_pairs():
    star = Graph.from_edges(torch.tensor([[0, 0, 0], [1, 2, 3]]), num_nodes=5)
    found = paths(star, torch.tensor([[1, 0, 4], [2, 1, 0]]))
    assert found[0].tolist() == pytest.approx([1 / math.log(3), 1 / 3, 0.0])
    assert found[1:].tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert paths(star, torch.empty(2, 0, dtype=torch.int64)).shape == (0, 3)


def test_a_pair_with_itself_is_refused():
    graph, _ = random_graph(0)
    with pytest.raises(InputError, match="edge_label_index"):
        paths(graph, torch.tensor([[1], [1]]))
