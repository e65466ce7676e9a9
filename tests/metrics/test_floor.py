"""Noise floor: case 06, exact enumeration, weights, randomness."""

import itertools

import numpy as np
import pytest
import torch

from linkcal.metrics import CalibrationFloor, calibration_floor, expected_calibration_error
from refusals import refuses

CASE_06 = (np.arange(200) + 0.5) / 200
SMALL = np.array([0.02, 0.1, 0.35, 0.5, 0.58, 0.8, 0.93])


def exact_null_distribution(p: np.ndarray, **options: object) -> tuple[np.ndarray, np.ndarray]:
    """ECE of every label vector and the probability of that vector."""
    eces, chances = [], []
    for y in itertools.product([0, 1], repeat=p.size):
        eces.append(expected_calibration_error(y, p, **options))
        chances.append(np.prod(np.where(np.array(y) == 1, p, 1 - p)))
    return np.array(eces), np.array(chances)


def test_case_06_floor_unpacks():
    mean, q95 = floor = calibration_floor(CASE_06)
    assert isinstance(floor, CalibrationFloor)
    assert mean == pytest.approx(0.087, abs=0.002)
    assert q95 == pytest.approx(0.117, abs=0.003)


@pytest.mark.parametrize(
    "options",
    [
        {"n_bins": 3},
        {"n_bins": 3, "variant": "top-label"},
        {"n_bins": 3, "strategy": "quantile"},
        {"n_bins": 2, "sample_weight": [1.0, 5.0, 0.5, 2.0, 0.0, 1.0, 3.0]},
    ],
)
def test_floor_equals_the_exact_distribution(options: dict[str, object]):
    eces, chances = exact_null_distribution(SMALL, **options)
    n_resamples = 20_000
    mean, q95 = calibration_floor(SMALL, n_resamples=n_resamples, **options)
    expected = eces @ chances
    error = np.sqrt((eces - expected) ** 2 @ chances / n_resamples)
    assert abs(mean - expected) < 4 * error
    # The share of label vectors at or below q95 is at least 95 %, and 95 % is not reached clearly below it.
    tolerance = 4 * np.sqrt(0.95 * 0.05 / n_resamples)
    assert chances[eces <= q95 + 1e-9].sum() > 0.95 - tolerance
    assert chances[eces < q95 - 1e-9].sum() < 0.95 + tolerance


def test_certain_probabilities_have_no_floor():
    assert calibration_floor([0.0, 1.0, 1.0], n_resamples=50) == (0.0, 0.0)


def test_floor_does_not_depend_on_chunks_order_or_container():
    p = np.random.default_rng(0).random(500)
    base = calibration_floor(p, n_resamples=700)  # three chunks
    assert calibration_floor(p[::-1], n_resamples=700) == base
    assert calibration_floor(torch.tensor(p), n_resamples=700) == base
    assert calibration_floor(np.stack([1 - p, p], axis=1), n_resamples=700) == base


def test_links_of_weight_zero_do_not_count():
    weight = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    kept = calibration_floor(SMALL[weight > 0], n_resamples=200)
    assert calibration_floor(SMALL, sample_weight=weight, n_resamples=200) == kept


def test_weighted_links_are_single_observations():
    # 10 links of weight 100 are as noisy as 10 links, not as 1,000.
    ten = calibration_floor(np.full(10, 0.5))
    weighted = calibration_floor(np.full(10, 0.5), sample_weight=np.full(10, 100.0))
    assert weighted == pytest.approx(ten, rel=1e-12)
    assert calibration_floor(np.full(1000, 0.5)).mean < ten.mean / 5


def test_seeds():
    same = calibration_floor(SMALL, random_state=7, n_resamples=100)
    assert calibration_floor(SMALL, random_state=7, n_resamples=100) == same
    assert calibration_floor(SMALL, random_state=np.random.default_rng(7), n_resamples=100) == same
    assert calibration_floor(SMALL, random_state=8, n_resamples=100) != same
    fresh = [calibration_floor(SMALL, random_state=None, n_resamples=100).mean for _ in range(2)]
    assert fresh[0] != fresh[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_resamples": 0}, "n_resamples must be a whole number >= 1, got 0"),
        ({"random_state": "a"}, "random_state must be a whole number >= 0, .* got 'a'"),
    ],
)
def test_bad_input_is_named(options: dict[str, object], message: str):
    refuses(message, calibration_floor, [0.2, 0.4], **options)
    refuses(r"y_prob must be in \[0, 1\], got 1.5", calibration_floor, [0.2, 1.5])
