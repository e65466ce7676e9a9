"""Learners by other people: probabilities near the true ones where the truth is known."""

import numpy as np
import pytest
from scipy.special import expit, logit

from linkcal_lab.learners import LEARNERS


@pytest.fixture(scope="module")
def additive():
    """Logit, a heavy-tailed column with a bend in its effect, and noise; the true probabilities."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=4000), np.exp(2 * rng.normal(size=4000)), rng.normal(size=4000)])
    p = expit(0.7 * X[:, 0] - 0.5 + 1.5 * np.abs(np.log(X[:, 1])))
    return X, (rng.random(4000) < p).astype(int), p


def loss(y, p):
    return -np.mean(y * np.log(p) + (1 - y) * np.log1p(-p))


@pytest.mark.parametrize(
    ("name", "most"),
    [("logistic", None), ("spline-gam", 0.01), ("hist-gb", 0.02), ("ebm", 0.02), ("mcgrad", 0.03)],
)
def test_probabilities_are_near_the_true_ones(name, most, additive):
    X, y, p = additive
    if name in ("ebm", "mcgrad"):
        pytest.importorskip({"ebm": "interpret", "mcgrad": "mcgrad"}[name])
    found = LEARNERS[name]().fit(X[:2000], y[:2000]).predict_proba(X[2000:])
    assert found.shape == (2000, 2)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    excess = loss(p[2000:], found[:, 1]) - loss(p[2000:], p[2000:])
    if most is None:  # a straight line in the ranks cannot bend, and does better than a constant
        assert 0.02 < excess < loss(p[2000:], y[:2000].mean()) - loss(p[2000:], p[2000:])
    else:
        assert 0 < excess < most
    # A column of one value and repeated values are no trouble.
    flat = np.column_stack([logit(np.clip(p, 0.01, 0.99)), np.zeros(4000), np.floor(X[:, 1])])
    assert np.isfinite(LEARNERS[name]().fit(flat[:500], y[:500]).predict_proba(flat)).all()
