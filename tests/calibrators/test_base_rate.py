"""The share of links: exact shifts, the cases, and metrics at another ratio through weights."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linkcal.calibrators import Platt, Temperature, base_rate_offset, shift_base_rate
from linkcal.exceptions import BaseRateWarning
from linkcal.metrics import expected_calibration_error, hits_at_k, roc_auc
from refusals import refuses

from .samples import groups, overconfident

rates = st.floats(1e-6, 1 - 1e-6)


# Case 13: from one negative per positive to a share of links of 0.001.
def test_case_13_values():
    shifted = shift_base_rate(np.array([0.5, 0.9, 0.999]), from_rate=0.5, to_rate=0.001)
    np.testing.assert_allclose(shifted, [0.001, 1 / 112, 0.5], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rate", [0, 1, 1.2, -0.1, float("nan"), True, "0.1"])
def test_case_13_impossible_rates_are_refused(rate):
    refuses(r"to_rate must be in \(0, 1\), got ", shift_base_rate, [0.5], from_rate=0.5, to_rate=rate)
    refuses(r"from_rate must be in \(0, 1\), got ", base_rate_offset, rate, 0.5)


def test_case_13_ranking_stays():
    X, y = overconfident(n=2000)
    p = Platt().fit(X, y).predict_proba(X)[:, 1]
    shifted = shift_base_rate(p, from_rate=0.5, to_rate=0.001)
    assert np.array_equal(np.argsort(p, kind="stable"), np.argsort(shifted, kind="stable"))
    assert roc_auc(y, shifted) == roc_auc(y, p)
    assert hits_at_k(y, shifted, 20) == hits_at_k(y, p, 20)


@given(p=st.floats(0.0, 1.0), before=rates, after=rates)
def test_odds_are_multiplied_and_back(p, before, after):
    moved = shift_base_rate([p], from_rate=before, to_rate=after)[0]
    assert 0.0 <= moved <= 1.0
    ratio = (after / (1 - after)) / (before / (1 - before))
    expected = p * ratio / (p * ratio + 1 - p)
    assert moved == pytest.approx(expected, abs=1e-9)
    if 1e-6 < p < 1 - 1e-6 and 1e-6 < moved < 1 - 1e-6:
        assert shift_base_rate([moved], from_rate=after, to_rate=before)[0] == pytest.approx(p, abs=1e-9)


def test_certain_probabilities_stay_and_order_is_never_reversed():
    for rates in (
        (0.5, 1e-300),
        (0.5, 1e-320),
        (1e-320, 1 - 1e-15),
    ):  # factors beyond float64 in the last two
        assert shift_base_rate([0.0, 1.0], from_rate=rates[0], to_rate=rates[1]) == [0.0, 1.0]
    p = np.sort(np.r_[np.random.default_rng(0).random(10_000), 1 - 1e-15 * np.arange(50), 1e-300])
    for rate in (1e-9, 0.3, 1 - 1e-9):
        assert (np.diff(shift_base_rate(p, from_rate=0.5, to_rate=rate)) >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_containers_and_types_are_kept(dtype):
    p = torch.tensor([0.5, 0.75], dtype=dtype)
    shifted = shift_base_rate(p, from_rate=0.5, to_rate=0.1)
    assert shifted.dtype == dtype
    assert shifted.double().tolist() == pytest.approx([0.1, 0.25], rel=torch.finfo(dtype).eps)
    assert shift_base_rate(np.float32([0.5]), from_rate=0.5, to_rate=0.1).dtype == np.float32
    assert isinstance(shift_base_rate([0.5], from_rate=0.5, to_rate=0.1), list)
    assert p.tolist() == [0.5, 0.75]


# Case 12, last sentence: the offset repairs what a temperature cannot.
def test_case_12_offset_repairs_the_base_rate():
    X, y = groups((0.0, 1000, 100))
    with pytest.warns(BaseRateWarning):
        p = Temperature().fit(X, y).predict_proba(X)[:, 1]
    assert expected_calibration_error(y, p) == pytest.approx(0.4)
    shifted = shift_base_rate(p, from_rate=0.5, to_rate=0.1)
    assert shifted == pytest.approx(0.1, abs=1e-12)
    assert expected_calibration_error(y, shifted) < 1e-12


def test_a_shifted_fit_is_the_fit_at_the_other_ratio():
    """Bayes on simulated links: subsampling negatives and shifting back gives the full data's map."""
    rng = np.random.default_rng(0)
    s = rng.normal(size=200_000)
    y = (rng.random(s.size) < 1 / (1 + np.exp(4.0 - s))).astype(int)
    kept = (y == 1) | (rng.random(s.size) < 0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        full = Platt().fit(s[:, None], y)
        part = Platt().fit(s[kept, None], y[kept])
    grid = np.linspace(-2, 2, 9)[:, None]
    shifted = shift_base_rate(part.predict_proba(grid)[:, 1], from_rate=y[kept].mean(), to_rate=y.mean())
    np.testing.assert_allclose(shifted, full.predict_proba(grid)[:, 1], rtol=0.08)
