"""One run: split, train, toggle, fit all calibrators, and measure them on the test links, once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from linkcal._threads import blas_threads
from linkcal._validation import check_device
from linkcal.artifact import Artifact
from linkcal.calibrators import Calibrator
from linkcal.data import Graph, LinkSplit, NodeIds
from linkcal.evidence import gather_evidence
from linkcal.experiments._distinct import distinct_warnings
from linkcal.experiments.base_rate import AskedRate, ranking_metrics
from linkcal.experiments.config import RunConfig
from linkcal.experiments.fitting_links import fitting_links
from linkcal.experiments.selection import select_calibrator
from linkcal.experiments.steps import (
    Step,
    configured_calibrator,
    negatives_per_positive,
    split_for_run,
    train_for_run,
    true_probability,
    warn_of_limits,
)
from linkcal.features import LinkScores, score_links
from linkcal.fitting import FitLinks, fit_calibrator, score_fit_links
from linkcal.metrics import evaluate_links
from linkcal.models import GraphModel, TrainingConfig, TrainingResult

__all__ = ["RunOutcome", "run_experiment"]

FloatArray = NDArray[np.float64]


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
    FewNegativesWarning
        Once for each K, whatever the number of calibrators, if there are fewer than K test non-links.
    """
    place = check_device(device)
    notify = progress or _ignore
    clock = _Clock()
    split = split_for_run(config, graph).to(place)
    warn_of_limits(config, split)
    # Asked before the model adds positions of its own.
    computed = split.graph.features_from_edges
    clock.lap("split")
    model, split, training_config, training = train_for_run(config, split, place, notify)
    clock.lap("train")
    links = score_fit_links(model, split, config.fit_on)  # type: ignore[arg-type]
    clock.lap("toggle")
    fitted, seconds_fit = _fit_all(config, links, notify)
    selected = select_calibrator(fitted, links.scores, links.validation, seed=config.seed)
    clock.lap("calibrate")
    test = score_links(model, split.graph, split.test)
    asked = AskedRate.of(config.base_rate, split, negatives_per_positive(config, split))
    with distinct_warnings():
        label, probability, results = _evaluate(fitted, test, notify, asked)
        metrics = _metrics_record(config, split, results, selected)
        for name, row in results.items():
            row["seconds_fit"] = seconds_fit[name]
        _add_truth(results, true_probability(split), label, probability, asked, metrics)
    clock.lap("evaluate")
    if asked is not None:
        metrics |= asked.record()
    artifact = _artifact(config, split, model, fitted, selected, node_ids, asked)
    artifact.info["features_from_edges"] = computed
    return RunOutcome(
        config, metrics, artifact, training_config, training, test.toggled.method, label, probability,
        clock.seconds, str(place), None if asked is None else asked.weight(label),
    )  # fmt: skip


def _add_truth(
    results: dict[str, dict[str, float]],
    truth: FloatArray | None,
    label: FloatArray,
    probability: dict[str, FloatArray],
    asked: AskedRate | None,
    metrics: dict[str, Any],
) -> None:
    """Add the distance to the true probabilities, where they are known, and what they themselves score."""
    if truth is None:
        return
    for name, row in results.items():
        if asked is None:
            row["true_error"] = float(np.abs(probability[name] - truth).mean())
        else:
            row["true_error"] = asked.true_error(probability[name], truth, label)
    if asked is None:
        metrics["oracle"] = evaluate_links(label, truth)


def _artifact(
    config: RunConfig,
    split: LinkSplit,
    model: GraphModel,
    fitted: dict[str, Calibrator],
    selected: str,
    node_ids: NodeIds | None,
    asked: AskedRate | None,
) -> Artifact:
    info = {
        "fit_on": config.fit_on,
        "selected": selected,
        "model": config.model,
        "dataset": config.dataset,
        "negatives_per_positive": negatives_per_positive(config, split),
        "negatives": split.negatives,
        "decode_returns": "logits",
        **({} if asked is None else asked.record()),
    }
    evidence = gather_evidence(split, config.fit_on, seed=config.seed, spare_test=True)
    return Artifact(
        model.cpu(), split.graph.to("cpu"), fitted, info, node_ids, split.held_out_edges(), evidence
    )


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


def _fit_all(
    config: RunConfig, links: FitLinks, notify: Callable[[Step], None]
) -> tuple[dict[str, Calibrator], dict[str, float]]:
    fitted, seconds = {}, {}
    for number, name in enumerate(config.calibrators):
        notify(Step(f"fit {name}", number, len(config.calibrators)))
        calibrator = configured_calibrator(config, name)
        start = time.perf_counter()
        sample = partial(fitting_links, name, max_network_links=config.max_network_links, seed=config.seed)
        read = [None if scores is None else sample(scores) for scores in links]
        with blas_threads(1):
            fitted[name] = fit_calibrator(calibrator, *read)  # type: ignore[arg-type]
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
