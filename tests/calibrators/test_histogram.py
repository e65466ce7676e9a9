"""Histogram binning."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from linkcal.calibrators import Histogram
from linkcal.exceptions import InputError

from .samples import groups, overconfident


def test_case_18b_empty_bins_return_their_centre():
    X, y = groups((logit(0.7), 100, 30))
    fitted = Histogram(n_bins=10).fit(X, y)
    p = fitted.predict_proba(logit([[0.05], [0.55], [0.7], [0.95]]))[:, 1]
    assert p[2] == 0.30
    np.testing.assert_allclose(p[[0, 1, 3]], [0.05, 0.55, 0.95], atol=1e-15)


def test_case_12_reaches_the_base_rate():
    X, y = groups((0.0, 1000, 100))
    assert (Histogram().fit(X, y).predict_proba(X)[:, 1] == 0.1).all()


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_mean_probability_of_each_bin_is_its_share_of_links(strategy):
    X, y = overconfident()
    fitted = Histogram(strategy=strategy).fit(X, y)
    assert fitted.bin_weight_.sum() == 400
    assert fitted.bin_weight_ @ fitted.bin_probability_ == pytest.approx(y.sum(), rel=1e-12)


def test_quantile_bins_hold_equal_numbers():
    X, y = overconfident(n=300)
    assert Histogram(strategy="quantile").fit(X, y).bin_weight_.tolist() == [20.0] * 15


@pytest.mark.parametrize("n_bins", [0, -1, 2.5, True])
def test_wrong_number_of_bins(n_bins):
    with pytest.raises(InputError, match="n_bins must be a whole number >= 1"):
        Histogram(n_bins=n_bins).fit(*overconfident())


@pytest.mark.reference
@pytest.mark.parametrize("n_bins", [5, 15, 40])
def test_agrees_with_netcal(netcal, n_bins):
    # Away from the edges: there netcal fits with bins closed on the left and predicts with the reverse.
    X, y = overconfident()
    p = expit(X[:, 0])
    other = netcal.binning.HistogramBinning(n_bins)
    other.fit(p, y)
    grid = np.linspace(-8, 8, 400)
    ours = Histogram(n_bins=n_bins).fit(X[:, :1], y).predict_proba(grid[:, None])[:, 1]
    np.testing.assert_allclose(ours, other.transform(expit(grid)), atol=1e-12)


@pytest.mark.reference
def test_netcal_is_wrong_on_a_bin_edge(netcal):
    # 0.5 lies on an edge of 10 bins: fitted into the bin above it, asked in the bin below it.
    p, y = np.full(100, 0.5), (np.arange(100) < 30).astype(int)
    other = netcal.binning.HistogramBinning(10)
    other.fit(p, y)
    assert other.transform(p)[0] == pytest.approx(0.45)
    assert Histogram(n_bins=10).fit(np.zeros((100, 1)), y).predict_proba([[0.0]])[0, 1] == 0.30
