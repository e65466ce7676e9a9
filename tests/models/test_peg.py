"""PEG: its layer by hand, where its positions come from, and what a graph must bring."""

from dataclasses import replace

import pytest
import torch

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.data import Graph, laplacian_eigenmaps, simulate_graph, split_links
from linkcal.exceptions import EdgeFeaturesWarning, InputError
from linkcal.features import score_links
from linkcal.models import PEG, TrainingConfig, load_model, make_model, save_model, train_link_predictor
from linkcal.toggle import toggle_edges
from linkcal.workflow import RunConfig, run_experiment
from refusals import refuses

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def graph(**options) -> Graph:
    return Graph.from_edges(PATH, 4, **options)


def test_layer_by_hand():
    """One edge at distance 2: coefficients 1/2, the own message times phi(0), the other's times phi(2)."""
    model = PEG(1, out_channels=1, num_layers=1, position_channels=1)
    conv = model.convs[0]
    with torch.no_grad():
        conv.lin.weight.fill_(2.0)
        conv.bias.fill_(1.0)
    x = torch.tensor([[3.0, 0.5], [5.0, 2.5]])
    own, other = conv.arc_factor(torch.tensor([0.0, 2.0])).tolist()
    z = model.encode(x, torch.tensor([[0, 1], [1, 0]])).flatten().tolist()
    assert z == pytest.approx([1 + 3 * own + 5 * other, 1 + 5 * own + 3 * other], rel=1e-6)


def test_phi_lies_between_0_and_1_and_is_learned():
    model = PEG(1, out_channels=1, num_layers=1, position_channels=1)
    factor = model.convs[0].arc_factor(torch.linspace(0, 5, 51))
    assert ((factor > 0) & (factor < 1)).all()
    x = torch.tensor([[3.0, 0.5], [5.0, 2.5]])
    model.encode(x, torch.tensor([[0, 1], [1, 0]])).sum().backward()
    assert float(model.convs[0].phi[2].weight.grad.abs().sum()) > 0


def test_rotated_and_mirrored_positions_change_nothing():
    model = PEG(2, 8, 3, position_channels=2).double()
    features, z = torch.rand(4, 2).double(), torch.rand(4, 2).double()
    turn = torch.linalg.qr(torch.rand(2, 2).double()).Q
    pairs = torch.triu_indices(4, 4, 1)
    expected = model(torch.cat([features, z], 1), PATH, pairs)
    torch.testing.assert_close(model(torch.cat([features, z @ turn], 1), PATH, pairs), expected)


def test_prepare_appends_the_positions_of_the_message_graph_once():
    model = PEG(2, position_channels=3)
    given = graph(x=torch.rand(4, 2))
    prepared = model.prepare(given)
    assert torch.equal(prepared.x[:, :2], given.x)
    assert torch.equal(prepared.x[:, 2:], laplacian_eigenmaps(PATH, 4, 3))
    assert given.x.shape == (4, 2)
    assert (given.features_from_edges, prepared.features_from_edges) == (False, True)
    assert model.prepare(prepared) is prepared


def test_graph_without_features_keeps_positions_in_the_model():
    model = PEG(5, position_channels=2, num_nodes=4)
    refuses(r"model must hold the nodes' positions, got none: prepare", model.encode, torch.arange(4), PATH)
    assert model.prepare(graph()).x is None
    assert torch.equal(model.positions, laplacian_eigenmaps(PATH, 4, 2))
    model.reset_parameters()
    assert torch.isfinite(model.positions).all()
    refuses("graph must have 4 nodes, got 5", model.prepare, Graph.from_edges(PATH, 5))


@pytest.mark.parametrize("features", [None, 3])
def test_other_graphs_are_refused(features):
    came = "no features" if features is None else "3 features"
    x = None if features is None else torch.rand(4, features)
    refuses(f"graph must have 2 features, got {came}", PEG(2, position_channels=4).prepare, graph(x=x))


def test_isolated_nodes_and_components_get_finite_scores():
    edges = torch.tensor([[0, 2, 3], [1, 3, 4]])
    given = Graph.from_edges(edges, 7, x=torch.rand(7, 2))
    model = make_model("peg", 2, position_channels=4)
    logit = model(model.prepare(given).x, given.edge_index, torch.triu_indices(7, 7, 1))
    assert torch.isfinite(logit).all()


@pytest.mark.parametrize("num_features", [0, 8])
def test_a_whole_run_keeps_the_positions_with_the_model(num_features, tmp_path):
    data = simulate_graph(150, num_edges=900, num_features=num_features, seed=0)
    config = RunConfig("simulated", "peg", epochs=5, calibrators=("uncalibrated", "platt"))
    outcome = run_experiment(config, data)
    expected = laplacian_eigenmaps(split_links(data, seed=0).graph.edge_index, 150, 32)
    model, message = outcome.artifact.model, outcome.artifact.graph
    assert outcome.metrics["toggle_method"] == "kernel"
    found = model.positions if num_features == 0 else message.x[:, num_features:]
    assert torch.equal(found, expected)
    save_model(model, tmp_path)
    pairs = torch.triu_indices(20, 20, 1)
    loaded = load_model(tmp_path)
    assert all(torch.equal(loaded.state_dict()[key], value) for key, value in model.state_dict().items())
    logit, expected_logit = (one(message.node_input, message.edge_index, pairs) for one in (loaded, model))
    # Equal weights elsewhere in memory: BLAS may sum in another order.
    torch.testing.assert_close(logit, expected_logit, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["peg", "seal"])
@pytest.mark.parametrize("num_features", [0, 150])
def test_a_graph_that_was_not_prepared_is_answered_by_what_to_call(name, num_features):
    """At every door: never numbers from another input than the model was made for."""
    split = split_links(simulate_graph(60, num_edges=240, num_features=num_features, seed=0), seed=0)
    if name == "seal" and not num_features:
        return  # a learned embedding, and nothing to prepare
    nodes = {"num_nodes": 60} if num_features == 0 else {}
    model = make_model(name, num_features or 8, **nodes)
    advice = "split = replace(split, graph=model.prepare(split.graph))"
    doors = (
        lambda given: train_link_predictor(model, given, TrainingConfig(epochs=1)),
        lambda given: CalibratedLinkPredictor(model, Platt()).fit(given),
        lambda given: score_links(model, given.graph, given.val),
        lambda given: toggle_edges(
            model, given.graph.node_input, given.graph.edge_index, given.val.edge_label_index
        ),
    )
    for door in doors:
        with pytest.raises(InputError) as told:
            door(split)
        assert advice in str(told.value)
        assert "\n" not in str(told.value)
    prepared = replace(split, graph=model.prepare(split.graph))
    for door in doors:
        door(prepared)


def test_features_as_wide_as_prepared_ones_are_no_positions():
    model = PEG(2, position_channels=3)
    refuses("got 5 features that do not follow from the edges", model.prepare, graph(x=torch.rand(4, 5)))


def test_splitting_a_prepared_graph_is_told_to_leak():
    full = simulate_graph(60, num_edges=240, num_features=4, seed=0)
    prepared = make_model("peg", 4, position_channels=3).prepare(full)
    with pytest.warns(EdgeFeaturesWarning, match="split first, then prepare the message-passing graph"):
        split_links(prepared, seed=0)


def test_features_that_are_the_given_ones_are_saved(tmp_path):
    split = split_links(simulate_graph(60, num_edges=240, num_features=4, seed=0), seed=0)
    split = replace(split, graph=replace(split.graph, attributes=split.graph.x))
    CalibratedLinkPredictor(make_model("gcn", 4), Platt()).fit(split).save(tmp_path / "saved")
    graph = CalibratedLinkPredictor.load(tmp_path / "saved").graph_
    assert torch.equal(graph.attributes, split.graph.x)
    assert torch.equal(graph.x, split.graph.x)
