"""Protocols: complete, frozen, and followed by a run down to each calibrator's hyper-parameters."""

import dataclasses
import warnings

import pytest
import torch

from linkcal.calibrators import CALIBRATORS, make_calibrator
from linkcal.data import DATASETS, Graph
from linkcal.exceptions import InputError, LinkcalWarning
from linkcal.features import FIT_ON
from linkcal.metrics import EVALUATION_KEYS
from linkcal.models import MODELS, make_training_config
from linkcal.workflow import PROTOCOLS, RunConfig, find_protocol, run_experiment, split_graph
from linkcal.workflow.steps import build_model

NAMES = list(PROTOCOLS)


def test_names():
    assert NAMES == ["default", "paper", "released-code"]
    with pytest.raises(InputError, match=r"protocol must be one of default, .*did you mean 'paper'"):
        find_protocol("papr")


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_a_protocol_exists(name):
    protocol = PROTOCOLS[name]
    assert protocol.name == name
    assert protocol.fit_on in FIT_ON
    assert set(protocol.split_exceptions) <= set(DATASETS)
    for model, settings in protocol.training.items():
        assert protocol.preset in MODELS[model].presets
        make_training_config(model, preset=protocol.preset, **settings)
    for calibrator, params in protocol.calibrators.items():
        assert make_calibrator(calibrator, **params).get_params().items() >= dict(params).items()
    assert set(protocol.headline_exceptions) <= set(CALIBRATORS)
    assert {protocol.headline_of(calibrator) for calibrator in CALIBRATORS} <= set(EVALUATION_KEYS)


def test_a_protocol_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PROTOCOLS["paper"].fit_on = "val"
    with pytest.raises(TypeError):
        PROTOCOLS["paper"].calibrators["histogram"]["n_bins"] = 3
    with pytest.raises(TypeError):
        PROTOCOLS["paper"] = PROTOCOLS["default"]


def test_settings_that_are_not_given_come_from_the_protocol():
    config = RunConfig("chameleon", "vgae", protocol="paper")
    assert (config.fit_on, config.preset, config.val_fraction, config.test_fraction) == (
        "train", "paper", 0.05, 0.10,
    )  # fmt: skip
    assert config.departures() == {}
    assert RunConfig.from_dict(config.to_dict()) == config
    assert RunConfig("cora", "vgae", protocol="paper").val_fraction == 0.1
    assert RunConfig("cora", "vgae", protocol="released-code").val_fraction == 0.05


def test_what_is_given_wins_and_is_recorded():
    config = RunConfig("cora", "gcn", protocol="paper", fit_on="val", epochs=3, val_fraction=0.2)
    assert (config.fit_on, config.val_fraction) == ("val", 0.2)
    assert config.departures() == {
        "fit_on": ["train", "val"], "val_fraction": [0.1, 0.2], "epochs": [None, 3],
    }  # fmt: skip
    assert RunConfig.from_dict(config.to_dict()).departures() == config.departures()


def test_training_follows_the_protocol_then_what_is_given(small_split):
    def training(**options):
        return build_model(RunConfig("small", "vgae", **options), small_split)[2]

    assert training(protocol="paper").lr == 0.001
    released = training(protocol="released-code")
    assert (released.lr, released.epochs, released.keep_best) == (0.01, 400, False)
    # The protocol's changes belong to its own preset.
    assert training(protocol="released-code", preset="default") == training()
    given = training(protocol="released-code", hyperparameters={"lr": 0.5, "epochs": 9}, epochs=7)
    assert (given.lr, given.epochs, given.keep_best) == (0.5, 7, False)


def test_run_hands_every_calibrator_its_settings(small_graph):
    names = ("uncalibrated", "histogram", "in-n-out")
    config = RunConfig("small", "gcn", protocol="released-code", epochs=2, calibrators=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        outcome = run_experiment(config, small_graph)
    fitted = outcome.artifact.calibrators
    assert fitted["histogram"].n_bins == 16
    assert (fitted["in-n-out"].scaling, fitted["in-n-out"].n_iter_) == ("multiply-doubled", 20)
    metrics = outcome.metrics
    assert metrics["protocol"] == "released-code"
    assert metrics["departures"] == {"epochs": [None, 2]}
    assert metrics["headline"] == {"uncalibrated": "ece", "histogram": "ece", "in-n-out": "ece_top_label"}
    # Whatever the headline: both readings of the ECE for all.
    assert all({"ece", "ece_top_label"} <= set(row) for row in metrics["results"].values())


def test_forward_edges_alone_and_a_graph_that_has_all_of_them():
    edges = torch.tensor([[0, 1, 3, 2, 4, 4, 5], [1, 0, 2, 2, 5, 0, 1]])
    forward = Graph.from_edges(edges, 6, forward_only=True)
    assert forward.pairs.T.tolist() == [[0, 1], [4, 5]]
    assert forward.counts()["backward_removed"] == 4
    everything = Graph.from_edges(edges, 6)
    assert everything.num_pairs == 5
    assert "backward_removed" not in everything.counts()
    with pytest.raises(InputError, match=r"graph of chameleon must be loaded with forward_only=True"):
        split_graph(RunConfig("chameleon", "gcn", protocol="paper"), everything)


def test_released_code_normalises_features(small_graph):
    x = split_graph(RunConfig("small", "gcn", protocol="released-code"), small_graph).graph.x
    sums = (small_graph.x - small_graph.x.min()).sum(dim=1)
    torch.testing.assert_close(x.sum(dim=1), torch.where(sums >= 1, 1.0, sums))
    assert torch.equal(split_graph(RunConfig("small", "gcn"), small_graph).graph.x, small_graph.x)
