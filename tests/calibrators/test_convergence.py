"""A network that ran out of epochs says so."""

from __future__ import annotations

import warnings

import pytest

from linkcal.calibrators import EmbeddingMLP, InNOut
from linkcal.exceptions import BaseRateWarning, ConvergenceWarning

from .samples import overconfident


@pytest.mark.parametrize("cls", [EmbeddingMLP, InNOut])
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.BaseRateWarning")
def test_too_few_epochs_are_told(cls):
    X, y = overconfident(n=100)
    with pytest.warns(ConvergenceWarning, match="was still improving after 5 epochs; raise max_iter"):
        fitted = cls(max_iter=5).fit(X, y)
    assert not fitted.converged_


@pytest.mark.parametrize("cls", [EmbeddingMLP, InNOut])
def test_without_early_stopping_the_last_epoch_is_what_was_asked_for(cls):
    X, y = overconfident(n=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BaseRateWarning)
        warnings.simplefilter("error", ConvergenceWarning)
        fitted = cls(max_iter=5, early_stopping=False).fit(X, y)
    assert fitted.n_iter_ == 5
