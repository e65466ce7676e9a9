"""`preserve_ranking`: steps keep the logit's order inside, and move by less than 1e-6."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkcal.calibrators import BBQ, Histogram, Isotonic
from linkcal.calibrators.binning import ties_broken
from linkcal.metrics import expected_calibration_error, hits_at_k, roc_auc

from .samples import overconfident

BINNING = [Histogram, BBQ, Isotonic]
every = pytest.mark.parametrize("cls", BINNING)


def pair(cls, X, y):
    return cls().fit(X, y), cls(preserve_ranking=True).fit(X, y)


@every
def test_probabilities_move_by_less_than_1e_6(cls):
    X, y = overconfident(n=1000)
    plain, ranked = pair(cls, X, y)
    extreme = np.zeros((5, X.shape[1]))
    extreme[:, 0] = [-1e308, -50.0, 0.0, 50.0, 1e308]
    for links in (X, extreme):
        p = ranked.predict_proba(links)[:, 1]
        assert np.abs(p - plain.predict_proba(links)[:, 1]).max() < 1e-6
        assert ((p > 0.0) & (p < 1.0)).all()


@every
def test_order_inside_a_step_is_the_logits(cls):
    X, y = overconfident(n=1000)
    X = X[np.argsort(X[:, 0])]
    plain, ranked = pair(cls, X, y)
    same = np.diff(plain.predict_proba(X)[:, 1]) == 0.0
    assert same.sum() > 100
    assert (np.diff(ranked.decision_function(X))[same] > 0.0).all()


def test_isotonic_is_strictly_increasing_so_that_auc_is_the_logits():
    X, y = overconfident(n=1000)
    ranked = Isotonic(preserve_ranking=True).fit(X, y)
    grid = np.linspace(-60, 60, 20_001)[:, None] * np.ones((1, X.shape[1]))
    assert (np.diff(ranked.decision_function(grid)) > 0.0).all()
    assert roc_auc(y, ranked.decision_function(X)) == roc_auc(y, X[:, 0])
    assert hits_at_k(y, ranked.decision_function(X), 20) == hits_at_k(y, X[:, 0], 20)


@every
def test_hits_do_not_collapse(cls):
    X, y = overconfident(n=4000)
    test, y_test = overconfident(n=4000, seed=1)
    plain, ranked = pair(cls, X, y)
    logit_hits = hits_at_k(y_test, test[:, 0], 20)
    with_ties = hits_at_k(y_test, plain.decision_function(test), 20)
    without = hits_at_k(y_test, ranked.decision_function(test), 20)
    assert without >= with_ties
    assert without >= 0.5 * logit_hits
    assert with_ties < logit_hits
    # The calibration is the same.
    eces = [expected_calibration_error(y_test, c.predict_proba(test)[:, 1]) for c in (plain, ranked)]
    assert eces[0] == pytest.approx(eces[1], abs=2e-2 if cls is Isotonic else 1e-5)


@settings(max_examples=200)
@given(
    s=st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=20, unique=True),
    p=st.floats(0.0, 1.0),
)
def test_distinct_float32_logits_stay_distinct(s, p):
    logits = np.sort(np.array(s))
    # Subnormal differences around 0 are below any resolution.
    logits = logits[np.r_[True, np.diff(logits) > 1e-8]]
    moved = ties_broken(np.full(len(logits), p), logits)
    assert (np.diff(moved) > 0.0).all()
    assert np.abs(moved - p).max() < 1e-6
