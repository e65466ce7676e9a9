"""Reliability curves: bins by hand and by property, noise band, scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from linkcal.exceptions import InputError
from linkcal.metrics import reliability_curve


def random_links(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return (rng.random(n) < p**1.5).astype(np.int64), p


def test_curve_by_hand() -> None:
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
    assert (curve.n_links, curve.n_bins_used, curve.n_bins) == (4, 2, 2)
    assert curve.expected_calibration_error == pytest.approx((2 * 0.2 + 3 * (0.7 - 2 / 3)) / 5, abs=1e-12)


@pytest.mark.parametrize("n_bins", [2, 5, 10, 15, 20, 100])
def test_every_edge_belongs_to_the_bin_on_its_left(n_bins: int) -> None:
    edges = np.array([i / n_bins for i in range(n_bins + 1)])
    curve = reliability_curve(np.ones(n_bins + 1), edges, n_bins=n_bins)
    np.testing.assert_array_equal(curve.count, [2] + [1] * (n_bins - 1))
    np.testing.assert_array_equal(curve.upper, edges[1:])


def test_equal_mass_bins_of_distinct_scores_have_equal_counts() -> None:
    y, p = random_links(120, 0)
    curve = reliability_curve(y, p, n_bins=8, strategy="quantile")
    np.testing.assert_array_equal(curve.count, [15] * 8)
    assert (curve.upper[:-1] < curve.lower[1:]).all()
    ordered = np.sort(p).reshape(8, 15)
    np.testing.assert_array_equal(curve.lower, ordered[:, 0])
    np.testing.assert_array_equal(curve.upper, ordered[:, -1])


def test_equal_mass_bins_do_not_swallow_a_small_group_beside_a_large_one() -> None:
    p = np.concatenate([np.full(3, 0.1), np.full(90, 0.5), np.linspace(0.8, 0.9, 40)])
    curve = reliability_curve(np.zeros(133), p, n_bins=5, strategy="quantile")
    assert 90 in curve.count
    assert curve.lower[0] == curve.upper[0] == 0.1


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=30),
    n_bins=st.integers(1, 20),
)
def test_equal_mass_bins_never_split_a_group_nor_merge_two_heavy_ones(counts: list[int], n_bins: int) -> None:
    values = np.arange(1, len(counts) + 1) / 64
    p = np.repeat(values, counts)
    curve = reliability_curve(np.zeros(p.size), p, n_bins=n_bins, strategy="quantile")
    bin_of = np.searchsorted(curve.upper, values)
    np.testing.assert_array_equal(curve.count, np.bincount(bin_of, weights=counts))
    heavy = bin_of[np.array(counts) * n_bins >= p.size]
    assert np.unique(heavy).size == heavy.size
    assert curve.n_bins_used <= n_bins
    if values.size <= n_bins:
        assert curve.n_bins_used == values.size


def test_null_band_holds_the_frequency_of_a_calibrated_bin_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(3000)
    inside = []
    for _ in range(200):
        curve = reliability_curve(rng.random(3000) < p, p)
        lower, upper = curve.null_band(0.9)
        inside.append((lower <= curve.frequency) & (curve.frequency <= upper))
    # Discreteness and the binomial's excess width put the coverage above its level.
    assert 0.9 - 4 * np.sqrt(0.09 / 3000) < np.mean(inside) < 0.95


def test_null_band_narrows_with_links_and_is_a_point_for_certainty() -> None:
    few = reliability_curve([0, 1], [0.5, 0.5]).null_band()
    many = reliability_curve([0, 1] * 500, [0.5] * 1000).null_band()
    assert few[0][0] == 0.0
    assert few[1][0] == 1.0
    assert 0.45 < many[0][0] < 0.5 < many[1][0] < 0.55
    lower, upper = reliability_curve([0, 1], [0.0, 1.0]).null_band()
    np.testing.assert_array_equal(lower, [0.0, 1.0])
    np.testing.assert_array_equal(upper, [0.0, 1.0])
    with pytest.raises(InputError, match=r"level must be in \(0, 1\), got 95"):
        reliability_curve([0, 1], [0.0, 1.0]).null_band(95)


@pytest.mark.parametrize(("n", "seed"), [(50, 0), (1000, 1), (5000, 2)])
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_curve_equals_scikit_learn(n: int, seed: int, strategy: str) -> None:
    y, p = random_links(n, seed)
    # n is a multiple of 10 and the scores are distinct: there is one way to cut them into equal counts.
    frequency, mean_prob = calibration_curve(y, p, n_bins=10, strategy=strategy)
    curve = reliability_curve(y, p, n_bins=10, strategy=strategy)
    np.testing.assert_allclose(curve.frequency, frequency, rtol=1e-12)
    np.testing.assert_allclose(curve.mean_prob, mean_prob, rtol=1e-12)
