"""Shapes of reliability curves: each class made on purpose."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency, norm

from linkcal.exceptions import InputError
from linkcal.metrics import (
    EVALUATION_KEYS,
    METRICS,
    accuracy,
    calibration_floor,
    evaluate_links,
    expected_calibration_error,
)
from linkcal_lab.patterns import CalibrationPattern, calibration_pattern, measure_completely

P = CalibrationPattern


def links(*groups: tuple[float, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Groups (probability, links, pairs)."""
    y = np.concatenate([np.repeat([1.0, 0.0], [links, pairs - links]) for _, links, pairs in groups])
    return y, np.concatenate([np.full(pairs, prob) for prob, _, pairs in groups])


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([(0.3, 60, 200), (0.7, 140, 200)], P.CALIBRATED),
        ([(0.4, 20, 200), (0.8, 100, 200)], P.OVER_POSITIVE_UNDER_NEGATIVE),
        ([(0.2, 80, 200), (0.6, 170, 200)], P.UNDER_POSITIVE_OVER_NEGATIVE),
        ([(0.1, 60, 200), (0.9, 140, 200)], P.OVERCONFIDENT),
        ([(0.4, 20, 200), (0.6, 180, 200)], P.UNDERCONFIDENT),
        # One side alone departs, or exists.
        ([(0.3, 60, 200), (0.9, 140, 200)], P.OVERCONFIDENT),
        ([(0.9, 140, 200)], P.OVERCONFIDENT),
        ([(0.6, 180, 200)], P.UNDERCONFIDENT),
        ([(0.1, 60, 200)], P.OVERCONFIDENT),
        ([(0.4, 20, 200)], P.UNDERCONFIDENT),
        ([(0.1, 120, 200), (0.5, 40, 200), (0.9, 180, 200)], P.U_SHAPED),
        # Falls and never rises, rises and falls: no U.
        ([(0.1, 180, 200), (0.5, 100, 200), (0.9, 20, 200)], P.OVERCONFIDENT),
        # Too high and too low inside the positive side: they cancel.
        ([(0.6, 170, 200), (0.95, 140, 200)], P.OTHER),
    ],
)
def test_each_class(groups, expected):
    assert calibration_pattern(*links(*groups)) is expected


def test_a_dip_within_noise_is_no_u():
    # The middle is 2.6 and 2.5 pooled standard errors below its neighbours, the only split of three bins: the
    # bound at 5 % is 1.64. At 1.4 and 1.3 standard errors it is noise.
    for middle, is_u in ((74, True), (86, False)):
        pattern = calibration_pattern(*links((0.1, 100, 200), (0.5, middle, 200), (0.9, 99, 200)))
        assert (pattern is P.U_SHAPED) is is_u


@pytest.mark.parametrize("share", [30, 150])
def test_a_probability_of_one_half_is_a_negative_prediction(share):
    """One rule for patterns, accuracy and the top-label ECE."""
    y, p = links((0.5, share, 200))
    assert accuracy(y, p) == 1 - share / 200
    assert expected_calibration_error(y, p, variant="top-label") == pytest.approx(abs(0.5 - share / 200))
    # Fewer links than predicted among negative predictions: underconfident there.
    assert calibration_pattern(y, p) is (P.UNDERCONFIDENT if share < 100 else P.OVERCONFIDENT)


def test_calibrated_links_are_called_so_19_times_in_20():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        truth = rng.random(400)
        y = (rng.random(400) < truth).astype(float)
        hits += calibration_pattern(y, truth) is P.CALIBRATED
    # 95 % of 200, four standard errors (3.1) below.
    assert hits >= 177


def test_a_known_floor_is_used():
    y, p = links((0.3, 60, 200), (0.7, 150, 200))
    assert calibration_pattern(y, p, floor_q95=calibration_floor(p).q95) is calibration_pattern(y, p)
    assert calibration_pattern(y, p, floor_q95=1.0) is P.CALIBRATED


def test_probabilities_of_zero_and_one():
    y, p = links((0.0, 30, 100), (1.0, 60, 100))
    assert calibration_pattern(y, p) is P.OVERCONFIDENT
    assert calibration_pattern([0, 1], [0.0, 1.0]) is P.CALIBRATED


def test_bad_input():
    with pytest.raises(InputError, match="y_true must have one label per link"):
        calibration_pattern([1, 0], [0.5])


def test_codes_never_change():
    assert {p.label: int(p) for p in P} == {
        "calibrated": 0, "over-positive-under-negative": 1, "under-positive-over-negative": 2, "u-shaped": 3,
        "overconfident": 4, "underconfident": 5, "other": 6,
    }  # fmt: skip


def test_complete_measurement_adds_floor_and_pattern():
    y, p = links((0.3, 60, 200), (0.9, 140, 200))
    plain, extended = evaluate_links(y, p), measure_completely(y.astype(float), p, p)
    assert {key: extended[key] for key in EVALUATION_KEYS} == plain
    assert set(METRICS) <= set(extended)
    top = calibration_floor(p, variant="top-label")
    assert (extended["ece_top_label_floor"], extended["ece_top_label_floor_q95"]) == (top.mean, top.q95)
    assert extended["pattern"] == float(P.OVERCONFIDENT)


def test_u_shaped_is_a_difference_of_shares_at_five_percent():
    """With three bins there is one middle group: the usual test of two shares decides, one-sided at 5 %."""
    shapes = {}
    for middle in range(20, 60):
        groups = [(0.1, 30, 60), (0.5, middle, 150), (0.95, 80, 100)]
        table = [[30, 30], [middle, 150 - middle]]
        z = np.sqrt(chi2_contingency(table, correction=False).statistic)
        shapes[middle] = (calibration_pattern(*links(*groups)) is P.U_SHAPED, z > norm.isf(0.05))
    assert all(found == expected for found, expected in shapes.values())
    assert len({found for found, _ in shapes.values()}) == 2
