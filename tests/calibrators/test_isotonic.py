"""Isotonic regression."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from linkcal.calibrators import Isotonic

from .samples import groups, overconfident


def test_pools_adjacent_violators():
    X = [[-2.0], [-1.0], [0.0], [1.0], [2.0]]
    p = Isotonic().fit(X, [0, 1, 0, 1, 1]).predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, [0.0, 0.5, 0.5, 1.0, 1.0], atol=1e-15)


def test_case_12_reaches_the_base_rate():
    X, y = groups((0.0, 1000, 100))
    np.testing.assert_allclose(Isotonic().fit(X, y).predict_proba(X)[:, 1], 0.1, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_scikit_learn(weighted):
    X, y = overconfident()
    weight = np.random.default_rng(0).integers(1, 5, len(y)).astype(float) if weighted else None
    other = IsotonicRegression(out_of_bounds="clip", y_min=0, y_max=1).fit(X[:, 0], y, sample_weight=weight)
    grid = np.linspace(-30, 30, 501)
    ours = Isotonic().fit(X[:, :1], y, sample_weight=weight).predict_proba(grid[:, None])[:, 1]
    np.testing.assert_allclose(ours, other.predict(grid), atol=1e-14)


def test_never_decreases_and_squared_error_does_not_rise():
    X, y = overconfident()
    p = Isotonic().fit(X, y).predict_proba(X)[:, 1]
    assert (np.diff(p[np.argsort(X[:, 0], kind="stable")]) >= 0.0).all()
    assert ((p - y) ** 2).sum() <= ((1 / (1 + np.exp(-X[:, 0])) - y) ** 2).sum()
