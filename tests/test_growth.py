"""A fitted predictor takes another message-passing graph, and its calibration follows."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GAE, GCNConv

from linkcal import CalibratedLinkPredictor, Isotonic, Platt, StructuralCalibrator
from linkcal.all_pairs import most_probable_pairs
from linkcal.data import Graph, NodeIds, sample_negatives, simulate_graph, split_links
from linkcal.exceptions import InputError, LinkcalWarning
from linkcal.models import TrainingConfig, make_model, train_link_predictor
from refusals import refuses, unsupported

pytestmark = pytest.mark.filterwarnings("ignore:the calibration links score otherwise")


@pytest.fixture(scope="module", params=["gcn", "sage"])
def trained(request, small_split):
    model = make_model(request.param, 24, hidden_channels=8, out_channels=6, seed=3)
    train_link_predictor(model, small_split, TrainingConfig(epochs=30), seed=3)
    return model


@pytest.fixture
def clp(trained, small_split):
    return CalibratedLinkPredictor(trained, Platt()).fit(small_split)


def all_edges(split):
    return torch.cat([split.graph.pairs, split.held_out_edges()], dim=1)


def logit_by_hand(model, x, edges, pair):
    """One whole pass over the edges [2, P], each in both directions, without the pair itself."""
    kept = edges[:, [set(edge) != set(pair) for edge in edges.T.tolist()]]
    with torch.no_grad():
        z = model.eval().encode(x, torch.cat([kept, kept.flip(0)], dim=1))
        return float(model.decode(z, torch.tensor([pair]).T))


def test_new_node_with_two_edges(clp, trained, small_split):
    """Case A10, beside all held-out links."""
    x = torch.cat([small_split.graph.x, small_split.graph.x[5:7].mean(dim=0, keepdim=True)])
    edges = torch.cat([all_edges(small_split), torch.tensor([[300, 6], [5, 300]])], dim=1)
    known = clp.held_out_
    assert clp.update_graph(edges, x) is clp
    pairs = [(300, 5), (300, 7), tuple(edges[:, 0].tolist()), tuple(known[:, 0].tolist())]
    expected = [logit_by_hand(trained, x, edges, pair) for pair in pairs]
    index = torch.tensor(pairs).T
    assert clp.score(index).logit.tolist() == pytest.approx(expected, abs=1e-4)
    p = clp.calibrator_.predict_proba(np.array(expected)[:, None])[:, 1]
    assert clp.predict_proba(index).tolist() == pytest.approx(p.tolist(), abs=1e-5)
    assert clp.known_edges(index).tolist() == [True, False, True, True]
    assert clp.held_out_.size(1) == 0
    assert clp.info_["graph_update"]["nodes"] == [300, 301]
    assert clp.info_["graph_update"]["edges"] == [small_split.graph.num_pairs, edges.size(1)]


def test_shift_and_refit_follow_the_scores_on_the_new_graph(clp, trained, small_split):
    val, edges = small_split.val, all_edges(small_split)
    y = val.edge_label.numpy()
    scores = {"before": [], "after": []}
    for pair in map(tuple, val.edge_label_index.T.tolist()):
        for name, graph in (("before", small_split.graph.pairs), ("after", edges)):
            scores[name].append(logit_by_hand(trained, small_split.graph.x, graph, pair))
    X = [np.array(values)[:, None] for values in scores.values()]
    z = [clp.calibrator_.decision_function(part) for part in X]
    slope = clp.calibrator_.get_state()
    clp.update_graph(edges)
    record = clp.info_["graph_update"]
    assert record["mean_logit_links"] == pytest.approx([part[y == 1].mean() for part in z], abs=1e-4)
    assert record["mean_logit_negatives"] == pytest.approx([part[y == 0].mean() for part in z], abs=1e-4)
    nll = [-np.log(np.where(y == 1, 1 / (1 + np.exp(-part)), 1 / (1 + np.exp(part)))).mean() for part in z]
    assert record["nll"] == pytest.approx(nll, abs=1e-4)
    assert clp.calibrator_.get_state() == slope
    clp.refresh(val).update_graph(edges, refit=True)
    expected = Platt().fit(X[1], y)
    assert clp.calibrator_.decision_function(X[1]) == pytest.approx(
        expected.decision_function(X[1]), abs=1e-3
    )
    assert "refresh" not in clp.info_
    assert clp.info_["graph_update"]["refit"]


@pytest.mark.filterwarnings("error")
def test_harm_is_warned_of(trained, small_split):
    """Features four times as large make logits sixteen times as large."""
    clp = CalibratedLinkPredictor(trained, Platt()).fit(small_split)
    clp.update_graph(small_split.graph.edge_index)  # the same graph
    assert clp.info_["graph_update"]["nll"][0] == clp.info_["graph_update"]["nll"][1]
    edges, x = small_split.graph.pairs, 4.0 * small_split.graph.x
    with pytest.warns(LinkcalWarning, match=r"their NLL is \d.\d+, \d.\d+ before; pass refit=True"):
        clp.update_graph(edges, x)
    before, after = clp.info_["graph_update"]["nll"]
    assert after > before
    clp.update_graph(edges, x, refit=True)


def test_fingerprint_artifact_and_intervals_follow(clp, small_split, tmp_path):
    pairs = small_split.test.edge_label_index
    old = clp.predict_interval(pairs)
    assert clp.update_graph(all_edges(small_split)).predict_interval(pairs).equal(old) is False
    clp.save(tmp_path)
    loaded = CalibratedLinkPredictor.load(tmp_path)
    assert loaded.predict_proba(pairs).equal(clp.predict_proba(pairs))
    assert loaded.predict_interval(pairs).equal(clp.predict_interval(pairs))
    assert loaded.info_ == clp.info_
    loaded.update_graph(loaded.graph_.edge_index, refit=True)
    clp.update_graph(clp.graph_.edge_index, refit=True)
    assert loaded.predict_proba(pairs).equal(clp.predict_proba(pairs))
    clp.graph_.edge_index[:, 0] = torch.tensor([0, 1])
    refuses("message-passing graph must be as when", clp.predict_proba, pairs)


def test_negatives_that_are_edges_now_leave_the_evidence(clp, small_split):
    """Case A11: 300 new edges, of which some join calibration negatives and null pairs."""
    wrong = small_split.val.edge_label_index[:, small_split.val.edge_label == 0][:, :20].flip(0)
    null = clp.evidence_.null_pairs[:, :30]
    new = torch.cat([wrong, null, sample_negatives(small_split.graph, 250, np.random.default_rng(1))], dim=1)
    links = small_split.val.num_positives
    clp.update_graph(torch.cat([all_edges(small_split), new], dim=1), refit=True)
    assert clp.info_["graph_update"]["negatives_now_edges"] >= 20
    kept = clp.evidence_.calibration
    assert kept.num_positives == links
    assert not clp.graph_.has_pairs(clp.evidence_.null_pairs).any()
    assert not clp.graph_.has_pairs(kept.edge_label_index[:, kept.edge_label == 0]).any()
    assert clp.info_["negatives_per_positive"] == kept.num_negatives / links
    best = most_probable_pairs(clp, 40).edge_label_index
    assert not clp.graph_.has_pairs(best).any()
    rest = most_probable_pairs(clp, 20, exclude=best[:, ::2].flip(0)).edge_label_index
    assert rest.equal(best[:, 1::2])


def test_learned_embeddings_take_edges_but_no_nodes(small_split):
    graph = Graph.from_edges(small_split.graph.pairs, 300)
    split = split_links(graph, seed=0)
    clp = CalibratedLinkPredictor(make_model("gcn", 8, num_nodes=300, seed=0), Platt()).fit(split)
    clp.update_graph(graph.edge_index)
    assert clp.graph_.num_pairs == graph.num_pairs
    message = "must read node features to take new nodes, got GCN without: train one with features"
    unsupported(message, clp.update_graph, torch.tensor([[0], [300]]))
    unsupported(message, clp.update_graph, graph.edge_index, torch.zeros(300, 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"edge_index": torch.tensor([[0], [300]])},
            "x must have 301 rows, of the 300 nodes, then of new ones, got 300",
        ),
        ({"x": torch.zeros(299, 24)}, "x must have 300 rows, of the 300 nodes, then of new ones, got 299"),
        ({"x": torch.zeros(300, 23)}, "x must have 24 columns, as at the fit, got 23"),
        ({"edge_weight": torch.ones(1)}, "edge_weight must be None, .* got some"),
        ({"node_type": torch.arange(300) % 2}, "node_type must be None, .* got some"),
        ({"refit": "yes"}, "refit must be True or False"),
    ],
)
def test_wrong_updates_change_nothing(clp, small_split, options, message):
    before = dict(vars(clp))
    refuses(message, clp.update_graph, **{"edge_index": small_split.graph.pairs[:, :1], **options})
    assert all(vars(clp)[name] is value for name, value in before.items())


def test_what_a_fit_must_have_kept(trained, small_split):
    clp = CalibratedLinkPredictor(trained, Isotonic()).fit(small_split, fit_on="stacked")
    with pytest.raises(InputError, match="refit must be False for a calibrator fitted on 'stacked'"):
        clp.update_graph(small_split.graph.edge_index, refit=True)
    negatives = small_split.val.edge_label_index[:, small_split.val.edge_label == 0]
    refuses("must leave a calibration negative, got all: fit on a new split", clp.update_graph, negatives)
    clp.node_ids_ = NodeIds.range(300)
    with pytest.raises(InputError, match="x must have 300 rows where nodes have names"):
        clp.update_graph(small_split.graph.edge_index, torch.zeros(301, 24))


def test_bipartite_graphs_need_types_of_new_nodes():
    edges = torch.stack([torch.arange(400) % 20, 20 + torch.randint(30, (400,))])
    x, kind = torch.randn(50, 4), (torch.arange(50) >= 20).long()
    split = split_links(Graph.from_edges(edges, 50, x=x, node_type=kind), seed=0)
    clp = CalibratedLinkPredictor(make_model("gcn", 4, seed=0), Platt()).fit(split)
    grown, more = torch.cat([edges, torch.tensor([[50], [20]])], dim=1), torch.randn(51, 4)
    with pytest.raises(
        InputError, match=r"node_type must hold integers \[num_nodes = 51\], got torch.int64 \[50\]"
    ):
        clp.update_graph(grown, more)
    other = torch.cat([torch.tensor([0, 1]), kind[2:], torch.tensor([0])])
    with pytest.raises(InputError, match="must keep the types of the fit's nodes, got others: fit on a new"):
        clp.update_graph(torch.tensor([[50], [20]]), more, node_type=other)
    clp.update_graph(grown, more, node_type=torch.cat([kind, torch.tensor([0])]))
    assert clp.predict_proba(torch.tensor([[50], [49]])).shape == (1,)
    assert clp.graph_.num_possible_pairs == 21 * 30


def test_weights_are_needed_again(small_split):
    plain = simulate_graph(60, num_edges=200, num_features=4, seed=0)
    weight = torch.rand(plain.num_pairs) + 0.5
    split = split_links(Graph.from_edges(plain.pairs, 60, x=plain.x, edge_weight=weight), seed=0)
    model = make_model("gcn", 4, seed=0)
    clp = CalibratedLinkPredictor(model, Platt()).fit(split)
    refuses(r"edge_weight must be given, .* got None", clp.update_graph, plain.pairs)
    clp.update_graph(plain.pairs, edge_weight=weight)
    both, twice = torch.cat([plain.pairs, plain.pairs.flip(0)], dim=1), weight.repeat(2)
    assert torch.allclose(clp.node_embeddings(), model.encode(plain.x, both, twice), atol=1e-6)


def test_computed_features_are_computed_anew_or_asked_for(small_split):
    """PEG's positions follow the graph; features that a user computed from edges must be given again."""
    model = make_model("peg", 24, seed=0)
    graph = model.prepare(small_split.graph)
    split = type(small_split)(graph, small_split.train, small_split.val, small_split.test)
    clp = CalibratedLinkPredictor(model, Platt()).fit(split)
    clp.update_graph(all_edges(small_split))
    expected = model.prepare(Graph.from_edges(all_edges(small_split), 300, x=small_split.graph.x))
    assert torch.equal(clp.graph_.x, expected.x)
    assert torch.equal(clp.graph_.attributes, small_split.graph.x)
    assert clp.graph_.features_from_edges

    def degree(edge_index, num_nodes):
        return torch.bincount(edge_index[0], minlength=num_nodes)[:, None].float()

    whole = Graph.from_edges(all_edges(small_split), 300, feature_builder=degree)
    clp = CalibratedLinkPredictor(make_model("gcn", 1, seed=0), Platt()).fit(split_links(whole, seed=0))
    with pytest.raises(InputError, match="x must be given where features follow from edges, got None: com"):
        clp.update_graph(whole.edge_index)
    clp.update_graph(whole.edge_index, degree(whole.edge_index, 300))
    assert clp.graph_.features_from_edges
    seal = make_model("seal", 24, feature_channels=8, sort_k=10, seed=0)
    split = split_links(small_split.graph, val_fraction=0.01, seed=0)
    split = type(split)(seal.prepare(split.graph), split.train, split.val, split.test)
    clp = CalibratedLinkPredictor(seal, Platt()).fit(split)
    with pytest.raises(
        InputError, match="x must be None where SEAL replaced the features, got new ones: leave x out"
    ):
        clp.update_graph(whole.edge_index, small_split.graph.x)
    x = clp.graph_.x
    assert torch.equal(clp.update_graph(whole.edge_index).graph_.x, x)


def test_a_user_model_and_a_calibrator_of_many_columns(small_split):
    torch.manual_seed(0)
    model = GAE(GCNConv(24, 6))
    clp = CalibratedLinkPredictor(model, StructuralCalibrator()).fit(small_split)
    clp.update_graph(all_edges(small_split), refit=True)
    scores = CalibratedLinkPredictor(model, StructuralCalibrator()).fit(small_split)
    scores.update_graph(all_edges(small_split))
    X, y = scores.score(small_split.val.edge_label_index).to_matrix("structural"), small_split.val.edge_label
    expected = StructuralCalibrator(feature_names=scores.calibrator_.feature_names).fit(X, y.numpy())
    assert clp.calibrator_.decision_function(X) == pytest.approx(expected.decision_function(X), abs=1e-6)
