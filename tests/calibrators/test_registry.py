"""Names, order and search ranges."""

from __future__ import annotations

import pytest
from sklearn.model_selection import ParameterGrid

from linkcal.calibrators import CALIBRATORS, Histogram, make_calibrator
from linkcal.exceptions import InputError


def test_names_and_order():
    assert list(CALIBRATORS) == [
        "uncalibrated",
        "temperature",
        "platt",
        "beta",
        "isotonic",
        "histogram",
        "bbq",
        "embedding-mlp",
        "in-n-out",
        "in-n-out-plus",
        "structure-only",
    ]
    assert all(spec.description for spec in CALIBRATORS.values())


@pytest.mark.parametrize("name", CALIBRATORS)
def test_every_point_of_the_search_ranges_builds_a_calibrator(name):
    for point in ParameterGrid(CALIBRATORS[name].search):
        params = make_calibrator(name, **point).get_params()
        assert {key: params[key] for key in point} == point


def test_parameters_are_passed_on():
    calibrator = make_calibrator("histogram", n_bins=7)
    assert isinstance(calibrator, Histogram)
    assert calibrator.n_bins == 7


def test_unknown_name_or_parameter_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'temperature'"):
        make_calibrator("temprature")
    with pytest.raises(InputError, match=r"parameter of histogram must be one of .*did you mean 'n_bins'"):
        make_calibrator("histogram", n_bin=3)
