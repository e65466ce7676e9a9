"""Protocols: complete, frozen, and followed by a run down to each calibrator's hyper-parameters."""

import json
import warnings
from dataclasses import replace

import pytest
import torch

from linkcal.calibrators import CALIBRATORS, make_calibrator
from linkcal.data import DATASETS, simulate_graph
from linkcal.exceptions import InputError, LinkcalWarning
from linkcal.features import FIT_ON
from linkcal.metrics import EVALUATION_KEYS
from linkcal.models import MODELS
from linkcal.workflow import RunConfig, run_experiment, split_graph
from linkcal.workflow._steps import build_model
from linkcal_lab.protocols import PROTOCOLS, departures, find_protocol, run_config


def test_an_unknown_protocol_is_refused():
    with pytest.raises(InputError, match=r"protocol must be one of default, paper, .*did you mean 'paper'"):
        find_protocol("papr")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_name_in_a_protocol_exists(name):
    protocol = PROTOCOLS[name]
    assert protocol.name == name
    assert protocol.fit_on in FIT_ON
    assert set(protocol.split_exceptions) <= set(DATASETS)
    for model, settings in protocol.training.items():
        assert protocol.preset in MODELS[model].presets
        replace(MODELS[model].presets[protocol.preset].training, **settings)
    for calibrator, params in protocol.calibrators.items():
        assert make_calibrator(calibrator, **params).get_params().items() >= dict(params).items()
    assert set(protocol.headline_exceptions) <= set(CALIBRATORS)
    assert {protocol.headline_of(calibrator) for calibrator in CALIBRATORS} <= set(EVALUATION_KEYS)


def test_settings_that_are_not_given_come_from_the_protocol():
    assert run_config("default", "cora", "vgae") == RunConfig("cora", "vgae")
    config = run_config("paper", "chameleon", "vgae", fit_on=None)
    assert (config.fit_on, config.preset, config.val_fraction, config.test_fraction) == (
        "train", "paper", 0.05, 0.10,
    )  # fmt: skip
    assert config.forward_only
    assert departures(config, "paper") == {}
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert run_config("paper", "cora", "vgae").val_fraction == 0.1
    assert run_config("released-code", "cora", "vgae").val_fraction == 0.05


def test_what_is_given_wins_and_is_recorded():
    config = run_config("paper", "cora", "gcn", fit_on="val", epochs=3, val_fraction=0.2)
    assert (config.fit_on, config.val_fraction) == ("val", 0.2)
    assert departures(config, "paper") == {
        "fit_on": ["train", "val"], "epochs": [None, 3], "val_fraction": [0.1, 0.2],
    }  # fmt: skip


def test_training_follows_the_protocol_then_what_is_given(small_split):
    def training(protocol="default", **options):
        return build_model(run_config(protocol, "small", "vgae", **options), small_split)[2]

    assert training("paper").lr == 0.001
    released = training("released-code")
    assert (released.lr, released.epochs, released.keep_best) == (0.01, 400, False)
    # The protocol's changes belong to its own preset.
    assert training("released-code", preset="default") == training()
    given = training("released-code", hyperparameters={"lr": 0.5, "epochs": 9}, epochs=7)
    assert (given.lr, given.epochs, given.keep_best) == (0.5, 7, False)


def test_a_run_gives_every_calibrator_its_settings(small_graph):
    names = ("uncalibrated", "histogram", "in-n-out")
    config = run_config("released-code", "small", "gcn", epochs=2, calibrators=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        outcome = run_experiment(config, small_graph)
    fitted = outcome.artifact.calibrators
    assert fitted["histogram"].n_bins == 16
    assert (fitted["in-n-out"].scaling, fitted["in-n-out"].n_iter_) == ("multiply-doubled", 20)
    # Whatever the headline: both readings of the ECE for all.
    assert all({"ece", "ece_top_label"} <= set(row) for row in outcome.metrics["results"].values())


def test_released_code_normalises_features(small_graph):
    x = split_graph(run_config("released-code", "small", "gcn"), small_graph).graph.x
    sums = (small_graph.x - small_graph.x.min()).sum(dim=1)
    torch.testing.assert_close(x.sum(dim=1), torch.where(sums >= 1, 1.0, sums))
    assert torch.equal(split_graph(RunConfig("small", "gcn"), small_graph).graph.x, small_graph.x)


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
def test_command_run_records_the_protocol(cli, monkeypatch, tmp_path):
    monkeypatch.setattr(
        "linkcal.data.load_dataset",
        lambda name, **options: simulate_graph(150, num_edges=600, num_features=10, seed=0),
    )
    command = ("run", "--dataset", "simulated", "--model", "gcn", "--epochs", 2)
    answer = cli(*command, "--protocol", "released-code", "--fit-on", "val", "--out", tmp_path / "out")
    assert answer.code == 0
    assert "protocol released-code departed from: fit_on is val, not train" in answer.err
    assert "mixes metrics" in answer.err
    record = json.loads((tmp_path / "out" / "config.json").read_text())
    assert record["input"]["protocol"] == "released-code"
    assert record["input"]["departures"] == {"fit_on": ["train", "val"], "epochs": [None, 2]}
    assert record["input"]["headline"]["in-n-out"] == "ece_top_label"
    assert record["calibrators"]["in-n-out"]["scaling"] == "multiply-doubled"
