"""What runs, sweeps and searches do alike: split, build, train, and calibrators as the settings say."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from linkcal._random import stream_seed
from linkcal.calibrators import Calibrator, make_calibrator
from linkcal.data import Graph, LinkSplit
from linkcal.exceptions import EdgeFeaturesWarning, SymmetricDecoderWarning
from linkcal.experiments.config import RunConfig
from linkcal.experiments.graphs import split_graph
from linkcal.experiments.presets import split_hyperparameters
from linkcal.features import calibration_part
from linkcal.models import (
    MODELS,
    NODE_EMBEDDING_CHANNELS,
    EpochReport,
    GraphModel,
    TrainingConfig,
    TrainingResult,
    make_model,
    train_link_predictor,
)

__all__ = [
    "Step",
    "build_model",
    "configured_calibrator",
    "negatives_per_positive",
    "split_for_run",
    "train_for_run",
    "true_probability",
    "warn_of_limits",
]


@dataclass(frozen=True)
class Step:
    """What a progress callback is told: a named stage, and how far it is."""

    stage: str
    done: int
    total: int


def split_for_run(config: RunConfig, graph: Graph | LinkSplit) -> LinkSplit:
    """Split of `graph` that `config` asks for; an official split is taken as it is."""
    if isinstance(graph, LinkSplit):
        return graph
    return split_graph(config, graph)


def warn_of_limits(config: RunConfig, split: LinkSplit) -> None:
    """Say what this graph and these settings cannot give."""
    if split.graph.directed:
        warnings.warn(
            f"{config.model} gives both directions of a pair the same score, while the graph is directed",
            SymmetricDecoderWarning,
            stacklevel=3,
        )
    from_edges = split.graph.features_from_edges or MODELS[config.model].cls.features_from_edges
    if from_edges and config.fit_on == "train-loo":
        what = "of this graph" if split.graph.features_from_edges else f"(positions) of {config.model}"
        warnings.warn(
            f"node features {what} are computed from the edges, and not anew without a pair's own edge: "
            "leave-one-out scores keep a trace of it; fit on val",
            EdgeFeaturesWarning,
            stacklevel=3,
        )


def build_model(config: RunConfig, split: LinkSplit) -> tuple[GraphModel, LinkSplit, TrainingConfig]:
    """Untrained model, the split with the message graph as the model reads it, and how to train it.

    Later sources win: the preset, its reduced settings for the data set, the protocol's own settings for the
    preset, ``hyperparameters``, ``epochs`` and ``batch_size``.
    """
    x = split.graph.x
    spec = MODELS[config.model]
    preset = spec.presets[config.preset].on(config.dataset)
    for_model, for_training = split_hyperparameters(config.hyperparameters)
    arguments = {**preset.model, **for_model}
    model = make_model(
        config.model,
        NODE_EMBEDDING_CHANNELS if x is None else x.size(1),
        num_nodes=split.graph.num_nodes if x is None else None,
        preset=config.preset,
        seed=config.seed,
        **{**spec.cls.options_for(split, **arguments), **arguments},
    )
    protocol = config.protocol_record()
    of_protocol = protocol.training_of(config.model) if config.preset == protocol.preset else {}
    asked = {"epochs": config.epochs, "batch_size": config.batch_size}
    given = {key: value for key, value in asked.items() if value is not None}
    training = replace(preset.training, **{**of_protocol, **for_training, **given})
    return model, replace(split, graph=model.prepare(split.graph)), training


def train_for_run(
    config: RunConfig, split: LinkSplit, device: torch.device, notify: Callable[[Step], None]
) -> tuple[GraphModel, LinkSplit, TrainingConfig, TrainingResult]:
    """Trained model, the split with the message graph as the model reads it, and how it was trained."""
    model, split, training_config = build_model(config, split)

    def report(epoch: EpochReport) -> None:
        notify(Step("train", epoch.epoch, epoch.epochs))

    result = train_link_predictor(
        model, split, training_config, seed=config.seed, device=device, progress=report
    )
    return model, split, training_config, result


def negatives_per_positive(config: RunConfig, split: LinkSplit) -> float:
    """Ratio of non-links to links for which the probabilities hold: that of the calibration links."""
    part = split.part(calibration_part(config.fit_on))
    # A ratio that was asked for is told as it was asked; rounding to whole links moves it a little.
    asked = config.negatives_per_positive
    exact = round(asked * part.num_positives) == part.num_negatives
    return asked if exact else part.num_negatives / part.num_positives


def configured_calibrator(config: RunConfig, name: str, calibration_seed: int = 0) -> Calibrator:
    """Unfitted calibrator of that name, seeded by the stream of the run's and the calibration's seed.

    Calibration seed 0 is the run's own stream ``"calibration"``, k > 0 the stream ``"calibration-k"``.
    """
    calibrator = make_calibrator(name, **config.protocol_record().calibrator_params(name))
    if "random_state" in calibrator.get_params():
        stream = f"calibration-{calibration_seed}" if calibration_seed else "calibration"
        calibrator.set_params(random_state=stream_seed(config.seed, stream) % 2**31)
    return calibrator


def true_probability(split: LinkSplit) -> NDArray[np.float64] | None:
    """Probability that each test pair is positive, where edge probabilities and drawing rates are known."""
    if split.graph.truth is None or split.test.negative_rate is None:
        return None
    edge_probability = split.graph.truth.edge_probability(split.test.edge_label_index.cpu())
    return split.test.to("cpu").label_probability(edge_probability).numpy().astype(np.float64)
