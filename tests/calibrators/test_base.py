"""What holds for every calibrator: scikit-learn's contract, state, refresh, extremes, warnings."""

import json
import pickle
import sys
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import linkcal.calibrators as package
from linkcal.calibrators import (
    BBQ,
    CALIBRATORS,
    Beta,
    Calibrator,
    EmbeddingMLP,
    Histogram,
    Identity,
    InNOut,
    Isotonic,
    Platt,
    StructuralCalibrator,
    Temperature,
    make_calibrator,
)
from linkcal.calibrators.registry import select_calibrator
from linkcal.exceptions import (
    ArtifactError,
    BaseRateWarning,
    BoundReachedWarning,
    ConvergenceWarning,
    InputError,
    NotFittedError,
)
from refusals import damaged, refuses, unfitted

from .samples import FAST_NET, FEATURE_NAMES, NET_NAMES, SCORE_ONLY, SETTINGS, fast, groups, overconfident

#: What scikit-learn's checks look at, these share with another calibrator.
ALIKE = {name for name in SETTINGS if "," in name} | {"embedding-mlp", "structure-only"}

every = pytest.mark.parametrize("name", CALIBRATORS)
any_setting = pytest.mark.parametrize("calibrator", SETTINGS.values(), ids=SETTINGS)


# scikit-learn fits a dozen rows of separable or arbitrary data, on which these two warnings are right.
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BoundReachedWarning")
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BaseRateWarning")
# One check runs only with SCIPY_ARRAY_API set in the environment and says so with a SkipTestWarning.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([SETTINGS[name] for name in SETTINGS if name not in ALIKE])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_every_exported_calibrator_is_registered_and_final():
    exported = {
        value
        for value in (getattr(package, name) for name in package.__all__)
        if isinstance(value, type) and issubclass(value, Calibrator) and value is not Calibrator
    }
    assert exported == set(CALIBRATORS.values())
    assert set(SCORE_ONLY) | set(FEATURE_NAMES) == set(CALIBRATORS)


@pytest.mark.parametrize("name", [name for name, cls in CALIBRATORS.items() if cls.search])
def test_grid_search_over_the_registered_ranges(name):
    X, y = overconfident(n=120)
    ranges = CALIBRATORS[name].search
    options = {"cv": 2, "scoring": "neg_log_loss", "error_score": "raise"}
    if name in NET_NAMES:
        search = RandomizedSearchCV(fast(name), ranges, n_iter=4, random_state=0, **options)
    else:
        search = GridSearchCV(fast(name), ranges, **options)
    search.fit(X, y)
    assert set(search.best_params_) == set(ranges)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict_proba(X).shape == (120, 2)


@any_setting
def test_order_of_links_changes_nothing_and_a_weight_is_a_number_of_copies(calibrator):
    X, y = overconfident(n=150)
    expected = clone(calibrator).fit(X, y).decision_function(X)
    # Sums over links in another order round differently; nothing else may differ.
    order = np.random.default_rng(1).permutation(150)
    moved = clone(calibrator).fit(X[order], y[order]).decision_function(X)
    np.testing.assert_allclose(moved, expected, rtol=1e-9, atol=1e-10)
    weight = np.random.default_rng(2).integers(0, 4, size=150)
    weighted = clone(calibrator).fit(X, y, sample_weight=weight).decision_function(X)
    copied = clone(calibrator).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight)).decision_function(X)
    np.testing.assert_allclose(weighted, copied, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", SCORE_ONLY)
def test_score_only_calibrators_ignore_the_other_columns(name):
    X, y = overconfident()
    narrow = fast(name).fit(X[:, :1], y)
    wide = fast(name).fit(X, y)
    assert np.array_equal(narrow.decision_function(X[:, :1]), wide.decision_function(X))
    assert np.array_equal(wide.calibrate(X[:, 0]), wide.predict_proba(X)[:, 1])


@pytest.mark.parametrize("name", ["uncalibrated", "temperature", "platt", "beta"])
def test_increasing_maps_leave_auc_exactly_unchanged(name):
    X, y = overconfident()
    assert roc_auc_score(y, fast(name).fit(X, y).decision_function(X)) == roc_auc_score(y, X[:, 0])


@every
def test_logit_and_probability_agree(name):
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
    p = fitted.predict_proba(X)
    s = fitted.decision_function(X)
    assert np.isfinite(s).all()
    assert ((p >= 0.0) & (p <= 1.0)).all()
    # Probabilities of exactly 0 and 1 have a clipped logit of about 36.
    np.testing.assert_allclose(p[:, 1], 1.0 / (1.0 + np.exp(-s)), atol=1e-15)


@every
def test_labels_may_be_any_two_values(name):
    X, y = overconfident(n=100)
    words = np.where(y == 1, "yes", "no")
    fitted = fast(name).fit(X, words)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(fitted.predict_proba(X), fast(name).fit(X, y).predict_proba(X))
    assert fast(name).set_state(fitted.get_state()).predict(X).tolist() == fitted.predict(X).tolist()


# Case 20 a to e: shape, container and type that come in go out, tensors on their device.
@every
def test_case_20_shape_container_and_type(name):
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
    for shape in ((1,), (5,), (5, 1), (0,), (0, 1)):
        n = shape[0]
        p = fitted.calibrate(X[:n, 0].reshape(shape), X[:n, 1:])
        assert p.shape == shape
        np.testing.assert_allclose(p.ravel(), fitted.calibrate(X[:n, 0], X[:n, 1:]))
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            logit = torch.tensor(X[:5, 0], dtype=dtype, device=device)
            p = fitted.calibrate(logit, torch.tensor(X[:5, 1:], device=device))
            assert (p.dtype, p.device.type, tuple(p.shape)) == (dtype, device, (5,))
            # Unit in the last place of the type: the probability is rounded once.
            expected = fitted.calibrate(logit.double().cpu().numpy(), X[:5, 1:])
            np.testing.assert_allclose(p.double().cpu().numpy(), expected, atol=torch.finfo(dtype).eps)
    p = fitted.calibrate(X[:5, 0].tolist(), X[:5, 1:].tolist())
    assert isinstance(p, list)
    assert p == fitted.calibrate(X[:5, 0], X[:5, 1:]).tolist()
    assert fitted.calibrate(X[:5, 0].astype(np.float32), X[:5, 1:]).dtype == np.float32
    assert fitted.calibrate(np.array([1, 2]), X[:2, 1:]).dtype == np.float64


# Case 20 f: a fit forgets the one before.
@every
def test_case_20_refit(name):
    first, second = overconfident(seed=0), overconfident(seed=1, scale=0.5)
    once = fast(name).fit(*first).get_state()
    twice = fast(name).fit(*first).fit(*first).get_state()
    assert all(np.array_equal(once[key], twice[key]) for key in once)
    moved = fast(name).fit(*first).fit(*second).get_state()
    fresh = fast(name).fit(*second).get_state()
    assert all(np.array_equal(moved[key], fresh[key]) for key in fresh)


@every
def test_wrong_links_are_refused_in_one_line(name):
    X, y = overconfident(n=100)
    bad, fitted = X.copy(), fast(name).fit(X, y)
    bad[[3, 50, 99], 0] = np.nan  # case 18a
    weight = np.where(y == 1, 1.0, 0.0)
    for A, labels, weights, message in (
        (bad, y, None, "^X must be finite, got 3 NaN or infinite values$"),
        (X[:, 0].tolist(), y, None, r"^X must be 2D of shape .* got a 1D array\."),
        (torch.tensor(X[:, 0]), y, None, r"^X must be 2D of shape .* got a 1D array\."),
        (X.astype(complex), y, None, "^Complex data not supported$"),
        (X, np.ones(100, int), None, "^y must hold two classes, got 1 class: 1$"),
        (X, y, weight, "^y must hold two classes, got 1 class: 1$"),
        (X, np.arange(100) % 3, None, "y must hold two classes, got 3$"),
        (X, y, np.full(100, -1.0), r"^sample_weight must be >= 0, got -1\.0$"),
        (X, y, np.full(100, 1e301), r"^sample_weight must be 0 or from 1e-300 to 1e\+300, got 1e\+301$"),
    ):
        with pytest.raises(InputError, match=message) as refused:
            fast(name).fit(A, labels, sample_weight=weights)
        assert len(str(refused.value)) < 200
    refuses("X must be finite, got 3 NaN or infinite values", fitted.predict_proba, bad)
    refuses("logit must be finite, got 3 NaN or infinite values", fitted.calibrate, bad[:, 0], X[:, 1:])


@every
def test_use_before_fit_is_refused(name):
    new = fast(name)
    calls = (new.predict, new.predict_proba, new.decision_function, new.calibrate)
    for call in (*(partial(call, [[0.0]]) for call in calls), new.get_state):
        unfitted("must be fitted first", call)


@pytest.mark.parametrize("name", FEATURE_NAMES)
def test_missing_or_wrong_features_are_refused(name):
    fitted = fast(name).fit(*overconfident())
    refuses(r"must have shape \(2, 3\), got None", fitted.calibrate, [0.0, 1.0])
    refuses(r"must have shape \(2, 3\), got \(2, 4\)", fitted.calibrate, [0.0, 1.0], np.zeros((2, 4)))
    with pytest.raises(InputError, match="features must be finite, got 1 NaN or infinite value"):
        fitted.calibrate([0.0], [[0.0, np.inf, 0.0]])


def test_identity_is_the_sigmoid():
    fitted = Identity().fit([[-1.0], [1.0]], [0, 1])
    np.testing.assert_allclose(fitted.predict_proba([[0.0], [np.log(3.0)]])[:, 1], [0.5, 0.75], rtol=1e-15)
    assert fitted.predict([[0.0], [0.1]]).tolist() == [0, 1]


@pytest.mark.parametrize(
    "calibrator", [Histogram(strategy="equal"), InNOut(gamma="ratio"), InNOut(scaling="multiply")]
)
def test_unknown_names_and_options_are_refused(calibrator):
    refuses("must be one of", calibrator.fit, *overconfident())
    refuses("did you mean 'temperature'", make_calibrator, "temprature")
    with pytest.raises(InputError, match=r"parameter of histogram must be one of .*did you mean 'n_bins'"):
        make_calibrator("histogram", n_bin=3)


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
@every
def test_a_fit_that_ends_early_changes_nothing(name, monkeypatch):
    """Even at its very end, when labels, columns, offset and all of its own attributes are new."""
    X, y = overconfident()
    calibrator = fast(name).fit(X, y).refresh(X[:100], y[:100])
    before, kept = pickle.dumps(calibrator.get_state()), calibrator.predict_proba(X)
    inner = type(calibrator)._fit

    def interrupted(self, *args):
        inner(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(calibrator), "_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calibrator.fit(3.0 * X[:, :3] + 1.0, 1 - y)
    assert pickle.dumps(calibrator.get_state()) == before
    np.testing.assert_array_equal(calibrator.predict_proba(X), kept)


@pytest.mark.parametrize("name", FEATURE_NAMES)
def test_tensors_of_any_kind_can_be_fitted(name):
    X, y = overconfident()
    low = torch.from_numpy(X).bfloat16()
    plain = fast(name).fit(low.double().numpy(), y)
    tracked = low.requires_grad_()
    fitted = fast(name).fit(tracked, torch.from_numpy(y))
    np.testing.assert_array_equal(fitted.predict_proba(tracked), plain.predict_proba(low.double().detach()))


@any_setting
def test_state_round_trip_is_exact(calibrator):
    X, y = overconfident()
    fitted = clone(calibrator).fit(X, y)
    state = fitted.get_state()
    json.dumps({key: value for key, value in state.items() if not isinstance(value, np.ndarray)})
    restored = clone(calibrator).set_state(state)
    assert np.array_equal(restored.decision_function(X), fitted.decision_function(X))
    assert np.array_equal(restored.predict(X), fitted.predict(X))
    again = restored.get_state()
    assert all(np.array_equal(again[key], value) for key, value in state.items())


@every
def test_state_with_a_missing_or_an_unknown_key_is_refused(name):
    state = fast(name).fit(*overconfident()).get_state()
    for key in state:
        damaged(rf"missing: .*{key}", fast(name).set_state, {k: v for k, v in state.items() if k != key})
    damaged(r"unknown: .*extra_", fast(name).set_state, {**state, "extra_": 1})


@every
def test_no_fitted_attribute_is_missing_from_the_state(name):
    fitted = fast(name).fit(*overconfident())
    # The base of a fit without base links is None, and has no state.
    attributes = {key for key, value in vars(fitted).items() if key.endswith("_") and value is not None}
    assert attributes == set(fitted.get_state())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("temperature_", "2", "temperature_ must be float, got '2'"),
        ("temperature_", float("nan"), "temperature_ must be finite, got nan"),
        ("temperature_", True, "temperature_ must be float, got True"),
        ("n_iter_", 1.5, "n_iter_ must be int, got 1.5"),
        ("classes_", [0, 1, 2], "classes_ must be a list of two labels"),
        ("n_features_in_", 0, "n_features_in_ must be >= 1, got 0"),
    ],
)
def test_state_with_a_wrong_value_is_refused(key, value, message):
    state = Temperature().fit(*overconfident()).get_state()
    damaged(message, Temperature().set_state, {**state, key: value})


def test_state_with_wrong_arrays_is_refused_and_leaves_the_calibrator_alone():
    fitted = Isotonic().fit(*overconfident())
    state = fitted.get_state()
    expected = fitted.predict_proba([[1.0, 0, 0, 0]])
    knots = state["logit_thresholds_"]
    others = (knots.astype(np.float32), np.full_like(knots, np.nan))
    for broken in (knots[:-1], knots[None], np.array([1, 2]), *others):
        with pytest.raises(ArtifactError, match=r"logit_thresholds_|must fit together"):
            fitted.set_state({**state, "logit_thresholds_": broken})
    assert np.array_equal(fitted.predict_proba([[1.0, 0, 0, 0]]), expected)


@pytest.mark.parametrize(
    "calibrator", [Histogram(n_bins=0), StructuralCalibrator(penalty=-1.0), StructuralCalibrator(n_knots=-1)]
)
def test_a_refused_fit_leaves_nothing_to_predict_with(calibrator):
    X, y = overconfident(n=50)
    refuses("must be", calibrator.fit, X, y)
    for call in (calibrator.predict_proba, calibrator.predict):
        unfitted("must be fitted first, call fit", call, X)
    unfitted("must be fitted first, call fit", calibrator.get_state)


@every
def test_mean_probability_is_the_new_share_and_the_order_stays(name):
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
    before = fitted.decision_function(X)
    label = np.arange(400) % 10 == 0
    fitted.refresh(X, label.astype(int))
    # The score equation of the offset: expected and counted links agree.
    p = fitted.predict_proba(X)[:, 1]
    assert p.mean() == pytest.approx(0.1, abs=1e-4)
    z = fitted.decision_function(X)
    np.testing.assert_allclose(z - before, fitted.offset_, rtol=1e-9)
    np.testing.assert_allclose(p, expit(z), rtol=1e-12)
    assert np.array_equal(fitted.predict(X), fitted.classes_[(z > 0).astype(int)])
    assert fast(name).set_state(fitted.get_state()).refresh(X, label).offset_ == fitted.offset_
    assert fitted.offset_standard_error_ == pytest.approx(1 / np.sqrt((p * (1 - p)).sum()), rel=1e-4)


@every
def test_state_keeps_the_offset_and_a_fit_forgets_it(name):
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
    plain = fitted.get_state()
    assert "offset_" not in plain
    fitted.refresh(X, 1 - y)
    state = fitted.get_state()
    restored = fast(name).set_state(state)
    assert restored.offset_ == fitted.offset_
    assert np.array_equal(restored.predict_proba(X), fitted.predict_proba(X))
    restored.set_state(plain)
    assert not hasattr(restored, "offset_")
    assert not hasattr(fitted.fit(X, y), "offset_")


def test_equals_a_logistic_regression_with_a_fixed_slope():
    X, y = overconfident(n=300)
    fitted = Platt().fit(X, y)
    z = fitted.decision_function(X)
    label = (np.random.default_rng(0).random(300) < expit(z - 1.5)).astype(int)
    fitted.refresh(X, label)
    # Newton on one parameter, written out.
    b = 0.0
    for _ in range(50):
        p = expit(z + b)
        b -= (p - label).sum() / (p * (1 - p)).sum()
    assert fitted.offset_ == pytest.approx(b, abs=1e-10)
    free = LogisticRegression(C=np.inf).fit(z[:, None], label)
    assert abs(free.intercept_[0] - fitted.offset_) < 5 * fitted.offset_standard_error_


def test_standard_error_on_drifted_links():
    """1,000 draws of 300 links whose logits moved by -1.2."""
    X, y = overconfident(n=5000)
    fitted = Platt().fit(X, y)
    rng = np.random.default_rng(1)
    seen = []
    for _ in range(1000):
        rows = X[rng.integers(len(X), size=300)]
        plain = Platt().set_state({k: v for k, v in fitted.get_state().items() if "offset" not in k})
        z = plain.decision_function(rows)
        fresh = plain.refresh(rows, (rng.random(300) < expit(z - 1.2)).astype(int))
        seen.append((fresh.offset_, fresh.offset_standard_error_))
    offset, error = np.array(seen).T
    assert offset.mean() == pytest.approx(-1.2, abs=4 * offset.std() / np.sqrt(1000) + 0.01)
    assert error.mean() == pytest.approx(offset.std(), rel=0.1)
    inside = np.mean(np.abs(offset + 1.2) <= 1.96 * error)
    assert inside == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 1000))


def test_weights_are_copies_and_labels_may_be_words():
    X, y = overconfident(n=100)
    weight = np.random.default_rng(0).integers(0, 4, 100)
    weighted = Platt().fit(X, y).refresh(X, y, sample_weight=weight)
    copied = Platt().fit(X, y).refresh(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.offset_ == pytest.approx(copied.offset_, rel=1e-9)
    words = np.where(y == 1, "yes", "no")
    assert Platt().fit(X, words).refresh(X, words).offset_ == Platt().fit(X, y).refresh(X, y).offset_


def test_contributions_still_add_up():
    X, y = overconfident()
    fitted = StructuralCalibrator().fit(X, y).refresh(X, 1 - y)
    total = sum(fitted.contributions(X).values())
    np.testing.assert_allclose(total, fitted.decision_function(X), rtol=1e-9, atol=1e-9)


def test_bad_labels_are_refused_and_leave_the_offset_alone():
    X, y = overconfident(n=50)
    fitted = Platt().fit(X, y).refresh(X, 1 - y)
    offset = fitted.offset_
    refuses("y must hold both classes to fit an offset, got only 1", fitted.refresh, X, np.ones(50, int))
    refuses(r"only the labels of fit, \[0, 1\], got 2", fitted.refresh, X, np.full(50, 2))
    assert fitted.offset_ == offset
    with pytest.raises(NotFittedError):
        Platt().refresh(X, y)


@pytest.mark.parametrize("name", ["uncalibrated", "beta", "isotonic", "histogram", "in-n-out-plus"])
@pytest.mark.parametrize("logit", [50.0, 800.0])
def test_probabilities_that_were_rounded_to_1_move_too(name, logit):
    """A sigmoid of 40 is 1 in float64; the new labels say 0.05."""
    fitted = fast(name).fit(*overconfident())
    X = np.zeros((20, 4))
    X[:, 0] = logit
    fitted.refresh(X, [1] + [0] * 19)
    p = fitted.predict_proba(X)[:, 1]
    assert p == pytest.approx(0.05, abs=1e-6)
    np.testing.assert_allclose(p, expit(fitted.decision_function(X)), rtol=1e-12)
    assert np.array_equal(fitted.calibrate(X[:, 0], X[:, 1:]), p)


def test_extreme_logits_find_the_optimum():
    """Logits far apart, where Newton steps alone would leave float64."""
    X = np.array([[-500.0], [-499.0], [500.0], [501.0]] * 5)
    state = {"classes_": [0, 1], "n_features_in_": 1, "n_iter_": 0, "converged_": True}
    fitted = Platt().set_state(state | {"slope_": 1.0, "intercept_": 0.0})
    fitted.refresh(X, [0, 1, 0, 1] * 5)
    p = fitted.predict_proba(X)[:, 1]
    assert p.sum() == pytest.approx(10.0, abs=1e-6)


@every
def test_huge_values_give_the_same_either_way(name):
    X, y = overconfident(n=100)
    fitted = fast(name).fit(X, y)
    extreme = np.full((4, X.shape[1]), -1e308)
    extreme[:, 0] = [-1e308, 1e-310, 1.0, 1e308]
    p = fitted.predict_proba(extreme)[:, 1]
    assert np.isfinite(fitted.decision_function(extreme)).all()
    assert ((p >= 0.0) & (p <= 1.0)).all()
    none = np.zeros((1, X.shape[1]))
    tiny = np.where(np.arange(X.shape[1]) == 0, 1e-310, none)
    assert fitted.decision_function(tiny) == fitted.decision_function(none)
    assert np.array_equal(fitted.calibrate(extreme[:, 0], extreme[:, 1:]), p)


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name not in NET_NAMES])
def test_one_huge_feature_does_not_stop_a_fit(name):
    X, y = overconfident(n=100)
    X[:2, 2] = [1e308, -1e308]
    p = fast(name).fit(X, y).predict_proba(X)[:, 1]
    assert ((p >= 0.0) & (p <= 1.0)).all()
    assert np.ptp(p) > (0.1 if name == "structure-only" else 0.5)


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_weights_of_any_size_warn_of_the_base_rate(size):
    X, y = groups((0.5, 500, 50), (-0.5, 500, 40))
    with pytest.warns(BaseRateWarning, match=r"from the observed share of links 0\.09"):
        Temperature().fit(X, y, sample_weight=np.full(1000, size))


def test_weights_that_are_no_counts_are_refused_by_bbq():
    X, y = overconfident(n=50)
    with pytest.raises(InputError, match=r"sample_weight must sum to at most 1e\+09 links, got 5e\+301"):
        BBQ().fit(X, y, sample_weight=np.full(50, 1e300))


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
def test_a_word_is_no_switch():
    X, y = overconfident(n=50)
    refuses("early_stopping must be True or False, got 'no'", EmbeddingMLP(early_stopping="no").fit, X, y)
    # A grid made of an array holds NumPy's own.
    EmbeddingMLP(early_stopping=np.bool_(False), **FAST_NET).fit(X, y)


def names_of(k):
    return ["logit", *(f"column_{j}" for j in range(1, k + 1))]


@every
def test_columns_of_a_data_frame_are_remembered_and_checked(name):
    X, y = overconfident(n=120)
    frame = pd.DataFrame(X, columns=names_of(3))
    fitted = fast(name).fit(frame, y)
    expected = fast(name).fit(X, y).decision_function(X)
    np.testing.assert_array_equal(fitted.decision_function(frame), expected)
    state = fitted.get_state()
    assert state["feature_names_in_"] == names_of(3)
    restored = fast(name).set_state(json.loads(json.dumps(state, default=list)) if name == "platt" else state)
    for calibrator in (fitted, restored, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(calibrator.decision_function(frame), expected)
        with pytest.raises(InputError, match="The feature names should match those that were passed during"):
            calibrator.decision_function(frame[frame.columns[::-1]])
    assert not hasattr(restored.set_state(fast(name).fit(X, y).get_state()), "feature_names_in_")
    with pytest.raises(ArtifactError, match="3 feature_names_in_ for 4 columns"):
        fast(name).set_state({**state, "feature_names_in_": names_of(2)})


SEPARATED = groups((1.0, 50, 50), (-1.0, 50, 0))
REVERSED = groups((1.0, 50, 10), (-1.0, 50, 40))
RARE = groups((0.0, 1000, 100))
SHORT = overconfident(n=100)


@pytest.mark.parametrize(
    ("calibrator", "links", "category"),
    [
        (Temperature(), SEPARATED, BoundReachedWarning),
        (Temperature(), REVERSED, BoundReachedWarning),
        (Temperature(), RARE, BaseRateWarning),
        (Platt(), SEPARATED, BoundReachedWarning),
        (Beta(), SEPARATED, BoundReachedWarning),
        (EmbeddingMLP(**FAST_NET), RARE, BaseRateWarning),
        (InNOut(**FAST_NET), RARE, BaseRateWarning),
        (InNOut(max_iter=5), SHORT, ConvergenceWarning),
        (EmbeddingMLP(max_iter=5), SHORT, ConvergenceWarning),
    ],
)
def test_warnings_point_at_the_line_that_called_fit(calibrator, links, category):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calibrator.fit(*links)
    assert [w.category for w in caught].count(category) == 1
    assert {w.filename for w in caught} == {__file__}


@pytest.mark.parametrize("calibrator", [Temperature(), Platt(), Beta(), StructuralCalibrator()])
def test_warnings_of_solvers_point_at_the_line_that_called_fit(calibrator, monkeypatch):
    scaling = sys.modules["linkcal.calibrators.scaling"]
    structural = sys.modules[StructuralCalibrator.__module__]
    root, fit, ridge = scaling.brentq, scaling.fit_logistic, structural.fit_ridge
    monkeypatch.setattr(scaling, "brentq", lambda *a, **k: root(*a, **{**k, "maxiter": 1}))
    monkeypatch.setattr(scaling, "fit_logistic", lambda *a, **k: fit(*a, **k)._replace(converged=False))
    monkeypatch.setattr(structural, "fit_ridge", lambda *a, **k: ridge(*a, **k)._replace(converged=False))
    with pytest.warns(ConvergenceWarning, match="did not converge") as caught:
        assert not calibrator.fit(*SHORT).converged_
    assert {w.filename for w in caught} == {__file__}


def test_only_candidates_compete_to_be_the_default():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 1)), rng.random(200)
    y = (y < 1 / (1 + np.exp(3 - 2 * X[:, 0]))).astype(int)
    good, bad = make_calibrator("platt").fit(X, y), make_calibrator("uncalibrated").fit(X, y)

    def chosen(**fitted):
        return select_calibrator(
            {name.replace("_", "-"): each for name, each in fitted.items()}, lambda _: (X, y), seed=0
        )

    assert chosen(platt=good, uncalibrated=bad) == "platt"
    # The same map under the name of one that trains a network.
    assert chosen(in_n_out=good, uncalibrated=bad) == "uncalibrated"
    assert chosen(structure_only=good, in_n_out=bad) == "in-n-out"
