"""What looks like a known encoder and is not: its layers would give other numbers once an edge is toggled."""

from __future__ import annotations

import pytest
import torch
from torch_geometric import nn as pyg

from linkcal.exceptions import UnsupportedModelError
from linkcal.toggle import toggle_edges

from .cases import assert_equals_naive, build_case, features, seeded

CASE = build_case(20, ["random", "star", "clique"], 6, undirected=True, loops=False, repeats=False)
NO_EDGES = build_case(6, [], 0, undirected=True, loops=False, repeats=False)


def auto(model, case=CASE):
    x = features(case.num_nodes, 4, torch.float64)
    assert_equals_naive(model, x, case, "auto")
    return toggle_edges(model, x, case.edge_index, case.pairs).method


@pytest.mark.parametrize("aggr", ["max", "mean"])
@pytest.mark.parametrize("case", [CASE, NO_EDGES])
def test_gcn_that_does_not_add_its_messages(aggr, case):
    """Without edges the maximum is the sum: the untouched graph alone does not tell them apart."""
    model = seeded(lambda: pyg.GAE(pyg.GCN(4, 5, 2, 3, aggr=aggr)), 0).double()
    assert auto(model, case) == "khop"


@pytest.mark.parametrize("encoder", [pyg.GCN, pyg.GraphSAGE, pyg.GIN])
def test_activation_given_as_a_function(encoder):
    """Nothing is known of a function, so the model itself is run."""
    model = seeded(lambda: pyg.GAE(encoder(4, 5, 2, 3, act=torch.relu)), 0).double()
    assert auto(model) == "khop"
    with pytest.raises(UnsupportedModelError, match="the function relu is not known to treat every node"):
        toggle_edges(model, features(20, 4, torch.float64), CASE.edge_index, CASE.pairs, method="fast")


def test_activation_inside_an_mlp_that_mixes_the_nodes():
    model = seeded(lambda: pyg.GAE(pyg.GIN(4, 5, 1, 3, act=lambda x: x - x.mean(dim=0))), 0).double()
    assert auto(model) == "naive"
