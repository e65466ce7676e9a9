"""Intervals for probabilities: bounds by hand, and coverage of curves that are known."""

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from scipy.stats import binomtest, norm
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.calibrators.samples import overconfident

from linkcal.calibrators import Platt, StructuralCalibrator
from linkcal.decisions import IntervalCalibrator
from linkcal.decisions._intervals import clopper_pearson, monotone_interval, ranking_scores
from linkcal.exceptions import InputError, NotFittedError
from refusals import refuses


def test_clopper_pearson_equals_scipy():
    for k, n in ((0, 5), (1, 4), (3, 9), (8, 9), (9, 9)):
        exact = binomtest(k, n).proportion_ci(0.9, method="exact")
        lower, upper = clopper_pearson([k], [n], 0.05)
        assert (lower[0], upper[0]) == pytest.approx((exact.low, exact.high), abs=1e-12)
    assert [bound.tolist() for bound in clopper_pearson([0], [0], 0.05)] == [[0.0], [1.0]]


def wavy(s):
    """Rises everywhere, steeply in places, and is no sigmoid of a line."""
    return expit(1.5 * np.tanh(2 * s) + 0.8 * s - 0.3)


def step(s):
    return np.where(s > 0.3, 0.8, 0.1)


@pytest.mark.parametrize("curve", [wavy, step])
@pytest.mark.parametrize("n", [30, 300])
def test_coverage_at_every_score(curve, n):
    """500 draws: at each of 25 scores the rate is at least nominal, within 4 standard errors."""
    rng = np.random.default_rng(0)
    asked = np.linspace(-3, 3, 25)
    covered, draws = np.zeros(25), 500
    for _ in range(draws):
        s = rng.normal(size=n)
        y = rng.random(n) < curve(s)
        low, high = monotone_interval(s, y, asked, level=0.8)
        covered += (low <= curve(asked)) & (curve(asked) <= high)
    assert (covered / draws).min() >= 0.8 - 4 * np.sqrt(0.8 * 0.2 / draws)


def test_width_shrinks_with_more_links():
    rng = np.random.default_rng(0)
    width = []
    for n in (200, 2000, 20_000):
        s = rng.normal(size=n)
        low, high = monotone_interval(s, rng.random(n) < wavy(s), np.linspace(-1.5, 1.5, 20))
        width.append((high - low).mean())
    # The rate for monotone curves is n^(-1/3): a factor 0.46 for ten times the links.
    assert width[1] < 0.6 * width[0]
    assert width[2] < 0.6 * width[1]


def test_order_ties_and_higher_levels():
    rng = np.random.default_rng(0)
    s = rng.integers(-3, 4, 200).astype(float)
    y = (rng.random(200) < wavy(s)).astype(int)
    asked = np.array([-3.0, 0.0, 0.5, 3.0, 99.0])
    low, high = monotone_interval(s, y, asked)
    order = rng.permutation(200)
    assert np.array_equal(monotone_interval(s[order], y[order], asked)[0], low)
    wider = monotone_interval(s, y, asked, level=0.99)
    assert (wider[0] <= low).all()
    assert (wider[1] >= high).all()
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()


def test_interval_calibrator_holds_its_own_probability():
    X, y = overconfident(n=600)
    for calibrator in (Platt(), StructuralCalibrator()):
        fitted = IntervalCalibrator(calibrator).fit(X, y)
        low, high = fitted.predict_interval(X, level=0.9).T
        p = fitted.predict_proba(X)[:, 1]
        assert ((low <= p) & (p <= high)).all()
        assert np.array_equal(p, clone(calibrator).fit(X, y).predict_proba(X)[:, 1])
        assert clone(fitted).get_params(deep=False)["calibrator"].get_params() == calibrator.get_params()


def test_scores_of_feature_calibrators_are_out_of_fold():
    X, y = overconfident(n=300)
    assert np.array_equal(ranking_scores(Platt(), X, y), X[:, 0])
    calibrator = StructuralCalibrator().fit(X, y)
    scores = ranking_scores(calibrator, X, y)
    flipped = y.copy()
    flipped[0] = 1 - y[0]
    in_sample = calibrator.decision_function(X)
    assert not np.allclose(scores, in_sample)
    assert np.corrcoef(scores, in_sample)[0, 1] > 0.9
    with pytest.raises(InputError, match="at least 2 links of each class for an interval, got 1"):
        ranking_scores(calibrator, X, np.arange(300) == 0)


@pytest.mark.parametrize("calibrator", [Platt(), StructuralCalibrator()])
def test_a_refreshed_calibrator_takes_its_interval_along(calibrator):
    X, y = overconfident(n=2000)
    fitted = IntervalCalibrator(calibrator).fit(X, y)
    before = fitted.predict_interval(X)
    fitted.calibrator_.refresh(X, (np.arange(2000) % 50 == 0).astype(int))
    low, high = fitted.predict_interval(X).T
    p = fitted.predict_proba(X)[:, 1]
    assert ((low <= p) & (p <= high)).all()
    inner = ((before > 1e-9) & (before < 1 - 1e-9)).all(axis=1)
    # Both ends move by the offset, apart from the doubt about it, whose half of the error widens them.
    centre = logit(np.column_stack((low, high))[inner]).mean() - logit(before[inner]).mean()
    assert centre == pytest.approx(fitted.calibrator_.offset_, abs=0.5)
    width = [np.diff(logit(ends), axis=1) for ends in (before[inner], np.column_stack((low, high))[inner])]
    assert (width[1] > width[0] + fitted.calibrator_.offset_standard_error_).all()


def test_the_doubt_about_an_offset_has_half_of_the_error():
    X, y = overconfident(n=400)
    fitted = IntervalCalibrator(Platt()).fit(X, y)
    fitted.calibrator_.refresh(X[:100], y[::4])
    offset, error = fitted.calibrator_.offset_, fitted.calibrator_.offset_standard_error_
    ends = np.column_stack(monotone_interval(X[:, 0], y, X[:, 0], level=0.95))
    expected = expit(logit(ends) + offset + norm.ppf(0.975) * error * np.array([-1.0, 1.0]))
    p = fitted.predict_proba(X)[:, 1]
    found = fitted.predict_interval(X, level=0.9)
    np.testing.assert_allclose(found[:, 0], np.minimum(expected[:, 0], p))
    np.testing.assert_allclose(found[:, 1], np.maximum(expected[:, 1], p))


# What scikit-learn's checks of a dozen rows warn of.
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BoundReachedWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([IntervalCalibrator(Platt())])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_bad_input():
    refuses("score must hold at least one calibration link, got none", monotone_interval, [], [], [1.0])
    refuses(r"level must be in \(0, 1\), got 1", monotone_interval, [0.0], [1], [1.0], level=1)
    with pytest.raises(InputError, match="calibrator must be a Calibrator, got str"):
        IntervalCalibrator("platt").fit([[0.0], [1.0]], [0, 1])
    for call in ("predict_interval", "predict_proba", "decision_function", "predict"):
        with pytest.raises(NotFittedError, match="IntervalCalibrator must be fitted first, call fit"):
            getattr(IntervalCalibrator(Platt()), call)([[0.0]])


@pytest.mark.parametrize("calibrator", [Platt(), StructuralCalibrator()])
def test_tensors_of_any_kind(calibrator):
    X, y = overconfident()
    low = torch.from_numpy(X).bfloat16()
    plain = IntervalCalibrator(calibrator).fit(low.double().numpy(), y)
    fitted = IntervalCalibrator(calibrator).fit(low.requires_grad_(), torch.from_numpy(y))
    expected = plain.predict_interval(low.detach().double().numpy())
    np.testing.assert_array_equal(fitted.predict_interval(low), expected)


def test_a_refused_fit_changes_nothing():
    X, y = overconfident()
    fitted = IntervalCalibrator(StructuralCalibrator()).fit(X, y)
    before = fitted.predict_interval(X[:5])
    refuses("at least 2 links of each class", fitted.fit, X[:50], np.arange(50) == 0)
    np.testing.assert_array_equal(fitted.predict_interval(X[:5]), before)
