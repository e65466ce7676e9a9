"""In-n-Out and its ablation, alone and fitted together."""

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.base import clone

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators import EmbeddingMLP, InNOut, calibrator_name
from linkcal.exceptions import BaseRateWarning, ConvergenceWarning
from refusals import damaged, refuses

from .samples import FAST_NET, groups, overconfident

nets = pytest.mark.parametrize("cls", [InNOut, EmbeddingMLP])


@nets
def test_case_12_logit_zero_stays_one_half(cls):
    X, y = groups((0.0, 1000, 100))
    with pytest.warns(
        BaseRateWarning, match=rf"0.5 differs from the observed share of links 0.1: {calibrator_name(cls())} "
    ):
        fitted = cls(**FAST_NET).fit(X, y)
    assert (fitted.predict_proba(X)[:, 1] == 0.5).all()


@nets
def test_temperature_keeps_the_sign_and_divides_the_logit(cls):
    X, y = overconfident()
    fitted = cls(**FAST_NET).fit(X, y)
    temperature = fitted.temperature(X)
    assert (temperature > 0.0).all()
    np.testing.assert_allclose(fitted.decision_function(X), X[:, 0] / temperature, rtol=1e-15)
    assert np.array_equal(np.sign(fitted.decision_function(X)), np.sign(X[:, 0]))


@pytest.mark.slow
def test_zero_features_reduce_to_a_temperature_per_sign():
    # Positive logits three times too large, negative ones half as large as they should be.
    rng = np.random.default_rng(0)
    true = rng.normal(size=3000) * 2
    y = (rng.random(3000) < expit(true)).astype(int)
    s = np.where(true > 0, 3.0 * true, 0.5 * true)
    X = np.column_stack((s, np.zeros((3000, 3))))
    fitted = InNOut(
        ece_weights=(0.0,), early_stopping=False, learning_rate=0.02, max_iter=1500, weight_decay=0.0
    ).fit(X, y)
    temperature = fitted.temperature(X)

    def loss(t, rows):
        p = expit(s[rows] / t)
        return (bernoulli_nll(s[rows] / t, y[rows]) - (2 * y[rows] - 1) * p).mean()

    for rows in (s > 0, s <= 0):
        assert np.ptp(temperature[rows]) == 0.0
        best = minimize_scalar(loss, bounds=(0.01, 50), args=(rows,), method="bounded").x
        assert temperature[rows][0] == pytest.approx(best, rel=0.01)


def test_distance_depends_on_the_norm_alone():
    X, y = overconfident()
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turned = np.column_stack((X[:, 0], X[:, 1:] @ rotation))
    fitted = InNOut(gamma="distance", **FAST_NET).fit(X, y)
    np.testing.assert_allclose(fitted.temperature(turned), fitted.temperature(X), rtol=1e-12)
    by_difference = InNOut(**FAST_NET).fit(X, y)
    assert np.abs(by_difference.temperature(turned) - by_difference.temperature(X)).max() > 1e-3


@nets
def test_same_seed_same_numbers_whatever_the_global_generators(cls):
    X, y = overconfident()
    threads = torch.get_num_threads()
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    first = cls(random_state=3, **FAST_NET).fit(X, y)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = cls(random_state=3, **FAST_NET).fit(X, y)
    assert np.array_equal(first.decision_function(X), second.decision_function(X))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    other = cls(random_state=4, **FAST_NET).fit(X, y)
    assert not np.array_equal(first.decision_function(X), other.decision_function(X))


def test_a_drawn_seed_is_recorded_and_repeats_the_fit():
    X, y = overconfident()
    drawn = InNOut(random_state=None, **FAST_NET).fit(X, y)
    again = InNOut(random_state=drawn.seed_, **FAST_NET).fit(X, y)
    assert np.array_equal(drawn.decision_function(X), again.decision_function(X))
    generator = np.random.default_rng(0)
    seeds = {InNOut(random_state=generator, **FAST_NET).fit(X, y).seed_ for _ in range(2)}
    assert len(seeds) == 2


@nets
def test_validation_links_choose_the_ece_weight(cls):
    X, y = overconfident(seed=0)
    X_val, y_val = overconfident(seed=1)
    chosen = cls(ece_weights=(0.0, 1.0, 50.0), **FAST_NET).fit(X, y, X_val=X_val, y_val=y_val)

    def ece(fitted):
        p = fitted.predict_proba(X_val)[:, 1]
        bins = np.ceil(p * 15).astype(int)
        return np.abs(np.bincount(bins, y_val - p)).sum() / len(p)

    alone = {
        w: cls(ece_weights=(w,), **FAST_NET).fit(X, y, X_val=X_val, y_val=y_val) for w in (0.0, 1.0, 50.0)
    }
    assert chosen.ece_weight_ == min(alone, key=lambda w: ece(alone[w]))
    # float32 sums over stacks of other sizes round differently.
    np.testing.assert_allclose(chosen.temperature(X), alone[chosen.ece_weight_].temperature(X), rtol=1e-4)


def test_validation_links_are_not_trained_on():
    X, y = overconfident(seed=0)
    options = {"ece_weights": (0.0,), "early_stopping": False, **FAST_NET}
    plain = InNOut(**options).fit(X, y)
    flipped = InNOut(**options).fit(X, y, X_val=X, y_val=1 - y)
    np.testing.assert_allclose(flipped.temperature(X), plain.temperature(X), rtol=1e-4)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"hidden_channels": 0}, "hidden_channels must be a whole number >= 1"),
        ({"ece_weights": ()}, "ece_weights must hold at least one"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number > 0"),
        ({"weight_decay": float("nan")}, "weight_decay must be a finite number"),
        ({"random_state": -1}, "random_state must be a whole number >= 0"),
    ],
)
def test_wrong_settings_are_refused(option, message):
    refuses(message, InNOut(**{**FAST_NET, **option}).fit, *overconfident(n=20))


@nets
def test_wrong_validation_links_are_refused(cls):
    X, y = overconfident(n=50)
    refuses("X_val and y_val must be given together", cls(**FAST_NET).fit, X, y, X_val=X)
    refuses("y_val must hold only the labels of fit", cls(**FAST_NET).fit, X, y, X_val=X, y_val=y + 1)
    refuses("3 features, but", cls(**FAST_NET).fit, X, y, X_val=X[:, :3], y_val=y)


@nets
def test_values_beyond_single_precision_are_refused(cls):
    X, y = overconfident(n=50)
    assert np.isfinite(cls(**FAST_NET).fit(X * 1e11, y).decision_function(X)).all()
    refuses(r"X of a network must be within \+-1e\+12, got", cls(**FAST_NET).fit, X * 1e200, y)


def test_state_of_another_width_is_refused():
    X, y = overconfident(n=50)
    state = InNOut(**FAST_NET).fit(X, y).get_state()
    damaged("must fit together, got", InNOut().set_state, {**state, "n_features_in_": 9})


@pytest.mark.parametrize("n", [2, 5])
def test_a_handful_of_links_is_enough_to_run(n):
    X, y = overconfident(n=40)
    rows = np.r_[np.flatnonzero(y == 0)[:1], np.flatnonzero(y == 1)[: n - 1]]
    assert np.isfinite(InNOut(**FAST_NET).fit(X[rows], y[rows]).decision_function(X)).all()


@pytest.mark.parametrize("early_stopping", [True, False])
def test_doubled_scaling_is_a_softmax_over_both_signs_of_the_scaled_logit(early_stopping):
    X, y = overconfident()
    settings = FAST_NET | {"early_stopping": early_stopping}
    fitted = InNOut(scaling="multiply-doubled", **settings).fit(X, y)
    scores = np.empty((len(X), 2))
    for i, row in enumerate(X):
        head = int(row[0] > 0)
        hidden, output = fitted.hidden_weights_[head], fitted.output_weights_[head]
        layer = np.maximum(hidden[:, :-1] @ row[1:] + hidden[:, -1], 0.0)
        t = np.log1p(np.exp(output[:-1] @ layer + output[-1]))
        scores[i] = -row[0] * t, row[0] * t
    softmax = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(X), softmax, rtol=1e-12)
    np.testing.assert_allclose(fitted.decision_function(X), X[:, 0] / fitted.temperature(X), rtol=1e-15)


def _same(first, second):
    for name, value in first.get_state().items():
        assert np.array_equal(value, second.get_state()[name]), name


@pytest.mark.parametrize("cls", [InNOut, EmbeddingMLP])
@pytest.mark.parametrize("validated", [False, True])
def test_the_number_of_threads_changes_no_digit(cls, validated):
    (X, y), (X_val, y_val) = overconfident(n=300), overconfident(n=100, seed=100)
    net = cls(**{**FAST_NET, "max_iter": 60, "patience": 20})
    given = {"X_val": X_val, "y_val": y_val} if validated else {}
    before, fitted = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            fitted.append(clone(net).fit(X, y, **given))
    finally:
        torch.set_num_threads(before)
    _same(*fitted)


@nets
def test_only_a_fit_that_was_still_improving_warns(cls):
    X, y = overconfident()
    settings = {**FAST_NET, "early_stopping": True, "learning_rate": 0.05}
    with pytest.warns(ConvergenceWarning, match="was still improving after 2 epochs"):
        assert not cls(**{**settings, "max_iter": 2}).fit(X, y).converged_
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert cls(**{**settings, "max_iter": 3000}).fit(X, y).converged_
