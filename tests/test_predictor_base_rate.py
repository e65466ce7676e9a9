"""The base rate at every place where the wrapper gives a probability."""

import numpy as np
import pytest
import torch

from linkcal import CalibratedLinkPredictor, Platt, StructuralCalibrator
from linkcal.data import simulate_graph, split_links
from linkcal.exceptions import InputError
from linkcal.metrics import hits_at_k, roc_auc
from linkcal.models import make_model


@pytest.fixture(scope="module")
def split():
    graph = simulate_graph(200, num_edges=900, num_features=8, seed=1)
    return split_links(graph, val_fraction=0.2, test_fraction=0.2, negatives_per_positive=2.0, seed=1)


@pytest.fixture(scope="module", params=[Platt, StructuralCalibrator])
def fitted(split, request):
    return CalibratedLinkPredictor(make_model("gcn", 8, seed=0), request.param()).fit(split)


def test_odds_are_multiplied_by_the_ratio_of_prior_odds(fitted, split):
    pairs = split.test.edge_label_index
    assert fitted.calibration_rate == pytest.approx(1 / 3)
    p = fitted.predict_proba(pairs).double()
    shifted = fitted.predict_proba(pairs, base_rate=0.001)
    assert shifted.dtype == torch.float32
    odds = p / (1 - p) * (0.001 / 0.999) / (1 / 2)
    np.testing.assert_allclose(shifted, odds / (1 + odds), rtol=1e-5)
    moved = fitted(pairs, base_rate=0.001) - fitted(pairs)
    np.testing.assert_allclose(moved, np.log(0.001 / 0.999 * 2), rtol=1e-12)


def test_ranking_stays_exactly(fitted, split):
    pairs, y = split.test.edge_label_index, split.test.edge_label
    for base_rate in (1e-5, 0.9, "density"):
        moved, plain = fitted(pairs, base_rate=base_rate), fitted(pairs)
        assert roc_auc(y, moved) == roc_auc(y, plain)
        assert hits_at_k(y, moved, 20) == hits_at_k(y, plain, 20)


def test_density_is_the_share_of_pairs_that_are_message_edges(fitted, split):
    graph = split.graph
    density = graph.num_pairs / (200 * 199 / 2)
    assert fitted.resolve_base_rate("density") == density
    pairs = split.test.edge_label_index[:, :9]
    assert torch.equal(
        fitted.predict_proba(pairs, base_rate="density"), fitted.predict_proba(pairs, base_rate=density)
    )


# Case 13, last part: impossible base rates.
@pytest.mark.parametrize("base_rate", [0, 1, 1.2])
def test_case_13_impossible_rates_are_refused(fitted, split, base_rate):
    with pytest.raises(InputError, match=rf"base_rate must be in \(0, 1\), got {base_rate}"):
        fitted.predict_proba(split.test.edge_label_index, base_rate=base_rate)


def test_unknown_word_names_the_right_ones(fitted, split):
    with pytest.raises(
        InputError, match=r"base_rate must be a number in \(0, 1\) or 'density', got 'densty'"
    ):
        fitted.predict_proba(split.test.edge_label_index, base_rate="densty")


def test_density_is_refused_for_other_negatives_than_uniform_ones():
    graph = simulate_graph(200, num_edges=900, num_features=8, seed=1)
    split = split_links(graph, val_fraction=0.2, test_fraction=0.2, negatives="two-hop", seed=1)
    fitted = CalibratedLinkPredictor(make_model("gcn", 8, seed=0), Platt()).fit(split)
    assert fitted.info_["negatives"] == "two-hop"
    with pytest.raises(InputError, match="a number for a calibrator fitted on two-hop negatives, got 'dens"):
        fitted.resolve_base_rate("density")
    assert fitted.resolve_base_rate(0.01) == 0.01
