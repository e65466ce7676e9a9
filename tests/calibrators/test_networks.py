"""In-n-Out and its ablation, alone and fitted together."""

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit

from linkcal._core.maths import bernoulli_nll
from linkcal.calibrators import (
    CALIBRATORS,
    EmbeddingMLP,
    Histogram,
    InNOut,
    Platt,
    calibrator_name,
    fit_together,
)
from linkcal.exceptions import BaseRateWarning, ConvergenceWarning, InputError
from refusals import damaged, refuses

from .samples import FAST_NET, fast, groups, overconfident

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


def _seeds(count, n=300):
    """X, y and validation links of calibration seeds."""
    links = [overconfident(n=n, seed=seed) for seed in range(count)]
    validation = [overconfident(n=100, seed=100 + seed) for seed in range(count)]
    return [X for X, _ in links], [y for _, y in links], validation


def _same(first, second):
    for name, value in first.get_state().items():
        assert np.array_equal(value, second.get_state()[name]), name


@pytest.mark.parametrize("cls", [InNOut, EmbeddingMLP])
@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_gives_the_numbers_of_single_fits(cls, validated, threads):
    X, y, validation = _seeds(3)
    nets = [cls(random_state=seed, **{**FAST_NET, "max_iter": 60, "patience": 20}) for seed in range(3)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = fit_together(nets, X, y, validation if validated else None)
    finally:
        torch.set_num_threads(before)
    for net, A, b, (X_val, y_val), fitted in zip(nets, X, y, validation, together, strict=True):
        given = {"X_val": X_val, "y_val": y_val} if validated else {}
        _same(net.fit(A, b, **given), fitted)
    assert len({fitted.seed_ for fitted in together}) == 3


def test_every_kind_and_links_of_other_sizes_may_be_mixed():
    names = list(CALIBRATORS)
    calibrators = [fast(name) for name in names]
    # in-n-out-plus reads nine columns.
    data = [overconfident(n=200 + 10 * i, k=9, seed=i) for i in range(len(names))]
    fitted = fit_together(calibrators, [X for X, _ in data], [y for _, y in data])
    for calibrator, (X, y), result in zip(calibrators, data, fitted, strict=True):
        _same(calibrator.fit(X, y), result)


def test_validation_links_go_only_where_they_are_used():
    X, y, validation = _seeds(2)
    histogram, net = fit_together([Histogram(), InNOut(**FAST_NET)], X, y, validation)
    _same(Histogram().fit(X[0], y[0]), histogram)
    _same(InNOut(**FAST_NET).fit(X[1], y[1], X_val=validation[1][0], y_val=validation[1][1]), net)
    mixed = fit_together([InNOut(**FAST_NET)] * 2, X, y, [None, validation[1]])
    _same(InNOut(**FAST_NET).fit(X[0], y[0]), mixed[0])
    _same(net, mixed[1])


@pytest.mark.parametrize("short", ["X", "y", "validation"])
def test_sequences_of_other_lengths_are_refused(short):
    X, y, validation = _seeds(2)
    arguments = {"X": X, "y": y, "validation": validation}
    arguments[short] = arguments[short][:1]
    with pytest.raises(InputError, match=rf"{short} must hold one item per calibrator \(2\), got 1"):
        fit_together([Platt(), Platt()], **arguments)


@nets
def test_only_a_fit_that_was_still_improving_warns(cls):
    X, y = overconfident()
    settings = {**FAST_NET, "early_stopping": True, "learning_rate": 0.05}
    with pytest.warns(ConvergenceWarning, match="was still improving after 2 epochs"):
        assert not cls(**{**settings, "max_iter": 2}).fit(X, y).converged_
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert cls(**{**settings, "max_iter": 3000}).fit(X, y).converged_
