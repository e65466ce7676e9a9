"""One run: split, train, toggle, fit all calibrators, and measure them on the test links, once."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from linkcal._random import stream_seed
from linkcal._validation import check_device
from linkcal.artifact import Artifact
from linkcal.calibrators import Calibrator, make_calibrator
from linkcal.data import Graph, LinkSplit, NodeIds, split_links
from linkcal.exceptions import EdgeFeaturesWarning, SymmetricDecoderWarning
from linkcal.experiments.config import RunConfig
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
    make_training_config,
    train_link_predictor,
)
from linkcal.wrapper import fit_calibrator

__all__ = ["RunOutcome", "Step", "run_experiment"]

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
    split = graph if isinstance(graph, LinkSplit) else _split(config, graph)
    split = split.to(place)
    if split.graph.directed:
        warnings.warn(
            f"{config.model} gives both directions of a pair the same score, while the graph is directed",
            SymmetricDecoderWarning,
            stacklevel=2,
        )
    if split.graph.features_from_edges and config.fit_on == "train-loo":
        warnings.warn(
            "node features of this graph are computed from its edges, and not anew without a pair's own "
            "edge: leave-one-out scores keep a trace of it; fit on val",
            EdgeFeaturesWarning,
            stacklevel=2,
        )
    clock.lap("split")
    model, split, training_config, training = _train(config, split, place, notify)
    clock.lap("train")
    scores = calibration_links(model, split, config.fit_on)  # type: ignore[arg-type]
    validation = None if config.fit_on == "val" else score_links(model, split.graph, split.val)
    clock.lap("toggle")
    fitted, seconds_fit = _fit_all(config, scores, validation, notify)
    selected = select_calibrator(fitted, scores, validation, seed=config.seed)
    clock.lap("calibrate")
    test = score_links(model, split.graph, split.test)
    label, probability, results = _evaluate(fitted, test, notify)
    truth = _true_probability(split)
    for name, row in results.items():
        row["seconds_fit"] = seconds_fit[name]
        if truth is not None:
            row["true_error"] = float(np.abs(probability[name] - truth).mean())
    clock.lap("evaluate")
    metrics = _metrics_record(config, split, results, selected)
    if truth is not None:
        metrics["oracle"] = evaluate_links(label, truth)
    info = {
        "fit_on": config.fit_on,
        "selected": selected,
        "model": config.model,
        "dataset": config.dataset,
        "negatives_per_positive": _negatives_per_positive(config, split),
        "negatives": split.negatives,
        "decode_returns": "logits",
    }
    artifact = Artifact(model.cpu(), split.graph.to("cpu"), fitted, info, node_ids, split.held_out_edges())
    return RunOutcome(
        config, metrics, artifact, training_config, training, test.toggled.method, label, probability,
        clock.seconds, str(place),
    )  # fmt: skip


def _split(config: RunConfig, graph: Graph) -> LinkSplit:
    return split_links(
        graph,
        val_fraction=config.val_fraction,
        test_fraction=config.test_fraction,
        negatives_per_positive=config.negatives_per_positive,
        negatives=config.negatives,  # type: ignore[arg-type]
        seed=config.seed,
    )


def _negatives_per_positive(config: RunConfig, split: LinkSplit) -> float:
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


def _train(
    config: RunConfig, split: LinkSplit, device: torch.device, notify: Callable[[Step], None]
) -> tuple[GraphModel, LinkSplit, TrainingConfig, TrainingResult]:
    """Trained model, the split with the message graph as the model reads it, and how it was trained."""
    x = split.graph.x
    spec = MODELS[config.model]
    model = make_model(
        config.model,
        NODE_EMBEDDING_CHANNELS if x is None else x.size(1),
        num_nodes=split.graph.num_nodes if x is None else None,
        preset=config.preset,
        seed=config.seed,
        **spec.cls.options_for(split, **spec.presets[config.preset].model),
    )
    split = replace(split, graph=model.prepare(split.graph))
    asked = {"epochs": config.epochs, "batch_size": config.batch_size}
    overrides = {key: value for key, value in asked.items() if value is not None}
    training_config = make_training_config(config.model, preset=config.preset, **overrides)

    def report(epoch: EpochReport) -> None:
        notify(Step("train", epoch.epoch, epoch.epochs))

    result = train_link_predictor(
        model, split, training_config, seed=config.seed, device=device, progress=report
    )
    return model, split, training_config, result


def _fit_all(
    config: RunConfig, scores: LinkScores, validation: LinkScores | None, notify: Callable[[Step], None]
) -> tuple[dict[str, Calibrator], dict[str, float]]:
    fitted, seconds = {}, {}
    for number, name in enumerate(config.calibrators):
        notify(Step(f"fit {name}", number, len(config.calibrators)))
        calibrator = make_calibrator(name)
        if "random_state" in calibrator.get_params():
            calibrator.set_params(random_state=stream_seed(config.seed, "calibration") % 2**31)
        start = time.perf_counter()
        fitted[name] = fit_calibrator(calibrator, scores, validation)
        seconds[name] = time.perf_counter() - start
    notify(Step("calibrate", len(config.calibrators), len(config.calibrators)))
    return fitted, seconds


def _evaluate(
    fitted: dict[str, Calibrator], test: LinkScores, notify: Callable[[Step], None]
) -> tuple[FloatArray, dict[str, FloatArray], dict[str, dict[str, float]]]:
    _, y = test.to_arrays()
    label = y.astype(np.float64)
    probability, results = {}, {}
    for number, (name, calibrator) in enumerate(fitted.items()):
        notify(Step("evaluate", number + 1, len(fitted)))
        X = test.to_matrix(calibrator.link_features)
        probability[name] = calibrator.predict_proba(X)[:, 1]
        results[name] = evaluate_links(label, probability[name], calibrator.decision_function(X))
    return label, probability, results


def _true_probability(split: LinkSplit) -> FloatArray | None:
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
        "negatives_per_positive": _negatives_per_positive(config, split),
        "negatives": split.negatives,
        "counts": split.counts(),
        "selected": selected,
        "results": results,
    }
