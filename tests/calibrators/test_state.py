"""Fitted attributes out into a state and back: whole, exact, and refused where damaged."""

from __future__ import annotations

import json

import numpy as np
import pytest

from linkcal.calibrators import CALIBRATORS, Histogram, Isotonic, StructuralCalibrator, Temperature
from linkcal.exceptions import ArtifactError, InputError, NotFittedError

from .samples import fast, overconfident

every = pytest.mark.parametrize("name", CALIBRATORS)


@every
def test_state_round_trip_is_exact(name):
    X, y = overconfident()
    fitted = fast(name).fit(X, y)
    state = fitted.get_state()
    json.dumps({key: value for key, value in state.items() if not isinstance(value, np.ndarray)})
    restored = fast(name).set_state(state)
    assert np.array_equal(restored.decision_function(X), fitted.decision_function(X))
    assert np.array_equal(restored.predict(X), fitted.predict(X))
    again = restored.get_state()
    assert all(np.array_equal(again[key], value) for key, value in state.items())


@every
def test_state_with_a_missing_or_an_unknown_key_is_refused(name):
    state = fast(name).fit(*overconfident()).get_state()
    for key in state:
        with pytest.raises(ArtifactError, match=rf"missing: .*{key}"):
            fast(name).set_state({k: v for k, v in state.items() if k != key})
    with pytest.raises(ArtifactError, match=r"unknown: .*extra_"):
        fast(name).set_state({**state, "extra_": 1})


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
    with pytest.raises(ArtifactError, match=message):
        Temperature().set_state({**state, key: value})


def test_state_with_wrong_arrays_is_refused_and_leaves_the_calibrator_alone():
    fitted = Isotonic().fit(*overconfident())
    state = fitted.get_state()
    expected = fitted.predict_proba([[1.0, 0, 0, 0]])
    for broken in (state["logit_thresholds_"][:-1], state["logit_thresholds_"][None], np.array([1, 2])):
        with pytest.raises(ArtifactError, match=r"logit_thresholds_|must fit together"):
            fitted.set_state({**state, "logit_thresholds_": broken})
    assert np.array_equal(fitted.predict_proba([[1.0, 0, 0, 0]]), expected)


@pytest.mark.parametrize(
    "calibrator", [Histogram(n_bins=0), StructuralCalibrator(penalty=-1.0), StructuralCalibrator(n_knots=-1)]
)
def test_a_refused_fit_leaves_nothing_to_predict_with(calibrator):
    X, y = overconfident(n=50)
    with pytest.raises(InputError, match="must be"):
        calibrator.fit(X, y)
    for call in (calibrator.predict_proba, calibrator.predict):
        with pytest.raises(NotFittedError, match="must be fitted first, call fit"):
            call(X)
    with pytest.raises(NotFittedError, match="must be fitted first, call fit"):
        calibrator.get_state()
