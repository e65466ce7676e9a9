"""One run: split, train, score, fit, measure."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from linkcal._core.maths import bernoulli_nll, sigmoid
from linkcal._core.random import numpy_stream
from linkcal._core.threads import blas_threads
from linkcal._core.validation import check_device
from linkcal._scoring import (
    FitLinks,
    base_rate_origin,
    fit_calibrator,
    gather_evidence,
    graph_density,
    score_fit_links,
)
from linkcal.artifact import Artifact
from linkcal.calibrators import Calibrator, base_rate_offset, shift_base_rate
from linkcal.data import Graph, LinkSplit, NodeIds
from linkcal.exceptions import LinkcalWarning, RareClassWarning
from linkcal.features import LinkScores, score_links
from linkcal.metrics import METRICS, evaluate_links
from linkcal.models import GraphModel, TrainingConfig, TrainingResult
from linkcal.workflow.config import RunConfig
from linkcal.workflow.steps import (
    Step,
    configured_calibrator,
    fitting_links,
    negatives_per_positive,
    split_for_run,
    train_for_run,
    true_probability,
    warn_of_limits,
)

__all__ = [
    "CANDIDATES",
    "AskedRate",
    "RunOutcome",
    "distinct_warnings",
    "ranking_metrics",
    "run_experiment",
    "select_calibrator",
]


# Which fitted calibrator a user gets by default: chosen on calibration data, never on the test set.

#: Calibrators that compete to be the default. The two with networks are left out: a fit takes seconds instead
#: of milliseconds, and a temperature cannot move a base rate, so they seldom win.
CANDIDATES = ("uncalibrated", "temperature", "platt", "beta", "isotonic", "histogram", "bbq", "in-n-out-plus")

_FOLDS = 5


def select_calibrator(
    fitted: Mapping[str, Calibrator],
    scores: LinkScores,
    validation: LinkScores | None,
    *,
    seed: int,
) -> str:
    """Name of the calibrator with the smallest held-out negative log-likelihood.

    Parameters
    ----------
    fitted : mapping of str to Calibrator
        Fitted on `scores`.
    scores : LinkScores
        The calibration links.
    validation : LinkScores, optional
        Links that nothing was fitted on; without them, stratified 5-fold cross-validation on `scores`.
    seed : int
        The folds follow the stream ``"selection"``.

    Returns
    -------
    str
        Ties go to the first; if no candidate was fitted, the first calibrator.

    Warns
    -----
    RareClassWarning
        If a class has fewer than two links to cross-validate on; the first candidate is then taken.
    """
    candidates = [name for name in fitted if name in CANDIDATES] or list(fitted)[:1]
    rarest = int(scores.label.sum().item()) if scores.label is not None else 0
    rarest = min(rarest, len(scores) - rarest)
    if validation is None and rarest < 2:
        warnings.warn(
            f"calibration links must hold at least 2 of each class to choose a calibrator by, got {rarest}: "
            f"{candidates[0]} is taken",
            RareClassWarning,
            stacklevel=2,
        )
        return candidates[0]
    if validation is not None:
        losses = {name: _loss(fitted[name], validation) for name in candidates}
    else:
        losses = {name: _cross_validated_loss(fitted[name], scores, seed) for name in candidates}
    return min(candidates, key=losses.__getitem__)


def _loss(calibrator: Calibrator, scores: LinkScores) -> float:
    X, y = scores.to_arrays(calibrator.link_features)
    return float(bernoulli_nll(calibrator.decision_function(X), y.astype(np.float64)).mean())


def _cross_validated_loss(calibrator: Calibrator, scores: LinkScores, seed: int) -> float:
    _, y = scores.to_arrays()
    folds = min(_FOLDS, int(np.bincount(y, minlength=2).min()))
    state = int(numpy_stream(seed, "selection").integers(2**31))
    total = 0.0
    for train, held_out in StratifiedKFold(folds, shuffle=True, random_state=state).split(y, y):
        with warnings.catch_warnings():
            # The fit on all links has said it already.
            warnings.simplefilter("ignore", LinkcalWarning)
            part = calibrator.refitted(*scores.take(train).to_arrays(calibrator.link_features))
        total += _loss(part, scores.take(held_out)) * len(held_out)
    return total / len(y)


# A run's results at the share of links that the user asked for, from test links at another share.


@dataclass(frozen=True)
class AskedRate:
    """The base rate that probabilities and metrics are moved to.

    Parameters
    ----------
    rate : float in (0, 1)
    calibration_rate : float in (0, 1)
        Share of links among the calibration links.
    origin : str
        Where it comes from, in words.
    """

    rate: float
    calibration_rate: float
    origin: str

    @classmethod
    def of(cls, base_rate: Any, split: LinkSplit, negatives_per_positive: float) -> AskedRate | None:
        """The rate of a configuration's ``base_rate``; None if it asks for none."""
        if base_rate is None:
            return None
        rate = graph_density(split.graph) if base_rate == "density" else float(base_rate)
        return cls(rate, 1.0 / (1.0 + negatives_per_positive), base_rate_origin(base_rate))

    def probability(self, calibrator: Calibrator, X: FloatArray) -> FloatArray:
        """Probabilities (L,) at the asked rate."""
        # As in ``CalibratedLinkPredictor``: a probability near 1 has lost the digits that the shift needs.
        return sigmoid(self.decision(calibrator, X))

    def decision(self, calibrator: Calibrator, X: FloatArray) -> FloatArray:
        """Calibrated logits (L,) at the asked rate."""
        return calibrator.decision_function(X) + base_rate_offset(self.calibration_rate, self.rate)

    def weight(self, label: FloatArray) -> FloatArray:
        """Weights (L,) with which the test links have the asked share; 1 for links."""
        positives = float(label.sum())
        per_negative = positives * (1.0 - self.rate) / (self.rate * max(len(label) - positives, 1.0))
        return np.where(label == 1.0, 1.0, per_negative)

    def true_error(self, probability: FloatArray, truth: FloatArray, label: FloatArray) -> float:
        """Mean distance to the true probabilities, which are known at the test links' own share."""
        share = float(label.mean())
        moved = shift_base_rate(truth, from_rate=share, to_rate=self.rate)
        return float(np.average(np.abs(probability - moved), weights=self.weight(label)))

    def record(self) -> dict[str, Any]:
        """JSON values for metrics and artifact."""
        return {"base_rate": self.rate, "base_rate_origin": self.origin}


def ranking_metrics(label: FloatArray, decision: FloatArray, result: dict[str, float]) -> dict[str, float]:
    """The ranking metrics of a result again, without weights; what does not exist stays NaN."""
    names = [name for name in result if name in METRICS and METRICS[name].input == "score"]
    return {name: METRICS[name].function(label, decision) for name in names if not np.isnan(result[name])}


# Warnings that every calibrator's measurement repeats, said once.


@contextmanager
def distinct_warnings() -> Iterator[None]:
    """Hold the block's warnings back and give each different one once, when it ends.

    A filter that makes errors of them does so at once.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     with distinct_warnings():
    ...         for k in (20, 50, 20, 50):
    ...             warnings.warn(f"fewer than {k}")
    >>> [str(one.message) for one in said]
    ['fewer than 20', 'fewer than 50']
    """
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            yield
    finally:  # also what was said before an error
        different = {(one.category, str(one.message)): one for one in reversed(caught)}
        for one in reversed(different.values()):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


# One run: split, train, toggle, fit all calibrators, and measure them on the test links, once.

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
        Model, message-passing graph and fitted calibrators.
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
        Once for each K, whatever the number of calibrators, if there are fewer than K test negatives.
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
            # Hits@K counts K negatives that are there, not their weights.
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
