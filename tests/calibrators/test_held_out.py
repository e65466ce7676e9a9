"""Limits of logits: their shape, their fit, and what they keep."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from linkcal.calibrators import StructuralCalibrator, _held_out
from linkcal.calibrators._held_out import Tails, fit_tails
from linkcal.exceptions import ArtifactError, ConvergenceWarning


def drawn(n, lost=0.0, stray=0.0, slope=1.0, seed=0, share=0.5):
    """Logits of links and negatives whose log ratio is `slope` times the logit, some of each kind swapped."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(float)
    looks = np.where(rng.random(n) < np.where(y == 1.0, lost, stray), 1.0 - y, y)
    # Normal classes of unit variance at -2 and 2: the log ratio is 4 t, which is slope z.
    t = rng.normal(size=n) + 4.0 * looks - 2.0
    return 4.0 * t / slope, y, np.ones(n)


def test_between_its_limits_the_ratio_is_that_of_the_mixture():
    tails = Tails(prior=-1.0, lost=0.02, stray=0.005)
    z = np.linspace(-12.0, 12.0, 41)
    r = np.exp(z + 1.0)
    mixture = np.log((0.98 * r + 0.02) / (0.995 + 0.005 * r)) - 1.0
    np.testing.assert_allclose(tails(z), 0.99 * mixture + 0.01 * z, rtol=1e-12)
    assert np.abs(tails(z) - z)[np.abs(z + 1.0) < 2.0].max() < 0.25


def test_order_stays_however_far_out():
    z = np.linspace(-5000.0, 5000.0, 20_001)
    assert np.all(np.diff(Tails(0.0, 1e-4, 1e-4)(z)) > 0.0)


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_shares_and_slope_are_found(share):
    slope, tails, _ = fit_tails(*drawn(40_000, lost=0.03, stray=0.01, slope=1.25, share=share))
    assert slope == pytest.approx(1.25, abs=0.08)
    assert tails.lost == pytest.approx(0.03, rel=0.2)
    assert tails.stray == pytest.approx(0.01, rel=0.2)
    assert tails.prior == pytest.approx(np.log(share / (1.0 - share)), abs=0.05)


@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_no_exception_among_n_does_not_show_that_there_is_none(n):
    z, y, weight = drawn(n)
    slope, tails, _ = fit_tails(30.0 * np.sign(y - 0.5) + 0.01 * z, y, weight)
    for share, count in ((tails.lost, y.sum()), (tails.stray, n - y.sum())):
        assert share == pytest.approx(0.5 / (count + 100.0), rel=0.3)
    assert 0.01 <= slope <= 2.0


def test_the_fit_is_the_best_of_its_posterior():
    z, y, weight = drawn(500, lost=0.02, stray=0.02, seed=3)
    slope, tails, _ = fit_tails(z, y, weight)

    def posterior(slope, lost, stray):
        """Best over the shift."""
        shifts = np.linspace(-1.5, 1.5, 301)
        loss = [
            np.logaddexp(0.0, -(2.0 * y - 1.0) * Tails(tails.prior, lost, stray)(slope * z + b)).sum()
            for b in shifts
        ]
        prior = 100.0 * (lost + stray) - 0.5 * np.log(lost * stray) + 8.0 * np.log(slope) ** 2
        return min(loss) + prior

    best = posterior(slope, tails.lost, tails.stray)
    for factor in (0.8, 1.25):
        assert posterior(factor * slope, tails.lost, tails.stray) > best
        assert posterior(slope, factor * tails.lost, tails.stray) > best
        assert posterior(slope, tails.lost, factor * tails.stray) > best


def test_a_search_without_gradients_finds_the_same():
    z, y, weight = drawn(500, lost=0.02, stray=0.02, seed=3)
    slope, tails, _ = fit_tails(z, y, weight)

    def posterior(at):
        lost, stray = expit(at[2:])
        limited = Tails(tails.prior, lost, stray)(at[0] * z + at[1])
        loss = np.logaddexp(0.0, -(2.0 * y - 1.0) * limited).sum() + 100.0 * (lost + stray)
        return loss - 0.5 * np.log(lost * stray) + 8.0 * np.log(at[0]) ** 2

    options = {"xatol": 1e-8, "fatol": 1e-10, "maxfev": 20_000}
    found = minimize(posterior, [1.0, 0.0, -4.0, -4.0], method="Nelder-Mead", options=options).x
    expected = [slope, tails.lost, tails.stray]
    np.testing.assert_allclose([found[0], *expit(found[2:])], expected, rtol=1e-4)


def test_weights_count_as_copies():
    z, y, _ = drawn(300, lost=0.02, stray=0.02)
    times = np.random.default_rng(0).integers(1, 4, size=300)
    one, tails, _ = fit_tails(z, y, times.astype(float))
    other, repeated, _ = fit_tails(np.repeat(z, times), np.repeat(y, times), np.ones(times.sum()))
    assert one == pytest.approx(other, rel=1e-5)
    np.testing.assert_allclose(
        (tails.prior, tails.lost, tails.stray), (repeated.prior, repeated.lost, repeated.stray), rtol=1e-4
    )


@pytest.mark.parametrize("scale", [1e12, 1e300])
def test_weights_of_any_size_have_a_fit(scale):
    z, y, weight = drawn(300, lost=0.05, stray=0.05)
    slope, tails, converged = fit_tails(z, y, scale * weight)
    most, by_most, _ = fit_tails(z, y, 1e9 / 300.0 * weight)
    assert converged
    assert slope == pytest.approx(most, rel=1e-6)
    assert (tails.lost, tails.stray) == pytest.approx((by_most.lost, by_most.stray), rel=1e-5)


def test_equal_logits_keep_the_slope():
    slope, tails, _ = fit_tails(np.full(40, 3.0), np.arange(40) % 2.0, np.ones(40))
    assert (slope, tails.prior) == (1.0, 0.0)
    assert tails.lost == tails.stray == pytest.approx(0.5 / 20.5)


def test_a_search_that_ends_too_early_is_reported(monkeypatch):
    z, y, _ = drawn(400, lost=0.02, stray=0.02)
    X = z[:, None]
    assert StructuralCalibrator().fit(X, y).converged_
    in_full = _held_out.minimize
    monkeypatch.setattr(
        _held_out, "minimize", lambda *a, **k: in_full(*a, **{**k, "options": {**k["options"], "maxiter": 1}})
    )
    with pytest.warns(ConvergenceWarning, match="did not converge in slope and limits"):
        assert not StructuralCalibrator().fit(X, y).converged_


def test_intercept_makes_the_mean_the_share_of_links():
    rng = np.random.default_rng(0)
    z, weight = rng.normal(size=200) * 40.0 + 300.0, rng.random(200)
    tails = Tails(-3.0, 1e-3, 1e-2)
    p = expit(tails(z + tails.intercept(z, weight)))
    assert np.average(p, weights=weight) == pytest.approx(expit(-3.0), rel=1e-9)


def test_a_dozen_pairs_apart_do_not_make_certainty():
    """Pairs that no edge changes: the logarithm of their distance lies far from all others, all negatives."""
    rng = np.random.default_rng(0)
    distance = rng.normal(size=2800)
    y = (rng.random(2800) < expit(2.0 * distance)).astype(float)
    X = np.column_stack((rng.normal(size=2800), distance))
    apart = np.flatnonzero(y == 0.0)[:12]
    X[apart, 1] = -10.0
    fitted = StructuralCalibrator().fit(X, y)
    terms = fitted.contributions([[0.0, -10.0]])
    assert sum(terms.values()) - terms["limit"] < -15.0  # the line through all others goes on
    p = fitted.predict_proba([[0.0, -10.0]])[0, 1]
    assert 1e-4 < p < 0.05  # what a dozen negatives and the shares of exceptions elsewhere can tell


@pytest.mark.parametrize("prior", [-60.0, 45.0, 60.0])
@pytest.mark.parametrize("spread", [0.0, 50.0])
def test_intercept_where_one_class_is_next_to_nothing(prior, spread):
    """The share of links rounds to 1, and sums of weights to a little more or less than each other."""
    rng = np.random.default_rng(0)
    z, weight = spread * rng.normal(size=200), rng.random(200)
    tails = Tails(prior, 1e-6, 1e-6)
    rarer = expit(-np.sign(prior) * tails(z + tails.intercept(z, weight)))
    assert np.average(rarer, weights=weight) == pytest.approx(expit(-abs(prior)), rel=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("tiny", [1e-12, 1e-100])
def test_a_class_of_next_to_no_weight(tiny):
    z, y, _ = drawn(500)
    for rare in (0.0, 1.0):
        weight = np.where(y == rare, tiny, 1.0)
        logits = StructuralCalibrator().fit(z[:, None], y, weight).decision_function(z[:, None])
        share = weight[y == rare].sum() / weight.sum()
        mean = np.average(expit(logits if rare else -logits), weights=weight)
        assert mean == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize(("lost", "stray"), [(0.6, 0.6), (0.0, 0.1), (0.1, 0.0), (0.1, -0.1)])
def test_shares_that_would_turn_the_ranking_round_are_not_loaded(lost, stray):
    z, y, _ = drawn(100)
    fitted = StructuralCalibrator().fit(z[:, None], y)
    state = {**fitted.get_state(), "lost_": lost, "stray_": stray}
    with pytest.raises(ArtifactError, match="lost_"):
        fitted.set_state(state)
