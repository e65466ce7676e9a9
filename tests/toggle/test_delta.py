"""Delta propagation in blocks: the bound on what a pair lists, and results that do not depend on it."""

import pytest
import torch
from torch_geometric import nn as pyg

from linkcal.toggle import _delta as delta
from linkcal.toggle._delta import arcs_per_node, delta_endpoints, encoder_caches, split_by_cost
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._recognise import recognise

from .cases import MODELS, build_case, features, seeded

CASE = build_case(30, ["random", "star", "clique", "twins"], 21, undirected=True, loops=False, repeats=False)
GRAPH = ToggleGraph.from_edge_index(CASE.edge_index, 30, undirected=True)


def attention():
    return pyg.GAE(pyg.GAT(4, 6, 3, 3, heads=2, jk="cat"))


@pytest.mark.parametrize("name", [*sorted(MODELS), "attention"])
def test_blocks_of_single_pairs_change_nothing(name, monkeypatch):
    build = attention if name == "attention" else lambda: MODELS[name](4, 5, 3, num_layers=3)
    model, x = seeded(build, 0).double().eval(), features(30, 4, torch.float64)
    with torch.no_grad():
        known = recognise(model, x, CASE.edge_index)
        caches = encoder_caches(known, GRAPH)[1]
        insert = ~GRAPH.contains(CASE.pairs)
        whole = delta_endpoints(known, caches, GRAPH, CASE.pairs, insert, 1.0)
        monkeypatch.setattr(delta, "MAX_BLOCK_ARCS", 1)
        single = delta_endpoints(known, caches, GRAPH, CASE.pairs, insert, 1.0)
    for ours, theirs in zip(single, whole, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 3, 14])
def test_a_pair_lists_no_more_than_all_arcs(depth):
    """Walks of 12 steps in a clique of 40 nodes are more than an int64 counts."""
    arcs = torch.tensor([(i, j) for i in range(40) for j in range(40) if i != j]).T
    graph = ToggleGraph.from_edge_index(arcs, 40, undirected=True)
    pairs = torch.tensor([[0, 1, 2], [3, 4, 5]])
    cost = arcs_per_node(graph, depth)[pairs].sum(dim=0)
    expected = 2 * 39 if depth < 3 else 2 * arcs.size(1)
    assert cost.tolist() == [expected] * 3
    assert split_by_cost(cost, 2 * int(cost[0])) == [slice(0, 2), slice(2, 3)]
