"""Beta calibration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators import Beta, Platt
from linkcal.exceptions import BoundReachedWarning

from .samples import groups, overconfident


def _known(n=4000, a=0.5, b=1.5, c=0.2, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n) * 2.0
    y = rng.random(n) < expit(a * log_expit(s) - b * log_expit(-s) + c)
    return s[:, None], y.astype(int)


def test_finds_known_parameters():
    X, y = _known(n=40_000)
    fitted = Beta().fit(X, y)
    # Four standard errors of the estimates at this size, from the inverse Fisher information.
    parts = np.column_stack((log_expit(X[:, 0]), -log_expit(-X[:, 0]), np.ones(len(y))))
    p = fitted.predict_proba(X)[:, 1]
    error = np.sqrt(np.diag(np.linalg.inv(parts.T @ ((p * (1 - p))[:, None] * parts))))
    assert (np.abs([fitted.a_ - 0.5, fitted.b_ - 1.5, fitted.c_ - 0.2]) < 4 * error).all()


def test_agrees_with_a_general_optimiser():
    X, y = _known()
    s = X[:, 0]

    def loss(theta):
        return bernoulli_nll(theta[0] * log_expit(s) - theta[1] * log_expit(-s) + theta[2], y).mean()

    other = minimize(
        loss,
        [1.0, 1.0, 0.0],
        bounds=[(0, None), (0, None), (None, None)],
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    fitted = Beta().fit(X, y)
    assert bernoulli_nll(fitted.decision_function(X), y).mean() <= other.fun + 1e-15
    # Finite differences limit the other optimiser to about 1e-4.
    np.testing.assert_allclose([fitted.a_, fitted.b_, fitted.c_], other.x, atol=1e-3)


def test_parameters_never_fall_below_zero():
    # Labels against the logit: the best increasing map is a constant, the share of links.
    X, y = overconfident()
    reversed_ = Beta().fit(-X, y)
    assert (reversed_.a_, reversed_.b_) == (0.0, 0.0)
    np.testing.assert_allclose(reversed_.predict_proba(X)[:, 1], y.mean(), atol=1e-9)
    # One tail only: a is held at 0, b is not, and the map still increases.
    X, y = _known(a=-0.5, b=1.5)
    fitted = Beta().fit(X, y)
    assert fitted.a_ == 0.0
    assert fitted.b_ > 0.5


def test_is_never_worse_than_platt_on_the_fitting_set():
    for seed in range(10):
        X, y = overconfident(seed=seed)
        beta, platt = Beta().fit(X, y), Platt().fit(X, y)
        assert platt.slope_ > 0.0
        loss = bernoulli_nll(beta.decision_function(X), y).sum()
        assert loss <= bernoulli_nll(platt.decision_function(X), y).sum() + 1e-9


def test_case_12_reaches_the_base_rate():
    X, y = groups((0.0, 1000, 100))
    np.testing.assert_allclose(Beta().fit(X, y).predict_proba(X)[:, 1], 0.1, atol=1e-12)


def test_separated_classes_stop_at_the_bound():
    X, y = groups((1.0, 50, 50), (-1.0, 50, 0))
    with pytest.warns(BoundReachedWarning, match="the slope of beta was stopped"):
        fitted = Beta().fit(X, y)
    assert fitted.a_ == fitted.b_ == pytest.approx(1e4)
    assert np.array_equal(fitted.predict(X), y)


def test_saturated_logits_are_told_apart():
    # sigmoid(40) and sigmoid(80) are the same float64; the calibrated logits are not.
    X, y = overconfident(scale=10.0)
    s = Beta().fit(X, y).decision_function([[40.0, 0, 0, 0], [80.0, 0, 0, 0]])
    assert s[1] > s[0] + 1.0


# Pyro, on which netcal stands, uses a name that it has itself deprecated.
@pytest.mark.filterwarnings("ignore:independent is deprecated:DeprecationWarning")
@pytest.mark.reference
def test_agrees_with_netcal(netcal):
    X, y = overconfident()
    p = expit(X[:, 0])
    other = netcal.scaling.BetaCalibration()
    other.fit(p, y, tensorboard=False)
    ours, theirs = Beta().fit(X, y), other.transform(p)
    # netcal's finite differences leave it up to 1e-4 beside the optimum; ours is never worse.
    np.testing.assert_allclose(ours.predict_proba(X)[:, 1], theirs, atol=5e-4)
    assert bernoulli_nll(ours.decision_function(X), y).sum() <= -np.log(np.where(y, theirs, 1 - theirs)).sum()
