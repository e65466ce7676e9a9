"""The Newton solver against scikit-learn and against its optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from linkcal.calibrators._newton import fit_logistic, separated


def _data(n=300, m=2, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, m)) * [1.0, 30.0][:m] + [5.0, 0.0][:m]
    y = (rng.random(n) < expit((features[:, 0] - 5.0) * 0.8)).astype(float)
    return features, y, rng.integers(1, 4, n).astype(float)


def test_agrees_with_scikit_learn():
    features, y, weight = _data()
    fit = fit_logistic(features, y, weight)
    other = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=200)
    other.fit(features, y, sample_weight=weight)
    np.testing.assert_allclose(fit.slope, other.coef_[0], rtol=1e-6)
    assert fit.intercept == pytest.approx(other.intercept_[0], rel=1e-6)
    assert fit.converged


def test_bounded_slopes_fulfil_the_optimality_conditions():
    features, y, weight = _data()
    # The first slope is negative without the bound.
    features = np.column_stack((-features[:, 0], features[:, 1]))
    fit = fit_logistic(features, y, weight, lower=0.0)
    residual = weight * (expit(features @ fit.slope + fit.intercept) - y)
    gradient = features.T @ residual / weight.sum()
    assert fit.slope[0] == 0.0
    assert gradient[0] > 0.0
    # Free parameters have derivative 0 (1e-12 in units of a standard deviation, here 30).
    assert abs(residual.sum()) / weight.sum() < 1e-11
    assert fit.slope[1] == 0.0 or abs(gradient[1]) < 1e-9


def test_constant_column_gets_slope_zero():
    fit = fit_logistic(np.full((8, 1), 3.0), np.array([1.0] + [0.0] * 7), np.ones(8))
    assert fit.slope[0] == 0.0
    assert fit.intercept == pytest.approx(np.log(1 / 7), rel=1e-12)


@pytest.mark.parametrize(
    ("s", "y", "expected"),
    [
        ([0, 1, 2, 3], [0, 0, 1, 1], 1),
        ([0, 1, 2, 3], [1, 1, 0, 0], -1),
        ([0, 1, 1, 3], [0, 0, 1, 1], 1),
        ([0, 2, 1, 3], [0, 0, 1, 1], 0),
        ([1, 1, 1, 1], [0, 0, 1, 1], 0),
    ],
)
def test_separated(s, y, expected):
    assert separated(np.array(s, float), np.array(y, float)) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(4, 30))
def test_loss_is_flat_at_the_solution(seed, n):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n) * 10.0 ** rng.uniform(-3, 3)
    y = rng.permutation(np.arange(n) % 2).astype(float)
    if separated(s, y):
        return
    fit = fit_logistic(s[:, None], y, np.ones(n))
    residual = expit(s * fit.slope[0] + fit.intercept) - y
    assert fit.converged
    assert abs(residual.mean()) < 1e-11
    assert abs((residual * s).mean()) < 1e-10 * max(1.0, np.abs(s).max())
