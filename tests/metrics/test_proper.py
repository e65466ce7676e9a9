"""Log loss, Brier score and accuracy: values by hand, clipping, scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from linkcal._core.maths import PROBABILITY_EPS
from linkcal.metrics import accuracy, brier_score, negative_log_likelihood

Y, P, W = [1, 0, 1, 0], [0.8, 0.4, 0.5, 0.9], [1.0, 2.0, 0.0, 1.0]


def test_values_by_hand():
    assert negative_log_likelihood(Y, P) == pytest.approx(
        -(math.log(0.8) + math.log(0.6) + math.log(0.5) + math.log(0.1)) / 4, rel=1e-12
    )
    assert brier_score(Y, P) == pytest.approx((0.04 + 0.16 + 0.25 + 0.81) / 4, rel=1e-12)
    assert accuracy(Y, P) == 0.5  # 0.5 predicts no link; 0.5 and 0.9 are wrong


def test_weighted_values_by_hand():
    assert negative_log_likelihood(Y, P, sample_weight=W) == pytest.approx(
        -(math.log(0.8) + 2 * math.log(0.6) + math.log(0.1)) / 4, rel=1e-12
    )
    assert brier_score(Y, P, sample_weight=W) == pytest.approx((0.04 + 2 * 0.16 + 0.81) / 4, rel=1e-12)
    assert accuracy(Y, P, sample_weight=W) == 0.75


def test_wrong_certainty_costs_the_documented_amount():
    assert negative_log_likelihood([1], [0.0]) == pytest.approx(-math.log(PROBABILITY_EPS), rel=1e-12)
    assert negative_log_likelihood([0], [1.0]) == pytest.approx(-math.log(PROBABILITY_EPS), rel=1e-12)
    assert 0.0 <= negative_log_likelihood([0, 1], [0.0, 1.0]) < 1e-15
    assert negative_log_likelihood([0, 1], torch.tensor([1.0, 0.0])) < 36.05


@pytest.mark.parametrize("seed", range(3))
def test_equal_scikit_learn(seed: int):
    rng = np.random.default_rng(seed)
    y, p, w = rng.integers(0, 2, 500), rng.random(500), rng.random(500)
    assert negative_log_likelihood(y, p, sample_weight=w) == pytest.approx(
        log_loss(y, p, sample_weight=w), rel=1e-12
    )
    assert brier_score(y, p, sample_weight=w) == pytest.approx(
        brier_score_loss(y, p, sample_weight=w), rel=1e-12
    )
    assert accuracy(y, p, sample_weight=w) == pytest.approx(
        accuracy_score(y, p > 0.5, sample_weight=w), rel=1e-12
    )


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_enough(label: int):
    right = 0.75 if label else 0.25
    assert negative_log_likelihood([label] * 3, [right] * 3) == pytest.approx(-math.log(0.75), rel=1e-12)
    assert brier_score([label] * 3, [right] * 3) == pytest.approx(0.0625, rel=1e-12)
    assert accuracy([label] * 3, [right] * 3) == 1.0
