"""Histogram binning, BBQ, isotonic regression."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, gammaln, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss

from linkcal.calibrators import BBQ, Histogram, Isotonic, shift_base_rate
from linkcal.calibrators.binning import quantile_edges

from .samples import groups, overconfident


def test_case_05_identical_scores_stay_together_and_groups_apart():
    edges = quantile_edges(np.array([0.2, 0.8]), np.array([60.0, 40.0]), 10)
    assert edges.tolist() == [0.0, 0.5, 1.0]
    assert quantile_edges(np.array([0.9]), np.array([100.0]), 10).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("cls", [Histogram, Isotonic])
def test_case_12_reaches_the_base_rate(cls):
    X, y = groups((0.0, 1000, 100))
    np.testing.assert_allclose(cls().fit(X, y).predict_proba(X)[:, 1], 0.1, atol=1e-12)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(1, 9)), min_size=1, max_size=40, unique_by=lambda t: t[0]
    ),
    st.integers(1, 12),
    st.sampled_from([1.0, 0.1, 1e-9, 1e6]),
)
def test_quantile_bins_are_ordered_occupied_and_free_of_the_weights_unit(rows, n_bins, unit):
    values, weight = np.array(sorted(rows)).T
    edges = quantile_edges(values, weight, n_bins)
    assert edges[0] == 0.0
    assert edges[-1] == 1.0
    assert 1 <= len(edges) - 1 <= n_bins
    assert (np.diff(edges) >= 0.0).all()
    assert np.array_equal(edges, quantile_edges(values, unit * weight, n_bins))


def test_case_18b_empty_bins_return_their_centre():
    X, y = groups((logit(0.7), 100, 30))
    fitted = Histogram(n_bins=10).fit(X, y)
    p = fitted.predict_proba(logit([[0.05], [0.55], [0.7], [0.95]]))[:, 1]
    assert p[2] == 0.30
    np.testing.assert_allclose(p[[0, 1, 3]], [0.05, 0.55, 0.95], atol=1e-15)


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_mean_probability_of_each_bin_is_its_share_of_links(strategy):
    X, y = overconfident()
    fitted = Histogram(strategy=strategy, smooth=False).fit(X, y)
    assert fitted.bin_weight_.sum() == 400
    assert fitted.bin_weight_ @ fitted.bin_probability_ == pytest.approx(y.sum(), rel=1e-12)


def test_quantile_bins_hold_equal_numbers():
    X, y = overconfident(n=300)
    assert Histogram(strategy="quantile").fit(X, y).bin_weight_.tolist() == [20.0] * 15


@pytest.mark.reference
@pytest.mark.parametrize("n_bins", [5, 15, 40])
def test_agrees_with_netcal(netcal, n_bins):
    # Away from the edges: there netcal fits with bins closed on the left and predicts with the reverse.
    X, y = overconfident()
    p = expit(X[:, 0])
    other = netcal.binning.HistogramBinning(n_bins)
    other.fit(p, y)
    grid = np.linspace(-8, 8, 400)
    ours = Histogram(n_bins=n_bins, smooth=False).fit(X[:, :1], y).predict_proba(grid[:, None])[:, 1]
    np.testing.assert_allclose(ours, other.transform(expit(grid)), atol=1e-12)


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
    out = BBQ().fit(X, y).predict_proba(X)[:, 1]
    assert out.min() >= 0.0
    assert out.max() <= 1.0
    assert out[:200].min() > 0.9
    assert out[200:].max() < 0.1


@pytest.mark.parametrize(("n", "first", "last"), [(8000, 2, 200), (50, 1, 10)])
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


def test_pools_adjacent_violators():
    X = [[-2.0], [-1.0], [0.0], [1.0], [2.0]]
    p = Isotonic(smooth=False).fit(X, [0, 1, 0, 1, 1]).predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, [0.0, 0.5, 0.5, 1.0, 1.0], atol=1e-15)
    # One negative below and two positives above: (0 + 1/2) / 2 and (2 + 1/2) / 3.
    p = Isotonic().fit(X, [0, 1, 0, 1, 1]).predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, [0.25, 0.5, 0.5, 5 / 6, 5 / 6], atol=1e-15)


def test_a_smoothed_end_never_passes_the_next_step():
    # One negative below a step of 1 in 10, one positive above a step of 9 in 10.
    X, y = groups((-2.0, 1, 0), (-1.0, 10, 1), (1.0, 10, 9), (2.0, 1, 1))
    p = Isotonic().fit(X, y).predict_proba([[-2.0], [-1.0], [1.0], [2.0]])[:, 1]
    np.testing.assert_allclose(p, [0.1, 0.1, 0.9, 0.9], atol=1e-15)


def test_smoothed_bins_by_hand():
    X, y = groups((-4.0, 9, 0), (0.1, 4, 1), (4.0, 3, 3))
    p = Histogram(n_bins=4).fit(X, y).predict_proba([[-4.0], [0.1], [4.0]])[:, 1]
    np.testing.assert_allclose(p, [0.05, 0.25, 0.875], atol=1e-15)
    p = Histogram(n_bins=4, smooth=False).fit(X, y).predict_proba([[-4.0], [0.1], [4.0]])[:, 1]
    np.testing.assert_allclose(p, [0.0, 0.25, 1.0], atol=1e-15)


@pytest.mark.parametrize("cls", [Histogram, Isotonic])
def test_smoothing_lowers_the_likelihood_loss_of_new_links_and_lets_a_base_rate_move_them(cls):
    X, y = overconfident(n=100, seed=0)
    new, y_new = overconfident(n=20_000, seed=1)
    textbook, smooth = (cls(smooth=flag).fit(X, y).predict_proba(new)[:, 1] for flag in (False, True))
    assert ((textbook == 0.0) | (textbook == 1.0)).any()
    assert ((smooth > 0.0) & (smooth < 1.0)).all()
    assert log_loss(y_new, smooth) < log_loss(y_new, textbook) - 0.05
    moved = shift_base_rate(smooth, from_rate=0.5, to_rate=0.01)
    assert (moved < smooth).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_scikit_learn(weighted):
    X, y = overconfident()
    weight = np.random.default_rng(0).integers(1, 5, len(y)).astype(float) if weighted else None
    other = IsotonicRegression(out_of_bounds="clip", y_min=0, y_max=1).fit(X[:, 0], y, sample_weight=weight)
    grid = np.linspace(-30, 30, 501)
    ours = Isotonic(smooth=False).fit(X[:, :1], y, sample_weight=weight).predict_proba(grid[:, None])[:, 1]
    np.testing.assert_allclose(ours, other.predict(grid), atol=1e-14)
