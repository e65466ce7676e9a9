"""The structural calibrator on top of a base: many links of another kind, and few of the one asked about."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators import Platt, StructuralCalibrator, fit_together
from linkcal.decisions import IntervalCalibrator
from linkcal.exceptions import ArtifactError, InputError


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


def test_takes_the_form_from_the_many_and_the_level_from_the_few(fitted):
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


def test_a_base_without_use_does_little_harm():
    X, y = links(1000, 0)
    X_base, y_base = links(4000, 1)
    rng = np.random.default_rng(2)
    fitted = StructuralCalibrator().fit(X, y, X_base=X_base, y_base=rng.permutation(y_base))
    X_test, y_test = links(20_000, 3)
    assert loss(fitted, X_test, y_test) < loss(StructuralCalibrator().fit(X, y), X_test, y_test) + 0.01


def test_a_base_that_says_the_opposite_is_turned_round():
    X, y = links(1000, 0)
    X_base, y_base = links(8000, 1)
    fitted = StructuralCalibrator().fit(X, y, X_base=X_base, y_base=1 - y_base)
    X_test, y_test = links(20_000, 3)
    assert loss(fitted, X_test, y_test) < loss(StructuralCalibrator().fit(X, y), X_test, y_test)


def test_contributions_have_a_term_of_the_base(fitted):
    X, _ = links(50, 4)
    terms = fitted.contributions(X)
    assert list(terms)[:3] == ["intercept", "base", "logit"]
    assert len(terms) == 11
    np.testing.assert_allclose(sum(terms.values()), fitted.decision_function(X), rtol=0, atol=1e-12)
    assert np.ptp(terms["base"]) > max(np.ptp(terms[name]) for name in list(terms)[2:])


@pytest.mark.parametrize("seed", range(3))
def test_monotone_holds_through_the_base(seed):
    X, y = links(300, seed)
    X_base, y_base = links(2000, seed + 10, slope=-1.0)  # the base would like to fall
    fitted = StructuralCalibrator(monotone=True).fit(X, y, X_base=X_base, y_base=y_base)
    rows = np.repeat(links(20, seed + 20)[0], 200, axis=0)
    rows[:, 0] = np.tile(np.linspace(-6, 6, 200), 20)
    assert (np.diff(fitted.decision_function(rows).reshape(20, 200), axis=1) >= -1e-12).all()
    assert "logit" not in fitted.terms_


def test_state_goes_out_and_back(fitted):
    X, _ = links(50, 4)
    state = fitted.get_state()
    back = clone(fitted).set_state(state)
    np.testing.assert_array_equal(back.decision_function(X), fitted.decision_function(X))
    assert back.base_.get_state().keys() == {
        name.removeprefix("base_.") for name in state if name.startswith("base_.")
    }


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
    assert clone(fitted).fit(X, y).base_ is None


def test_other_calibrators_are_refitted_whole():
    X, y = links(300, 6)
    platt = Platt().fit(X[:, :1], 1 - y)
    np.testing.assert_array_equal(
        platt.refitted(X[:, :1], y).predict_proba(X[:, :1]), Platt().fit(X[:, :1], y).predict_proba(X[:, :1])
    )


def test_labels_may_have_any_names():
    X, y = links(300, 0)
    X_base, y_base = links(1000, 1)
    names = np.array(["no", "yes"])
    plain = StructuralCalibrator().fit(X, y, X_base=X_base, y_base=y_base)
    named = StructuralCalibrator().fit(X, names[y], X_base=X_base, y_base=names[y_base])
    np.testing.assert_array_equal(named.predict_proba(X), plain.predict_proba(X))


def test_a_refused_fit_changes_nothing():
    X, y = links(200, 0)
    fitted = StructuralCalibrator().fit(X[:, :2], y)
    before = fitted.decision_function(X[:, :2])
    with pytest.raises(InputError):
        fitted.fit(X, y, X_base=X, y_base=0 * y)
    assert fitted.n_features_in_ == 2
    np.testing.assert_array_equal(fitted.decision_function(X[:, :2]), before)


def test_an_unfitted_one_can_be_refitted():
    X, y = links(200, 0)
    np.testing.assert_array_equal(
        StructuralCalibrator().refitted(X, y).decision_function(X),
        StructuralCalibrator().fit(X, y).decision_function(X),
    )


@pytest.mark.parametrize(
    ("X_base", "y_base", "message"),
    [
        (links(50, 0)[0], None, "X_base and y_base must be given together"),
        (None, links(50, 0)[1], "X_base and y_base must be given together"),
        (links(50, 0)[0][:, :4], links(50, 0)[1], "X_base and y_base .*: X has 4 features"),
        (links(50, 0)[0], np.ones(50, dtype=int), "y_base must hold both labels"),
        (links(50, 0)[0], np.arange(50), "y_base must hold only the labels"),
        (np.full((50, 8), np.nan), links(50, 0)[1], "X_base and y_base .*: X must be finite"),
    ],
)
def test_base_links_are_checked(X_base, y_base, message):
    X, y = links(100, 0)
    with pytest.raises(InputError, match=message):
        StructuralCalibrator().fit(X, y, X_base=X_base, y_base=y_base)


def test_fit_together_hands_the_base_to_those_that_build_on_it():
    sets, base = [links(200, seed) for seed in (0, 1)], links(1000, 2)
    X, y = zip(*sets, strict=True)
    fitted = fit_together([StructuralCalibrator()] * 2, X, y, base=base)
    for calibrator, (X_own, y_own) in zip(fitted, sets, strict=True):
        alone = StructuralCalibrator().fit(X_own, y_own, X_base=base[0], y_base=base[1])
        np.testing.assert_array_equal(calibrator.predict_proba(X_own), alone.predict_proba(X_own))
    flat = fit_together([Platt()], [X[0][:, :1]], [y[0]], base=(base[0][:, :1], base[1]))
    np.testing.assert_array_equal(
        flat[0].predict_proba(X[0][:, :1]), Platt().fit(X[0][:, :1], y[0]).predict_proba(X[0][:, :1])
    )


def test_intervals_of_a_plain_fit_have_no_base():
    X, y = links(200, 0)
    assert IntervalCalibrator(StructuralCalibrator()).fit(X, y).calibrator_.base_ is None
