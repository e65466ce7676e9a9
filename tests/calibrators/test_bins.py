"""Bins that histogram binning and BBQ share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkcal.calibrators.binning import bin_index, quantile_edges, uniform_edges


def test_bins_are_closed_on_the_right_and_zero_is_in_the_first():
    edges = uniform_edges(5)
    assert bin_index(np.array([0.0, 0.1, 0.2, 0.21, 0.6, 0.61, 1.0]), edges).tolist() == [0, 0, 0, 1, 2, 3, 4]


def test_case_05_identical_scores_stay_together_and_groups_apart():
    edges = quantile_edges(np.array([0.2, 0.8]), np.array([60.0, 40.0]), 10)
    assert edges.tolist() == [0.0, 0.5, 1.0]
    assert quantile_edges(np.array([0.9]), np.array([100.0]), 10).tolist() == [0.0, 1.0]


def test_distinct_values_are_split_evenly():
    values = (np.arange(10) + 0.5) / 10
    assert bin_index(values, quantile_edges(values, np.ones(10), 5)).tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(1, 9)), min_size=1, max_size=40, unique_by=lambda t: t[0]
    ),
    st.integers(1, 12),
    st.sampled_from([1.0, 0.1, 1e-9, 1e6]),
)
def test_quantile_bins_are_ordered_occupied_and_free_of_the_weights_unit(rows, n_bins, unit):
    values, weight = np.array(sorted(rows)).T
    edges = quantile_edges(values, weight, n_bins)
    assert edges[0] == 0.0
    assert edges[-1] == 1.0
    assert 1 <= len(edges) - 1 <= n_bins
    assert (np.diff(edges) >= 0.0).all()
    assert np.array_equal(edges, quantile_edges(values, unit * weight, n_bins))


@pytest.mark.parametrize("n_bins", [1, 7, 15, 49])
def test_uniform_edges_are_the_nearest_floats(n_bins):
    assert uniform_edges(n_bins).tolist() == [i / n_bins for i in range(n_bins + 1)]
