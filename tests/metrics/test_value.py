"""What a model adds: the paired difference by hand, its coverage, dependent links, and its sentence."""

import numpy as np
import pytest
from scipy.stats import norm, t

from linkcal.exceptions import InputError
from linkcal.metrics import ModelValue, model_value, negative_log_likelihood


def drawn(seed=0, n=500):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, n)
    return (rng.random(n) < p).astype(int), p, np.clip(p + rng.normal(0, 0.1, n), 0.01, 0.99)


def test_the_gain_is_the_difference_of_the_losses():
    y, p, q = drawn()
    found = model_value(y, p, q)
    loss = [-np.log(np.where(y == 1, each, 1 - each)) for each in (p, q)]
    difference = loss[1] - loss[0]
    assert found.gain == pytest.approx(
        negative_log_likelihood(y, q) - negative_log_likelihood(y, p), abs=1e-12
    )
    error = difference.std(ddof=1) / np.sqrt(len(y))
    assert found.half_width == pytest.approx(norm.ppf(0.975) * error, rel=1e-12)
    assert (found.num_links, found.num_groups) == (500, None)
    back = model_value(y, q, p)
    assert (back.gain, back.half_width) == pytest.approx((-found.gain, found.half_width))


def test_copies_in_one_group_are_one_link():
    y, p, q = drawn(n=200)
    once = model_value(y, p, q)
    copied = model_value(*(np.repeat(part, 3) for part in (y, p, q)), groups=np.repeat(np.arange(200), 3))
    assert copied.gain == pytest.approx(once.gain)
    # Student's quantile in place of the normal one.
    assert copied.half_width == pytest.approx(once.half_width * t.ppf(0.975, 199) / norm.ppf(0.975))
    assert copied.num_groups == 200


def test_two_groups_have_an_interval():
    """The standard error of two group means is half of their distance."""
    y, p, q = drawn(n=200)
    found = model_value(y, p, q, groups=np.arange(200) % 2)
    gains = [model_value(y[part::2], p[part::2], q[part::2]).gain for part in (0, 1)]
    assert found.half_width == pytest.approx(t.ppf(0.975, 1) * abs(gains[0] - gains[1]) / 2)


def test_a_weight_of_zero_leaves_a_link_out():
    y, p, q = drawn(n=100)
    weight = np.ones(100)
    weight[40:] = 0.0
    assert model_value(y, p, q, sample_weight=weight) == model_value(y[:40], p[:40], q[:40])


def test_nine_intervals_of_ten_hold_the_true_gain():
    rng = np.random.default_rng(1)
    truth = rng.uniform(0.1, 0.9, 400)
    other = np.clip(truth + 0.1, 0.0, 0.95)
    gain = (truth * np.log(truth / other) + (1 - truth) * np.log((1 - truth) / (1 - other))).mean()
    inside = 0
    for _ in range(400):
        found = model_value((rng.random(400) < truth).astype(int), truth, other, level=0.9)
        inside += abs(found.gain - gain) < found.half_width
    # 4 standard errors of a share of 0.9.
    assert inside / 400 == pytest.approx(0.9, abs=0.06)


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (0.012, "lowers NLL by 0.0120 +- 0.0030 (paired over 1,054 test links)."),
        (-0.02, "adds nothing that these links can show: with it NLL rises by 0.0200 +- 0.0030 (paired over"),
    ],
)
def test_the_sentence(gain, expected):
    said = str(ModelValue(gain, 0.003, 0.95, 1054))
    assert said.startswith(f"Beyond degrees, paths and feature similarity the model {expected}")
    assert "test links in 7 groups)" in str(ModelValue(gain, 0.003, 0.95, 1054, 7))


def test_certain_and_wrong_is_finite():
    assert np.isfinite(model_value([0, 1, 1], [1.0, 1.0, 0.0], [0.5] * 3).gain)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (([0, 1], [0.5, 0.5], [0.5]), {}, "p_without must have length 2"),
        (([0, 1], [0.5, 2.0], [0.5, 0.5]), {}, "p_with must be in"),
        (([1], [0.5], [0.5]), {}, "at least two links for an interval, got 1"),
        (([0, 1], [0.5, 0.5], [0.5, 0.5]), {"groups": [3, 3]}, "two groups of links for an interval, got 1"),
        (([0, 1], [0.5, 0.5], [0.5, 0.5]), {"groups": [3]}, r"groups must have shape \(2,\), got \(1,\)"),
        (([0, 1], [0.5, 0.5], [0.5, 0.5]), {"level": 1.0}, "level"),
    ],
)
def test_what_cannot_be_compared(args, options, message):
    with pytest.raises(InputError, match=message):
        model_value(*args, **options)
