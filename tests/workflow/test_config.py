"""A run's settings: strict, and the same after a trip through JSON."""

import json

import pytest

from linkcal.exceptions import InputError
from linkcal.workflow import RunConfig


def test_round_trip_through_json():
    config = RunConfig("cora", "sage", seed=7, fit_on="train-loo", epochs=3, calibrators=("platt", "bbq"))
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_unknown_key_is_an_error():
    with pytest.raises(InputError, match=r"configuration key must be one of .*did you mean 'seed'"):
        RunConfig.from_dict({"dataset": "cora", "model": "gcn", "sed": 1})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "gat"}, "model must be one of"),
        ({"preset": "papers"}, "did you mean 'paper'"),
        ({"fit_on": "test"}, "fit_on must be one of val, stacked, train-loo, train"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
        ({"epochs": 0}, "epochs must be a whole number >= 1"),
        ({"val_fraction": 1.0}, r"val_fraction must be in \(0, 1\)"),
        ({"test_fraction": 0}, r"test_fraction must be in \(0, 1\)"),
        ({"negatives_per_positive": 0.0}, "negatives_per_positive must be a finite number > 0"),
        ({"max_network_links": 1}, "max_network_links must be a whole number >= 2"),
        ({"negatives": "twohop"}, "did you mean 'two-hop'"),
        (
            {"negatives": "two-hop", "base_rate": "density"},
            "base_rate must be a number for a calibrator fitted on two-hop negatives, got 'density'",
        ),
        ({"calibrators": ()}, "calibrators must name one of"),
        ({"calibrators": ("plat",)}, "did you mean 'platt'"),
        ({"calibrators": ("platt", "platt")}, "calibrators must hold each name once, got platt, platt"),
    ],
)
def test_bad_values(changes, message):
    with pytest.raises(InputError, match=message):
        RunConfig(**({"dataset": "cora", "model": "gcn"} | changes))
