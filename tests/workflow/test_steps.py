"""Steps of a run: base rates, samples for networks, and what is measured."""

import numpy as np
import pytest
import torch
from scipy.special import expit

from linkcal.calibrators import CALIBRATORS, Histogram, Identity, base_rate_offset
from linkcal.data import Graph
from linkcal.exceptions import FewNegativesWarning, InputError
from linkcal.features import LinkScores
from linkcal.metrics import brier_score, expected_calibration_error, hits_at_k
from linkcal.toggle import ToggledEmbeddings
from linkcal.workflow import RunConfig, run_experiment, split_graph
from linkcal.workflow._run import _calibrated
from linkcal.workflow._steps import TargetRate, measure_links, network_sample
from linkcal_lab.patterns import measure_completely

# Results at another base rate: from logits, as the predictor has them.


class Given:
    """Scores that are a matrix."""

    def __init__(self, X):
        self.to_matrix = lambda _kind: X


def test_probabilities_that_round_to_1_keep_their_digits():
    fitted = Identity().fit([[-1.0], [1.0]], [0, 1])
    X = np.array([[40.0], [45.0], [0.0]])
    shift = np.log(1e-15) - np.log1p(-1e-15)
    probability, _ = _calibrated(fitted, Given(X), TargetRate(1e-15, base_rate_offset(0.5, 1e-15), "given"))
    np.testing.assert_allclose(probability, expit(X[:, 0] + shift), rtol=1e-12)
    assert probability[0] < 0.996


@pytest.mark.parametrize("calibrator", [Identity(), Histogram(n_bins=5)])
def test_the_base_rate_multiplies_the_odds(calibrator):
    X = np.linspace(-3, 3, 40)[:, None]
    fitted = calibrator.fit(X, (X[:, 0] > -1).astype(int))
    probability, logit = _calibrated(fitted, Given(X), TargetRate(0.02, base_rate_offset(0.5, 0.02), "given"))
    np.testing.assert_allclose(probability, expit(logit), rtol=1e-12)
    odds = fitted.predict_proba(X)[:, 1] / np.maximum(fitted.predict_proba(X)[:, 0], 1e-300)
    moved = odds * 0.02 / 0.98 / (1 + odds * 0.02 / 0.98)
    np.testing.assert_allclose(probability, moved, rtol=1e-6, atol=1e-12)


def test_metrics_at_a_base_rate_weigh_the_negatives_and_rank_without_weights():
    rng = np.random.default_rng(0)
    label = (np.arange(200) < 60).astype(float)
    logit = rng.normal(size=200) + label
    probability = expit(logit)
    truth = np.full(200, 0.3)
    rate = TargetRate(0.1, base_rate_offset(0.5, 0.1), "given")
    result = measure_links(label, probability, logit, truth, rate=rate)
    weight = np.where(label == 1, 1.0, 60 * 0.9 / (0.1 * 140))
    assert np.average(label, weights=weight) == pytest.approx(0.1, rel=1e-12)
    assert result["brier"] == pytest.approx(brier_score(label, probability, sample_weight=weight), rel=1e-12)
    assert result["hits@20"] == hits_at_k(label, logit, k=20)
    # True probability 0.3 is the test links' own base rate, so at base rate 0.1 it is 0.1.
    assert result["true_error"] == pytest.approx(np.average(abs(probability - 0.1), weights=weight))


def test_forward_edges_alone_and_a_graph_that_has_all_of_them():
    edges = torch.tensor([[0, 1, 3, 2, 4, 4, 5], [1, 0, 2, 2, 5, 0, 1]])
    forward = Graph.from_edges(edges, 6, forward_only=True)
    assert forward.pairs.T.tolist() == [[0, 1], [4, 5]]
    assert forward.counts()["backward_removed"] == 4
    everything = Graph.from_edges(edges, 6)
    assert everything.num_pairs == 5
    assert "backward_removed" not in everything.counts()
    with pytest.raises(InputError, match=r"graph of chameleon must be loaded with forward_only=True"):
        split_graph(RunConfig("chameleon", "gcn", forward_only=True), everything)


# The bound on the links of network calibrators: who is sampled, how, and that a run uses it.


def scores(num_links, num_others):
    n = num_links + num_others
    label = torch.zeros(n)
    label[torch.from_numpy(np.random.default_rng(0).permutation(n)[:num_links])] = 1.0
    position = torch.arange(n, dtype=torch.float32)
    toggled = ToggledEmbeddings(
        position[:, None], position[:, None], position, position, torch.zeros(n, dtype=torch.bool), "naive"
    )
    return LinkScores(toggled, label=label)


def test_only_calibrators_with_a_network_are_sampled():
    links = scores(30, 70)
    sampled = [name for name in CALIBRATORS if network_sample(name, links, max_links=10, seed=0) is not links]
    assert sampled == ["embedding-mlp", "in-n-out"]


@pytest.mark.parametrize("bound", [None, 100, 1000])
def test_within_the_bound_all_links_are_taken(bound):
    links = scores(30, 70)
    assert network_sample("in-n-out", links, max_links=bound, seed=0) is links


def test_sample_keeps_the_share_of_links_and_their_order():
    sample = network_sample("in-n-out", scores(300, 700), max_links=100, seed=3)
    assert int(sample.label.sum()) == 30
    assert len(sample) == 100
    assert bool((sample.logit.diff() > 0).all())


def test_both_calibrators_get_one_sample_that_follows_the_seed():
    links = scores(300, 700)

    def rows(name, seed):
        return network_sample(name, links, max_links=50, seed=seed).logit.tolist()

    assert rows("in-n-out", 0) == rows("embedding-mlp", 0)
    assert rows("in-n-out", 0) != rows("in-n-out", 1)


@pytest.mark.parametrize(("num_links", "num_others"), [(1, 99), (99, 1)])
def test_a_rare_class_stays(num_links, num_others):
    sample = network_sample("in-n-out", scores(num_links, num_others), max_links=10, seed=0)
    assert sorted(sample.label.unique().tolist()) == [0.0, 1.0]
    assert len(sample) == 10


def test_a_run_fits_on_the_sample(small_graph):
    settings = {"dataset": "small", "model": "gcn", "epochs": 3, "calibrators": ("platt", "in-n-out")}
    whole = run_experiment(RunConfig(**settings), small_graph)
    bounded = run_experiment(RunConfig(**settings, max_network_links=40), small_graph)
    assert np.array_equal(whole.test_probability["platt"], bounded.test_probability["platt"])
    assert not np.array_equal(whole.test_probability["in-n-out"], bounded.test_probability["in-n-out"])


# What a sweep records of a cell's probabilities, on small cases from public bug reports.


def measured(y, p, logit):
    return measure_completely(y, p, logit)


def logit_of(p):
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return np.log(p / (1 - p))


def test_equal_mass_bins_keep_identical_scores_together():
    p = np.full(100, 0.9)
    y = (np.arange(100) < 40).astype(float)
    assert measured(y, p, logit_of(p))["ece_quantile"] == pytest.approx(0.5, abs=1e-12)
    p = np.repeat([0.2, 0.8], [60, 40])
    y = np.concatenate([np.arange(60) < 24, np.arange(40) < 20]).astype(float)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(100)
        value = measured(y[order], p[order], logit_of(p[order]))["ece_quantile"]
        assert value == pytest.approx(0.24, abs=1e-12)


def test_the_noise_floor_and_the_number_of_links_stand_beside_every_ece():
    p = (np.arange(200) + 0.5) / 200
    y = (np.random.default_rng(0).random(200) < p).astype(float)
    result = measured(y, p, logit_of(p))
    # 0.087 on average over labels drawn from p, within the sampling error of 1,000 draws.
    assert result["ece_floor"] == pytest.approx(0.087, abs=0.006)
    draws = (np.random.default_rng(1).random((200, 200)) < p).astype(float)
    within = np.mean([expected_calibration_error(row, p) <= result["ece_floor_q95"] for row in draws])
    assert within == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 200))
    assert result["positives"] + result["negatives"] == 200


def test_the_ratio_of_negatives_stands_beside_every_ece():
    y = np.repeat([1.0, 0.0], 200)
    even = measured(y, np.full(400, 0.5), np.zeros(400))
    assert (even["ece"], even["positives"], even["negatives"]) == (0.0, 200.0, 200.0)
    repeated = np.concatenate([np.ones(200), np.zeros(20_000)])
    rare = measured(repeated, np.full(20_200, 0.5), np.zeros(20_200))
    assert rare["ece"] == pytest.approx(0.490099, abs=1e-6)
    assert rare["negatives"] / rare["positives"] == 100
    assert rare["auc"] == even["auc"]


def test_hits_with_ties_and_with_few_negatives():
    y = np.repeat([1.0, 0.0], [2, 20])
    with pytest.warns(FewNegativesWarning, match="50"):
        assert measured(y, np.full(22, 0.5), np.zeros(22))["hits@20"] == 0.0
    p = np.concatenate([[0.1, 0.2], np.full(19, 0.9)])
    y = np.repeat([1.0, 0.0], [2, 19])
    with pytest.warns(FewNegativesWarning) as caught:
        result = measured(y, p, logit_of(p))
    assert any("Hits@20 needs at least 20 negatives, got 19" in str(one.message) for one in caught)
    # Never a silent 1: the number of negatives is recorded with it.
    assert (result["hits@20"], result["negatives"]) == (1.0, 19.0)


def test_a_single_class_has_no_ranking():
    result = measured(np.ones(60), np.full(60, 0.7), np.zeros(60))
    assert np.isnan(result["auc"])
    assert np.isnan(result["ap"])
    assert result["ece"] == pytest.approx(0.3)
