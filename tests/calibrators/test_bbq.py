"""Bayesian binning into quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, gammaln, logit

from linkcal.calibrators import BBQ

from .samples import groups, overconfident


def test_ten_links_by_hand():
    # Ten links, so at most two bins. Five at p = 0.25 (one true), five at p = 0.75 (four true).
    X, y = groups((logit(0.25), 5, 1), (logit(0.75), 5, 4))
    fitted = BBQ().fit(X, y)
    assert fitted.binning_sizes_.tolist() == [1.0, 2.0]

    def log_score(bins, n_b, m_b, middle):
        prior = 2.0 / bins
        alpha, beta = prior * middle, prior * (1 - middle)
        return (
            gammaln(prior) - gammaln(n_b + prior)
            + gammaln(m_b + alpha) - gammaln(alpha)
            + gammaln(n_b - m_b + beta) - gammaln(beta)
        )  # fmt: skip

    one = np.exp(log_score(1, 10, 5, 0.5))
    two = np.exp(log_score(2, 5, 1, 0.25) + log_score(2, 5, 4, 0.75))
    np.testing.assert_allclose(fitted.binning_weights_, np.array([one, two]) / (one + two), rtol=1e-12)
    # Posterior means: (5 + 1) / 12 in the one bin; (1 + 1/4) / 6 and (4 + 3/4) / 6 in the two.
    expected = (one * 0.5 + two * np.array([1.25, 4.75]) / 6) / (one + two)
    np.testing.assert_allclose(fitted.predict_proba(X)[[0, -1], 1], expected, rtol=1e-12)


def test_case_18c_stays_inside_the_unit_interval():
    rng = np.random.default_rng(0)
    p = np.concatenate((rng.uniform(0.9, 1.0, 200), rng.uniform(0.0, 0.1, 200)))
    X, y = logit(p)[:, None], np.repeat([1, 0], 200)
    for calibrator in (BBQ(), BBQ(strategy="uniform", criterion="bic")):
        out = calibrator.fit(X, y).predict_proba(X)[:, 1]
        assert out.min() >= 0.0
        assert out.max() <= 1.0
        assert out[:200].min() > 0.9
        assert out[200:].max() < 0.1


@pytest.mark.parametrize(
    ("n", "first", "last"), [(1000, 1, 100), (8000, 2, 200), (27_000, 3, 300), (50, 1, 10)]
)
def test_range_of_binnings(n, first, last):
    X, y = overconfident(n=n, k=0)
    sizes = BBQ().fit(X, y).binning_sizes_
    assert (sizes[0], sizes[-1], len(sizes)) == (first, last, last - first + 1)


def test_the_step_function_equals_the_average_of_the_binnings():
    X, y = overconfident(n=200, k=0)
    fitted = BBQ().fit(X, y)
    p = expit(X[:, 0])
    order = np.argsort(p)
    average = np.zeros(200)
    for size, weight in zip(fitted.binning_sizes_.astype(int), fitted.binning_weights_, strict=True):
        # All scores differ: rank r of n belongs to bin floor(B r / n).
        bins = np.empty(200, int)
        bins[order] = np.arange(200) * size // 200
        for b in range(size):
            inside = np.flatnonzero(bins == b)
            low, high = p[inside].min(), p[inside].max()
            lower = 0.0 if b == 0 else 0.5 * (low + p[bins == b - 1].max())
            upper = 1.0 if b == size - 1 else 0.5 * (high + p[bins == b + 1].min())
            alpha = 2.0 / size * 0.5 * (lower + upper)
            average[inside] += weight * (y[inside].sum() + alpha) / (len(inside) + 2.0 / size)
    np.testing.assert_allclose(fitted.predict_proba(X)[:, 1], average, atol=1e-12)


def test_saturated_probabilities():
    # sigmoid is exactly 1 for most of these; the prior's middle of the last bin must not become 1.
    X, y = groups((40.0, 50, 49), (60.0, 50, 50), (-800.0, 50, 1))
    p = BBQ().fit(X, y).predict_proba(X)[:, 1]
    assert np.isfinite(p).all()
    assert p[0] > 0.9 > 0.1 > p[-1]


@pytest.mark.reference
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [300, 600, 2000])
def test_agrees_with_netcal_up_to_the_models_it_drops(netcal, n, seed):
    # netcal scores by BIC on bins of equal width (not the published method) in float32, and its elbow rule
    # drops binnings of noticeable weight; the difference is bounded by what it drops.
    X, y = overconfident(n=n, k=0, seed=seed)
    p = expit(X[:, 0])
    other = netcal.binning.BBQ()
    other.fit(p, y)
    ours = BBQ(strategy="uniform", criterion="bic").fit(X, y)
    kept = {int(np.prod(model.get_degrees_of_freedom())) for model in other._binning_models}
    dropped = ours.binning_weights_[[size not in kept for size in ours.binning_sizes_]].sum()
    # float32 log-likelihoods of n links are off by up to n * 1e-7, and so are the weights.
    tolerance = 1e-6 + dropped + 2e-8 * n
    assert np.abs(ours.predict_proba(X)[:, 1] - other.transform(p)).max() <= tolerance


@pytest.mark.reference
@pytest.mark.parametrize(("n", "seed"), [(100, 0), (300, 0), (300, 1), (600, 2), (600, 5)])
def test_agrees_with_netcal_to_1e_6_where_it_drops_next_to_nothing(netcal, n, seed):
    X, y = overconfident(n=n, k=0, seed=seed)
    p = expit(X[:, 0])
    other = netcal.binning.BBQ()
    other.fit(p, y)
    ours = BBQ(strategy="uniform", criterion="bic").fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X)[:, 1], other.transform(p), atol=1e-6)
