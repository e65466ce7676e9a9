"""SEAL: one score per query pair, the asked link hidden, whatever is asked with it."""

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv

from linkcal import CalibratedLinkPredictor, Platt, toggle_edges
from linkcal.data import Graph, LinkPairs, simulate_graph, split_links
from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models import MODELS, SEAL, seal
from linkcal.models.seal import _sort_pool
from linkcal.workflow import RunConfig, run_experiment
from refusals import refuses

# Case 23: triangle with a tail.
EDGES = torch.tensor([[0, 1, 1, 2, 2, 0, 2, 3], [1, 0, 2, 1, 0, 2, 3, 2]])
ASKED = torch.tensor([[0, 0, 1], [1, 3, 3]])


def build(in_channels: int = 4, **options) -> SEAL:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return SEAL(in_channels, 8, 5, **{"sort_k": 10, **options}).eval()


def without(edge_index: torch.Tensor, u: int, v: int) -> torch.Tensor:
    own = ((edge_index[0] == u) & (edge_index[1] == v)) | ((edge_index[0] == v) & (edge_index[1] == u))
    return edge_index[:, ~own]


@pytest.mark.parametrize("num_hops", [1, 2])
def test_case_23_one_score_per_asked_pair_in_order_target_hidden(num_hops):
    model, x = build(num_hops=num_hops), torch.eye(4)
    with torch.no_grad():
        logit = model(x, EDGES, ASKED)
        alone = torch.cat([model(x, EDGES, ASKED[:, [i]]) for i in range(3)])
        backwards = model(x, EDGES, ASKED.flip(1))
        assert torch.equal(model(x, EDGES, ASKED.flip(0)), logit)
        removed = model(x, without(EDGES, 0, 1), ASKED[:, :1])
    assert logit.shape == (3,)
    torch.testing.assert_close(removed, logit[:1], rtol=0, atol=1e-6)
    torch.testing.assert_close(alone, logit, rtol=0, atol=1e-5)
    torch.testing.assert_close(backwards.flip(0), logit, rtol=0, atol=1e-5)
    # (0, 3) and (1, 3) have one score: nodes 0 and 1 hear the same neighbours, so only their names differ.
    assert float(logit[0]) != pytest.approx(float(logit[1]), abs=1e-3)
    torch.testing.assert_close(logit[1], logit[2], rtol=0, atol=1e-6)


def test_subgraphs_are_made_batch_by_batch(monkeypatch):
    model, x = build(), torch.eye(4)
    pairs = ASKED.repeat(1, 20)
    expected = model(x, EDGES, pairs)
    sizes = []
    monkeypatch.setattr(seal, "_MAX_BATCH_NODES", 12)
    embed = model._embed_batch
    model._embed_batch = lambda features, batch: (sizes.append(batch.nodes.numel()), embed(features, batch))[
        1
    ]
    torch.testing.assert_close(model(x, EDGES, pairs), expected, rtol=0, atol=1e-6)
    assert len(sizes) > 15
    assert max(sizes) <= 12


def test_equals_plain_graph_convolutions_on_the_subgraph():
    """The whole model against PyG's GCNConv and a dense sort on one pair's subgraph."""
    model, x = build().double(), torch.rand(4, 4).double()
    for target_link in ("absent", "present"):
        # Pair (1, 3) at one hop: all four nodes; label 2 for node 2, which sees both, 0 for node 0 (node 3 is
        # three steps away from it, over node 2: label 1 + 1 + (3 // 2) (3 // 2 + 1 - 1) = 3).
        edges = EDGES if target_link == "absent" else torch.cat([EDGES, torch.tensor([[1, 3], [3, 1]])], 1)
        label = torch.tensor([3, 1, 2, 1])
        message = model.label_embedding(label) + model.lin_features(x)
        conv = GCNConv(8, 8).double()
        hidden, channels = None, []
        for number, bias in enumerate(model.biases):
            message = message if number == 0 else model.lins[number - 1](hidden)
            conv.lin = torch.nn.Identity()
            conv.bias = None
            hidden = (conv(message, edges) + bias).tanh()
            channels.append(hidden)
        rows = torch.cat(channels, 1)
        rows = torch.nn.functional.pad(rows[rows[:, -1].argsort(descending=True)], (0, 0, 0, 6))
        h = model.pool(model.lin_nodes(rows).relu().T[None])
        expected = model.lin_pooled(model.conv_sorted(h).relu().flatten(1)).relu()
        found = model.embed_pairs(x, EDGES, torch.tensor([[1], [3]]), target_link=target_link)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_toggling_asks_for_both_states():
    model, x = build(), torch.eye(4)
    toggled = toggle_edges(model, x, EDGES, ASKED)
    assert toggled.method == "pairwise"
    assert toggled.in_graph.tolist() == [True, False, False]
    with torch.no_grad():
        absent = model.embed_pairs(x, EDGES, ASKED)
        present = model.embed_pairs(x, EDGES, ASKED, target_link="present")
        assert torch.equal(toggled.absent, absent)
        assert torch.equal(toggled.present, present)
        assert torch.equal(toggled.logit_absent, model(x, EDGES, ASKED))
        assert torch.equal(toggled.logit_present, model.head(present))
    assert not torch.equal(absent, present)
    # As a naive pass says: each pair alone, its edge really taken out of the graph.
    for i, (u, v) in enumerate(ASKED.T.tolist()):
        one = toggle_edges(model, x, without(EDGES, u, v), ASKED[:, [i]])
        torch.testing.assert_close(one.absent[0], toggled.absent[i], rtol=0, atol=1e-6)
        torch.testing.assert_close(one.present[0], toggled.present[i], rtol=0, atol=1e-6)
    with pytest.raises(UnsupportedModelError, match=r"method must be 'auto' for SEAL.*got 'naive'"):
        toggle_edges(model, x, EDGES, ASKED, method="naive")


def test_sort_pool_by_hand():
    x = torch.tensor([[1.0, 0.1], [2.0, 0.3], [3.0, 0.2], [4.0, 0.9]])
    pooled = _sort_pool(x, torch.tensor([0, 3, 4]), 2)
    assert pooled[:, :, 0].tolist() == [[2.0, 3.0], [4.0, 0.0]]


def test_gradients_flow_to_every_weight():
    model = build(num_nodes=4).double()
    model(torch.arange(4), EDGES, ASKED).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
    weight = model.lins[0].weight
    step = 1e-6
    with torch.no_grad():
        before = model(torch.arange(4), EDGES, ASKED).sum()
        weight[0, 0] += step
        change = (model(torch.arange(4), EDGES, ASKED).sum() - before) / step
    assert float(change) == pytest.approx(float(weight.grad[0, 0]), rel=1e-4, abs=1e-8)


def test_sort_k_is_the_60th_percentile_of_training_subgraphs():
    split = split_links(simulate_graph(200, num_edges=1500, num_features=4, seed=0), seed=0)
    graph = split.graph
    near = [set(graph.edge_index[1][graph.edge_index[0] == i].tolist()) | {i} for i in range(200)]
    sizes = [len(near[u] | near[v]) for u, v in split.train.edge_label_index.T.tolist()]
    expected = int(np.ceil(np.percentile(sizes, 60)))
    assert expected > 10
    assert SEAL.options_for(split) == {"sort_k": expected}
    nothing = LinkPairs(torch.empty(2, 0, dtype=torch.int64), torch.empty(0))
    assert SEAL.options_for(replace(split, train=nothing)) == {"sort_k": 10}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_hops": 3}, "num_hops must be 1 or 2, got 3"),
        ({"sort_k": 9}, "sort_k must be a whole number >= 10, got 9"),
    ],
)
def test_bad_arguments(options, message):
    refuses(message, SEAL, 4, **options)


def test_no_pairs_and_wrong_features():
    nothing = torch.empty(2, 0, dtype=torch.int64)
    assert build()(torch.eye(4), EDGES, nothing).shape == (0,)
    refuses(r"x must have shape \[N, 4\], got \[4, 3\]", build(), torch.rand(4, 3), EDGES, ASKED)
    with pytest.raises(InputError, match="target_link must be one of absent, present; got 'gone'"):
        build().embed_pairs(torch.eye(4), EDGES, ASKED, target_link="gone")


@pytest.mark.parametrize("num_features", [0, 4])
def test_a_whole_run_and_its_artifact(num_features, tmp_path):
    data = simulate_graph(150, num_edges=900, num_features=num_features, seed=0)
    config = RunConfig("simulated", "seal", epochs=1, calibrators=("uncalibrated", "platt"))
    outcome = run_experiment(config, data)
    assert outcome.metrics["toggle_method"] == "pairwise"
    split = split_links(data, seed=0)
    preset = MODELS["seal"].presets["default"].model
    assert outcome.artifact.model.sort_k == SEAL.options_for(split, **preset)["sort_k"]
    assert outcome.artifact.model.num_hops == preset["num_hops"]
    clp = CalibratedLinkPredictor(outcome.artifact.model, Platt()).fit(split)
    clp.save(tmp_path / "a")
    again = CalibratedLinkPredictor.load(tmp_path / "a")
    pairs = split.test.edge_label_index[:, :9]
    assert torch.equal(again.predict_proba(pairs), clp.predict_proba(pairs))


def test_many_features_are_replaced_by_their_principal_coordinates():
    data = simulate_graph(60, num_edges=200, num_features=30, seed=0)
    model = build(30, feature_channels=5)
    prepared = model.prepare(data)
    assert prepared.x.shape == (60, 5)
    assert model.prepare(prepared) is prepared
    # Row products of the best approximation of rank 5, up to one scale.
    u, s, _ = torch.linalg.svd(data.x.double(), full_matrices=False)
    expected = u[:, :5] * s[:5]
    expected = expected @ expected.T
    got = (prepared.x @ prepared.x.T).double()
    torch.testing.assert_close(got / got.norm(), expected / expected.norm(), rtol=0, atol=2e-3)
    with torch.no_grad():
        assert model(prepared.x, prepared.edge_index, prepared.pairs).shape == (prepared.num_pairs,)
    with pytest.raises(InputError, match=r"x must have shape \[N, 5\], principal coordinates of 30 features"):
        model(data.x, data.edge_index, data.pairs)
    with pytest.raises(InputError, match="graph must have 30 features, got no features"):
        model.prepare(simulate_graph(60, num_edges=200, num_features=0, seed=0))


@pytest.mark.parametrize("options", [{"feature_channels": 4}, {"feature_channels": None}, {"num_nodes": 60}])
def test_few_features_and_learned_embeddings_are_left_alone(options):
    data = simulate_graph(60, num_edges=200, num_features=0 if "num_nodes" in options else 4, seed=0)
    assert build(4, **options).prepare(data) is data


def test_principal_coordinates_of_empty_features_and_of_fewer_nodes_than_directions():
    model = build(9, feature_channels=4)
    edges = torch.tensor([[0], [1]])
    assert torch.equal(model.prepare(Graph.from_edges(edges, 2, x=torch.zeros(2, 9))).x, torch.zeros(2, 4))
    assert model.prepare(Graph.from_edges(edges, 2, x=torch.eye(2, 9))).x[:, 2:].abs().sum() == 0


def test_feature_dropout_acts_in_training_only():
    model, x = build(feature_dropout=0.9, dropout=0.0), torch.eye(4)
    plain = build(dropout=0.0)
    with torch.no_grad():
        assert torch.equal(model(x, EDGES, ASKED), plain(x, EDGES, ASKED))
        assert not torch.equal(model.train()(x, EDGES, ASKED), plain.train()(x, EDGES, ASKED))


@pytest.mark.parametrize(
    ("edges", "pairs", "message"),
    [
        (EDGES, [[0], [7]], "edge_label_index must hold node indices < num_nodes = 4, got 7"),
        (EDGES, [[0], [-1]], "edge_label_index must hold node indices >= 0, got -1"),
        (EDGES, [[2], [2]], r"edge_label_index must join two different nodes, got \(2, 2\)"),
        (EDGES, [0, 1], r"edge_label_index must have shape \[2, L\], got \[2\]"),
        (torch.tensor([[0, 9], [9, 0]]), [[0], [1]], "edge_index must hold .* < num_nodes = 4, got 9"),
    ],
)
def test_nodes_that_are_not_there_never_reach_the_compiled_search(edges, pairs, message):
    refuses(message, build(), torch.eye(4), edges, torch.tensor(pairs))


def test_one_edge_list_with_other_numbers_of_nodes():
    model = build()
    with torch.no_grad():
        first = model(torch.eye(4), EDGES, ASKED)
        more = model(torch.eye(6, 4), EDGES, torch.tensor([[0, 4], [1, 5]]))
        assert model._kept[2].num_nodes == 6  # rows of four nodes would be read beyond their end
        again = model(torch.eye(4), EDGES, ASKED)
    torch.testing.assert_close(more[:1], first[:1], rtol=0, atol=1e-6)
    assert torch.equal(again, first)


def test_threads_share_a_model():
    model, graph = build(num_hops=2), simulate_graph(200, num_edges=900, num_features=4, seed=0)
    pairs = torch.triu_indices(200, 200, 1)[:, ::53]
    view = copy.deepcopy(model)

    def score(number: int) -> torch.Tensor:
        with torch.no_grad():
            return (view if number % 2 else model)(graph.x, graph.edge_index, pairs)

    expected = score(0)
    with ThreadPoolExecutor(4) as threads:
        assert all(torch.equal(logit, expected) for logit in threads.map(score, range(12)))


def test_a_changed_graph_is_seen_in_inference_mode_too_and_int32_is_read():
    model, x = build(), torch.eye(4)
    with torch.no_grad():
        expected = model(x, EDGES, ASKED)
        assert torch.equal(model(x, EDGES.int(), ASKED.int()), expected)
    for mode in (torch.no_grad, torch.inference_mode):  # tensors of the second count no versions
        with mode():
            edges = EDGES.clone()
            assert torch.equal(model(x, edges, ASKED), expected)
            edges[:, -2:] = torch.tensor([[1, 3], [3, 1]])  # the tail moves from node 2 to node 1
            changed = model(x, edges, ASKED)
            assert torch.equal(changed, model(x, edges.clone(), ASKED))
            assert not torch.equal(changed[1:], expected[1:])


def test_capped_two_hop_subgraphs_of_a_hub_toggle_as_alone():
    star = Graph.from_edges(torch.tensor([[0] * 60 + [1, 2], [*range(1, 61), 2, 61]]), 63)
    model, x = build(num_hops=2, max_neighbors=5), torch.rand(63, 4)
    pairs = torch.tensor([[0, 1, 5, 61, 62], [1, 2, 61, 62, 3]])  # hub, triangle, far apart, an isolated end
    toggled = toggle_edges(model, x, star.edge_index, pairs)
    assert toggled.in_graph.tolist() == [True, True, False, False, False]
    for i, (u, v) in enumerate(pairs.T.tolist()):
        less = without(star.edge_index, u, v)
        with torch.no_grad():
            absent = model.embed_pairs(x, less, pairs[:, [i]])
            present = model.embed_pairs(x, less, pairs[:, [i]], target_link="present")
        torch.testing.assert_close(toggled.absent[[i]], absent, rtol=0, atol=1e-6)
        torch.testing.assert_close(toggled.present[[i]], present, rtol=0, atol=1e-6)
    assert (toggled.absent - toggled.present).abs().amax(dim=1).min() > 1e-6
