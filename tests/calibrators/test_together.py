"""Calibrators fitted together equal calibrators fitted one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from linkcal.calibrators import CALIBRATORS, EmbeddingMLP, Histogram, InNOut, Platt, fit_together
from linkcal.exceptions import ConvergenceWarning, InputError, NotFittedError

from .samples import FAST_NET, fast, overconfident


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


def test_the_calibrators_given_stay_unfitted_and_may_repeat():
    X, y, _ = _seeds(2)
    net = InNOut(**FAST_NET)
    first, second = fit_together([net, net], X, y)
    assert not np.array_equal(first.hidden_weights_, second.hidden_weights_)
    with pytest.raises(NotFittedError):
        net.predict_proba(X[0])


def test_validation_links_go_only_where_they_are_used():
    X, y, validation = _seeds(2)
    histogram, net = fit_together([Histogram(), InNOut(**FAST_NET)], X, y, validation)
    _same(Histogram().fit(X[0], y[0]), histogram)
    _same(InNOut(**FAST_NET).fit(X[1], y[1], X_val=validation[1][0], y_val=validation[1][1]), net)
    mixed = fit_together([InNOut(**FAST_NET)] * 2, X, y, [None, validation[1]])
    _same(InNOut(**FAST_NET).fit(X[0], y[0]), mixed[0])
    _same(net, mixed[1])


def test_warnings_of_single_fits_are_kept():
    X, y, _ = _seeds(2, n=100)
    with pytest.warns(ConvergenceWarning, match="was still improving after 5 epochs") as caught:
        fit_together([EmbeddingMLP(max_iter=5)] * 2, X, y)
    assert sum(issubclass(w.category, ConvergenceWarning) for w in caught) == 2


def test_nothing_is_fitted_from_nothing():
    assert fit_together([], [], []) == []


@pytest.mark.parametrize("short", ["X", "y", "validation"])
def test_sequences_of_other_lengths_are_refused(short):
    X, y, validation = _seeds(2)
    arguments = {"X": X, "y": y, "validation": validation}
    arguments[short] = arguments[short][:1]
    with pytest.raises(InputError, match=rf"{short} must hold one item per calibrator \(2\), got 1"):
        fit_together([Platt(), Platt()], **arguments)
