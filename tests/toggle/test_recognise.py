"""What looks like a known encoder and is not: its layers would give other numbers once an edge is toggled."""

from __future__ import annotations

import pytest
import torch
from torch_geometric import nn as pyg

from linkcal.exceptions import UnsupportedModelError
from linkcal.models import GCN
from linkcal.toggle import _engine as engine
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


def scaled_output(model):
    model.gnn.register_forward_hook(lambda _module, _arguments, z: 2 * z)


def scaled_input(model):
    """Inside the layer, where the messages that are seen are already scaled."""
    model.gnn.convs[1].register_forward_pre_hook(lambda _module, given: (2 * given[0], *given[1:]))


def scaled_messages(model):
    model.gnn.convs[1].register_message_forward_hook(lambda _module, _arguments, messages: 3 * messages)


def scaled_where_an_edge_is_missing(model):
    def hook(_module, given, z):
        return z if given[1].size(1) == CASE.edge_index.size(1) else 2 * z

    model.gnn.convs[1].register_forward_hook(hook)


def replaced_encode(model):
    given = model.encode
    model.encode = lambda x, edge_index: 2 * given(x, edge_index)


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("change", [scaled_output, scaled_input, scaled_messages, replaced_encode])
def test_hooks_and_replaced_methods_count(change, large, monkeypatch):
    if large:
        monkeypatch.setattr(engine, "LARGE_MESSAGES", -1)
    model = seeded(lambda: GCN(4, 5, 3), 0).double()
    change(model)
    assert auto(model) == "khop"
    with pytest.raises(UnsupportedModelError, match="hooks or methods replaced on the instance"):
        toggle_edges(model, features(20, 4, torch.float64), CASE.edge_index, CASE.pairs, method="fast")


def test_hooks_that_tell_the_toggled_graph_from_the_given_one():
    model = seeded(lambda: GCN(4, 5, 3), 0).double()
    scaled_where_an_edge_is_missing(model)
    assert auto(model) == "naive"


def test_hooks_that_no_forward_pass_runs_do_not_count():
    model = seeded(lambda: GCN(4, 5, 3), 0).double()
    model.gnn.register_full_backward_hook(lambda *_: None)
    assert auto(model) == "kernel"
