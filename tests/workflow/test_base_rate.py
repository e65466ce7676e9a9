"""Results at another share of links: from logits, as the wrapper has them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from linkcal.calibrators import Histogram, Identity
from linkcal.workflow.run import AskedRate

ASKED = AskedRate(1e-15, 0.5, "given")


def test_probabilities_that_round_to_1_keep_their_digits():
    fitted = Identity().fit([[-1.0], [1.0]], [0, 1])
    X = np.array([[40.0], [45.0], [0.0]])
    shift = np.log(1e-15) - np.log1p(-1e-15)
    np.testing.assert_allclose(ASKED.probability(fitted, X), expit(X[:, 0] + shift), rtol=1e-12)
    assert ASKED.probability(fitted, X)[0] < 0.996


@pytest.mark.parametrize("calibrator", [Identity(), Histogram(n_bins=5)])
def test_probability_is_that_of_the_decision(calibrator):
    X = np.linspace(-3, 3, 40)[:, None]
    fitted = calibrator.fit(X, (X[:, 0] > -1).astype(int))
    asked = AskedRate(0.02, 0.5, "given")
    np.testing.assert_allclose(asked.probability(fitted, X), expit(asked.decision(fitted, X)), rtol=1e-12)
    odds = fitted.predict_proba(X)[:, 1] / np.maximum(fitted.predict_proba(X)[:, 0], 1e-300)
    moved = odds * 0.02 / 0.98 / (1 + odds * 0.02 / 0.98)
    np.testing.assert_allclose(asked.probability(fitted, X), moved, rtol=1e-6, atol=1e-12)
