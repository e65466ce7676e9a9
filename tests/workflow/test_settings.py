"""Settings of a run and presets in files: strict, and the same after a trip through JSON."""

import json
from dataclasses import replace

import pytest

from linkcal.exceptions import InputError
from linkcal.workflow import PresetFile, RunConfig, preset_options, read_preset, write_preset
from linkcal.workflow._steps import build_model
from refusals import refuses


def test_round_trip_through_json():
    with pytest.raises(InputError, match=r"configuration key must be one of .*did you mean 'seed'"):
        RunConfig.from_dict({"dataset": "cora", "model": "gcn", "sed": 1})
    config = RunConfig("cora", "sage", seed=7, fit_on="train-loo", epochs=3, calibrators=("platt", "bbq"))
    given = {"forward_only": True, "calibrator_params": {"in-n-out": {"ece_weights": (1.0, 0.5)}}}
    config = replace(config, **given)
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


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
        ({"hyperparameters": {"keep_best": 1}}, "keep_best must be"),
        ({"forward_only": 1}, "forward_only must be True or False, got 1"),
        ({"calibrator_params": {"histogram": {"bins": 3}}}, "parameter of histogram must be one of"),
        ({"calibrators": ()}, "calibrators must name one of"),
        ({"calibrators": ("plat",)}, "did you mean 'platt'"),
        ({"calibrators": ("platt", "platt")}, "calibrators must hold each name once, got platt, platt"),
    ],
)
def test_bad_values(changes, message):
    refuses(message, RunConfig, **{"dataset": "cora", "model": "gcn"} | changes)


VALUES = {"hidden_channels": 8, "lr": 0.1, "epochs": 600, "patience": None}


@pytest.fixture
def path(tmp_path):
    preset = PresetFile("mine", "vgae", tuple(VALUES.items()), base="paper", origin={"trials": 3})
    write_preset(preset, tmp_path / "mine.json")
    return tmp_path / "mine.json"


def test_round_trip(path):
    assert read_preset(path) == PresetFile(
        "mine", "vgae", tuple(sorted(VALUES.items())), base="paper", origin={"trials": 3}
    )


def test_a_run_takes_and_records_it(path, small_split):
    config = RunConfig("small", "vgae", **preset_options(str(path), "vgae"))
    assert config.to_dict()["hyperparameters"] == VALUES
    assert config.preset == "paper"
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    model, _, training = build_model(config, small_split)
    assert (training.lr, training.epochs, training.patience) == (0.1, 600, None)
    # What the file leaves out is its base's.
    assert (model.config["hidden_channels"], model.config["out_channels"]) == (8, 16)


def test_names_are_passed_on(path):
    assert preset_options("paper", "gcn") == {"preset": "paper"}
    refuses("preset 'mine' must be used with model 'vgae', got 'gcn'", preset_options, str(path), "gcn")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "linkcal preset 9"}, "of format 'linkcal preset 1', got 'linkcal preset 9'"),
        ({"modle": "gcn"}, r"key of preset file .*must be one of .*did you mean 'model'"),
        ({"model": "gat"}, "model must be one of"),
        ({"model": 3}, "model of preset file .* must be a str, got 3"),
        ({"base": "papers"}, "did you mean 'paper'"),
        ({"origin": []}, r"origin of preset file .* must be a dict, got \[\]"),
        ({"hyperparameters": {"leanring_rate": 1}}, "hyper-parameter of vgae must be one of"),
        ({"hyperparameters": {"lr": "fast"}}, "lr must be a number or null, got 'fast'"),
        ({"hyperparameters": {"lr": -1}}, "lr must be a finite number > 0, got -1"),
        ({"hyperparameters": {"epochs": True}}, "epochs must be a number or null, got True"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_in_one_line(path, changes, message):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    refuses(message, read_preset, path)


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff"])
def test_what_is_no_preset_is_refused(tmp_path, text):
    refuses(r"must be readable JSON, got .*none.json: .*No such file", read_preset, tmp_path / "none.json")
    (tmp_path / "bad.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"preset file .*must be .*bad.json: |preset file .*bad.json must"):
        read_preset(tmp_path / "bad.json")
