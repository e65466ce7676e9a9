"""Calibration by group, against hand-worked deviations, the normal law and simulated calibrated labels."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from linkcal.exceptions import InputError
from linkcal.metrics import group_calibration


def test_hand_worked_deviations():
    y = [1, 1, 0, 0, 1]
    p = [0.5, 0.5, 0.5, 0.2, 0.8]
    found = group_calibration(y, p, {"kind": ["a", "a", "a", "b", "b"], "first": [1, 0, 0, 0, 0]})
    assert found.segment == ("kind=a", "kind=b", "first=0", "first=1")
    assert found.count.tolist() == [3, 2, 4, 1]
    assert found.observed.tolist() == [2, 1, 2, 1]
    assert found.expected == pytest.approx([1.5, 1.0, 2.0, 0.5])
    assert found.z == pytest.approx([0.5 / np.sqrt(0.75), 0.0, 0.0, 1.0])
    assert found.segment[found.worst] == "first=1"


def test_draws_as_far_away_as_the_labels_count_for_the_p_value():
    # |z| of one pair at 1/2 is 1 whatever its label, so every draw ties.
    assert group_calibration([1], [0.5], {"all": [0]}, n_resamples=50).p_value == 1.0


def test_the_bound_of_one_large_segment_is_the_normal_quantile():
    p = np.random.default_rng(0).uniform(0.2, 0.8, 4000)
    found = group_calibration(p > 0.5, p, {"all": np.zeros(4000)}, n_resamples=8000)
    # Standard error of a simulated 95 % quantile of |z| with 8,000 draws: about 0.021.
    assert found.bound == pytest.approx(stats.norm.ppf(0.975), abs=0.09)


def test_calibrated_labels_stay_inside_the_bound_as_often_as_the_level_says():
    rng = np.random.default_rng(1)
    inside = []
    for seed in range(400):
        p = rng.uniform(0.05, 0.95, 300)
        groups = {"a": rng.integers(0, 4, 300), "b": rng.integers(0, 3, 300)}
        y = rng.random(300) < p
        found = group_calibration(y, p, groups, level=0.9, n_resamples=300, random_state=seed)
        inside.append(found.is_consistent)
    # Four standard errors of a share of 0.9 in 400.
    assert np.mean(inside) == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 400))


def test_certain_probabilities_agree_or_are_infinitely_wrong():
    groups = {"segment": ["sure", "sure", "rest"]}
    right = group_calibration([1, 0, 1], [1.0, 0.0, 0.5], groups)
    assert right.z == pytest.approx([1.0, 0.0])
    wrong = group_calibration([0, 0, 1], [1.0, 0.0, 0.5], groups)
    assert wrong.z[1] == -np.inf
    assert not wrong.is_consistent


def test_order_of_links_and_chunks_of_draws_change_nothing(monkeypatch):
    rng = np.random.default_rng(2)
    p, group = rng.uniform(0, 1, 50), rng.integers(0, 3, 50)
    y = rng.random(50) < p
    whole = group_calibration(y, p, {"g": group}, n_resamples=64)
    monkeypatch.setattr("linkcal.metrics.calibration._CHUNK", 7 * 50)
    cut = group_calibration(y, p, {"g": group}, n_resamples=64)
    assert (whole.bound, whole.p_value) == (cut.bound, cut.p_value)
    order = rng.permutation(50)
    moved = group_calibration(y[order], p[order], {"g": group[order]})
    assert moved.z == pytest.approx(whole.z)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "groups must name at least one grouping of links, got 0 of 2"),
        ({"g": [1]}, r"groups\['g'\] must have shape \(2,\), got \(1,\)"),
        ({"g": [1.0, np.nan]}, r"groups\['g'\] must name a segment for each link, got missing values"),
        ({"g": np.array([1.0, None], dtype=object)}, "must name a segment for each link, got missing values"),
        ({"g": np.array(["a", 1], dtype=object)}, "must hold values of one kind"),
    ],
)
def test_groups_that_cannot_be_read(groups, message):
    with pytest.raises(InputError, match=message):
        group_calibration([0, 1], [0.5, 0.5], groups)


def test_a_deviation_at_the_bound_is_inside():
    found = group_calibration([1, 0, 1, 1], [0.5] * 4, {"side": ["a", "a", "b", "b"]}, n_resamples=20)
    largest = abs(found.z[found.worst])
    assert replace(found, bound=largest).is_consistent
    assert not replace(found, bound=np.nextafter(largest, 0.0)).is_consistent
