"""One run: split, train, toggle, fit all calibrators, and measure them on the test links, once."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from linkcal._random import stream_seed
from linkcal._threads import blas_threads
from linkcal._validation import check_device
from linkcal.artifact import Artifact
from linkcal.calibrators import Calibrator, make_calibrator
from linkcal.data import Graph, LinkSplit, NodeIds
from linkcal.evidence import gather_evidence
from linkcal.exceptions import EdgeFeaturesWarning, SymmetricDecoderWarning
from linkcal.experiments.base_rate import AskedRate, ranking_metrics
from linkcal.experiments.config import RunConfig
from linkcal.experiments.fitting_links import fitting_links
from linkcal.experiments.graphs import split_graph
from linkcal.experiments.presets import split_hyperparameters
from linkcal.experiments.selection import select_calibrator
from linkcal.features import LinkScores, calibration_links, score_links
from linkcal.metrics import evaluate_links
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
from linkcal.wrapper import fit_calibrator

__all__ = [
    "RunOutcome",
    "Step",
    "build_model",
    "configured_calibrator",
    "negatives_per_positive",
    "run_experiment",
    "split_for_run",
    "train_for_run",
    "true_probability",
    "warn_of_limits",
]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """What a progress callback is told: a named stage, and how far it is."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class RunOutcome:
    """Everything a run produced.

    Parameters
    ----------
    config : RunConfig
    metrics : dict
        The content of ``metrics.json``.
    artifact : Artifact
        Model, message graph and fitted calibrators.
    training_config : TrainingConfig
    training : TrainingResult
    toggle_method : str
        How the test links were toggled.
    test_label : ndarray (L,)
    test_probability : dict of str to ndarray (L,)
        By calibrator.
    seconds : dict of str to float
        Wall-clock time by stage.
    device : str
        Where the model was trained.
    test_weight : ndarray (L,) or None
        Weights of the test links where results are for an asked base rate.
    """

    config: RunConfig
    metrics: dict[str, Any]
    artifact: Artifact
    training_config: TrainingConfig
    training: TrainingResult
    toggle_method: str
    test_label: FloatArray
    test_probability: dict[str, FloatArray]
    seconds: dict[str, float]
    device: str
    test_weight: FloatArray | None = None


def run_experiment(
    config: RunConfig,
    graph: Graph | LinkSplit,
    *,
    device: torch.device | str = "cpu",
    node_ids: NodeIds | None = None,
    progress: Callable[[Step], None] | None = None,
) -> RunOutcome:
    """Run the main job on a graph.

    Parameters
    ----------
    config : RunConfig
    graph : Graph or LinkSplit
        A graph is split as `config` says; a split (an official one) is taken as it is.
    device : torch.device or str
        ``"auto"`` takes CUDA if there is one.
    node_ids : NodeIds, optional
        The user's names of the nodes, kept in the artifact.
    progress : callable, optional
        Called with a :class:`Step` as the work goes on.

    Returns
    -------
    RunOutcome

    Raises
    ------
    InputError
        If the graph cannot be split as asked, or a setting is out of range.

    Warns
    -----
    SymmetricDecoderWarning
        If the graph is directed: linkcal's decoders give (u, v) and (v, u) the same logit.
    EdgeFeaturesWarning
        If leave-one-out scores are asked for and node features were computed from the edges.
    """
    place = check_device(device)
    notify = progress or _ignore
    clock = _Clock()
    split = split_for_run(config, graph).to(place)
    warn_of_limits(config, split)
    clock.lap("split")
    model, split, training_config, training = train_for_run(config, split, place, notify)
    clock.lap("train")
    scores = calibration_links(model, split, config.fit_on)  # type: ignore[arg-type]
    validation = None if config.fit_on == "val" else score_links(model, split.graph, split.val)
    clock.lap("toggle")
    fitted, seconds_fit = _fit_all(config, scores, validation, notify)
    selected = select_calibrator(fitted, scores, validation, seed=config.seed)
    clock.lap("calibrate")
    test = score_links(model, split.graph, split.test)
    ratio = negatives_per_positive(config, split)
    asked = AskedRate.of(config.base_rate, split, ratio)
    label, probability, results = _evaluate(fitted, test, notify, asked)
    truth = true_probability(split)
    for name, row in results.items():
        row["seconds_fit"] = seconds_fit[name]
        if truth is not None:
            row["true_error"] = (
                float(np.abs(probability[name] - truth).mean())
                if asked is None
                else asked.true_error(probability[name], truth, label)
            )
    clock.lap("evaluate")
    metrics = _metrics_record(config, split, results, selected)
    if asked is not None:
        metrics |= asked.record()
    elif truth is not None:
        metrics["oracle"] = evaluate_links(label, truth)
    info = {
        "fit_on": config.fit_on,
        "selected": selected,
        "model": config.model,
        "dataset": config.dataset,
        "negatives_per_positive": ratio,
        "negatives": split.negatives,
        "decode_returns": "logits",
        **({} if asked is None else asked.record()),
    }
    evidence = gather_evidence(split, config.fit_on, seed=config.seed, spare_test=True)
    artifact = Artifact(
        model.cpu(), split.graph.to("cpu"), fitted, info, node_ids, split.held_out_edges(), evidence
    )
    return RunOutcome(
        config, metrics, artifact, training_config, training, test.toggled.method, label, probability,
        clock.seconds, str(place), None if asked is None else asked.weight(label),
    )  # fmt: skip


def warn_of_limits(config: RunConfig, split: LinkSplit) -> None:
    """Say what this graph and these settings cannot give."""
    if split.graph.directed:
        warnings.warn(
            f"{config.model} gives both directions of a pair the same score, while the graph is directed",
            SymmetricDecoderWarning,
            stacklevel=3,
        )
    if split.graph.features_from_edges and config.fit_on == "train-loo":
        warnings.warn(
            "node features of this graph are computed from its edges, and not anew without a pair's own "
            "edge: leave-one-out scores keep a trace of it; fit on val",
            EdgeFeaturesWarning,
            stacklevel=3,
        )


def split_for_run(config: RunConfig, graph: Graph | LinkSplit) -> LinkSplit:
    """Split of `graph` that `config` asks for; an official split is taken as it is."""
    if isinstance(graph, LinkSplit):
        return graph
    return split_graph(config, graph)


def negatives_per_positive(config: RunConfig, split: LinkSplit) -> float:
    """Ratio of non-links to links for which the probabilities hold: that of the calibration links."""
    part = split.val if config.fit_on == "val" else split.train
    # A ratio that was asked for is told as it was asked; rounding to whole links moves it a little.
    asked = config.negatives_per_positive
    exact = round(asked * part.num_positives) == part.num_negatives
    return asked if exact else part.num_negatives / part.num_positives


def _ignore(_step: Step) -> None:
    """Progress that nobody watches."""


class _Clock:
    """Seconds between laps, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now


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


def configured_calibrator(config: RunConfig, name: str, calibration_seed: int = 0) -> Calibrator:
    """Unfitted calibrator of that name, seeded by the stream of the run's and the calibration's seed.

    Calibration seed 0 is the run's own stream ``"calibration"``, k > 0 the stream ``"calibration-k"``.
    """
    calibrator = make_calibrator(name, **config.protocol_record().calibrator_params(name))
    if "random_state" in calibrator.get_params():
        stream = f"calibration-{calibration_seed}" if calibration_seed else "calibration"
        calibrator.set_params(random_state=stream_seed(config.seed, stream) % 2**31)
    return calibrator


def _fit_all(
    config: RunConfig, scores: LinkScores, validation: LinkScores | None, notify: Callable[[Step], None]
) -> tuple[dict[str, Calibrator], dict[str, float]]:
    fitted, seconds = {}, {}
    for number, name in enumerate(config.calibrators):
        notify(Step(f"fit {name}", number, len(config.calibrators)))
        calibrator = configured_calibrator(config, name)
        start = time.perf_counter()
        sample = partial(fitting_links, name, max_network_links=config.max_network_links, seed=config.seed)
        held_out = None if validation is None else sample(validation)
        with blas_threads(1):
            fitted[name] = fit_calibrator(calibrator, sample(scores), held_out)
        seconds[name] = time.perf_counter() - start
    notify(Step("calibrate", len(config.calibrators), len(config.calibrators)))
    return fitted, seconds


def _evaluate(
    fitted: dict[str, Calibrator],
    test: LinkScores,
    notify: Callable[[Step], None],
    asked: AskedRate | None,
) -> tuple[FloatArray, dict[str, FloatArray], dict[str, dict[str, float]]]:
    _, y = test.to_arrays()
    label = y.astype(np.float64)
    probability, results = {}, {}
    for number, (name, calibrator) in enumerate(fitted.items()):
        notify(Step("evaluate", number + 1, len(fitted)))
        X = test.to_matrix(calibrator.link_features)
        weight = None if asked is None else asked.weight(label)
        with blas_threads(1):
            if asked is None:
                probability[name] = calibrator.predict_proba(X)[:, 1]
                decision = calibrator.decision_function(X)
            else:
                probability[name], decision = asked.probability(calibrator, X), asked.decision(calibrator, X)
            results[name] = evaluate_links(label, probability[name], decision, sample_weight=weight)
        if asked is not None:
            # Hits@K counts K non-links that are there, not their weights.
            results[name] |= ranking_metrics(label, decision, results[name])
    return label, probability, results


def true_probability(split: LinkSplit) -> FloatArray | None:
    """Probability that each test pair is positive, where edge probabilities and drawing rates are known."""
    if split.graph.truth is None or split.test.negative_rate is None:
        return None
    edge_probability = split.graph.truth.edge_probability(split.test.edge_label_index.cpu())
    return split.test.to("cpu").label_probability(edge_probability).numpy().astype(np.float64)


def _metrics_record(
    config: RunConfig, split: LinkSplit, results: dict[str, dict[str, float]], selected: str
) -> dict[str, Any]:
    return {
        "dataset": config.dataset,
        "model": config.model,
        "seed": config.seed,
        "fit_on": config.fit_on,
        "protocol": config.protocol,
        "departures": config.departures(),
        "headline": {name: config.protocol_record().headline_of(name) for name in results},
        "negatives_per_positive": negatives_per_positive(config, split),
        "negatives": split.negatives,
        "counts": split.counts(),
        "selected": selected,
        "results": results,
    }
