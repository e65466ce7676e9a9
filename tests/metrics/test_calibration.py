"""Reliability curves and calibration errors: hand-worked values, properties, other people's code."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from linkcal.exceptions import InputError
from linkcal.metrics import debiased_calibration_error, expected_calibration_error, reliability_curve
from refusals import refuses

CASE_01_Y = [1] * 5 + [0] * 5 + [1] * 9 + [0]
CASE_01_P = [0.3] * 10 + [0.7] * 10


def random_links(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return (rng.random(n) < p**1.5).astype(np.int64), p


# --- hand-worked values -------------------------------------------------------------------------------------


def test_case_01_two_readings_of_one_data_set():
    # Positive: 10/20 |0.5 - 0.3| + 10/20 |0.9 - 0.7| = 0.2. Top label: confidence 0.7 in all, right 5 + 9 of
    # 20.
    assert expected_calibration_error(CASE_01_Y, CASE_01_P) == pytest.approx(0.2, abs=1e-12)
    assert expected_calibration_error(CASE_01_Y, CASE_01_P, variant="top-label") < 1e-12


@pytest.mark.parametrize("variant", ["positive", "top-label"])
def test_case_01_shapes_give_the_same_number(variant: str):
    p = np.array(CASE_01_P)
    flat = expected_calibration_error(CASE_01_Y, p, variant=variant)
    assert expected_calibration_error(CASE_01_Y, p[:, None], variant=variant) == flat
    two = np.stack([1 - p, p], axis=1)
    assert expected_calibration_error(CASE_01_Y, two, variant=variant) == flat
    assert expected_calibration_error(torch.tensor(CASE_01_Y), torch.tensor(two), variant=variant) == flat


def test_case_01_columns_that_do_not_sum_to_one_are_refused():
    with pytest.raises(InputError, match=r"y_prob with two columns .* sum to 1 .* got row 1 = \[0.1, 0.8\]"):
        expected_calibration_error([1, 0], [[0.5, 0.5], [0.1, 0.8]])


@pytest.mark.parametrize(
    ("p", "y", "n_bins", "expected"),
    [
        ([0.95, 1.0], [1, 0], 10, 0.475),  # 1.0 shares the last bin with 0.95; a bin of its own gives 0.525
        ([0, 1, 0, 1], [0, 1, 0, 1], 15, 0.0),
        ([1, 1, 1, 1, 0], [0, 0, 1, 1, 1], 2, 0.6),
        ([0.01, 0.001, 0.005], [1, 1, 1], 15, 0.994667),
        ([0.01, 0.001, 0.005], [0, 0, 0], 15, 0.005333),
    ],
)
def test_case_02_ends_of_the_interval_and_one_class(
    p: list[float], y: list[int], n_bins: int, expected: float
):
    assert expected_calibration_error(y, p, n_bins=n_bins) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_case_05_identical_scores_stay_together_in_every_order(seed: int):
    order = np.random.default_rng(seed).permutation(100)
    one_y, one_p = np.repeat([1, 0], [40, 60])[order], np.full(100, 0.9)
    two_y, two_p = np.repeat([1, 0, 1, 0], [24, 36, 20, 20])[order], np.repeat([0.2, 0.8], [60, 40])[order]
    for y, p, ece, used in ((one_y, one_p, 0.5, 1), (two_y, two_p, 0.24, 2)):
        curve = reliability_curve(y, p, n_bins=10, strategy="quantile")
        assert curve.expected_calibration_error == pytest.approx(ece, abs=1e-12)
        assert curve.count.size == used
        assert expected_calibration_error(y, p, n_bins=10, strategy="quantile") == pytest.approx(
            ece, abs=1e-12
        )


def test_case_06_debiased_error_averages_zero_where_the_plug_in_does_not():
    p = (np.arange(200) + 0.5) / 200
    rng = np.random.default_rng(0)
    plug_in, debiased = [], []
    for _ in range(1000):
        y = rng.random(200) < p
        curve = reliability_curve(y, p)
        plug_in.append(curve.weight @ (curve.frequency - curve.mean_prob) ** 2 / 200)
        debiased.append(debiased_calibration_error(y, p))
    assert np.mean(plug_in) == pytest.approx(0.0124, abs=0.0005)
    # 4 standard errors: the draws have a standard deviation of 0.0045.
    assert abs(np.mean(debiased)) < 4 * np.std(debiased) / np.sqrt(1000) < 0.002


def test_case_14_weights_equal_physical_repetition():
    y, p = np.repeat([1, 0], 200), np.full(400, 0.5)
    assert expected_calibration_error(y, p) == 0.0
    weight = np.where(y == 1, 1.0, 100.0)
    weighted = expected_calibration_error(y, p, sample_weight=weight)
    repeated = np.repeat([1, 0], [200, 20_000])
    assert weighted == pytest.approx(0.490099, abs=1e-6)
    assert weighted == pytest.approx(expected_calibration_error(repeated, np.full(20_200, 0.5)), abs=1e-9)
    shifted = np.full(400, 1 / 101)
    assert expected_calibration_error(y, shifted, sample_weight=weight) == pytest.approx(0.0, abs=1e-12)


def test_prediction_of_one_half_counts_as_no_link():
    assert expected_calibration_error([1, 1], [0.5, 0.5], variant="top-label") == 0.5
    curve = reliability_curve([1, 0, 1], [0.5, 0.5, 0.5], variant="top-label")
    np.testing.assert_allclose(curve.frequency, [1 / 3])


# --- reliability curve --------------------------------------------------------------------------------------


def test_curve_by_hand():
    # Bins (0, 0.5] and (0.5, 1]; weights 1, 1, 2, 1. First: mean (0.1 + 0.5) / 2. Second: (2 * 0.6 + 0.9) /
    # 3.
    curve = reliability_curve([0, 1, 1, 0], [0.1, 0.5, 0.6, 0.9], n_bins=2, sample_weight=[1, 1, 2, 1])
    np.testing.assert_allclose(curve.mean_prob, [0.3, 0.7], rtol=1e-12)
    np.testing.assert_allclose(curve.frequency, [0.5, 2 / 3], rtol=1e-12)
    np.testing.assert_array_equal(curve.weight, [2.0, 3.0])
    np.testing.assert_array_equal(curve.count, [2, 2])
    np.testing.assert_allclose(curve.n_effective, [2.0, 9 / 5], rtol=1e-12)
    np.testing.assert_array_equal(curve.lower, [0.0, 0.5])
    np.testing.assert_array_equal(curve.upper, [0.5, 1.0])
    assert curve.expected_calibration_error == pytest.approx((2 * 0.2 + 3 * (0.7 - 2 / 3)) / 5, abs=1e-12)


@pytest.mark.parametrize("n_bins", [2, 5, 10, 15, 20, 100])
def test_every_edge_belongs_to_the_bin_on_its_left(n_bins: int):
    edges = np.array([i / n_bins for i in range(n_bins + 1)])
    curve = reliability_curve(np.ones(n_bins + 1), edges, n_bins=n_bins)
    np.testing.assert_array_equal(curve.count, [2] + [1] * (n_bins - 1))
    np.testing.assert_array_equal(curve.upper, edges[1:])


def test_equal_mass_bins_of_distinct_scores_have_equal_counts():
    y, p = random_links(120, 0)
    curve = reliability_curve(y, p, n_bins=8, strategy="quantile")
    np.testing.assert_array_equal(curve.count, [15] * 8)
    assert (curve.upper[:-1] < curve.lower[1:]).all()
    ordered = np.sort(p).reshape(8, 15)
    np.testing.assert_array_equal(curve.lower, ordered[:, 0])
    np.testing.assert_array_equal(curve.upper, ordered[:, -1])


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=30), n_bins=st.integers(1, 20))
def test_equal_mass_bins_never_split_a_group_nor_merge_two_heavy_ones(counts: list[int], n_bins: int):
    values = np.arange(1, len(counts) + 1) / 64
    p = np.repeat(values, counts)
    curve = reliability_curve(np.zeros(p.size), p, n_bins=n_bins, strategy="quantile")
    bin_of = np.searchsorted(curve.upper, values)
    np.testing.assert_array_equal(curve.count, np.bincount(bin_of, weights=counts))
    heavy = bin_of[np.array(counts) * n_bins >= p.size]
    assert np.unique(heavy).size == heavy.size
    assert curve.count.size <= n_bins
    if values.size <= n_bins:
        assert curve.count.size == values.size


def test_null_band_holds_the_frequency_of_a_calibrated_bin_as_often_as_it_says():
    rng = np.random.default_rng(0)
    p = rng.random(3000)
    inside = []
    for _ in range(200):
        curve = reliability_curve(rng.random(3000) < p, p)
        lower, upper = curve.null_band(0.9)
        inside.append((lower <= curve.frequency) & (curve.frequency <= upper))
    # Discreteness and the binomial's excess width put the coverage above its level.
    assert 0.9 - 4 * np.sqrt(0.09 / 3000) < np.mean(inside) < 0.95


def test_null_band_narrows_with_links_and_is_a_point_for_certainty():
    few = reliability_curve([0, 1], [0.5, 0.5]).null_band()
    many = reliability_curve([0, 1] * 500, [0.5] * 1000).null_band()
    assert few[0][0] == 0.0
    assert few[1][0] == 1.0
    assert 0.45 < many[0][0] < 0.5 < many[1][0] < 0.55
    lower, upper = reliability_curve([0, 1], [0.0, 1.0]).null_band()
    np.testing.assert_array_equal(lower, [0.0, 1.0])
    np.testing.assert_array_equal(upper, [0.0, 1.0])
    refuses(r"level must be in \(0, 1\), got 95", reliability_curve([0, 1], [0.0, 1.0]).null_band, 95)


@pytest.mark.parametrize(("n", "seed"), [(50, 0), (5000, 2)])
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_curve_equals_scikit_learn(n: int, seed: int, strategy: str):
    y, p = random_links(n, seed)
    # n is a multiple of 10 and the scores are distinct: there is one way to cut them into equal counts.
    frequency, mean_prob = calibration_curve(y, p, n_bins=10, strategy=strategy)
    curve = reliability_curve(y, p, n_bins=10, strategy=strategy)
    np.testing.assert_allclose(curve.frequency, frequency, rtol=1e-12)
    np.testing.assert_allclose(curve.mean_prob, mean_prob, rtol=1e-12)


# --- debiased error -----------------------------------------------------------------------------------------


def test_debiased_error_by_hand():
    # One bin with p = 0.5: (3/4 - 1/2)^2 - (3/4 * 1/4) / 3 = 0. The other with p = 0.9: (1/2 - 0.9)^2 - (1/4)
    # / 1.
    y, p = [1, 1, 1, 0, 1, 0], [0.5] * 4 + [0.9] * 2
    expected = 4 / 6 * 0.0 + 2 / 6 * (0.16 - 0.25)
    assert debiased_calibration_error(y, p) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("variant", ["positive", "top-label"])
@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 0.5, 3.0, 1.0, 1.0, 4.0]])
def test_debiased_error_has_mean_exactly_zero_under_calibration(variant: str, weight: list[float] | None):
    # All 2^7 label vectors with their probabilities: no sampling error, and no normal approximation.
    p = np.array([0.03, 0.11, 0.31, 0.55, 0.62, 0.9, 0.97])
    mean = 0.0
    for y in itertools.product([0, 1], repeat=p.size):
        chance = np.prod(np.where(np.array(y) == 1, p, 1 - p))
        mean += chance * debiased_calibration_error(y, p, n_bins=3, variant=variant, sample_weight=weight)
    assert mean == pytest.approx(0.0, abs=1e-14)


def test_debiased_error_does_not_depend_on_the_scale_of_weights():
    y, p = random_links(50, 1)
    weight = np.random.default_rng(2).random(50)
    one = debiased_calibration_error(y, p, sample_weight=weight)
    assert debiased_calibration_error(y, p, sample_weight=weight * 1e-200) == pytest.approx(one, rel=1e-12)


def test_debiased_error_leaves_single_links_out_and_refuses_if_nothing_is_left():
    with_single = debiased_calibration_error([1, 1, 0, 1], [0.5, 0.5, 0.5, 0.99])
    assert with_single == pytest.approx(debiased_calibration_error([1, 1, 0], [0.5] * 3), abs=1e-15)
    refuses("y_prob must put at least two links into one bin", debiased_calibration_error, [1, 0], [0.1, 0.9])


# --- bad options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function", [expected_calibration_error, reliability_curve, debiased_calibration_error]
)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 2.5}, "n_bins must be a whole number >= 1, got 2.5"),
        ({"variant": "toplabel"}, r"variant must be one of .* got 'toplabel' \(did you mean 'top-label'"),
        ({"strategy": "equal"}, "strategy must be one of uniform, quantile; got 'equal'"),
        ({"sample_weight": [1, -1]}, "sample_weight must be >= 0, got -1.0"),
        ({"sample_weight": [0, 0]}, "sample_weight must not be zero everywhere"),
        (
            {"sample_weight": [1e308, 1e308]},
            "sample_weight must be 0 or from 1e-300 to 1e[+]300, got 1e[+]308",
        ),
        ({"sample_weight": [1, 5e-324]}, "sample_weight must be 0 or from 1e-300 to 1e[+]300, got 5e-324"),
    ],
)
def test_bad_options_are_named(function, options: dict[str, object], message: str):
    refuses(message, function, [0, 1], [0.4, 0.5], **options)


# --- other people's code ------------------------------------------------------------------------------------


@pytest.mark.reference
@pytest.mark.parametrize("n", [20, 5000])
def test_ece_equals_torchmetrics(n: int):
    functional = pytest.importorskip("torchmetrics.functional.classification")
    y, p = random_links(n, 0)
    target, prob = torch.tensor(y), torch.tensor(p)
    positive = functional.binary_calibration_error(prob, target, n_bins=15, norm="l1")
    assert expected_calibration_error(y, p) == pytest.approx(float(positive), abs=1e-6)  # float32 inside
    columns = torch.stack([1 - prob, prob], dim=1)
    top = functional.multiclass_calibration_error(columns, target, num_classes=2, n_bins=15, norm="l1")
    assert expected_calibration_error(y, p, variant="top-label") == pytest.approx(float(top), abs=1e-6)


@pytest.mark.reference
@pytest.mark.parametrize(("n", "seed"), [(20, 0), (5000, 2)])
def test_positive_ece_equals_netcal(n: int, seed: int):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # netcal's own imports warn of old syntax
        metrics = pytest.importorskip("netcal.metrics")
        y, p = random_links(n, seed)
        theirs = metrics.ECE(15).measure(p, y)
    assert expected_calibration_error(y, p) == pytest.approx(float(theirs), abs=1e-9)
