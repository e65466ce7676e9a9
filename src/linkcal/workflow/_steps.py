"""The steps of a run, and of one cell of a sweep: load, split, train, score, fit, measure."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal import data
from linkcal._core.random import numpy_stream, stream_seed
from linkcal._core.threads import blas_threads
from linkcal._scoring import FitLinks, base_rate_origin, graph_density
from linkcal.calibrators import (
    CALIBRATORS,
    Calibrator,
    base_rate_offset,
    fit_together,
    make_calibrator,
    shift_base_rate,
)
from linkcal.data import Graph, LinkSplit, split_links
from linkcal.exceptions import EdgeFeaturesWarning, InputError, SymmetricDecoderWarning
from linkcal.features import COLUMN_NAMES, LinkScores, calibration_part, score_links
from linkcal.metrics import METRICS, evaluate_links
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
from linkcal.workflow._settings import RunConfig, split_hyperparameters

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """What a progress callback receives: a named stage, and how far it is."""

    stage: str
    done: int
    total: int


Progress = Callable[[Step], None]


def load_graph(config: RunConfig, *, data_root: str | os.PathLike[str] | None = None) -> Graph | LinkSplit:
    """Load the named data set of a run as its settings want it.

    Parameters
    ----------
    config : RunConfig
        Without other negatives than those of an official split.
    data_root : path, optional
        As in :func:`linkcal.data.load_dataset`.

    Returns
    -------
    Graph or LinkSplit
        A split where there is an official one.
    """
    if config.dataset in data.OFFICIAL_SPLITS:
        for option, value, default in (
            ("--negatives-per-positive", config.negatives_per_positive, 1.0),
            ("--negatives", config.negatives, "uniform"),
        ):
            if value != default:
                raise InputError(
                    f"{option} must be left out for {config.dataset}, whose split is fixed, got {value}"
                )
        return data.load_official_split(config.dataset, data_root=data_root, seed=config.seed)
    forward: dict[str, Any] = {"forward_only": True} if config.forward_only else {}
    return data.load_dataset(config.dataset, data_root=data_root, **forward)


def split_graph(config: RunConfig, graph: Graph | LinkSplit) -> LinkSplit:
    """Split a graph as a run's settings say; an official split stays as it is.

    Parameters
    ----------
    config : RunConfig
    graph : Graph or LinkSplit
        Loaded with ``forward_only`` if `config` has it.

    Returns
    -------
    LinkSplit
    """
    if isinstance(graph, LinkSplit):
        return graph
    if config.forward_only and graph.num_backward is None:
        raise InputError(
            f"graph of {config.dataset} must be loaded with forward_only=True (load_graph does so), got all "
            "stored edges"
        )
    if config.normalise_features and graph.x is not None:
        graph = replace(graph, x=row_normalised(graph.x))
    return split_links(
        graph,
        val_fraction=config.val_fraction,
        test_fraction=config.test_fraction,
        negatives_per_positive=config.negatives_per_positive,
        negatives=config.negatives,  # type: ignore[arg-type]
        seed=config.seed,
    )


def row_normalised(x: Tensor) -> Tensor:
    """Features [N, F] less their minimum, each row divided by its sum, as PyG's NormalizeFeatures does."""
    shifted = x - x.min()
    return shifted / shifted.sum(dim=1, keepdim=True).clamp(min=1.0)


def warn_of_limits(config: RunConfig, split: LinkSplit) -> None:
    """Warn of what this graph and these settings cannot give."""
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
            f"node features {what} are computed from the edges, and not anew without a pair's target link: "
            "leave-one-out scores keep a trace of it; fit on val",
            EdgeFeaturesWarning,
            stacklevel=3,
        )


class TrainedModel(NamedTuple):
    """A training's outcome; the split's graph is the message-passing graph as the model reads it."""

    model: GraphModel
    split: LinkSplit
    config: TrainingConfig
    result: TrainingResult

    def score(self, part: str) -> LinkScores:
        """Scores of the labelled links of ``"train"``, ``"val"`` or ``"test"``, target link absent."""
        return score_links(self.model, self.split.graph, self.split.part(part))


def build_model(config: RunConfig, split: LinkSplit) -> tuple[GraphModel, LinkSplit, TrainingConfig]:
    """Untrained model, the split with the graph as the model reads it, and how to train it.

    Later sources win: preset, its settings for the data set, ``hyperparameters``, ``epochs``, ``batch_size``.
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
    given = {"epochs": config.epochs, "batch_size": config.batch_size}
    for_training |= {key: value for key, value in given.items() if value is not None}
    training = replace(preset.training, **for_training)
    return model, replace(split, graph=model.prepare(split.graph)), training


def train_model(
    config: RunConfig, split: LinkSplit, device: torch.device, progress: Progress | None = None
) -> TrainedModel:
    """Build and train the model of a run on a split that is on `device`."""
    model, split, training = build_model(config, split)

    def report(epoch: EpochReport) -> None:
        if progress is not None:
            progress(Step("train", epoch.epoch, epoch.epochs))

    result = train_link_predictor(model, split, training, seed=config.seed, device=device, progress=report)
    return TrainedModel(model, split, training, result)


def true_probability(split: LinkSplit) -> FloatArray | None:
    """Probability (L,) that each test pair is positive, where edge and sampling probabilities are known."""
    if split.graph.truth is None or split.test.negative_rate is None:
        return None
    edge_probability = split.graph.truth.edge_probability(split.test.edge_label_index.cpu())
    return split.test.to("cpu").label_probability(edge_probability).numpy().astype(np.float64)


def fit_parts(fit_on: str) -> tuple[str, ...]:
    """Parts of the split whose scores :func:`fit_links` needs."""
    return ("val",) if fit_on == "val" else ("train", "val")


def fit_links(scores: Mapping[str, LinkScores], fit_on: str) -> FitLinks:
    """Links that a fit reads, from the scores of the parts of a split, target links absent."""
    calibration = scores[calibration_part(fit_on)]
    if fit_on == "train":
        calibration = replace(calibration, target_link="as-given")
    validation = None if calibration_part(fit_on) == "val" else scores["val"]
    return FitLinks(calibration, validation, scores["train"] if fit_on == "stacked" else None)


def fit_calibrators(
    config: RunConfig, name: str, links: Sequence[FitLinks], calibration_seeds: Sequence[int] = (0,)
) -> list[Calibrator]:
    """Fit a calibrator on the `links` of each calibration seed, with the numbers of separate fits.

    Calibration seed 0 is the run's own stream ``"calibration"``, k > 0 the stream ``"calibration-k"``. All
    have the same validation and base links; networks are trained as one batch.
    """
    params = dict(dict(config.calibrator_params).get(name, ()))
    blank = [make_calibrator(name, **params) for _ in calibration_seeds]
    for calibrator, seed in zip(blank, calibration_seeds, strict=True):
        if "random_state" in calibrator.get_params():
            stream = f"calibration-{seed}" if seed else "calibration"
            calibrator.set_params(random_state=stream_seed(config.seed, stream) % 2**31)
    kind = blank[0].link_features
    blank = [calibrator.clone_for(COLUMN_NAMES.get(kind)) for calibrator in blank]

    def arrays(scores: LinkScores | None) -> Any:
        if scores is None:
            return None
        sample = network_sample(name, scores, max_links=config.max_network_links, seed=config.seed)
        return sample.to_arrays(kind)

    X, y = zip(*(arrays(each.scores) for each in links), strict=True)
    validation, base = arrays(links[0].validation), arrays(links[0].base)
    with blas_threads(1):
        return fit_together(blank, X, y, [validation] * len(blank), base)


def network_sample(name: str, scores: LinkScores, *, max_links: int | None, seed: int) -> LinkScores:
    """Links that a calibrator is fitted on: all, or at most `max_links` for those that train a network.

    The sample is the same for every calibrator, in the order of `scores`, and keeps the share of positives.
    """
    if not CALIBRATORS[name].trains_network or max_links is None or len(scores) <= max_links:
        return scores
    _, label = scores.to_arrays()
    rng = numpy_stream(seed, "network-links")
    links, others = rng.permutation(np.flatnonzero(label == 1)), rng.permutation(np.flatnonzero(label == 0))
    # At least one of each class that there is: a calibrator cannot be fitted on a single class.
    wanted = round(max_links * links.size / len(scores))
    wanted = min(max(wanted, min(links.size, 1)), max_links - min(others.size, 1))
    return scores.take(np.sort(np.concatenate([links[:wanted], others[: max_links - wanted]])))


@dataclass(frozen=True)
class TargetRate:
    """The base rate that results are moved to, that of the calibration links, and where the first is from."""

    rate: float
    calibration_rate: float
    origin: str

    @classmethod
    def of(cls, config: RunConfig, split: LinkSplit) -> TargetRate | None:
        """The rate of a run's ``base_rate``; None if there is none."""
        if config.base_rate is None:
            return None
        rate = graph_density(split.graph) if config.base_rate == "density" else float(config.base_rate)
        calibration_rate = 1.0 / (1.0 + negatives_per_positive(config, split))
        return cls(rate, calibration_rate, base_rate_origin(config.base_rate))  # type: ignore[arg-type]

    @property
    def offset(self) -> float:
        """What is added to a calibrated logit."""
        return base_rate_offset(self.calibration_rate, self.rate)

    def weight(self, label: FloatArray) -> FloatArray:
        """Weights (L,) with which the test links have this base rate; 1 for positives."""
        positives = float(label.sum())
        per_negative = positives * (1.0 - self.rate) / (self.rate * max(len(label) - positives, 1.0))
        return np.where(label == 1.0, 1.0, per_negative)


def negatives_per_positive(config: RunConfig, split: LinkSplit) -> float:
    """Ratio of the calibration links, for which probabilities hold."""
    part = split.part(calibration_part(config.fit_on))
    # The ratio as it was requested; rounding to whole links moves it a little.
    wanted = config.negatives_per_positive
    exact = round(wanted * part.num_positives) == part.num_negatives
    return wanted if exact else part.num_negatives / part.num_positives


def measure_links(
    label: FloatArray,
    probability: FloatArray,
    logit: FloatArray,
    truth: FloatArray | None = None,
    *,
    rate: TargetRate | None = None,
    complete: bool = False,
) -> dict[str, float]:
    """Metrics of calibrated links, as fractions; see :func:`linkcal.metrics.evaluate_links`.

    Known probabilities `truth` add ``true_error``, the mean absolute distance. With `rate`, for which
    `probability` and `logit` hold, negatives are weighted. `complete` adds the other ``METRICS`` and the
    counts ``positives`` and ``negatives``.
    """
    weight = None if rate is None else rate.weight(label)
    result = evaluate_links(label, probability, logit, sample_weight=weight, extended=complete)
    one_class = label.min() == label.max()
    for name, spec in METRICS.items():
        # With weights the ranking metrics are measured again without: Hits@K counts negatives, not weights.
        again = rate is not None and name in result and spec.input == "score"
        if again or (complete and name not in result):
            values = logit if spec.input == "score" else probability
            no_ranking = spec.input == "score" and one_class
            result[name] = float("nan") if no_ranking else float(spec.function(label, values))
    if complete:
        result["positives"] = float(label.sum())
        result["negatives"] = float(len(label) - label.sum())
    if truth is not None and rate is not None:
        # The truth is known at the test links' own base rate.
        truth = shift_base_rate(truth, from_rate=float(label.mean()), to_rate=rate.rate)
    if truth is not None:
        result["true_error"] = float(np.average(np.abs(probability - truth), weights=weight))
    return result


@contextmanager
def distinct_warnings() -> Iterator[None]:
    """Give each different warning of the block once, at its end; filters that make errors do so at once."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            yield
    finally:  # also those before an error
        different = {(one.category, str(one.message)): one for one in reversed(caught)}
        for one in reversed(different.values()):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
