"""Temperature scaling against known optima, and where it has none."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.metrics import roc_auc_score

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators import Identity, Temperature
from linkcal.exceptions import BaseRateWarning, BoundReachedWarning, LinkcalWarning
from linkcal.metrics import expected_calibration_error

from .samples import groups, overconfident


def test_case_09_reaches_the_known_optimum():
    X, y = groups((2.0, 100, 75), (-2.0, 100, 25))
    fitted = Temperature().fit(X, y)
    assert fitted.temperature_ == pytest.approx(2.0 / np.log(3.0), rel=1e-12)
    assert fitted.converged_
    p = fitted.predict_proba(X)[:, 1]
    np.testing.assert_allclose(np.unique(p), [0.25, 0.75], atol=1e-12)
    before = Identity().fit(X, y).predict_proba(X)[:, 1]
    assert expected_calibration_error(y, before) == pytest.approx(0.130797, abs=1e-6)
    assert expected_calibration_error(y, p) < 1e-12
    assert roc_auc_score(y, p) == roc_auc_score(y, before)


def test_case_11a_uninformative_logits():
    X, y = groups((3.0, 100, 50), (-3.0, 100, 50))
    with pytest.warns(BoundReachedWarning, match="carries no information"):
        fitted = Temperature().fit(X, y)
    assert np.isfinite(fitted.temperature_)
    p = fitted.predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, 0.5, atol=0.01)
    assert expected_calibration_error(y, p) < 0.01


def test_case_11b_separated_classes():
    X, y = groups((1.0, 50, 50), (-1.0, 50, 0))
    with pytest.warns(BoundReachedWarning, match="separates the classes"):
        fitted = Temperature().fit(X, y)
    assert 0.0 < fitted.temperature_ < np.inf
    p = fitted.predict_proba(X)[:, 1]
    assert (p[:50] >= 0.999).all()
    assert (p[50:] <= 0.001).all()
    assert np.isfinite(bernoulli_nll(fitted.decision_function(X), y)).all()


def test_case_12_names_the_base_rate_error():
    X, y = groups((0.0, 1000, 100))
    with pytest.warns(BaseRateWarning, match=r"average probability 0.5 differs .* share of links 0.1"):
        fitted = Temperature().fit(X, y)
    assert fitted.temperature_ == 1.0
    p = fitted.predict_proba(X)[:, 1]
    assert (p == 0.5).all()
    assert expected_calibration_error(y, p) == pytest.approx(0.4, abs=1e-12)


def test_no_base_rate_warning_on_well_specified_data():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(20):
            Temperature().fit(*overconfident(n=300, seed=seed))


def test_no_base_rate_warning_where_the_gap_is_within_the_noise():
    # 0.5 against 0.3 from ten links: 0.2 is 1.3 standard errors.
    X, y = groups((0.0, 10, 3))
    assert Temperature().fit(X, y).predict_proba(X)[0, 1] == 0.5


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BoundReachedWarning")
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BaseRateWarning")
@settings(max_examples=60, deadline=None)
@given(
    logits=st.lists(st.floats(-50, 50).filter(lambda s: s == 0 or abs(s) > 1e-3), min_size=4, max_size=40),
    seed=st.integers(0, 1000),
    unit=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_loss_never_rises_and_units_do_not_matter(logits, seed, unit):
    s = np.array(logits)
    y = np.random.default_rng(seed).permutation(np.arange(len(s)) % 2)
    fitted = Temperature().fit(s[:, None], y)
    # The search interval contains T = 1 unless mean |s| is out of [1e-4, 1e4], so the optimum is no worse.
    after = bernoulli_nll(fitted.decision_function(s[:, None]), y).sum()
    assert after <= bernoulli_nll(s, y).sum() * (1 + 1e-12) + 1e-12
    if not s.any():
        return  # every T is optimal
    scaled = Temperature().fit(unit * s[:, None], y)
    assert scaled.temperature_ == pytest.approx(unit * fitted.temperature_, rel=1e-9)


def test_agrees_with_a_general_optimiser():
    X, y = overconfident()
    result = minimize_scalar(
        lambda t: bernoulli_nll(X[:, 0] / t, y).sum(),
        bounds=(0.1, 50.0),
        method="bounded",
        options={"xatol": 1e-9},
    )
    # A minimiser that compares losses finds the minimum only to the square root of machine precision.
    assert Temperature().fit(X, y).temperature_ == pytest.approx(result.x, rel=1e-6)


# Pyro, on which netcal stands, uses a name that it has itself deprecated.
@pytest.mark.filterwarnings("ignore:independent is deprecated:DeprecationWarning")
@pytest.mark.reference
def test_agrees_with_netcal(netcal):
    X, y = overconfident()
    p = Identity().fit(X, y).predict_proba(X)[:, 1]
    other = netcal.scaling.TemperatureScaling()
    other.fit(p, y, tensorboard=False)
    ours = Temperature().fit(X, y)
    # netcal minimises with finite differences and stops up to 1e-5 beside the optimum; ours is never worse.
    theirs = other.transform(p)
    np.testing.assert_allclose(ours.predict_proba(X)[:, 1], theirs, atol=2e-5)
    assert bernoulli_nll(ours.decision_function(X), y).sum() <= -np.log(np.where(y, theirs, 1 - theirs)).sum()


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_logits_at_the_ends_of_float64_give_probabilities(scale):
    X = scale * np.array([[1.0], [-1.0], [0.5], [-0.5], [1.0], [-1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        p = Temperature().fit(X, [1, 0, 0, 1, 1, 0]).predict_proba(X)
    assert np.isfinite(p).all()
    assert ((p >= 0.0) & (p <= 1.0)).all()
