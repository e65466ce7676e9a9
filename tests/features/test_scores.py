"""The seam: which logit is calibrated, and which features go beside it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from linkcal import CalibratedLinkPredictor, Platt, StructuralCalibrator
from linkcal.all_pairs import most_probable_pairs
from linkcal.data import simulate_graph, split_links
from linkcal.exceptions import InputError
from linkcal.features import LinkScores, calibration_links, score_links
from linkcal.models import TrainingConfig, make_model, train_link_predictor
from linkcal.toggle import ToggledEmbeddings
from refusals import refuses, unsupported


@pytest.fixture
def scores() -> LinkScores:
    """Two links in the plane, the first an edge of the graph."""
    toggled = ToggledEmbeddings(
        absent=torch.tensor([[1.0, 2.0], [0.0, 1.0]]), present=torch.tensor([[4.0, 6.0], [1.0, 1.0]]),
        logit_absent=torch.tensor([3.0, 1.0]), logit_present=torch.tensor([10.0, 2.0]),
        in_graph=torch.tensor([True, False]), method="by hand",
    )  # fmt: skip
    structure = torch.tensor([[1.0, *[0.0] * 5], [2.0, 3.0, 1.0, 1.4, 0.5, 0.2]]).double()
    attributes = torch.tensor([[0.5, 0.0], [0.25, -1.0]])
    return LinkScores(toggled, "absent", torch.tensor([1.0, 0.0]), structure, attributes)


def test_logit_absent_ignores_target_link(scores):
    assert scores.logit.tolist() == [3.0, 1.0]


def test_logit_as_given_keeps_target_link_of_graph_edges_only(scores):
    assert LinkScores(scores.toggled, "as-given").logit.tolist() == [10.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("none", [[3.0], [1.0]]),
        ("embedding", [[3.0, 1.0, 2.0], [1.0, 0.0, 1.0]]),
        ("difference", [[3.0, -3.0, -4.0], [1.0, -1.0, 0.0]]),
    ],
)
def test_matrix_by_hand(scores, kind, expected):
    X, y = scores.to_arrays(kind)
    assert X.dtype == np.float64
    assert X.tolist() == expected
    assert y.tolist() == [1, 0]


def test_take_selects_links(scores):
    taken = scores.take(np.array([1]))
    assert taken.to_matrix("difference").tolist() == [[1.0, -1.0, 0.0]]
    assert taken.label.tolist() == [0.0]
    assert taken.structure[:, :3].tolist() == [[2, 3, 1]]
    assert taken.attributes.tolist() == [[0.25, -1.0]]


def test_no_labels_no_arrays(scores):
    refuses(r"label must be given to make \(X, y\), got None", LinkScores(scores.toggled).to_arrays)


def test_unknown_kind_names_nearest(scores):
    refuses("did you mean 'difference'", scores.features, "diference")


def test_validation_links_are_scored_on_the_message_graph(trained_gcn, small_split):
    scored = calibration_links(trained_gcn, small_split, "val")
    graph = small_split.graph
    with torch.no_grad():
        z = trained_gcn.encode(graph.node_input, graph.edge_index)
        expected = trained_gcn.decode(z, small_split.val.edge_label_index)
    assert not scored.toggled.in_graph.any()
    torch.testing.assert_close(scored.logit, expected, rtol=1e-5, atol=1e-5)


def test_train_protocols_differ_by_the_target_link_of_positives_only(trained_gcn, small_split):
    loo = calibration_links(trained_gcn, small_split, "train-loo")
    seen = calibration_links(trained_gcn, small_split, "train")
    positive = small_split.train.edge_label == 1
    assert torch.equal(loo.toggled.in_graph, positive)
    assert torch.equal(loo.logit[~positive], seen.logit[~positive])
    # The model is surer of an edge that it can see: the shift that leave-one-out removes.
    assert ((seen.logit - loo.logit)[positive] > 0).float().mean() > 0.9


def test_unknown_protocol(trained_gcn, small_split):
    with pytest.raises(InputError, match="fit_on must be one of val, stacked, train-loo, train; got 'test'"):
        calibration_links(trained_gcn, small_split, "test")


class Halved(torch.nn.Module):
    """A stranger's model whose embeddings and logits are in half precision."""

    decode_returns = "logits"

    def __init__(self, num_features, dtype):
        super().__init__()
        self.inner, self.dtype = make_model("gcn", num_features), dtype

    def encode(self, x, edge_index):
        return self.inner.encode(x, edge_index).to(self.dtype)

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=1)


@pytest.mark.parametrize(
    ("dtype", "method", "calibrator"),
    [(torch.bfloat16, "auto", Platt()), (torch.float16, "naive", StructuralCalibrator())],
)
def test_half_precision_is_widened_before_it_is_calibrated(dtype, method, calibrator):
    split = split_links(simulate_graph(100, num_edges=400, num_features=6, seed=0), seed=0)
    model = Halved(6, dtype)
    scores = score_links(model, split.graph, split.val, method=method)
    assert {scores.logit.dtype, scores.toggled.absent.dtype, scores.toggled.present.dtype} == {torch.float32}
    with torch.no_grad():
        z = model.encode(split.graph.x, split.graph.edge_index)
        expected = model.decode(z, split.val.edge_label_index)
    assert (
        scores.logit.tolist() == expected.tolist()
    )  # no validation link is an edge of the message-passing graph
    assert np.array_equal(scores.to_matrix()[:, 0], expected.double().numpy())
    clp = CalibratedLinkPredictor(model, calibrator).fit(split)
    p = clp.predict_proba(split.test.edge_label_index)
    assert p.dtype == torch.float32
    assert ((p > 0) & (p < 1)).all()


def test_a_matrix_of_scores_that_were_made_in_bfloat16(scores):
    toggled = scores.toggled
    states = (toggled.absent, toggled.present, toggled.logit_absent, toggled.logit_present)
    low = ToggledEmbeddings(*(values.bfloat16() for values in states), toggled.in_graph, "by hand")
    assert LinkScores(low).to_matrix("difference").tolist() == scores.to_matrix("difference").tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_linkcal_models_in_half_precision(dtype):
    split = split_links(simulate_graph(100, num_edges=400, num_features=6, seed=0), seed=0)
    split = replace(split, graph=replace(split.graph, x=split.graph.x.to(dtype)))
    model = make_model("sage", 6).to(dtype)
    if dtype == torch.bfloat16:  # float16 has not the range for a loss
        assert train_link_predictor(model, split, TrainingConfig(epochs=2)).epochs_run == 2
    ranked = most_probable_pairs(CalibratedLinkPredictor(model, Platt()).fit(split), 3)
    assert ranked.logit.dtype == torch.float64
    seal = make_model("seal", 6, sort_k=10).to(dtype)
    message = f"SEAL must be in float32 or float64 on the CPU, got {dtype}"
    unsupported(message, score_links, seal, split.graph, split.val)
