"""The Newton solver: against scikit-learn, first-order conditions, bounds, the path of penalties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators._newton import RidgeProblem, cross_validated, fit_logistic, fit_ridge, separated


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
    np.testing.assert_allclose(fit.theta[1:], other.coef_[0], rtol=1e-6)
    assert fit.theta[0] == pytest.approx(other.intercept_[0], rel=1e-6)
    assert fit.converged


def test_bounded_slopes_fulfil_the_optimality_conditions():
    features, y, weight = _data()
    # The first slope is negative without the bound.
    features = np.column_stack((-features[:, 0], features[:, 1]))
    fit = fit_logistic(features, y, weight, lower=0.0)
    residual = weight * (expit(features @ fit.theta[1:] + fit.theta[0]) - y)
    gradient = features.T @ residual / weight.sum()
    assert fit.theta[1] == 0.0
    assert gradient[0] > 0.0
    # Free parameters have derivative 0 (1e-12 in units of a standard deviation, here 30).
    assert abs(residual.sum()) / weight.sum() < 1e-11
    assert fit.theta[2] == 0.0 or abs(gradient[1]) < 1e-9


def test_constant_column_gets_slope_zero():
    fit = fit_logistic(np.full((8, 1), 3.0), np.array([1.0] + [0.0] * 7), np.ones(8))
    assert fit.theta[1] == 0.0
    assert fit.theta[0] == pytest.approx(np.log(1 / 7), rel=1e-12)


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
    residual = expit(s * fit.theta[1] + fit.theta[0]) - y
    assert fit.converged
    assert abs(residual.mean()) < 1e-11
    assert abs((residual * s).mean()) < 1e-10 * max(1.0, np.abs(s).max())


def problem(n=300, m=4, seed=0, lower=-np.inf) -> RidgeProblem:
    rng = np.random.default_rng(seed)
    design = np.column_stack((np.ones(n), rng.normal(size=(n, m))))
    theta = np.r_[0.5, np.linspace(-1.0, 1.5, m)]
    y = (rng.random(n) < expit(design @ theta)).astype(float)
    low = np.r_[-np.inf, np.full(m, lower)]
    return RidgeProblem(design, y, rng.integers(1, 4, n).astype(float), low, np.full(m + 1, np.inf))


def gradient(p: RidgeProblem, penalty, theta):
    residual = p.weight * (expit(p.design @ theta) - p.y)
    return p.design.T @ residual + penalty * theta


@pytest.mark.parametrize("strength", [0.1, 10.0, 1000.0])
def test_equals_scikit_learn(strength):
    p = problem()
    penalty = np.r_[0.0, np.full(4, strength)]
    ours = fit_ridge(p, penalty, np.zeros(5))
    theirs = LogisticRegression(C=1.0 / strength, tol=1e-12, max_iter=10_000).fit(
        p.design[:, 1:], p.y, sample_weight=p.weight
    )
    assert ours.converged
    np.testing.assert_allclose(ours.theta[1:], theirs.coef_[0], atol=2e-6)
    np.testing.assert_allclose(ours.theta[0], theirs.intercept_[0], atol=2e-6)


def test_bounds_hold_with_the_right_signs_of_the_gradient():
    p, penalty = problem(lower=0.0), np.r_[0.0, np.full(4, 1.0)]
    fit = fit_ridge(p, penalty, np.zeros(5))
    slope = gradient(p, penalty, fit.theta)
    held = fit.theta[1:] == 0.0
    assert fit.converged
    # The true coefficients are -1, -1/6, 2/3 and 3/2.
    assert held.tolist() == [True, True, False, False]
    assert (slope[1:][held] > 0.0).all()
    assert np.abs(slope[1:][~held]).max() < 1e-7 * p.weight.sum()


def test_start_does_not_matter():
    p, penalty = problem(), np.r_[0.0, np.full(4, 0.5)]
    near, far = fit_ridge(p, penalty, np.zeros(5)), fit_ridge(p, penalty, np.full(5, 30.0))
    np.testing.assert_allclose(near.theta, far.theta, atol=1e-9)


def test_cross_validation_equals_separate_fits():
    p = problem(n=120)
    fold = np.arange(120) % 3
    penalties = [np.r_[0.0, np.full(4, s)] for s in (100.0, 10.0, 1.0)]
    path = cross_validated(p, penalties, fold, np.zeros(5))
    losses = path.losses
    assert path.best == np.argmin(losses)
    assert p.weight @ bernoulli_nll(path.logit, p.y) == pytest.approx(losses[path.best], rel=1e-12)
    for loss, penalty in zip(losses, penalties, strict=True):
        expected = sum(
            p.take(np.flatnonzero(fold == k)).nll(
                fit_ridge(p.take(np.flatnonzero(fold != k)), penalty, np.zeros(5)).theta
            )
            for k in range(3)
        )
        # The path stops a Newton step early; see PATH_TOLERANCE.
        assert loss == pytest.approx(expected, rel=1e-4)


def test_path_ends_once_the_loss_rises():
    rng = np.random.default_rng(0)
    design = np.column_stack((np.ones(40), rng.normal(size=(40, 15))))
    y = (np.arange(40) % 2).astype(float)  # noise: the weaker the penalty, the worse
    p = RidgeProblem(design, y, np.ones(40), np.full(16, -np.inf), np.full(16, np.inf))
    penalties = [np.r_[0.0, np.full(15, 10.0**-e)] for e in range(-3, 6)]
    losses = cross_validated(p, penalties, np.arange(40) // 2 % 4, np.zeros(16)).losses
    finite = np.isfinite(losses)
    assert 3 <= finite.sum() < len(penalties)
    assert not finite[finite.sum() :].any()
    assert np.argmin(losses) == finite.sum() - 3
