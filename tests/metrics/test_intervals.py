"""Bootstrap intervals: their resamples measured anew by the plain metrics, and coverage in simulations."""

import numpy as np
import pytest

from linkcal._core.maths import sigmoid
from linkcal._core.validation import chance_limits
from linkcal.metrics import METRICS, bootstrap_intervals, calibration_floor
from linkcal.metrics.intervals import _resampled, intervals_record
from refusals import refuses


def drawn(rng, links=60, negatives=90, rounded=1):
    """Labels in mixed order, logits with ties, and their probabilities."""
    y = rng.permutation(np.repeat([1.0, 0.0], [links, negatives]))
    z = np.round(rng.normal(1.2 * y - 0.6, 1.0), rounded)
    return y, z, sigmoid(z)


def test_ends_are_quantiles_of_the_metrics_of_each_resample():
    rng = np.random.default_rng(0)
    y, z, p = drawn(rng)
    found = bootstrap_intervals(y, {"a": p, "b": p**2}, {"a": z, "b": z}, n_resamples=50, random_state=7)
    again, order = np.random.default_rng(7), np.argsort(-y, kind="stable")
    counts = np.concatenate([_resampled(again, 50, 60), _resampled(again, 50, 90)], axis=1).astype(int)
    assert (counts[:, :60].sum(axis=1) == 60).all()
    assert (counts[:, 60:].sum(axis=1) == 90).all()
    rows = [np.repeat(order, each) for each in counts]
    assert set(found["a"]) == {
        "ece", "ece_top_label", "nll", "brier", "acc", "auc", "hits@20", "hits@50"
    }  # fmt: skip
    for key in set(found["a"]) - {"ece", "ece_top_label"}:
        spec = METRICS[key]
        for name, prob in (("a", p), ("b", p**2)):
            values = z if spec.input == "score" else prob
            expected = np.quantile([spec.function(y[r], values[r]) for r in rows], [0.025, 0.975])
            assert found[name][key] == pytest.approx(tuple(expected), abs=1e-12), key
    # The resampled ECE bounds the interval from above; b is so wrong that it decides.
    errors = [METRICS["ece"].function(y[r], (p**2)[r]) for r in rows]
    assert found["b"]["ece"][1] == pytest.approx(np.quantile(errors, 0.975), abs=1e-12)


def test_weights_are_those_of_the_metrics():
    y, z, p = drawn(np.random.default_rng(1))
    weight = np.where(y == 1, 1.0, 6.0)
    plain = bootstrap_intervals(y, {"a": p}, {"a": z})["a"]
    found = bootstrap_intervals(y, {"a": p}, {"a": z}, sample_weight=weight)["a"]
    for key in ("ece", "ece_top_label", "nll", "brier", "acc"):
        low, high = found[key]
        assert low <= METRICS[key].function(y, p, sample_weight=weight) <= high
        assert found[key] != plain[key]
    assert found["auc"] == plain["auc"]
    assert found["hits@20"] == plain["hits@20"]


@pytest.mark.slow
@pytest.mark.parametrize("tilt", [1.0, 2.5])
def test_intervals_cover_the_values_of_the_population(tilt):
    """300 test sets of 200 links and 200 negatives; probabilities right (tilt 1) and overconfident."""
    rng = np.random.default_rng(3)
    y, z, _ = drawn(rng, 400_000, 400_000, rounded=9)
    p = sigmoid(tilt * 1.2 * z)  # of these two normals the log-odds are 1.2 z
    truth = {key: METRICS[key].function(y, z if METRICS[key].input == "score" else p) for key in
             ("ece", "ece_top_label", "nll", "brier", "acc", "auc")}  # fmt: skip
    links, negatives = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    inside, sets = dict.fromkeys(truth, 0), 300
    for seed in range(sets):
        rows = np.concatenate([rng.choice(each, 200) for each in (links, negatives)])
        found = bootstrap_intervals(y[rows], {"a": p[rows]}, n_resamples=300, random_state=seed)["a"]
        for key, value in truth.items():
            inside[key] += found[key][0] <= value + 1e-4 and value <= found[key][1]
    # 95 %; four standard errors of 300 draws are 5 points. Intervals of the ECE are wider than needed.
    for key, number in inside.items():
        assert number / sets > 0.90, (key, number)
        assert key.startswith("ece") or number / sets < 0.99, (key, number)


def test_zero_is_inside_where_the_ece_is_noise():
    rng = np.random.default_rng(5)
    p = rng.uniform(size=600)
    y = (rng.uniform(size=600) < p).astype(float)
    assert bootstrap_intervals(y, {"a": p})["a"]["ece"][0] == 0.0
    assert bootstrap_intervals(y, {"a": p**3})["a"]["ece"][0] > 0.05


def test_what_is_undefined_is_left_out():
    assert set(bootstrap_intervals([1, 1, 1], {"a": [0.5, 0.6, 0.7]})["a"]) == {
        "ece", "ece_top_label", "nll", "brier", "acc"
    }  # fmt: skip
    y, _, p = drawn(np.random.default_rng(2), 40, 30)
    assert "hits@50" not in bootstrap_intervals(y, {"a": p})["a"]
    y, p = np.repeat([1, 0], [10, 50]), np.linspace(0.9, 0.1, 60)
    assert "hits@50" in bootstrap_intervals(y, {"a": p})["a"]
    refuses(r"one value per link, 2, got \[3, 3\] for a", bootstrap_intervals, [0, 1], {"a": [0.1, 0.2, 0.3]})
    refuses("at least one link, got 0", bootstrap_intervals, [], {"a": []})


@pytest.mark.parametrize(("links", "negatives"), [(30, 30), (80, 80), (20, 180)])
def test_limits_of_few_links_are_what_chance_does(links, negatives):
    precision, ece = chance_limits(links, negatives)
    n, rate = links + negatives, links / (links + negatives)
    shares = np.random.default_rng(0).binomial(n, rate, 100_000) / n
    assert precision == pytest.approx(1.96 * shares.std(), rel=0.02)
    spread = np.random.default_rng(1).beta(2 * rate, 2 * (1 - rate), (40, n))  # uniform at a rate of 1/2
    floors = [calibration_floor(p, n_resamples=100).mean for p in spread]
    # Equal filling of the bins is the worst case; at a low rate most pairs are in the first.
    assert 0.5 < np.mean(floors) / ece < 1.05


def test_the_record_of_a_run_has_95_percent_intervals():
    y, z, p = drawn(np.random.default_rng(5))
    record = intervals_record(y, {"a": p}, {"a": z}, None)
    assert record["interval_level"] == 0.95
    again = bootstrap_intervals(y, {"a": p}, {"a": z}, level=0.95, n_resamples=1000)
    assert record["intervals"] == again
