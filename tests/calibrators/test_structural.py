"""The structural calibrator: known maps, names of columns, base links."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators import Isotonic, Platt, StructuralCalibrator, StructureOnly
from linkcal.calibrators._held_out import Tails
from linkcal.exceptions import ArtifactError, InputError
from linkcal.features import COLUMN_GROUPS, STRUCTURAL_COLUMNS, STRUCTURE_COLUMNS
from linkcal.metrics import negative_log_likelihood
from refusals import refuses

from .samples import groups, overconfident


def true_logit(X):
    """Of :func:`structural_links`: the slope differs by sign of s, common neighbours count, cosine bends."""
    s, cosine, common = X[:, 0], X[:, 4], X[:, 7]
    slope, bend = np.where(s > 0, 0.6 * s, 0.2 * s), np.maximum(cosine - 0.5, 0.0) * 4
    return slope + 1.5 * np.log1p(common) - bend - 0.8


def named(**params):
    return StructuralCalibrator(feature_names=STRUCTURAL_COLUMNS, **params)


def structural_links(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    X = np.zeros((n, 1 + len(STRUCTURAL_COLUMNS)))
    X[:, :8] = rng.normal(size=(n, 8))  # paths and feature similarity stay 0
    X[:, 0] *= 4.0
    X[:, 1] = rng.standard_t(2, n)  # heavy tails, as changes of logits have
    X[:, 4] = rng.uniform(-1, 1, n)
    X[:, 7] = rng.poisson(0.7, n)
    return X, (rng.random(n) < expit(true_logit(X))).astype(int)


def test_recovers_a_known_additive_map():
    X, y = structural_links(20_000)
    test, _ = structural_links(5_000, seed=1)
    p, truth = named().fit(X, y).predict_proba(test)[:, 1], expit(true_logit(test))
    blind = Isotonic().fit(X, y).predict_proba(test)[:, 1]
    error = np.abs(p - truth).mean()
    # The logit enters through asinh and the common neighbours bend at quantiles: not the very same family.
    assert error < 0.02
    assert error < 0.2 * np.abs(blind - truth).mean()


def test_finds_columns_that_count_together():
    X, _ = structural_links(20_000)
    truth = expit(0.5 * X[:, 0] + X[:, 5] * X[:, 7])
    y = (np.random.default_rng(1).random(len(X)) < truth).astype(int)
    fitted = named().fit(X, y)
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


@pytest.mark.parametrize(("k", "paired"), [(1, False), (2, True), (12, True), (13, False)])
def test_wide_inputs_have_no_products_of_pairs(k, paired):
    X, y = overconfident(n=300, k=k)
    assert StructuralCalibrator(penalty=1.0).fit(X, y).pairs_.any() == paired


@pytest.mark.parametrize(("n", "slack"), [(100, 0.05), (1000, 0.0)])
def test_small_sets_are_no_worse_than_platt(n, slack):
    test, y_test = structural_links(20_000, seed=99)
    ours, platt = [], []
    for seed in range(10):
        X, y = structural_links(n, seed)
        ours.append(negative_log_likelihood(y_test, named().fit(X, y).predict_proba(test)))
        platt.append(negative_log_likelihood(y_test, Platt().fit(X, y).predict_proba(test)))
    assert np.mean(ours) < np.mean(platt) + slack


def test_contributions_add_up_to_the_decision():
    X, y = structural_links()
    fitted = named().fit(X, y)
    terms = fitted.contributions(X)
    assert list(terms) == ["intercept", "logit", *STRUCTURAL_COLUMNS, "limit"]
    np.testing.assert_allclose(sum(terms.values()), fitted.decision_function(X), rtol=0, atol=1e-12)
    limit, total = terms.pop("limit"), fitted.decision_function(X)
    assert np.all(np.diff(limit[np.argsort(total)]) <= 1e-12)  # takes off more the further out
    assert np.abs(limit[np.abs(total) < 2.0]).max() < 0.1
    for name, values in terms.items():
        centre = fitted.intercept_ if name == "intercept" else 0.0
        assert values.mean() == pytest.approx(centre, abs=1e-9)


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
def test_the_kept_curves_are_those_fitted_where_few_links_are_beyond_0(logit):
    rng = np.random.default_rng(2)
    y, s = rng.integers(0, 2, size=1000), logit(1000)
    y[0] = s[0] > 0.0
    X = np.column_stack((s, y + rng.normal(size=1000), rng.normal(size=(1000, 2))))
    calibrator = StructuralCalibrator(penalty=1e-3).fit(X, y)
    # Only then is the intercept that of the kept curves.
    assert calibrator.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-9)


def test_a_falling_logit_is_followed():
    X, y = overconfident(n=2000, k=0)
    X = -X
    assert np.corrcoef(StructuralCalibrator().fit(X, y).decision_function(X), X[:, 0])[0, 1] < -0.9


def test_one_column_gives_a_smooth_map_of_the_logit():
    X, y = overconfident(n=3000, k=0)  # the true logit is X / 2.5
    fitted = StructuralCalibrator().fit(X, y)
    grid = np.linspace(-6, 6, 50)[:, None]
    assert np.abs(fitted.predict_proba(grid)[:, 1] - expit(grid[:, 0] / 2.5)).max() < 0.06
    assert len(np.unique(fitted.decision_function(grid))) == 50  # no ties, also outside the links' range
    total = sum(fitted.contributions(grid).values())
    np.testing.assert_allclose(fitted.decision_function(grid), total, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("features", "used"),
    [
        ("logit", ("logit",)),
        ("toggle", STRUCTURAL_COLUMNS[:4]),
        (("degrees",), STRUCTURAL_COLUMNS[4:6]),
        (["attributes", "logit", "paths"], ("logit", *STRUCTURAL_COLUMNS[6:])),
        (("logit", *COLUMN_GROUPS), ("logit", *STRUCTURAL_COLUMNS)),
    ],
)
def test_groups_read_their_columns_only(features, used):
    X, y = structural_links(400)
    fitted = named(features=features).fit(X, y)
    assert fitted.terms_ == [*(() if "logit" in used else ["no logit"]), *used]
    assert set(fitted.contributions(X)) == {"intercept", *used, "limit"}
    other = X.copy()
    kept = [("logit", *STRUCTURAL_COLUMNS).index(name) for name in used]
    other[:, [j for j in range(X.shape[1]) if j not in kept]] = 7.0
    assert np.array_equal(fitted.decision_function(other), fitted.decision_function(X))
    same = len(used) == X.shape[1]
    assert np.array_equal(fitted.decision_function(X), named().fit(X, y).decision_function(X)) == same


def test_groups_need_names():
    X, y = overconfident(k=3)
    for calibrator in (
        StructuralCalibrator(features="toggle"),
        StructuralCalibrator(features="toggle", feature_names=["cosine", "log_distance", "logit_change"]),
    ):
        message = r"feature_names must hold logit_change, .* for features='toggle', got (None|\['cosine'.*)"
        refuses(message, calibrator.fit, X, y)
    refuses("did you mean 'paths'", StructuralCalibrator(features="path").fit, X, y)
    for wrong in ("toggle+degrees", ("logit", "all"), (), None, "structure"):
        refuses("features must be", StructuralCalibrator(features=wrong).fit, X, y)


def test_structure_only_is_the_same_model_without_the_logit():
    X, y = structural_links(500)
    X[:, 8:] = np.random.default_rng(1).normal(size=(500, 5))
    groups = ("degrees", "paths", "attributes")
    expected = named(features=groups).fit(X, y)
    structure = X[:, [0, *range(5, 13)]]
    for calibrator in (StructureOnly(), StructureOnly(feature_names=STRUCTURE_COLUMNS)):
        fitted = calibrator.fit(structure, y)
        assert np.array_equal(fitted.decision_function(structure), expected.decision_function(X))
        other = structure.copy()
        other[:, 0] = -other[:, 0]
        assert np.array_equal(fitted.decision_function(other), fitted.decision_function(structure))
        again = clone(calibrator).set_state(fitted.get_state())
        assert np.array_equal(again.decision_function(structure), fitted.decision_function(structure))


def test_structure_only_on_top_of_many_training_links():
    X, y = links(300, 0)
    X_base, y_base = links(4000, 1)
    fitted = StructureOnly().fit(X, y, X_base=X_base, y_base=y_base)
    assert fitted.terms_[:2] == ["base", "feature_1"]
    assert fitted.base_.terms_[0] == "no logit"
    other = X.copy()
    other[:, 0] = 5.0
    assert np.array_equal(fitted.decision_function(other), fitted.decision_function(X))
    back = clone(fitted).set_state(fitted.get_state())
    assert np.array_equal(back.decision_function(X), fitted.decision_function(X))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], r"feature_names must hold 3 names, of columns 1\.\. of X, got 2"),
        (["a", "b", "a"], "feature_names must be different strings"),
        (["a", "limit", "c"], "different strings other than intercept, logit, base, limit, no logit"),
    ],
)
def test_wrong_names_are_refused(names, message):
    refuses(message, StructuralCalibrator(feature_names=names).fit, *overconfident(k=3))


@pytest.mark.parametrize("k", [8, 11])
@pytest.mark.parametrize("params", [{}, {"n_knots": 2, "penalty": 1.0}])
def test_without_names_the_number_of_columns_means_nothing(k, params):
    """Columns of a user's own, as many as linkcal has or not; one more constant one changes nothing."""
    X, _ = overconfident(n=400, k=k)
    X[:, 1] *= np.random.default_rng(1).standard_t(2, size=400)  # a long tail, as a change of the logit has
    y = (np.random.default_rng(2).random(400) < expit(X[:, 0] / 3.0 + X[:, 1])).astype(int)
    fitted = StructuralCalibrator(**params).fit(X, y)
    assert fitted.terms_ == ["logit", *(f"feature_{j}" for j in range(1, k + 1))]
    assert fitted.scale_.astype(bool).tolist() == [True] + [False] * k  # the logit alone passes through asinh
    order = np.r_[0, 1 + np.random.default_rng(3).permutation(k)]
    moved = StructuralCalibrator(**params).fit(X[:, order], y).decision_function(X[:, order])
    np.testing.assert_allclose(moved, fitted.decision_function(X), rtol=1e-6, atol=1e-7)
    for constant in (0.0, 0.1):  # the average of 0.1 is rounded
        wide = np.column_stack((X, np.full(400, constant)))
        again = StructuralCalibrator(**params).fit(wide, y)
        np.testing.assert_array_equal(again.decision_function(wide), fitted.decision_function(X))
        assert not again.contributions(wide)[f"feature_{k + 1}"].any()


def test_names_say_what_a_column_is_wherever_it_stands():
    X, y = structural_links(500)
    fitted = named().fit(X, y)
    own = np.random.default_rng(1).normal(size=500)
    order = np.r_[0, np.random.default_rng(0).permutation(np.arange(1, X.shape[1]))]
    names = [STRUCTURAL_COLUMNS[j - 1] for j in order[1:]]
    moved = StructuralCalibrator(feature_names=names).fit(X[:, order], y)
    found, expected = moved.decision_function(X[:, order]), fitted.decision_function(X)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert moved.scale_[1 + names.index("logit_change")] == fitted.scale_[1] > 0.0
    part = StructuralCalibrator(features="degrees", feature_names=["own", *names])
    part.fit(np.column_stack((X[:, :1], own, X[:, order[1:]])), y)
    assert sorted(part.terms_) == sorted(["no logit", *STRUCTURAL_COLUMNS[4:6]])


def test_a_data_frame_names_its_columns():
    X, y = structural_links(300)
    frame = pd.DataFrame(X, columns=["score", *STRUCTURAL_COLUMNS])
    expected = named(features=["logit", "toggle"]).fit(X, y)
    fitted = StructuralCalibrator(features=("logit", "toggle")).fit(frame, y)
    assert fitted.terms_ == expected.terms_
    np.testing.assert_array_equal(fitted.decision_function(frame), expected.decision_function(X))
    np.testing.assert_array_equal(
        fitted.refitted(X[:200], y[:200]).decision_function(X),
        expected.refitted(X[:200], y[:200]).decision_function(X),
    )
    base = structural_links(600, seed=1)
    with_base = StructuralCalibrator().fit(
        frame, y, X_base=pd.DataFrame(base[0], columns=frame.columns), y_base=base[1]
    )
    same = named().fit(X, y, X_base=base[0], y_base=base[1])
    np.testing.assert_array_equal(with_base.decision_function(frame), same.decision_function(X))
    assert with_base.base_.scale_[1] > 0.0
    with pytest.raises(InputError, match=r"must be the columns of X after column 0, \['logit_ch"):
        StructuralCalibrator(feature_names=[f"c{j}" for j in range(12)]).fit(frame, y)
    words = frame.set_axis(["score", "limit", *STRUCTURAL_COLUMNS[1:]], axis=1)
    refuses("feature_names must be different strings other than", StructuralCalibrator().fit, words, y)


def test_names_survive_clones_searches_pickles_and_states():
    X, y = structural_links(300)
    frame = pd.DataFrame(X, columns=["score", *STRUCTURAL_COLUMNS])
    expected = named(features=["logit", "toggle"]).fit(X, y)
    assert clone(expected).get_params()["feature_names"] == STRUCTURAL_COLUMNS
    np.testing.assert_array_equal(
        clone(expected).fit(X, y).decision_function(X), expected.decision_function(X)
    )
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(expected)).refitted(X, y).decision_function(X),
        expected.decision_function(X),
    )
    params = json.loads(json.dumps(expected.get_params()))
    restored = StructuralCalibrator(**params).set_state(expected.get_state())
    assert restored.terms_ == expected.terms_
    np.testing.assert_array_equal(restored.refitted(X, y).decision_function(X), expected.decision_function(X))
    grid = {"features": ["toggle", ("logit", "degrees")]}
    by_parameter, by_frame = (
        GridSearchCV(calibrator, grid, cv=2, scoring="neg_log_loss", error_score="raise").fit(A, y)
        for calibrator, A in ((named(penalty=1.0), X), (StructuralCalibrator(penalty=1.0), frame))
    )
    np.testing.assert_array_equal(by_frame.predict_proba(frame), by_parameter.predict_proba(X))


def test_names_for_links_scored_by_linkcal_replace_only_missing_ones():
    assert StructuralCalibrator().clone_for(STRUCTURAL_COLUMNS).feature_names == list(STRUCTURAL_COLUMNS)
    assert StructuralCalibrator(feature_names=["a"]).clone_for(STRUCTURAL_COLUMNS).feature_names == ["a"]
    assert StructuralCalibrator().clone_for(None).feature_names is None
    assert Platt().clone_for(STRUCTURAL_COLUMNS).get_params() == {}


@pytest.mark.parametrize("penalty", [0.3, 30.0])
def test_the_fit_minimises_the_stated_penalised_objective(penalty):
    """Design, penalties and limits as the documentation states them, minimised by scipy."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 3)) * [3.0, 1.0, 2.0]
    y = (rng.random(300) < expit(0.4 * X[:, 0] + X[:, 1] * X[:, 2] - 0.3 * X[:, 0] * X[:, 1])).astype(int)
    fitted = StructuralCalibrator(penalty=penalty, n_knots=1).fit(X, y)

    def quantile(column, level):
        return np.quantile(column, level, axis=0, method="inverted_cdf")

    t = X.copy()
    t[:, 0] = np.arcsinh(X[:, 0] / quantile(np.abs(X[:, 0]), 0.5))
    bends = [[0.0, quantile(t[:, 0], 0.5)], *([quantile(t[:, j], 0.5)] for j in (1, 2))]
    t[:, 1:] = np.clip(t[:, 1:], *(quantile(t[:, 1:], level) for level in (0.002, 0.998)))
    z = (t - t.mean(axis=0)) / t.std(axis=0)
    sides = np.maximum(t[:, 0], 0.0), np.minimum(t[:, 0], 0.0)
    columns = [(0.1, t[:, j]) for j in range(3)]
    columns += [(1.0, np.maximum(t[:, j] - knot, 0.0)) for j in range(3) for knot in bends[j]]
    columns += [(3.0, side * z[:, j]) for j in (1, 2) for side in sides]
    columns += [(3.0, z[:, 1] * z[:, 2])]
    strength = penalty * np.array([weight for weight, _ in columns])
    design = np.column_stack([column for _, column in columns])
    design = (design - design.mean(axis=0)) / design.std(axis=0)

    def objective(theta):
        s = theta[0] + design @ theta[1:]
        gradient = np.r_[(expit(s) - y).sum(), design.T @ (expit(s) - y) + strength * theta[1:]]
        return bernoulli_nll(s, y).sum() + 0.5 * strength @ theta[1:] ** 2, gradient

    best = minimize(objective, np.zeros(1 + len(columns)), jac=True, tol=1e-14, options={"gtol": 1e-8})
    total = fitted.intercept_ + fitted.slope_ * design @ best.x[1:]
    expected = Tails(fitted.prior_, fitted.lost_, fitted.stray_)(total)
    np.testing.assert_allclose(fitted.decision_function(X), expected, atol=1e-6)


def test_a_given_penalty_is_used_and_a_chosen_one_beats_the_extremes():
    X, y = structural_links(600)
    test, y_test = structural_links(20_000, seed=3)
    loss = {}
    for penalty in (None, 1e5, 1e-3):
        fitted = named(penalty=penalty).fit(X, y)
        loss[penalty] = negative_log_likelihood(y_test, fitted.predict_proba(test))
        assert penalty is None or fitted.penalty_ == penalty
    assert loss[None] < min(loss[1e5], loss[1e-3])


# Case 12 first: 1,000 pairs of logit 0, 100 of them links.
@pytest.mark.parametrize(
    "rows",
    [[(0.0, 1000, 100)], [(-1.0, 400, 80), (0.0, 400, 240), (1.0, 400, 320)]],
    ids=["case 12", "three"],
)
def test_groups_of_equal_logits_get_their_shares(rows):
    X, y = groups(*rows)
    p = StructuralCalibrator().fit(X, y).predict_proba([[s] for s, *_ in rows])[:, 1]
    np.testing.assert_allclose(p, [links / n for _, n, links in rows], atol=0.001 if len(rows) == 1 else 0.01)


def test_separable_links_stay_finite():
    X, y = groups((-2.0, 30, 0), (2.0, 30, 30))
    p = StructuralCalibrator().fit(X, y).predict_proba([[-2.0], [2.0]])[:, 1]
    assert 0.0 < p[0] < 0.02
    assert 0.98 < p[1] < 1.0


def test_one_link_of_a_class_takes_the_strongest_penalty():
    X, y = overconfident(n=40)
    y[:] = np.arange(40) == 7
    fitted = StructuralCalibrator().fit(X, y)
    assert fitted.penalty_ == 1000.0
    assert fitted.predict_proba(X)[:, 1].mean() == pytest.approx(1 / 40, abs=1e-9)


def test_slope_answers_for_a_penalty_too_weak_or_too_strong():
    X, y = structural_links(300)
    test, y_test = structural_links(20_000, seed=1)
    weak = named(penalty=0.01, n_knots=8).fit(X, y)
    strong = named(penalty=1000.0).fit(X, y)
    assert weak.slope_ < 0.5
    assert strong.slope_ > 1.1
    for fitted in (weak, strong):
        z = fitted.decision_function(test)
        before = (z - fitted.intercept_) / fitted.slope_ + fitted.intercept_
        assert bernoulli_nll(z, y_test).mean() < bernoulli_nll(before, y_test).mean()


def cause(X):
    """Three columns that bend and count together: more than some hundred links can tell."""
    return 0.7 * X[:, 0] + np.abs(X[:, 1]) - 1.2 * np.maximum(X[:, 2], 0.0) * X[:, 3] + np.sin(2 * X[:, 4])


def links(n, seed, slope=1.0, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8))
    return X, (rng.random(n) < expit(slope * cause(X) + shift)).astype(int)


def loss(calibrator, X, y):
    return bernoulli_nll(calibrator.decision_function(X), y).mean()


@pytest.fixture(scope="module")
def fitted():
    X, y = links(400, 0)
    X_base, y_base = links(8000, 1, slope=1.6, shift=1.0)
    return StructuralCalibrator().fit(X, y, X_base=X_base, y_base=y_base)


def test_the_form_comes_from_the_many_and_the_level_from_the_few(fitted):
    X, y = links(400, 0)
    X_test, y_test = links(20_000, 2)
    alone = loss(StructuralCalibrator().fit(X, y), X_test, y_test)
    base = loss(fitted.base_, X_test, y_test)
    right = bernoulli_nll(cause(X_test), y_test).mean()
    stacked = loss(fitted, X_test, y_test)
    assert stacked < min(alone, base)
    # Of what the few links lose to the truth, the many give back more than half.
    assert stacked - right < 0.5 * (alone - right)
    assert fitted.predict_proba(X_test)[:, 1].mean() == pytest.approx(y_test.mean(), abs=0.03)


def test_a_base_without_use_does_little_harm_and_one_of_the_opposite_sign_is_inverted():
    X, y = links(1000, 0)
    X_base, y_base = links(8000, 1)
    test = links(20_000, 3)
    alone = loss(StructuralCalibrator().fit(X, y), *test)
    for labels, most in ((np.random.default_rng(2).permutation(y_base), alone + 0.01), (1 - y_base, alone)):
        assert loss(StructuralCalibrator().fit(X, y, X_base=X_base, y_base=labels), *test) < most


def test_contributions_have_a_term_of_the_base(fitted):
    X, _ = links(50, 4)
    terms = fitted.contributions(X)
    assert list(terms)[:3] == ["intercept", "base", "logit"]
    assert len(terms) == 11
    np.testing.assert_allclose(sum(terms.values()), fitted.decision_function(X), rtol=0, atol=1e-12)
    assert np.ptp(terms["base"]) > max(np.ptp(terms[name]) for name in list(terms)[2:])


def test_a_state_that_is_not_whole_changes_nothing(fitted):
    X, _ = links(50, 4)
    copy = clone(fitted).set_state(fitted.get_state())
    before = copy.decision_function(X)
    narrow = StructuralCalibrator().fit(*(part[:, :3] if part.ndim == 2 else part for part in links(200, 5)))
    own = {name: value for name, value in fitted.get_state().items() if not name.startswith("base_.")}
    for bad in (
        own,  # the base is missing, and its column with it
        {name: value for name, value in fitted.get_state().items() if name != "base_.knots_"},
        own | {"base_." + name: value for name, value in narrow.get_state().items()},
        fitted.get_state() | {"terms_": fitted.terms_[:-1]},
        fitted.get_state() | {"terms_": [[]] * 9},
        fitted.get_state() | {"terms_": ["other", *fitted.terms_[1:]]},
        fitted.get_state() | {"terms_": [*fitted.terms_[:-1], "logit"]},
        fitted.get_state() | {3: 9},
    ):
        with pytest.raises(ArtifactError):
            copy.set_state(bad)
        np.testing.assert_array_equal(copy.decision_function(X), before)


def test_refitting_keeps_the_base_and_fitting_anew_drops_it(fitted):
    X, y = links(300, 6)
    again = fitted.refitted(X, y)
    assert again.base_ is fitted.base_
    assert again is not fitted
    assert not np.array_equal(again.decision_function(X), fitted.decision_function(X))
    anew = clone(fitted).fit(X, y)
    assert anew.base_ is None
    again = clone(fitted).refitted(X, y)
    np.testing.assert_array_equal(again.decision_function(X), anew.decision_function(X))


def test_labels_may_have_any_names():
    X, y = links(300, 0)
    X_base, y_base = links(1000, 1)
    names = np.array(["no", "yes"])
    plain = StructuralCalibrator().fit(X, y, X_base=X_base, y_base=y_base)
    other = StructuralCalibrator().fit(X, names[y], X_base=X_base, y_base=names[y_base])
    np.testing.assert_array_equal(other.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize(
    ("X_base", "y_base", "message"),
    [
        (None, links(50, 0)[1], "X_base and y_base must be given together"),
        (links(50, 0)[0][:, :4], links(50, 0)[1], "X_base and y_base .*: X has 4 features"),
        (links(50, 0)[0], np.ones(50, dtype=int), "y_base must hold both labels"),
        (links(50, 0)[0], np.arange(50), "y_base must hold only the labels"),
        (np.full((50, 8), np.nan), links(50, 0)[1], "X_base and y_base .*: X must be finite"),
    ],
)
def test_base_links_are_checked(X_base, y_base, message):
    X, y = links(100, 0)
    refuses(message, StructuralCalibrator().fit, X, y, X_base=X_base, y_base=y_base)
