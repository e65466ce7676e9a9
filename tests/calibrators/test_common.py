"""What holds for every calibrator."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import linkcal.calibrators as package
from linkcal.calibrators import BBQ, CALIBRATORS, Calibrator, Histogram, Identity, InNOut
from linkcal.exceptions import InputError, NotFittedError

from .samples import FEATURE_NAMES, NET_NAMES, SCORE_ONLY, VARIANTS, fast, overconfident

every = pytest.mark.parametrize("name", CALIBRATORS)


# scikit-learn fits a dozen rows of separable or arbitrary data, on which these two warnings are right.
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BoundReachedWarning")
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BaseRateWarning")
# One check runs only with SCIPY_ARRAY_API set in the environment and says so with a SkipTestWarning.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([*(fast(name) for name in CALIBRATORS), *VARIANTS.values()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_every_exported_calibrator_is_registered_and_final():
    exported = {
        value
        for value in (getattr(package, name) for name in package.__all__)
        if isinstance(value, type) and issubclass(value, Calibrator) and value is not Calibrator
    }
    assert exported == {spec.cls for spec in CALIBRATORS.values()}
    assert set(SCORE_ONLY) | set(FEATURE_NAMES) == set(CALIBRATORS)


@every
def test_clone_and_pickle_round_trip(name):
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
    assert clone(fitted).get_params() == fitted.get_params()
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("name", [name for name, spec in CALIBRATORS.items() if spec.search])
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


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_survive_state_copies_and_order(name):
    X, y = overconfident(n=150)
    fitted = clone(VARIANTS[name]).fit(X, y)
    expected = fitted.decision_function(X)
    assert np.array_equal(clone(fitted).set_state(fitted.get_state()).decision_function(X), expected)
    order = np.random.default_rng(1).permutation(150)
    moved = clone(fitted).fit(X[order], y[order]).decision_function(X)
    np.testing.assert_allclose(moved, expected, rtol=1e-9, atol=1e-10)
    weight = np.random.default_rng(2).integers(0, 4, size=150)
    weighted = clone(fitted).fit(X, y, sample_weight=weight).decision_function(X)
    copied = clone(fitted).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight)).decision_function(X)
    np.testing.assert_allclose(weighted, copied, rtol=1e-9, atol=1e-10)


@every
def test_inputs_are_left_unchanged(name):
    X, y = overconfident(n=100)
    weight = np.ones(100)
    before = X.copy(), y.copy(), weight.copy()
    for array in (X, y, weight):
        array.setflags(write=False)
    fitted = fast(name).fit(X, y, sample_weight=weight)
    fitted.predict_proba(X), fitted.decision_function(X), fitted.calibrate(X[:, 0], X[:, 1:])
    assert all(np.array_equal(a, b) for a, b in zip((X, y, weight), before, strict=True))


@every
def test_order_of_links_changes_nothing(name):
    X, y = overconfident()
    order = np.random.default_rng(1).permutation(len(y))
    expected = fast(name).fit(X, y).decision_function(X)
    # Sums over links in another order round differently; nothing else may differ.
    actual = fast(name).fit(X[order], y[order]).decision_function(X)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-10)


@every
def test_a_weight_is_a_number_of_copies(name):
    X, y = overconfident(n=150)
    weight = np.random.default_rng(2).integers(0, 4, size=150)
    weighted = fast(name).fit(X, y, sample_weight=weight)
    copied = fast(name).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(
        weighted.decision_function(X), copied.decision_function(X), rtol=1e-9, atol=1e-10
    )


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


@every
def test_huge_logits_stay_finite(name):
    X, y = overconfident(n=100)
    fitted = fast(name).fit(X, y)
    extreme = np.zeros((4, X.shape[1]))
    extreme[:, 0] = [-1e308, -800.0, 800.0, 1e308]
    assert np.isfinite(fitted.decision_function(extreme)).all()
    assert np.isfinite(fitted.predict_proba(extreme)).all()


# Case 18a: 1,000 logits of which three are NaN.
@every
def test_case_18a_counts_values_that_are_not_finite(name):
    X, y = overconfident(n=1000)
    bad = X.copy()
    bad[[3, 500, 999], 0] = np.nan
    fitted = fast(name).fit(X, y)
    for call in (lambda: fast(name).fit(bad, y), lambda: fitted.predict_proba(bad)):
        with pytest.raises(InputError, match="X must be finite, got 3 NaN or infinite values"):
            call()
    with pytest.raises(InputError, match="logit must be finite, got 3 NaN or infinite values"):
        fitted.calibrate(bad[:, 0], X[:, 1:])


# Case 20 a to c: the shape that comes in goes out.
@every
@pytest.mark.parametrize("shape", [(1,), (5,), (5, 1), (0,), (0, 1)])
def test_case_20_shape(name, shape):
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
    n = shape[0]
    p = fitted.calibrate(X[:n, 0].reshape(shape), X[:n, 1:])
    assert p.shape == shape
    np.testing.assert_allclose(p.ravel(), fitted.calibrate(X[:n, 0], X[:n, 1:]))


# Case 20 d: tensor in, tensor of the same type on the same device out.
@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_case_20_tensor(name, dtype, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
    logit = torch.tensor(X[:5, 0], dtype=dtype, device=device)
    p = fitted.calibrate(logit, torch.tensor(X[:5, 1:], device=device))
    assert (p.dtype, p.device.type, tuple(p.shape)) == (dtype, device, (5,))
    # Unit in the last place of the type: the probability is rounded once.
    expected = fitted.calibrate(logit.double().cpu().numpy(), X[:5, 1:])
    np.testing.assert_allclose(p.double().cpu().numpy(), expected, atol=torch.finfo(dtype).eps)


# Case 20 e: a list gives a list.
@every
def test_case_20_list_and_array_types(name):
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
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


def test_case_20_settings_survive_a_fit():
    histogram = Histogram(n_bins=7, strategy="quantile").fit(*overconfident())
    assert histogram.get_params() == {"n_bins": 7, "strategy": "quantile", "preserve_ranking": False}
    assert len(histogram.bin_probability_) == 7


@every
@pytest.mark.parametrize("kind", [list, np.asarray, torch.tensor])
def test_logits_without_a_second_dimension_are_refused_in_one_line(name, kind):
    logits, y = kind([float(i) for i in range(40)]), np.arange(40) % 2
    with pytest.raises(InputError, match=r"X must be 2D of shape .* got a 1D array\.") as refused:
        fast(name).fit(logits, y)
    assert len(str(refused.value)) < 200


@every
def test_refusals_do_not_print_the_numbers(name):
    X, y = overconfident(n=40)
    with pytest.raises(InputError, match=r"^Complex data not supported$"):
        fast(name).fit(X.astype(complex), y)


@every
def test_one_class_is_refused(name):
    X, _ = overconfident(n=10)
    with pytest.raises(InputError, match="y must hold two classes, got 1 class: 1"):
        fast(name).fit(X, np.ones(10, int))
    with pytest.raises(InputError, match="two classes, got 1 class"):
        fast(name).fit(X, [0] * 5 + [1] * 5, sample_weight=[1] * 5 + [0] * 5)


@every
def test_three_classes_and_negative_weights_are_refused(name):
    X, _ = overconfident(n=10)
    with pytest.raises(InputError, match="y must hold two classes, got 3"):
        fast(name).fit(X, np.arange(10) % 3)
    with pytest.raises(InputError, match=r"sample_weight must be >= 0, got -1\.0"):
        fast(name).fit(X, np.arange(10) % 2, sample_weight=np.full(10, -1.0))


@every
def test_use_before_fit_is_refused(name):
    for call in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError, match="must be fitted first"):
            getattr(fast(name), call)([[0.0]])
    with pytest.raises(NotFittedError, match="must be fitted first"):
        fast(name).calibrate([0.0])
    with pytest.raises(NotFittedError, match="must be fitted first"):
        fast(name).get_state()


@pytest.mark.parametrize("name", FEATURE_NAMES)
def test_missing_or_wrong_features_are_refused(name):
    fitted = fast(name).fit(*overconfident())
    with pytest.raises(InputError, match=r"must have shape \(2, 3\), got None"):
        fitted.calibrate([0.0, 1.0])
    with pytest.raises(InputError, match=r"must have shape \(2, 3\), got \(2, 4\)"):
        fitted.calibrate([0.0, 1.0], np.zeros((2, 4)))
    with pytest.raises(InputError, match="features must be finite, got 1 NaN or infinite value"):
        fitted.calibrate([0.0], [[0.0, np.inf, 0.0]])


def test_link_features_are_what_the_method_needs():
    kinds = {name: spec.cls.link_features for name, spec in CALIBRATORS.items()}
    assert {name for name, kind in kinds.items() if kind != "none"} == set(FEATURE_NAMES)
    assert [kinds[name] for name in FEATURE_NAMES] == ["embedding", "difference", "structural"]


def test_identity_is_the_sigmoid():
    fitted = Identity().fit([[-1.0], [1.0]], [0, 1])
    np.testing.assert_allclose(fitted.predict_proba([[0.0], [np.log(3.0)]])[:, 1], [0.5, 0.75], rtol=1e-15)
    assert fitted.predict([[0.0], [0.1]]).tolist() == [0, 1]


@pytest.mark.parametrize(
    "calibrator", [Histogram(strategy="equal"), BBQ(strategy="equal"), InNOut(gamma="ratio")]
)
def test_unknown_options_are_refused(calibrator):
    with pytest.raises(InputError, match="must be one of"):
        calibrator.fit(*overconfident())


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
@every
def test_a_fit_that_ends_early_changes_nothing(name, monkeypatch):
    """Even at its very end, when labels, columns, offset and all of its own attributes are new."""
    X, y = overconfident()
    calibrator = fast(name).fit(X, y).refresh(X[:100], y[:100])
    before, kept = pickle.dumps(calibrator.get_state()), calibrator.predict_proba(X)
    last = "_take" if name in NET_NAMES else "_fit"
    inner = getattr(type(calibrator), last)

    def interrupted(self, *args):
        inner(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(calibrator), last, interrupted)
    with pytest.raises(KeyboardInterrupt):
        calibrator.fit(3.0 * X[:, :3] + 1.0, 1 - y)
    assert pickle.dumps(calibrator.get_state()) == before
    np.testing.assert_array_equal(calibrator.predict_proba(X), kept)


@pytest.mark.parametrize(
    ("calibrator", "bad"),
    [
        (fast("in-n-out-plus"), {"features": "logit", "penalty": -1.0}),
        (VARIANTS["in-n-out, centred"], {"hidden_channels": 0}),
        (Histogram(), {"n_bins": 0}),
    ],
)
def test_a_refused_setting_changes_nothing(calibrator, bad):
    X, y = overconfident(k=9)
    fitted = clone(calibrator).fit(X, y)
    before = fitted.predict_proba(X)
    with pytest.raises(InputError):
        fitted.set_params(**bad).fit(X, 1 - y)
    fitted.set_params(**calibrator.get_params())
    np.testing.assert_array_equal(fitted.predict_proba(X), before)


@pytest.mark.parametrize("name", FEATURE_NAMES)
def test_tensors_of_any_kind_can_be_fitted(name):
    X, y = overconfident()
    low = torch.from_numpy(X).bfloat16()
    plain = fast(name).fit(low.double().numpy(), y)
    tracked = low.requires_grad_()
    fitted = fast(name).fit(tracked, torch.from_numpy(y))
    np.testing.assert_array_equal(fitted.predict_proba(tracked), plain.predict_proba(low.double().detach()))
