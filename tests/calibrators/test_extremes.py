"""Values at the ends of float64, constant columns, odd weights and options: no surprise, or one line."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from linkcal.calibrators import (
    BBQ,
    CALIBRATORS,
    EmbeddingMLP,
    Histogram,
    InNOut,
    Isotonic,
    StructuralCalibrator,
    Temperature,
)
from linkcal.exceptions import BaseRateWarning, InputError

from .samples import FAST_NET, NET_NAMES, fast, groups, overconfident

every = pytest.mark.parametrize("name", CALIBRATORS)


@every
def test_huge_values_give_the_same_either_way(name):
    X, y = overconfident(n=100)
    fitted = fast(name).fit(X, y)
    extreme = np.full((4, X.shape[1]), -1e308)
    extreme[:, 0] = [-1e308, 1e-310, 1.0, 1e308]
    p = fitted.predict_proba(extreme)[:, 1]
    assert np.isfinite(fitted.decision_function(extreme)).all()
    assert ((p >= 0.0) & (p <= 1.0)).all()
    assert np.array_equal(fitted.calibrate(extreme[:, 0], extreme[:, 1:]), p)


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name not in NET_NAMES])
def test_one_huge_feature_does_not_stop_a_fit(name):
    X, y = overconfident(n=100)
    X[:2, 2] = [1e308, -1e308]
    p = fast(name).fit(X, y).predict_proba(X)[:, 1]
    assert ((p >= 0.0) & (p <= 1.0)).all()
    assert np.ptp(p) > 0.5


# 0.1 and log(eps) are no sums of a few powers of two: their average is rounded.
@pytest.mark.parametrize("value", [0.1, -27.63102111592855, 1 / 3, 123_456.789])
@pytest.mark.parametrize("monotone", [False, True])
def test_the_value_of_a_constant_column_does_not_matter(value, monotone):
    X, y = overconfident(n=400)
    X[:, 2] = 0.0
    expected = StructuralCalibrator(monotone=monotone).fit(X, y).decision_function(X)
    X[:, 2] = value
    actual = StructuralCalibrator(monotone=monotone).fit(X, y).decision_function(X)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_weights_of_any_size_warn_of_the_base_rate(size):
    X, y = groups((0.5, 500, 50), (-0.5, 500, 40))
    with pytest.warns(BaseRateWarning, match=r"from the observed share of links 0\.09"):
        Temperature().fit(X, y, sample_weight=np.full(1000, size))


def test_weights_that_are_no_counts_are_refused_by_bbq():
    X, y = overconfident(n=50)
    with pytest.raises(InputError, match=r"sample_weight must sum to at most 1e\+09 links, got 5e\+301"):
        BBQ().fit(X, y, sample_weight=np.full(50, 1e300))


@pytest.mark.parametrize(
    ("calibrator", "name"),
    [
        (Histogram(preserve_ranking="no"), "preserve_ranking"),
        (BBQ(preserve_ranking="no"), "preserve_ranking"),
        (Isotonic(preserve_ranking="no"), "preserve_ranking"),
        (InNOut(center="no", **FAST_NET), "center"),
        (EmbeddingMLP(early_stopping="no"), "early_stopping"),
        (StructuralCalibrator(monotone="no"), "monotone"),
    ],
)
def test_a_word_is_no_switch(calibrator, name):
    X, y = overconfident(n=50)
    with pytest.raises(InputError, match=f"{name} must be True or False, got 'no'"):
        calibrator.fit(X, y)
    # A grid made of an array holds NumPy's own.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrator.set_params(**{name: np.bool_(False)}).fit(X, y)
    assert calibrator.predict_proba(X).shape == (50, 2)
