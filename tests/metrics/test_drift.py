import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import bernoulli, ks_2samp

from linkcal.exceptions import InputError
from linkcal.metrics import calibration_alarm, same_population
from linkcal.metrics.drift import CalibrationAlarm


def streams(offset, number, length, seed=0, low=0.3, high=0.7):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        p = rng.uniform(low, high, length)
        yield rng.random(length) < expit(logit(p) + offset), p, {"hub": rng.random(length) < 0.5}


@pytest.mark.parametrize("grouped", [False, True])
def test_false_alarms_at_any_time_are_at_most_alpha(grouped):
    """1,000 streams of 400 labels, looked at after each; the binomial 99.9 % quantile of 0.05 is 0.072."""
    alarms = [calibration_alarm(y, p, g if grouped else None).first for y, p, g in streams(0.0, 1000, 400)]
    assert np.mean([first is not None for first in alarms]) < 0.072


@pytest.mark.parametrize("offset", [-0.5, 0.5])
def test_an_offset_is_found_within_300_labels(offset):
    """At probabilities around one half; the information of a label is p (1 - p)."""
    found = [calibration_alarm(y, p).first is not None for y, p, _ in streams(offset, 400, 300)]
    assert np.mean(found) > 0.9


def test_evidence_is_the_product_of_likelihood_ratios():
    (y, p, _), *_ = streams(0.7, 1, 40)
    expected = 0.0
    for (a, b), stake in zip(
        [(0.5, 1), (-0.5, 1), (1, 1), (-1, 1), (0, 0.5), (0, 2)], [0.35, 0.35, *[0.075] * 4], strict=True
    ):
        q = expit(a + b * logit(p))
        expected += stake * np.prod(bernoulli.pmf(y, q) / bernoulli.pmf(y, p))
    found = calibration_alarm(y, p)
    assert found.e_value[-1] == pytest.approx(expected, rel=1e-9)
    assert found.segment_e_value.tolist() == [found.e_value[-1]]


def test_opposite_errors_of_two_groups_are_found_and_named():
    rng = np.random.default_rng(0)
    hub = rng.random(600) < 0.3
    p = np.full(600, 0.5)
    y = rng.random(600) < np.where(hub, 0.8, 0.37)
    found = calibration_alarm(y, p, {"hub": hub})
    assert found.first is not None
    assert "hub=True" in str(found)
    assert found.segment == ("all", "hub=False", "hub=True")
    # Each segment's evidence is that of its labels alone.
    assert found.segment_e_value[2] == pytest.approx(calibration_alarm(y[hub], p[hub]).e_value[-1])


def test_separated_classes_may_come_in_any_order():
    p = np.repeat([0.99, 0.01], 12)
    assert calibration_alarm(p > 0.5, p).first is None


def test_certain_and_wrong_is_an_alarm_at_once():
    found = calibration_alarm([1, 0, 0], [1.0, 1.0, 0.0])
    assert found.first == 2
    assert calibration_alarm([], []).first is None


def test_same_population():
    rng = np.random.default_rng(0)
    names, rejected = ["logit", "degree", "common"], 0
    for _ in range(300):
        # Tied counts, as structural columns have them.
        draw = [np.column_stack([rng.normal(size=n), *rng.poisson(1.0, (2, n))]) for n in (800, 200)]
        rejected += same_population(*draw, names).p_value < 0.05
    assert rejected / 300 < 0.08
    two_hop = draw[1] + [0.0, 0.0, 1.0]
    found = same_population(draw[0], two_hop, names)
    one = ks_2samp(draw[0][:, 2], two_hop[:, 2], method="asymp")
    assert (found.column, found.distance) == ("common", one.statistic)
    assert found.p_value == pytest.approx(3 * one.pvalue)
    assert "do not look like" in str(found)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: calibration_alarm([0, 1], [0.5]), "y_true"),
        (lambda: calibration_alarm([0], [0.5], alpha=1.0), "alpha"),
        (lambda: calibration_alarm([1] * 10 + [0] * 10, [0.5] * 20), "one class before the other"),
        (lambda: calibration_alarm([0], [0.5], {"side": [1, 2]}), "groups"),
        (lambda: same_population(np.ones((3, 2)), np.ones((3, 1)), ["a", "b"]), "new must have shape"),
        (
            lambda: same_population(np.full((3, 1), np.nan), np.ones((3, 1)), ["a"]),
            "reference must be finite",
        ),
    ],
)
def test_what_cannot_be_tested_is_refused_by_name(call, text):
    with pytest.raises(InputError, match=text):
        call()


def test_the_alarm_is_raised_where_the_evidence_reaches_its_bound():
    def made(*e_value):
        return CalibrationAlarm(np.array(e_value), 0.05, ("all",), np.array(e_value[-1:]), 1.0, 1.0)

    assert made(1.0, 19.9, 20.0, 40.0).first == 3
    assert made(1.0, 19.9).first is None
    # It starts at 1, so that less is no evidence against the start.
    assert str(made(0.5, 0.4)) == str(made(1.0, 0.4)) != str(made(1.5, 0.4))
