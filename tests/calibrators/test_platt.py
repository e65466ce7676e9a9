"""Platt scaling."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators import Platt
from linkcal.exceptions import BoundReachedWarning
from linkcal.metrics import expected_calibration_error

from .samples import groups, overconfident


def test_two_groups_are_fitted_exactly():
    # Two groups, two parameters: a s + b must be the groups' log odds, log 3 and log(1/9).
    X, y = groups((2.0, 100, 75), (-2.0, 100, 10))
    fitted = Platt().fit(X, y)
    assert fitted.slope_ == pytest.approx((np.log(3) + np.log(9)) / 4, rel=1e-10)
    assert fitted.intercept_ == pytest.approx((np.log(3) - np.log(9)) / 2, rel=1e-10)


def test_case_12_reaches_the_base_rate():
    X, y = groups((0.0, 1000, 100))
    p = Platt().fit(X, y).predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, 0.1, atol=1e-12)
    assert expected_calibration_error(y, p) < 1e-12


def test_agrees_with_scikit_learn():
    X, y = overconfident()
    other = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10).fit(X[:, :1], y)
    np.testing.assert_allclose(Platt().fit(X, y).predict_proba(X), other.predict_proba(X[:, :1]), atol=1e-8)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_separated_classes_stop_at_the_bound(sign):
    X, y = groups((sign * 1.0, 50, 50), (sign * -1.0, 50, 0))
    with pytest.warns(BoundReachedWarning, match="the slope of platt was stopped"):
        fitted = Platt().fit(X, y)
    # Standard deviation 1, so the bound is the slope; the step stands in the middle of the gap.
    assert fitted.slope_ == pytest.approx(sign * 1e4)
    assert fitted.intercept_ == pytest.approx(0.0, abs=1e-6)
    assert np.array_equal(fitted.predict(X), y)


def test_links_on_the_threshold_get_their_share():
    X, y = groups((-1.0, 40, 0), (0.0, 20, 5), (1.0, 40, 40))
    with pytest.warns(BoundReachedWarning):
        p = Platt().fit(X, y).predict_proba([[-1.0], [0.0], [1.0]])[:, 1]
    np.testing.assert_allclose(p, [0.0, 0.25, 1.0], atol=1e-9)


def test_loss_does_not_rise():
    for seed in range(20):
        X, y = overconfident(n=60, seed=seed)
        after = bernoulli_nll(Platt().fit(X, y).decision_function(X), y).sum()
        assert after <= bernoulli_nll(X[:, 0], y).sum()


# Pyro, on which netcal stands, uses a name that it has itself deprecated.
@pytest.mark.filterwarnings("ignore:independent is deprecated:DeprecationWarning")
@pytest.mark.reference
def test_agrees_with_netcal(netcal):
    X, y = overconfident()
    p = 1.0 / (1.0 + np.exp(-X[:, 0]))
    other = netcal.scaling.LogisticCalibration()
    other.fit(p, y, tensorboard=False)
    # netcal's finite differences leave it up to 1e-5 beside the optimum.
    np.testing.assert_allclose(Platt().fit(X, y).predict_proba(X)[:, 1], other.transform(p), atol=2e-5)
