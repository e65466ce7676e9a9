"""What a sweep records of a cell's probabilities, on small cases from public bug reports."""

import numpy as np
import pytest

from linkcal.exceptions import FewNegativesWarning
from linkcal.metrics import expected_calibration_error
from linkcal_lab.records import measure


def logit(p):
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return np.log(p / (1 - p))


def test_equal_mass_bins_keep_identical_scores_together():
    p = np.full(100, 0.9)
    y = (np.arange(100) < 40).astype(float)
    assert measure(y, p, logit(p))["ece_quantile"] == pytest.approx(0.5, abs=1e-12)
    p = np.repeat([0.2, 0.8], [60, 40])
    y = np.concatenate([np.arange(60) < 24, np.arange(40) < 20]).astype(float)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(100)
        value = measure(y[order], p[order], logit(p[order]))["ece_quantile"]
        assert value == pytest.approx(0.24, abs=1e-12)


def test_the_noise_floor_and_the_number_of_links_stand_beside_every_ece():
    p = (np.arange(200) + 0.5) / 200
    y = (np.random.default_rng(0).random(200) < p).astype(float)
    result = measure(y, p, logit(p))
    # 0.087 on average over labels drawn from p, within the sampling error of 1,000 draws.
    assert result["ece_floor"] == pytest.approx(0.087, abs=0.006)
    draws = (np.random.default_rng(1).random((200, 200)) < p).astype(float)
    within = np.mean([expected_calibration_error(row, p) <= result["ece_floor_q95"] for row in draws])
    assert within == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 200))
    assert result["positives"] + result["negatives"] == 200


def test_the_ratio_of_negatives_stands_beside_every_ece():
    y = np.repeat([1.0, 0.0], 200)
    even = measure(y, np.full(400, 0.5), np.zeros(400))
    assert (even["ece"], even["positives"], even["negatives"]) == (0.0, 200.0, 200.0)
    repeated = np.concatenate([np.ones(200), np.zeros(20_000)])
    rare = measure(repeated, np.full(20_200, 0.5), np.zeros(20_200))
    assert rare["ece"] == pytest.approx(0.490099, abs=1e-6)
    assert rare["negatives"] / rare["positives"] == 100
    assert rare["auc"] == even["auc"]


def test_hits_with_ties_and_with_few_negatives():
    y = np.repeat([1.0, 0.0], [2, 20])
    with pytest.warns(FewNegativesWarning, match="50"):
        assert measure(y, np.full(22, 0.5), np.zeros(22))["hits@20"] == 0.0
    p = np.concatenate([[0.1, 0.2], np.full(19, 0.9)])
    y = np.repeat([1.0, 0.0], [2, 19])
    with pytest.warns(FewNegativesWarning) as caught:
        result = measure(y, p, logit(p))
    assert any("Hits@20 needs at least 20 negatives, got 19" in str(one.message) for one in caught)
    # Never a silent 1: the number of negatives is recorded with it.
    assert (result["hits@20"], result["negatives"]) == (1.0, 19.0)


def test_a_single_class_has_no_ranking():
    result = measure(np.ones(60), np.full(60, 0.7), np.zeros(60))
    assert np.isnan(result["auc"])
    assert np.isnan(result["ap"])
    assert result["ece"] == pytest.approx(0.3)
