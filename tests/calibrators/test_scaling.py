"""Temperature, Platt and beta calibration."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators import Beta, Identity, Platt, Temperature
from linkcal.exceptions import BaseRateWarning, BoundReachedWarning, LinkcalWarning
from linkcal.metrics import expected_calibration_error

from .samples import groups, overconfident


def test_case_09_reaches_the_known_optimum():
    X, y = groups((2.0, 100, 75), (-2.0, 100, 25))
    fitted = Temperature().fit(X, y)
    assert fitted.temperature_ == pytest.approx(2.0 / np.log(3.0), rel=1e-12)
    assert fitted.converged_
    p = fitted.predict_proba(X)[:, 1]
    np.testing.assert_allclose(np.unique(p), [0.25, 0.75], atol=1e-12)
    before = Identity().fit(X, y).predict_proba(X)[:, 1]
    assert expected_calibration_error(y, before) == pytest.approx(0.130797, abs=1e-6)
    assert expected_calibration_error(y, p) < 1e-12
    assert roc_auc_score(y, p) == roc_auc_score(y, before)


def test_case_11a_uninformative_logits():
    X, y = groups((3.0, 100, 50), (-3.0, 100, 50))
    with pytest.warns(BoundReachedWarning, match="carries no information"):
        fitted = Temperature().fit(X, y)
    assert np.isfinite(fitted.temperature_)
    p = fitted.predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, 0.5, atol=0.01)
    assert expected_calibration_error(y, p) < 0.01


def test_case_11b_separated_classes():
    X, y = groups((1.0, 50, 50), (-1.0, 50, 0))
    with pytest.warns(BoundReachedWarning, match="separates the classes"):
        fitted = Temperature().fit(X, y)
    assert 0.0 < fitted.temperature_ < np.inf
    p = fitted.predict_proba(X)[:, 1]
    assert (p[:50] >= 0.999).all()
    assert (p[50:] <= 0.001).all()
    assert np.isfinite(bernoulli_nll(fitted.decision_function(X), y)).all()


def test_case_12_names_the_base_rate_error():
    X, y = groups((0.0, 1000, 100))
    with pytest.warns(BaseRateWarning, match=r"average probability 0.5 differs .* share of links 0.1"):
        fitted = Temperature().fit(X, y)
    assert fitted.temperature_ == 1.0
    p = fitted.predict_proba(X)[:, 1]
    assert (p == 0.5).all()
    assert expected_calibration_error(y, p) == pytest.approx(0.4, abs=1e-12)


def test_no_base_rate_warning_on_well_specified_data():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(20):
            Temperature().fit(*overconfident(n=300, seed=seed))


def test_no_base_rate_warning_where_the_gap_is_within_the_noise():
    # 0.5 against 0.3 from ten links: 0.2 is 1.3 standard errors.
    X, y = groups((0.0, 10, 3))
    assert Temperature().fit(X, y).predict_proba(X)[0, 1] == 0.5


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BoundReachedWarning")
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BaseRateWarning")
@settings(max_examples=60, deadline=None)
@given(
    logits=st.lists(st.floats(-50, 50).filter(lambda s: s == 0 or abs(s) > 1e-3), min_size=4, max_size=40),
    seed=st.integers(0, 1000),
    unit=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_loss_never_rises_and_units_do_not_matter(logits, seed, unit):
    s = np.array(logits)
    y = np.random.default_rng(seed).permutation(np.arange(len(s)) % 2)
    fitted = Temperature().fit(s[:, None], y)
    # The search interval contains T = 1 unless mean |s| is out of [1e-4, 1e4], so the optimum is no worse.
    after = bernoulli_nll(fitted.decision_function(s[:, None]), y).sum()
    assert after <= bernoulli_nll(s, y).sum() * (1 + 1e-12) + 1e-12
    if not s.any():
        return  # every T is optimal
    scaled = Temperature().fit(unit * s[:, None], y)
    assert scaled.temperature_ == pytest.approx(unit * fitted.temperature_, rel=1e-9)


def test_temperature_agrees_with_a_general_optimiser():
    X, y = overconfident()
    result = minimize_scalar(
        lambda t: bernoulli_nll(X[:, 0] / t, y).sum(),
        bounds=(0.1, 50.0),
        method="bounded",
        options={"xatol": 1e-9},
    )
    # A minimiser that compares losses finds the minimum only to the square root of machine precision.
    assert Temperature().fit(X, y).temperature_ == pytest.approx(result.x, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_logits_at_the_ends_of_float64_give_probabilities(scale):
    X = scale * np.array([[1.0], [-1.0], [0.5], [-0.5], [1.0], [-1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        p = Temperature().fit(X, [1, 0, 0, 1, 1, 0]).predict_proba(X)
    assert np.isfinite(p).all()
    assert ((p >= 0.0) & (p <= 1.0)).all()


def test_platt_fits_two_groups_exactly():
    # Two groups, two parameters: a s + b must be the groups' log odds, log 3 and log(1/9).
    X, y = groups((2.0, 100, 75), (-2.0, 100, 10))
    fitted = Platt().fit(X, y)
    assert fitted.slope_ == pytest.approx((np.log(3) + np.log(9)) / 4, rel=1e-10)
    assert fitted.intercept_ == pytest.approx((np.log(3) - np.log(9)) / 2, rel=1e-10)


def test_platt_agrees_with_scikit_learn():
    X, y = overconfident()
    other = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10).fit(X[:, :1], y)
    np.testing.assert_allclose(Platt().fit(X, y).predict_proba(X), other.predict_proba(X[:, :1]), atol=1e-8)


def test_links_on_the_threshold_get_their_share():
    X, y = groups((-1.0, 40, 0), (0.0, 20, 5), (1.0, 40, 40))
    with pytest.warns(BoundReachedWarning):
        p = Platt().fit(X, y).predict_proba([[-1.0], [0.0], [1.0]])[:, 1]
    np.testing.assert_allclose(p, [0.0, 0.25, 1.0], atol=1e-9)


def _beta_links(n=4000, a=0.5, b=1.5, c=0.2, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n) * 2.0
    y = rng.random(n) < expit(a * log_expit(s) - b * log_expit(-s) + c)
    return s[:, None], y.astype(int)


def test_beta_finds_known_parameters():
    X, y = _beta_links(n=40_000)
    fitted = Beta().fit(X, y)
    # Four standard errors of the estimates at this size, from the inverse Fisher information.
    parts = np.column_stack((log_expit(X[:, 0]), -log_expit(-X[:, 0]), np.ones(len(y))))
    p = fitted.predict_proba(X)[:, 1]
    error = np.sqrt(np.diag(np.linalg.inv(parts.T @ ((p * (1 - p))[:, None] * parts))))
    assert (np.abs([fitted.a_ - 0.5, fitted.b_ - 1.5, fitted.c_ - 0.2]) < 4 * error).all()


def test_beta_agrees_with_a_general_optimiser():
    X, y = _beta_links()
    s = X[:, 0]

    def loss(theta):
        return bernoulli_nll(theta[0] * log_expit(s) - theta[1] * log_expit(-s) + theta[2], y).mean()

    other = minimize(
        loss,
        [1.0, 1.0, 0.0],
        bounds=[(0, None), (0, None), (None, None)],
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    fitted = Beta().fit(X, y)
    assert bernoulli_nll(fitted.decision_function(X), y).mean() <= other.fun + 1e-15
    # Finite differences limit the other optimiser to about 1e-4.
    np.testing.assert_allclose([fitted.a_, fitted.b_, fitted.c_], other.x, atol=1e-3)


def test_parameters_of_beta_never_fall_below_zero():
    # Labels against the logit: the best increasing map is a constant, the share of links.
    X, y = overconfident()
    reversed_ = Beta().fit(-X, y)
    assert (reversed_.a_, reversed_.b_) == (0.0, 0.0)
    np.testing.assert_allclose(reversed_.predict_proba(X)[:, 1], y.mean(), atol=1e-9)
    # One tail only: a is held at 0, b is not, and the map still increases.
    X, y = _beta_links(a=-0.5, b=1.5)
    fitted = Beta().fit(X, y)
    assert fitted.a_ == 0.0
    assert fitted.b_ > 0.5


def test_saturated_logits_stay_apart():
    # sigmoid(40) and sigmoid(80) are the same float64; the calibrated logits are not.
    X, y = overconfident(scale=10.0)
    s = Beta().fit(X, y).decision_function([[40.0, 0, 0, 0], [80.0, 0, 0, 0]])
    assert s[1] > s[0] + 1.0


@pytest.mark.parametrize("cls", [Platt, Beta])
def test_case_12_reaches_the_base_rate(cls):
    X, y = groups((0.0, 1000, 100))
    p = cls().fit(X, y).predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, 0.1, atol=1e-12)
    assert expected_calibration_error(y, p) < 1e-12


@pytest.mark.parametrize(("calibrator", "sign"), [(Platt(), 1.0), (Platt(), -1.0), (Beta(), 1.0)])
def test_separated_classes_stop_at_the_bound(calibrator, sign):
    X, y = groups((sign * 1.0, 50, 50), (sign * -1.0, 50, 0))
    with pytest.warns(BoundReachedWarning, match=f"the slope of {calibrator.name} was stopped"):
        state = calibrator.fit(X, y).get_state()
    # Standard deviation 1, so the bound is the slope; the step stands in the middle of the gap.
    slopes = [state[key] for key in ("slope_", "a_", "b_") if key in state]
    assert slopes == pytest.approx([sign * 1e4] * len(slopes))
    assert state.get("intercept_", state.get("c_")) == pytest.approx(0.0, abs=1e-6)
    assert np.array_equal(calibrator.predict(X), y)


# Pyro, on which netcal stands, uses a name that it has itself deprecated.
@pytest.mark.filterwarnings("ignore:independent is deprecated:DeprecationWarning")
@pytest.mark.reference
@pytest.mark.parametrize(
    ("calibrator", "theirs", "tolerance"),
    [
        (Temperature(), "TemperatureScaling", 2e-5),
        (Platt(), "LogisticCalibration", 2e-5),
        (Beta(), "BetaCalibration", 5e-4),
    ],
)
def test_agrees_with_netcal(netcal, calibrator, theirs, tolerance):
    X, y = overconfident()
    p = expit(X[:, 0])
    other = getattr(netcal.scaling, theirs)()
    other.fit(p, y, tensorboard=False)
    # netcal's finite differences leave it up to 1e-5 (beta: 1e-4) beside the optimum; ours is never worse.
    q = other.transform(p)
    np.testing.assert_allclose(calibrator.fit(X, y).predict_proba(X)[:, 1], q, atol=tolerance)
    assert bernoulli_nll(calibrator.decision_function(X), y).sum() <= -np.log(np.where(y, q, 1 - q)).sum()
