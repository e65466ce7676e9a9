"""The suite that every registered metric passes, and the table of all metrics at once."""

import inspect
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linkcal import metrics
from linkcal.exceptions import FewNegativesWarning
from linkcal.metrics import EVALUATION_KEYS, METRICS, MetricSpec, calibration_floor, evaluate_links
from linkcal.metrics.registry import COLUMNS
from refusals import refuses

# Small samples have fewer than 20 negatives; what Hits@K does then is tested in test_scores.
pytestmark = pytest.mark.filterwarnings("ignore::linkcal.exceptions.FewNegativesWarning")

#: Exported functions that are no metric of (y_true, y_prob): curves, floors, the table.
NOT_METRICS = {
    "bootstrap_intervals", "calibration_alarm", "calibration_floor", "evaluate_links", "group_calibration",
    "model_value", "reliability_curve", "same_population",
}  # fmt: skip

#: Copies are not independent observations, which is what this estimator corrects for (see its docstring).
NOT_REPETITION = {"ece_debiased"}

# Eleven metrics times five properties: fewer examples each. A shared machine's pauses are no failure.
quick = settings(max_examples=40, deadline=None)

every_metric = pytest.mark.parametrize("spec", METRICS.values(), ids=METRICS.keys())
probability_metrics = pytest.mark.parametrize(
    "spec", [s for s in METRICS.values() if s.input == "probability"], ids=lambda s: s.name
)
ranking_metrics = pytest.mark.parametrize(
    "spec", [s for s in METRICS.values() if s.input == "score"], ids=lambda s: s.name
)


@st.composite
def links(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities on a grid (so with ties) and whole weights; both classes keep positive weight."""
    row = st.tuples(st.integers(0, 1), st.integers(0, 16), st.integers(0, 4))
    rows = draw(st.lists(row, min_size=1, max_size=60))
    rows += [(0, draw(st.integers(0, 16)), 1), (1, draw(st.integers(0, 16)), 2)]
    rows += [(0, 3, 1), (0, 3, 1)]  # two links in one bin, which the debiased error needs
    y, p, w = (np.array(column) for column in zip(*rows, strict=True))
    return y, p / 16, w.astype(float)


def test_every_exported_metric_is_registered():
    exported = {f for name in metrics.__all__ if inspect.isfunction(f := getattr(metrics, name))}
    registered = {
        spec.function.func if isinstance(spec.function, partial) else spec.function
        for spec in METRICS.values()
    }
    assert registered == {f for f in exported if f.__name__ not in NOT_METRICS}
    assert {f.__name__ for f in exported} >= NOT_METRICS


def test_table_names_every_column_and_cannot_be_changed():
    assert all(name == column.name for name, column in COLUMNS.items())
    of_the_lab = {"ece_top_label_floor", "ece_top_label_floor_q95", "pattern"}
    others = {"true_error", "seconds_fit", "group_z", "group_bound", *of_the_lab}
    assert {*METRICS, *EVALUATION_KEYS} | others == set(COLUMNS)
    assert len({column.label for column in COLUMNS.values()}) == len(COLUMNS)
    assert all(column.description for column in COLUMNS.values())
    with pytest.raises(TypeError):
        METRICS["new"] = METRICS["ece"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ece", 0.1234, "12.34"),
        ("nll", 0.56789, "0.5679"),
        ("acc", 0.8768, "87.7"),
        ("mrr", 0.12345678, "12.35"),
        ("group_z", 2.3456, "2.3"),
        ("auc", math.nan, "n/a"),
    ],
)
def test_values_are_printed_in_the_unit_of_their_column(name: str, value: float | None, text: str):
    assert COLUMNS[name].text(value) == text


@every_metric
@quick
@given(data=links(), seed=st.integers(0, 2**32 - 1))
def test_order_of_links_changes_nothing(spec: MetricSpec, data, seed: int):
    y, p, w = data
    order = np.random.default_rng(seed).permutation(y.size)
    fractional = w / 7 + 0.1
    assert spec.function(y[order], p[order], sample_weight=fractional[order]) == spec.function(
        y, p, sample_weight=fractional
    )


@every_metric
@quick
@given(data=links())
def test_weight_zero_removes_a_link(spec: MetricSpec, data):
    y, p, w = data
    keep = w > 0
    assert spec.function(y, p, sample_weight=w) == spec.function(y[keep], p[keep], sample_weight=w[keep])


@pytest.mark.parametrize("name", [name for name in METRICS if name not in NOT_REPETITION])
@quick
@given(data=links())
def test_weight_k_is_k_copies(name: str, data):
    spec = METRICS[name]
    y, p, w = data
    times = w.astype(int)
    weighted = spec.function(y, p, sample_weight=w)
    copies = spec.function(np.repeat(y, times), np.repeat(p, times))
    assert weighted == pytest.approx(copies, rel=1e-12, abs=1e-14)


@every_metric
@quick
@given(data=links())
def test_value_is_a_float_in_its_range(spec: MetricSpec, data):
    y, p, w = data
    value = spec.function(y, p, sample_weight=w)
    assert type(value) is float
    assert spec.range[0] <= value <= spec.range[1] + 1e-12


@every_metric
def test_perfect_prediction_reaches_the_good_end(spec: MetricSpec):
    y = np.repeat([0, 1], 60)
    best = spec.range[1] if spec.higher_is_better else max(spec.range[0], 0.0)
    assert spec.function(y, y.astype(float)) == pytest.approx(best, abs=1e-12)
    worst = spec.function(y, 1.0 - y)
    assert worst < best if spec.higher_is_better else worst > best


@every_metric
def test_containers_agree_and_inputs_stay_as_they_were(spec: MetricSpec):
    y, p = np.array([0, 1, 0, 1, 1, 0]), np.array([0.25, 0.5, 0.5, 0.75, 1.0, 0.25])
    y_before, p_before = y.copy(), p.copy()
    value = spec.function(y, p)
    assert spec.function(y.tolist(), p.tolist()) == value
    assert spec.function(y.astype(bool), p[:, None]) == value
    assert spec.function(torch.tensor(y), torch.tensor(p, dtype=torch.float32, requires_grad=True)) == value
    np.testing.assert_array_equal(y, y_before)
    np.testing.assert_array_equal(p, p_before)


@every_metric
@pytest.mark.parametrize(
    ("y", "values", "message"),
    [
        ([0, 1], [0.5, float("nan")], "must be finite, got 1 NaN or infinite value"),
        ([0, 2], [0.5, 0.5], "y_true must hold only 0 and 1, got 2"),
        (None, [0.5, 0.5], r"y_true must have shape \(n,\), got \(\)"),
        ([0, 1, 1], [0.5, 0.5], "y_true must have one label per link, 2, got 3"),
        ([], [], "must hold at least one link, got 0"),
        ([0, 1], [[0.1, 0.2, 0.7]] * 2, r"must have shape \(n,\), got \(2, 3\)"),
        ([0, 1], ["a", "b"], "must be numeric"),
    ],
)
def test_bad_input_is_named(spec: MetricSpec, y: list, values: list, message: str):
    refuses(message, spec.function, y, values)


@probability_metrics
@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_probability_outside_the_interval_is_refused(spec: MetricSpec, p: float):
    refuses(r"y_prob must be in \[0, 1\]", spec.function, [0, 1], [0.5, p])


@probability_metrics
@pytest.mark.parametrize("label", [0, 1])
def test_probability_metrics_accept_one_class(spec: MetricSpec, label: int):
    assert math.isfinite(spec.function([label] * 3, [0.01, 0.001, 0.005]))


@ranking_metrics
@quick
@given(data=links())
def test_increasing_maps_leave_ranking_exactly_unchanged(spec: MetricSpec, data):
    y, p, w = data
    value = spec.function(y, p, sample_weight=w)
    for mapped in (p * 8 - 3, np.exp(p), 1 / (2 - p)):
        assert spec.function(y, mapped, sample_weight=w) == value


@pytest.mark.parametrize("name", [name for name, spec in METRICS.items() if spec.proper])
@pytest.mark.parametrize("q", [0.05, 0.3, 0.5, 0.9])
def test_proper_scores_prefer_the_truth(name: str, q: float):
    grid = np.arange(1, 100) / 100
    expected = [METRICS[name].function([1, 0], [p, p], sample_weight=[q, 1 - q]) for p in grid]
    assert grid[np.argmin(expected)] == pytest.approx(q)


# --- evaluate_links -----------------------------------------------------------------------------------------


def sample(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return (rng.random(n) < p).astype(int), p


def test_evaluate_links_has_exactly_the_keys_and_the_single_values():
    y, p = sample()
    result = evaluate_links(y, p, n_resamples=100)
    assert tuple(result) == EVALUATION_KEYS
    assert all(type(value) is float for value in result.values())
    for name in set(EVALUATION_KEYS) & set(METRICS):
        assert result[name] == METRICS[name].function(y, p)
    floor = calibration_floor(p, n_resamples=100)
    assert (result["ece_floor"], result["ece_floor_q95"]) == floor


def test_evaluate_links_ranks_by_the_score_when_given():
    logit = np.repeat([40.0, 60.0], 60)  # both probabilities are 1.0 in float64
    y = np.repeat([0, 1], 60)
    p = 1 / (1 + np.exp(-logit))
    assert evaluate_links(y, p, n_resamples=10)["auc"] == 0.5
    by_logit = evaluate_links(y, p, logit, n_resamples=10)
    assert (by_logit["auc"], by_logit["hits@20"], by_logit["hits@50"]) == (1.0, 1.0, 1.0)
    assert by_logit["ece"] == evaluate_links(y, p, n_resamples=10)["ece"]


def test_evaluate_links_takes_columns_bins_and_weights():
    y, p = sample()
    w = np.where(y == 1, 1.0, 3.0)
    two = np.stack([1 - p, p], axis=1)
    result = evaluate_links(y, two, sample_weight=w, n_bins=7, n_resamples=50)
    assert result == pytest.approx(evaluate_links(y, p, sample_weight=w, n_bins=7, n_resamples=50), rel=1e-12)
    assert result["ece"] == pytest.approx(
        metrics.expected_calibration_error(y, p, n_bins=7, sample_weight=w), rel=1e-12
    )


@pytest.mark.parametrize("label", [0, 1])
def test_evaluate_links_of_one_class_has_calibration_but_no_ranking(label: int):
    result = evaluate_links([label] * 3, [0.01, 0.001, 0.005], n_resamples=10)
    missing = {name for name, value in result.items() if math.isnan(value)}
    assert missing == {"auc", "hits@20", "hits@50", "mrr"}
    assert result["ece"] == pytest.approx(0.994667 if label else 0.005333, abs=1e-6)


@pytest.mark.filterwarnings("error::linkcal.exceptions.FewNegativesWarning")
def test_evaluate_links_warns_of_few_negatives():
    with pytest.warns(FewNegativesWarning, match="Hits@50 needs"):
        result = evaluate_links([1] + [0] * 30, [0.9] + [0.1] * 30, n_resamples=10)
    assert result["hits@50"] == 1.0


def test_values_as_tables_print_them():
    printed = {name: column.text(0.123456) for name, column in METRICS.items()}
    assert printed["ece"] == "12.35"
    assert printed["nll"] == printed["brier"] == "0.1235"
    assert printed["auc"] == printed["ap"] == "12.35"
    assert printed["hits@20"] == printed["hits@50"] == "12.3"


def test_all_that_bin_have_the_same_number_of_bins():
    bins = {
        name: inspect.signature(each).parameters["n_bins"].default
        for name in metrics.__all__
        if inspect.isfunction(each := getattr(metrics, name))
        and "n_bins" in inspect.signature(each).parameters
    }
    assert {"expected_calibration_error", "reliability_curve"} <= set(bins)
    assert set(bins.values()) == {15}
