"""Subgraphs around pairs: arcs by hand, degrees on any graph, bounds of batches."""

from functools import partial

import torch
from hypothesis import given
from hypothesis import strategies as st

from linkcal.toggle._engine import _within
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._khop import Subgraphs, check_pairs_of_rims
from linkcal.toggle._naive import toggle_edge_index

from .cases import build_case, path, toggle_cases

whole, shared = partial(Subgraphs, shared=False), partial(Subgraphs, shared=True)


def test_subgraph_of_a_path_by_hand():
    """0-1-2-3-4-5-6, pair (2, 3), one hop: nodes 2, 3, 1, 4; 1 and 4 keep degree 2 through one dummy."""
    graph = ToggleGraph.from_edge_index(path(7), 7, undirected=True)
    pair = torch.tensor([[2], [3]])
    (batch,) = whole(graph, 1, 100).batches(pair, torch.tensor([False]), toggle=False)
    assert batch.nodes[1:].tolist() == [2, 3, 1, 4]
    found = sorted(map(tuple, batch.edge_index.T.tolist()))
    assert found == sorted([(1, 2), (2, 1), (1, 3), (3, 1), (2, 4), (4, 2), (0, 3), (3, 0), (0, 4), (4, 0)])
    (without,) = whole(graph, 1, 100).batches(pair, torch.tensor([False]))
    assert set(found) - set(map(tuple, without.edge_index.T.tolist())) == {(1, 2), (2, 1)}


def test_no_arc_of_a_node_is_doubled():
    """A layer that merges repeated arcs must see the same degrees, so outside neighbours stay distinct."""
    case = build_case(40, ["random", "clique", "star"], 9, undirected=True, loops=False, repeats=False)
    graph = ToggleGraph.from_edge_index(case.edge_index, 40, undirected=True)
    insert = ~graph.contains(case.pairs)
    for batch in whole(graph, 1, 100).batches(case.pairs, insert):
        assert torch.unique(batch.edge_index, dim=1).shape == batch.edge_index.shape


def test_arcs_are_counted_exactly():
    """Repeated and one-way arcs, toggled: every column of a batch is an arc of it."""
    case = build_case(20, ["random", "star"], 5, undirected=False, loops=True, repeats=True)
    graph = ToggleGraph.from_edge_index(case.edge_index, 20, undirected=False)
    insert = ~graph.contains(case.pairs)
    assert insert.any()
    assert not insert.all()
    for pair in range(case.pairs.size(1)):
        one, state = case.pairs[:, pair : pair + 1], insert[pair : pair + 1]
        ((before,), (after,)) = (
            tuple(whole(graph, 2, 100).batches(one, state, toggle=toggle)) for toggle in (False, True)
        )
        own = (case.edge_index == one).all(dim=0).sum()
        assert after.edge_index.size(1) - before.edge_index.size(1) == (1 if state else -own)
        for batch in (before, after):
            assert batch.edge_index.min() >= 0
            assert batch.edge_index.max() < batch.nodes.numel()


def test_two_pairs_of_a_path_by_hand():
    """0-1-2-3-4-5-6, pairs (2, 3) and (4, 5), one hop.

    The rim is 1 and 4, then 3 and 6, which keep degree 2, 2, 2 and 1 through two dummies; the insides follow.
    """
    graph = ToggleGraph.from_edge_index(path(7), 7, undirected=True)
    pairs = torch.tensor([[2, 4], [3, 5]])
    (batch,) = shared(graph, 1, 100).batches(pairs, torch.tensor([False, False]), toggle=False)
    assert batch.nodes[2:].tolist() == [1, 4, 3, 6, 2, 3, 4, 5]
    assert batch.num_dummies == 2
    assert (batch.source.tolist(), batch.target.tolist()) == ([6, 8], [7, 9])
    inside = {(2, 6), (7, 6), (6, 7), (3, 7), (4, 8), (9, 8), (8, 9), (5, 9)}
    rim = {(0, 2), (1, 2), (0, 3), (1, 3), (0, 4), (1, 4), (0, 5)}
    assert sorted(map(tuple, batch.edge_index.T.tolist())) == sorted(inside | rim)
    (without,) = shared(graph, 1, 100).batches(pairs, torch.tensor([False, False]))
    assert sorted(map(tuple, without.edge_index.T.tolist())) == sorted(
        (inside | rim) - {(7, 6), (6, 7), (9, 8), (8, 9)}
    )


@given(toggle_cases(), st.integers(1, 3), st.sampled_from([1, 20, 1000]))
def test_arcs_into_every_node_are_those_of_the_toggled_graph(case, hops, max_batch_nodes):
    """Insides hear the nodes that they hear in the graph; rim nodes hear as many, each at most as often."""
    graph = ToggleGraph.from_edge_index(case.edge_index, case.num_nodes, undirected=case.undirected)
    insert = ~graph.contains(case.pairs)
    seen = 0
    for batch in shared(graph, hops, max_batch_nodes).batches(case.pairs, insert):
        rim = torch.arange(batch.num_dummies, int(batch.source[0]))
        assert batch.nodes[rim].unique().numel() == rim.numel()
        bounds = [*batch.source.tolist(), batch.nodes.numel()]
        for pair, (u, v) in enumerate(zip(batch.source, batch.target, strict=True), seen):
            assert [int(batch.nodes[u]), int(batch.nodes[v])] == case.pairs[:, pair].tolist()
            toggled, _ = toggle_edge_index(
                case.edge_index,
                *case.pairs[:, pair].tolist(),
                insert=bool(insert[pair]),
                undirected=case.undirected,
            )
            stop = bounds[bounds.index(int(u)) + 1]
            for node in range(int(u), stop):
                assert_hears(batch, node, toggled, same_nodes=True)
            seen += 1
        for node in rim.tolist():
            assert_hears(batch, node, case.edge_index, same_nodes=False)
    assert seen == case.pairs.size(1)


def assert_hears(batch, node, edge_index, *, same_nodes):
    senders = batch.edge_index[0][batch.edge_index[1] == node]
    expected = edge_index[0][edge_index[1] == batch.nodes[node]]
    if same_nodes:
        assert batch.nodes[senders].sort().values.tolist() == expected.sort().values.tolist()
    else:
        loops = int((expected == batch.nodes[node]).sum())
        assert int((senders == node).sum()) == loops
        found = sorted(senders[senders != node].bincount().tolist())
        assert [count for count in found if count] == sorted(
            count for count in expected[expected != batch.nodes[node]].bincount().tolist() if count
        )


def test_batches_keep_to_their_bounds_and_share():
    case = build_case(40, ["random", "clique", "star"], 9, undirected=True, loops=False, repeats=False)
    graph = ToggleGraph.from_edge_index(case.edge_index, 40, undirected=True)
    pairs = torch.triu_indices(40, 40, 1)
    insert = ~graph.contains(pairs)
    batches = list(shared(graph, 1, 60).batches(pairs, insert))
    assert sum(batch.source.numel() for batch in batches) == 780
    for batch in batches:
        assert batch.source.numel() == 1 or batch.nodes.numel() - batch.num_dummies <= 60
    # Two nodes of its own a pair, and a rim that is never larger than the graph: 20 pairs fill 60 nodes
    # of 40 nodes' graph; the last batch has what remains.
    assert len(batches) <= -(-780 // 10)
    (one,) = shared(graph, 1, 10_000).batches(pairs, insert)
    assert int(one.source[0]) - one.num_dummies <= 40
    dense = torch.triu_indices(40, 40, 1)
    clique = ToggleGraph.from_edge_index(torch.cat([dense, dense.flip(0)], dim=1), 40, undirected=True)
    for batch in shared(clique, 1, 20).batches(pairs, torch.zeros(780, dtype=torch.bool)):
        assert batch.source.numel() == 1  # one pair alone has more arcs than 16 times 20


def test_at_least_so_many_pairs_share_a_batch():
    graph = ToggleGraph.from_edge_index(path(30), 30, undirected=True)
    pairs = torch.tensor([[3, 3, 10, 10, 20], [4, 4, 11, 11, 21]])
    extractor = shared(graph, 1, 1, least_pairs=2)
    batches = list(extractor.batches(pairs, torch.zeros(5, dtype=torch.bool), toggle=False))
    assert [batch.source.numel() for batch in batches] == [2, 2, 1]
    assert [int(batch.source[0]) - batch.num_dummies for batch in batches] == [2, 2, 2]


def test_pairs_that_show_most_are_found():
    """A star, a path and nodes alone: the largest rims; of whole subgraphs, the largest that fit."""
    star = torch.stack([torch.zeros(29, dtype=torch.int64), torch.arange(1, 30)])
    edges = torch.cat([star, star.flip(0), path(9) + 30], dim=1)
    graph = ToggleGraph.from_edge_index(edges, 42, undirected=True)
    pairs = torch.tensor([[40, 34, 1, 30, 0], [41, 36, 2, 31, 3]])
    # Rims of one hop: none; 33, 35, 37; the centre; 32; the other 28 leaves.
    assert check_pairs_of_rims(shared(graph, 1, 100), pairs, 3).tolist() == [[0, 34, 1], [3, 36, 2]]
    assert check_pairs_of_rims(shared(graph, 1, 100), pairs, 9).size(1) == 4
    assert check_pairs_of_rims(shared(graph, 1, 100), pairs[:, :1], 3).size(1) == 0
    assert _within(whole(graph, 2, 12), pairs).tolist() == [[34, 30], [36, 31]]
    assert _within(whole(graph, 2, 1), pairs).tolist() == [[30], [31]]
    assert _within(whole(graph, 2, 12), pairs[:, :1]).size(1) == 0
