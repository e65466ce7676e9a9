"""The structural features: written-out values, and no leak of a training link's label."""

from math import log, sqrt

import pytest
import torch

from linkcal.data import simulate_graph, split_links
from linkcal.features import (
    STRUCTURAL_COLUMNS,
    STRUCTURE_COLUMNS,
    LinkScores,
    calibration_links,
    score_links,
    structural_features,
)
from linkcal.models import make_model
from linkcal.toggle import ToggledEmbeddings
from refusals import refuses


def toggled(absent, present, dtype=torch.float64) -> ToggledEmbeddings:
    h, h_present = torch.tensor(absent, dtype=dtype), torch.tensor(present, dtype=dtype)
    return ToggledEmbeddings(
        h, h_present, h.sum(1), h_present.sum(1), torch.zeros(len(h), dtype=torch.bool), "by hand"
    )


def test_values_by_hand():
    around = torch.tensor([[3, 1, 2, 1.5, 0.5, 0.25]]), torch.tensor([[0.5, -0.25]])
    features = structural_features(toggled([[3.0, 4.0]], [[6.0, 8.0]]), *around)
    toggle = [7.0, log(5 + 1e-6), log(5 / (5 + 1e-6) + 1e-6), 1.0]
    paths = [log(3), log(1.6), log(0.6), log(0.01 + 0.25 / sqrt(8))]
    expected = [*toggle, log(4) + log(2), log(2), *paths, 0.5, -0.25]
    assert features.tolist() == [pytest.approx(expected, rel=1e-12, abs=1e-12)]
    assert len(expected) == len(STRUCTURAL_COLUMNS)


def test_cosine_by_hand_and_of_zero_embeddings():
    links = toggled([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, 1.0], [-2.0, 0.0]])
    column = structural_features(links, torch.zeros((3, 6)), torch.zeros(3, 2))[:, 3]
    assert column.tolist() == pytest.approx([1 / sqrt(2), 0.0, -1.0], abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_embeddings_stay_finite_in_their_dtype(dtype):
    links = toggled(
        [[0.0, 0.0], [1e-30, 0.0], [1e18, 1e18]], [[0.0, 0.0], [1e-30, 0.0], [-1e18, 1e18]], dtype
    )
    structure = torch.tensor([[0.0] * 6, [1.0, *[0.0] * 5], [1e6, 0.0, 5.0, 3.0, 0.1, 0.2]])
    features = structural_features(links, structure, torch.ones(3, 2))
    assert features.dtype == dtype
    assert torch.isfinite(features).all()
    assert features[:, 3].tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-6)


@pytest.fixture(scope="module")
def split():
    return split_links(simulate_graph(120, num_edges=400, num_features=8, seed=0), seed=0)


def test_score_links_fills_the_structure(split):
    model = make_model("gcn", 8, seed=0)
    scores = calibration_links(model, split)
    X, y = scores.to_arrays("structural")
    assert X.shape == (len(split.val), 1 + len(STRUCTURAL_COLUMNS))
    assert y.tolist() == split.val.edge_label.tolist()
    taken = scores.take([3, 1])
    assert (taken.to_matrix("structural") == X[[3, 1]]).all()
    alone = scores.to_matrix("structure")
    assert alone.shape == (len(split.val), 1 + len(STRUCTURE_COLUMNS))
    assert alone == pytest.approx(X[:, [0, *range(5, 13)]], rel=1e-6, abs=1e-6)


def test_a_link_looks_the_same_with_and_without_its_edge_in_the_graph(split):
    """Leave-one-out: an edge of the message-passing graph gets the features of the graph that lacks it."""
    model = make_model("gcn", 8, seed=0)
    pair = split.graph.pairs[:, 7:8]
    edges = split.graph.edge_index
    same = (edges == pair).all(0) | (edges == pair.flip(0)).all(0)
    assert int(same.sum()) == 2
    without = type(split.graph)(edges[:, ~same], split.graph.num_nodes, x=split.graph.x)
    known = score_links(model, split.graph, pair).to_matrix("structural")
    unknown = score_links(model, without, pair).to_matrix("structural")
    # Two ways of computing float32 embeddings; the logarithms take relative errors of small distances.
    assert known == pytest.approx(unknown, rel=1e-4, abs=1e-4)


def test_structural_features_need_the_structure():
    links = LinkScores(toggled([[1.0]], [[2.0]]))
    refuses("structure must be given to make structural features, got None", links.features, "structural")
    links = LinkScores(toggled([[1.0]], [[2.0]]), structure=torch.zeros((1, 6)))
    refuses("attributes must be given to make structural features, got None", links.features, "structural")
