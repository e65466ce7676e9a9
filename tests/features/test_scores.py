"""The seam: which logit is calibrated, and which features go beside it."""

import numpy as np
import pytest
import torch

from linkcal.exceptions import InputError
from linkcal.features import FEATURE_KINDS, LinkScores, calibration_links, score_links
from linkcal.models import logits_of
from linkcal.toggle import ToggledEmbeddings


@pytest.fixture
def scores() -> LinkScores:
    """Two links in the plane, the first an edge of the graph."""
    toggled = ToggledEmbeddings(
        absent=torch.tensor([[1.0, 2.0], [0.0, 1.0]]),
        present=torch.tensor([[4.0, 6.0], [1.0, 1.0]]),
        logit_absent=torch.tensor([3.0, 1.0]),
        logit_present=torch.tensor([10.0, 2.0]),
        in_graph=torch.tensor([True, False]),
        method="by hand",
    )
    return LinkScores(toggled, "absent", torch.tensor([1.0, 0.0]), torch.tensor([[1, 0, 0], [2, 3, 1]]))


def test_logit_absent_ignores_own_edge(scores):
    assert scores.logit.tolist() == [3.0, 1.0]


def test_logit_as_given_keeps_own_edge_of_graph_edges_only(scores):
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


def test_every_kind_has_one_row_per_link(scores):
    for kind in FEATURE_KINDS:
        assert scores.features(kind).shape[0] == 2


def test_take_selects_links(scores):
    taken = scores.take(np.array([1]))
    assert taken.to_matrix("difference").tolist() == [[1.0, -1.0, 0.0]]
    assert taken.label.tolist() == [0.0]
    assert taken.structure.tolist() == [[2, 3, 1]]


def test_no_labels_no_arrays(scores):
    with pytest.raises(InputError, match=r"label must be given to make \(X, y\), got None"):
        LinkScores(scores.toggled).to_arrays()


def test_unknown_kind_names_nearest(scores):
    with pytest.raises(InputError, match="did you mean 'difference'"):
        scores.features("diference")


def test_validation_links_are_scored_on_the_message_graph(trained_gcn, small_split):
    scored = calibration_links(trained_gcn, small_split, "val")
    graph = small_split.graph
    with torch.no_grad():
        z = trained_gcn.encode(graph.node_input, graph.edge_index)
        expected = logits_of(trained_gcn, z, small_split.val.edge_label_index)
    assert not scored.toggled.in_graph.any()
    torch.testing.assert_close(scored.logit, expected, rtol=1e-5, atol=1e-5)


def test_train_protocols_differ_by_the_own_edge_of_positives_only(trained_gcn, small_split):
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


def test_score_links_takes_bare_pairs(trained_gcn, small_split):
    pairs = small_split.test.edge_label_index
    scored = score_links(trained_gcn, small_split.graph, pairs)
    assert scored.label is None
    assert len(scored) == pairs.size(1)
