"""The structural calibrator: known maps, named terms, monotone fits, feature sets, sizes of data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators import Histogram, Isotonic, Platt, StructuralCalibrator
from linkcal.calibrators._additive import merged_links, weighted_quantile
from linkcal.exceptions import InputError, NotFittedError
from linkcal.features import STRUCTURAL_COLUMNS
from linkcal.metrics import negative_log_likelihood

from .samples import groups, overconfident


def true_logit(X):
    """Of :func:`structural_links`: the slope differs by sign of s, common neighbours count, cosine bends."""
    s, cosine, common = X[:, 0], X[:, 4], X[:, 7]
    return (
        np.where(s > 0, 0.6 * s, 0.2 * s) + 1.5 * np.log1p(common) - np.maximum(cosine - 0.5, 0.0) * 4 - 0.8
    )


def structural_links(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    X = np.zeros((n, 1 + len(STRUCTURAL_COLUMNS)))
    X[:, :8] = rng.normal(size=(n, 8))  # the feature similarity stays 0, as without features
    X[:, 0] *= 4.0
    X[:, 1] = rng.standard_t(2, n)  # heavy tails, as changes of logits have
    X[:, 4] = rng.uniform(-1, 1, n)
    X[:, 7] = rng.poisson(0.7, n)
    return X, (rng.random(n) < expit(true_logit(X))).astype(int)


def test_recovers_a_known_additive_map():
    X, y = structural_links(20_000)
    test, _ = structural_links(5_000, seed=1)
    p, truth = StructuralCalibrator().fit(X, y).predict_proba(test)[:, 1], expit(true_logit(test))
    blind = Isotonic().fit(X, y).predict_proba(test)[:, 1]
    error = np.abs(p - truth).mean()
    # The logit enters through asinh and the common neighbours bend at quantiles: not the very same family.
    assert error < 0.02
    assert error < 0.2 * np.abs(blind - truth).mean()


def test_finds_columns_that_count_together():
    X, _ = structural_links(20_000)
    truth = expit(0.5 * X[:, 0] + X[:, 5] * X[:, 7])
    y = (np.random.default_rng(1).random(len(X)) < truth).astype(int)
    fitted = StructuralCalibrator().fit(X, y)
    p = fitted.predict_proba(X)[:, 1]
    # Curves alone have the mean effect of each column, not which way it counts.
    additive = fitted._model()
    alone = replace(additive, pairs=np.zeros_like(additive.pairs)).contributions(X).sum(axis=1)
    assert np.abs(p - truth).mean() < 0.03
    assert np.abs(expit(alone + fitted.intercept_) - truth).mean() > 0.06
    strongest = np.unravel_index(np.abs(fitted.pairs_).argmax(), fitted.pairs_.shape)
    assert sorted(strongest) == [5, 7]
    assert np.array_equal(fitted.pairs_, fitted.pairs_.T)
    assert not fitted.pairs_[0].any()
    assert not fitted.pairs_.diagonal().any()


@pytest.mark.parametrize(("k", "paired"), [(1, False), (2, True), (10, True), (11, False)])
def test_wide_inputs_have_no_products_of_pairs(k, paired):
    X, y = overconfident(n=300, k=k)
    assert StructuralCalibrator(penalty=1.0).fit(X, y).pairs_.any() == paired


@pytest.mark.parametrize(("n", "slack"), [(100, 0.05), (1000, 0.0)])
def test_small_sets_are_no_worse_than_platt(n, slack):
    test, y_test = structural_links(20_000, seed=99)
    ours, platt = [], []
    for seed in range(10):
        X, y = structural_links(n, seed)
        ours.append(negative_log_likelihood(y_test, StructuralCalibrator().fit(X, y).predict_proba(test)))
        platt.append(negative_log_likelihood(y_test, Platt().fit(X, y).predict_proba(test)))
    assert np.mean(ours) < np.mean(platt) + slack


@pytest.mark.slow
def test_a_large_set():
    X, y = structural_links(200_000)
    fitted = StructuralCalibrator().fit(X, y)
    assert fitted.converged_
    assert np.abs(fitted.predict_proba(X)[:, 1] - expit(true_logit(X))).mean() < 0.015


def test_contributions_add_up_to_the_decision():
    X, y = structural_links()
    fitted = StructuralCalibrator().fit(X, y)
    terms = fitted.contributions(X)
    assert list(terms) == ["intercept", "logit", *STRUCTURAL_COLUMNS, "limit"]
    np.testing.assert_allclose(sum(terms.values()), fitted.decision_function(X), rtol=0, atol=1e-12)
    limit, total = terms.pop("limit"), fitted.decision_function(X)
    assert np.all(np.diff(limit[np.argsort(total)]) <= 1e-12)  # takes off more the further out
    assert np.abs(limit[np.abs(total) < 2.0]).max() < 0.1
    for name, values in terms.items():
        centre = fitted.intercept_ if name == "intercept" else 0.0
        assert values.mean() == pytest.approx(centre, abs=1e-9)


def test_contributions_before_fit_are_refused():
    with pytest.raises(NotFittedError, match="must be fitted first"):
        StructuralCalibrator().contributions(np.zeros((3, 1)))


def test_contributions_name_the_cause():
    X, y = structural_links(5_000)
    spread = {name: v.std() for name, v in StructuralCalibrator().fit(X, y).contributions(X).items()}
    strongest = sorted(spread, key=spread.__getitem__)[-3:]
    assert set(strongest) == {"logit", "cosine", "log_common_neighbours"}


def test_mean_probability_is_the_share_of_links():
    X, y = structural_links()
    assert StructuralCalibrator().fit(X, y).predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), n_knots=st.integers(0, 6), penalty=st.sampled_from([0.01, 1.0, 100.0]))
def test_monotone_never_falls_with_the_logit(seed, n_knots, penalty):
    rng = np.random.default_rng(seed)
    X, _ = structural_links(150, seed)
    y = (rng.random(150) < 0.5).astype(int)  # noise: without the constraint curves would fall somewhere
    fitted = StructuralCalibrator(monotone=True, n_knots=n_knots, penalty=penalty).fit(X, y)
    asked, _ = structural_links(20, seed + 1)
    grid = np.r_[np.linspace(-30, 30, 121), X[:40, 0], 0.0]
    grid.sort()
    for row in 3.0 * asked:
        line = np.repeat(row[None], len(grid), axis=0)
        line[:, 0] = grid
        assert (np.diff(fitted.decision_function(line)) >= -1e-9).all()


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize(
    "logit",
    [
        lambda n: np.r_[-5.0, np.linspace(0.1, 3.0, n - 1)],  # one link below 0, too few for a knot there
        lambda n: np.r_[5.0, np.linspace(-3.0, -0.1, n - 1)],
        lambda n: np.r_[-5.0, np.ones(n - 1)],
        lambda n: np.r_[5.0, np.zeros(n - 1)],
        lambda n: np.r_[-5.0, 5.0, np.zeros(n - 2)],
    ],
)
def test_what_is_kept_is_what_was_fitted_where_few_links_are_beyond_0(logit, monotone):
    rng = np.random.default_rng(2)
    y, s = rng.integers(0, 2, size=1000), logit(1000)
    y[0] = s[0] > 0.0
    X = np.column_stack((s, y + rng.normal(size=1000), rng.normal(size=(1000, 2))))
    calibrator = StructuralCalibrator(monotone=monotone, penalty=1e-3).fit(X, y)
    # Only then is the intercept that of the kept curves.
    assert calibrator.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-9)
    if monotone:
        grid = np.repeat(X[:5], 401, axis=0)
        grid[:, 0] = np.tile(np.linspace(-20.0, 20.0, 401), 5)
        assert np.diff(calibrator.decision_function(grid).reshape(5, 401)).min() >= -1e-12


def test_without_the_option_a_falling_logit_is_followed():
    X, y = overconfident(n=2000, k=0)
    X = -X
    assert np.corrcoef(StructuralCalibrator().fit(X, y).decision_function(X), X[:, 0])[0, 1] < -0.9
    flat = StructuralCalibrator(monotone=True).fit(X, y).decision_function(X)
    assert np.ptp(flat) == pytest.approx(0.0, abs=1e-6)


def test_one_column_gives_a_smooth_map_of_the_logit():
    X, y = overconfident(n=3000, k=0)  # the true logit is X / 2.5
    fitted = StructuralCalibrator().fit(X, y)
    grid = np.linspace(-6, 6, 50)[:, None]
    assert np.abs(fitted.predict_proba(grid)[:, 1] - expit(grid[:, 0] / 2.5)).max() < 0.06
    assert len(np.unique(fitted.decision_function(grid))) == 50  # no ties, also outside the links' range
    total = sum(fitted.contributions(grid).values())
    np.testing.assert_allclose(fitted.decision_function(grid), total, rtol=0, atol=1e-12)


def test_features_logit_reads_the_logit_alone():
    X, y = structural_links(500)
    narrow = StructuralCalibrator().fit(X[:, :1], y).decision_function(X[:, :1])
    wide = StructuralCalibrator(features="logit").fit(X, y)
    assert np.array_equal(wide.decision_function(X), narrow)
    assert wide.terms_ == ["logit"]


@pytest.mark.parametrize(
    ("features", "used"),
    [
        ("toggle", STRUCTURAL_COLUMNS[:4]),
        ("structure", STRUCTURAL_COLUMNS[4:7]),
        ("attributes", STRUCTURAL_COLUMNS[7:]),
        ("attributes+toggle", STRUCTURAL_COLUMNS[:4] + STRUCTURAL_COLUMNS[7:]),
    ],
)
def test_feature_sets_read_their_columns_only(features, used):
    X, y = structural_links(400)
    fitted = StructuralCalibrator(features=features).fit(X, y)
    assert fitted.terms_ == ["logit", *used]
    other = X.copy()
    kept = [0, *(1 + STRUCTURAL_COLUMNS.index(name) for name in used)]
    other[:, [j for j in range(10) if j not in kept]] = 7.0
    assert np.array_equal(fitted.decision_function(other), fitted.decision_function(X))
    assert not np.array_equal(
        fitted.decision_function(other), StructuralCalibrator().fit(X, y).decision_function(X)
    )


def test_feature_sets_need_the_nine_columns():
    X, y = overconfident(k=3)
    with pytest.raises(InputError, match=r"X must have 10 columns for features='toggle' .*, got 4"):
        StructuralCalibrator(features="toggle").fit(X, y)
    with pytest.raises(InputError, match="did you mean 'structure'"):
        StructuralCalibrator(features="structural").fit(X, y)
    for joined in ("toggle+all", "toggle+", ""):
        with pytest.raises(InputError, match="features must be"):
            StructuralCalibrator(features=joined).fit(X, y)
    assert StructuralCalibrator().fit(X, y).terms_ == ["logit", "feature_1", "feature_2", "feature_3"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_knots": -1}, "n_knots must be a whole number >= 0, got -1"),
        ({"penalty": 0.0}, r"penalty must be a finite number > 0, got 0\.0"),
    ],
)
def test_settings_out_of_range(params, message):
    with pytest.raises(InputError, match=message):
        StructuralCalibrator(**params).fit(*overconfident())


def test_a_given_penalty_is_used_and_a_chosen_one_beats_the_extremes():
    X, y = structural_links(600)
    test, y_test = structural_links(20_000, seed=3)
    loss = {}
    for penalty in (None, 1e5, 1e-3):
        fitted = StructuralCalibrator(penalty=penalty).fit(X, y)
        loss[penalty] = negative_log_likelihood(y_test, fitted.predict_proba(test))
        assert penalty is None or fitted.penalty_ == penalty
    assert loss[None] < min(loss[1e5], loss[1e-3])


# Case 12: 1,000 pairs of logit 0, 100 of them links.
def test_case_12_moves_the_base_rate():
    X, y = groups((0.0, 1000, 100))
    assert StructuralCalibrator().fit(X, y).predict_proba([[0.0]])[0, 1] == pytest.approx(0.1, abs=1e-3)


def test_constant_columns_say_nothing():
    X, y = structural_links(500)
    X[:, 2], X[:, 6] = 3.0, 0.0
    terms = StructuralCalibrator().fit(X, y).contributions(X)
    assert np.abs(terms["log_distance"]).max() < 1e-6
    assert np.abs(terms["log_degree_difference"]).max() < 1e-6


def test_separable_links_stay_finite():
    X, y = groups((-2.0, 30, 0), (2.0, 30, 30))
    p = StructuralCalibrator().fit(X, y).predict_proba([[-2.0], [2.0]])[:, 1]
    assert 0.0 < p[0] < 0.02
    assert 0.98 < p[1] < 1.0


def test_grouped_links_are_held_out_by_copies():
    X, y = groups((-1.0, 400, 80), (0.0, 400, 240), (1.0, 400, 320))
    p = StructuralCalibrator().fit(X, y).predict_proba([[-1.0], [0.0], [1.0]])[:, 1]
    np.testing.assert_allclose(p, [0.2, 0.6, 0.8], atol=0.01)


def test_one_link_of_a_class_takes_the_strongest_penalty():
    X, y = overconfident(n=40)
    y[:] = np.arange(40) == 7
    fitted = StructuralCalibrator().fit(X, y)
    assert fitted.penalty_ == 1000.0
    assert fitted.predict_proba(X)[:, 1].mean() == pytest.approx(1 / 40, abs=1e-9)


def test_slope_answers_for_a_penalty_too_weak_or_too_strong():
    X, y = structural_links(300)
    test, y_test = structural_links(20_000, seed=1)
    weak = StructuralCalibrator(penalty=0.01, n_knots=8).fit(X, y)
    strong = StructuralCalibrator(penalty=1000.0).fit(X, y)
    assert weak.slope_ < 0.5
    assert strong.slope_ > 1.1
    for fitted in (weak, strong):
        z = fitted.decision_function(test)
        before = (z - fitted.intercept_) / fitted.slope_ + fitted.intercept_
        assert bernoulli_nll(z, y_test).mean() < bernoulli_nll(before, y_test).mean()


def test_labels_without_a_cause_keep_the_order_of_the_fit():
    X, _ = structural_links(200)
    y = (np.arange(200) % 2).astype(float)
    fitted = StructuralCalibrator(penalty=0.01).fit(X, y)
    assert 0.01 <= fitted.slope_ < 0.5
    assert len(np.unique(fitted.decision_function(X))) > 150


def test_ranks_better_than_the_logit_where_the_graph_knows_more():
    from sklearn.metrics import roc_auc_score

    X, y = structural_links()
    test, y_test = structural_links(5_000, seed=1)
    auc = {
        type(c).__name__: roc_auc_score(y_test, c.fit(X, y).decision_function(test))
        for c in (Platt(), Histogram(), StructuralCalibrator())
    }
    assert auc["StructuralCalibrator"] > auc["Platt"] + 0.03
    assert auc["Platt"] > auc["Histogram"]


@settings(deadline=None)
@given(
    values=st.lists(st.integers(-5, 5), min_size=1, max_size=12),
    data=st.data(),
    level=st.sampled_from([0.002, 0.2, 0.5, 0.8, 0.998, 1.0]),
)
def test_weighted_quantile_counts_copies(values, data, level):
    weight = data.draw(st.lists(st.integers(1, 4), min_size=len(values), max_size=len(values)))
    x, w = np.array(values, float), np.array(weight, float)
    expected = np.quantile(np.repeat(x, weight), level, method="inverted_cdf")
    assert weighted_quantile(x, w, np.array([level]))[0] == expected


def test_merging_adds_weights_and_forgets_the_order():
    X = np.array([[2.0, 1.0], [1.0, 1.0], [2.0, 1.0], [2.0, 1.0]])
    y, weight = np.array([1.0, 0.0, 1.0, 0.0]), np.array([1.0, 2.0, 3.0, 4.0])
    merged = merged_links(X, y, weight)
    assert merged[0].tolist() == [[1.0, 1.0], [2.0, 1.0], [2.0, 1.0]]
    assert (merged[1].tolist(), merged[2].tolist()) == ([0.0, 0.0, 1.0], [2.0, 4.0, 4.0])
    again = merged_links(X[::-1], y[::-1], weight[::-1])
    assert all(np.array_equal(a, b) for a, b in zip(merged, again, strict=True))
