"""The offset that new labels refit: by hand, by its standard error, and on its way to disk."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from linkcal.calibrators import CALIBRATORS, Platt, StructuralCalibrator
from linkcal.exceptions import InputError, NotFittedError

from .samples import fast, overconfident

every = pytest.mark.parametrize("name", CALIBRATORS)


@every
def test_mean_probability_is_the_new_share_and_the_order_stays(name):
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
    before = fitted.decision_function(X)
    label = np.arange(400) % 10 == 0
    fitted.refresh(X, label.astype(int))
    # The score equation of the offset: expected and counted links agree.
    p = fitted.predict_proba(X)[:, 1]
    assert p.mean() == pytest.approx(0.1, abs=1e-4)
    np.testing.assert_allclose(fitted.decision_function(X) - before, fitted.offset_, rtol=1e-9)
    assert fitted.offset_standard_error_ == pytest.approx(1 / np.sqrt((p * (1 - p)).sum()), rel=1e-4)


@every
def test_state_keeps_the_offset_and_a_fit_forgets_it(name):
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
    plain = fitted.get_state()
    assert "offset_" not in plain
    fitted.refresh(X, 1 - y)
    state = fitted.get_state()
    json.dumps({key: value for key, value in state.items() if not isinstance(value, np.ndarray)})
    restored = fast(name).set_state(state)
    assert restored.offset_ == fitted.offset_
    assert np.array_equal(restored.predict_proba(X), fitted.predict_proba(X))
    restored.set_state(plain)
    assert not hasattr(restored, "offset_")
    assert not hasattr(fitted.fit(X, y), "offset_")


def test_equals_a_logistic_regression_with_a_fixed_slope():
    X, y = overconfident(n=300)
    fitted = Platt().fit(X, y)
    z = fitted.decision_function(X)
    label = (np.random.default_rng(0).random(300) < expit(z - 1.5)).astype(int)
    fitted.refresh(X, label)
    # Newton on one parameter, written out.
    b = 0.0
    for _ in range(50):
        p = expit(z + b)
        b -= (p - label).sum() / (p * (1 - p)).sum()
    assert fitted.offset_ == pytest.approx(b, abs=1e-10)
    free = LogisticRegression(C=np.inf).fit(z[:, None], label)
    assert abs(free.intercept_[0] - fitted.offset_) < 5 * fitted.offset_standard_error_


def test_refreshing_twice_is_refreshing_once():
    X, y = overconfident()
    once = Platt().fit(X, y).refresh(X, 1 - y)
    twice = Platt().fit(X, y).refresh(X, y).refresh(X, 1 - y)
    assert twice.offset_ == once.offset_


def test_standard_error_on_drifted_links():
    """1,000 draws of 300 links whose logits moved by -1.2: the error is what it says."""
    X, y = overconfident(n=5000)
    fitted = Platt().fit(X, y)
    rng = np.random.default_rng(1)
    seen = []
    for _ in range(1000):
        rows = X[rng.integers(len(X), size=300)]
        plain = Platt().set_state({k: v for k, v in fitted.get_state().items() if "offset" not in k})
        z = plain.decision_function(rows)
        fresh = plain.refresh(rows, (rng.random(300) < expit(z - 1.2)).astype(int))
        seen.append((fresh.offset_, fresh.offset_standard_error_))
    offset, error = np.array(seen).T
    assert offset.mean() == pytest.approx(-1.2, abs=4 * offset.std() / np.sqrt(1000) + 0.01)
    assert error.mean() == pytest.approx(offset.std(), rel=0.1)
    inside = np.mean(np.abs(offset + 1.2) <= 1.96 * error)
    assert inside == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 1000))


def test_weights_are_copies_and_labels_may_be_words():
    X, y = overconfident(n=100)
    weight = np.random.default_rng(0).integers(0, 4, 100)
    weighted = Platt().fit(X, y).refresh(X, y, sample_weight=weight)
    copied = Platt().fit(X, y).refresh(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.offset_ == pytest.approx(copied.offset_, rel=1e-9)
    words = np.where(y == 1, "yes", "no")
    assert Platt().fit(X, words).refresh(X, words).offset_ == Platt().fit(X, y).refresh(X, y).offset_


def test_contributions_still_add_up():
    X, y = overconfident()
    fitted = StructuralCalibrator().fit(X, y).refresh(X, 1 - y)
    total = sum(fitted.contributions(X).values())
    np.testing.assert_allclose(total, fitted.decision_function(X), rtol=1e-9, atol=1e-9)


def test_bad_labels_are_refused_and_leave_the_offset_alone():
    X, y = overconfident(n=50)
    fitted = Platt().fit(X, y).refresh(X, 1 - y)
    offset = fitted.offset_
    with pytest.raises(InputError, match="y must hold both classes to fit an offset, got only 1"):
        fitted.refresh(X, np.ones(50, int))
    with pytest.raises(InputError, match=r"only the labels of fit, \[0, 1\], got 2"):
        fitted.refresh(X, np.full(50, 2))
    with pytest.raises(InputError, match=r"y must have shape \(50,\), got \(49,\)"):
        fitted.refresh(X, y[:-1])
    words = Platt().fit(X, y.astype(str).astype(object))
    with pytest.raises(InputError, match=r"only the labels of fit, \['0', '1'\], got '2'"):
        words.refresh(X, np.full(50, "2", dtype=object))
    assert fitted.offset_ == offset
    with pytest.raises(NotFittedError):
        Platt().refresh(X, y)


@pytest.mark.parametrize("name", ["uncalibrated", "beta", "isotonic", "histogram", "in-n-out-plus"])
@pytest.mark.parametrize("logit", [50.0, 800.0])
def test_probabilities_that_were_rounded_to_1_move_too(name, logit):
    """A sigmoid of 40 is 1 in float64; the new labels say 0.05."""
    fitted = fast(name).fit(*overconfident())
    X = np.zeros((20, 4))
    X[:, 0] = logit
    fitted.refresh(X, [1] + [0] * 19)
    p = fitted.predict_proba(X)[:, 1]
    assert p == pytest.approx(0.05, abs=1e-6)
    np.testing.assert_allclose(p, expit(fitted.decision_function(X)), rtol=1e-12)
    assert np.array_equal(fitted.calibrate(X[:, 0], X[:, 1:]), p)


@every
def test_a_refreshed_probability_is_that_of_its_logit(name):
    X, y = overconfident()
    fitted = fast(name).fit(X, y).refresh(X, np.arange(400) % 10 == 0)
    z = fitted.decision_function(X)
    np.testing.assert_allclose(fitted.predict_proba(X)[:, 1], expit(z), rtol=1e-12)
    assert np.array_equal(fitted.predict(X), fitted.classes_[(z > 0).astype(int)])


def test_extreme_logits_find_the_optimum():
    """Logits far apart, where Newton steps alone would leave float64."""
    X = np.array([[-500.0], [-499.0], [500.0], [501.0]] * 5)
    fitted = Platt().set_state(
        {
            "classes_": [0, 1],
            "n_features_in_": 1,
            "slope_": 1.0,
            "intercept_": 0.0,
            "n_iter_": 0,
            "converged_": True,
        }
    )
    fitted.refresh(X, [0, 1, 0, 1] * 5)
    p = fitted.predict_proba(X)[:, 1]
    assert p.sum() == pytest.approx(10.0, abs=1e-6)
