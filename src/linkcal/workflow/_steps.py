"""The steps of a run, and of one cell of a sweep: load, split, train, score, fit, measure."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

from linkcal import calibrators, data, models
from linkcal._core.maths import FloatArray
from linkcal._core.random import numpy_stream, stream_seed
from linkcal._core.threads import blas_threads
from linkcal._core.validation import warn_of_few_links
from linkcal._scoring import FitLinks, base_rate_origin, graph_density, links_beside
from linkcal.data import Graph, LinkSplit, split_links
from linkcal.exceptions import EdgeFeaturesWarning, InputError, SymmetricDecoderWarning
from linkcal.features import COLUMN_NAMES, LinkScores, calibration_part, score_links
from linkcal.metrics.registry import evaluate_at_base_rate
from linkcal.workflow._settings import TRAINING, RunConfig


@dataclass(frozen=True)
class Step:
    """What a progress callback receives: a named stage, and how far it is."""

    stage: str
    done: int
    total: int


Progress = Callable[[Step], None]


def load_graph(config: RunConfig, *, data_root: str | os.PathLike[str] | None = None) -> Graph | LinkSplit:
    """Load the named data set of a run as its settings want it: a split where there is an official one."""
    if config.dataset in data.OFFICIAL_SPLITS:
        for name, default in (("negatives_per_positive", 1.0), ("negatives", "uniform"), ("by_time", False)):
            option, value = f"--{name.replace('_', '-')}", getattr(config, name)
            if value != default:
                of = f"{config.dataset}, whose split is fixed"
                raise InputError(f"{option} must be left out for {of}, got {value}")
        return data.load_official_split(config.dataset, data_root=data_root, seed=config.seed)
    return data.load_dataset(config.dataset, data_root=data_root, forward_only=config.forward_only)


def split_graph(config: RunConfig, graph: Graph | LinkSplit) -> LinkSplit:
    """Split a graph as a run's settings say; an official split stays as it is."""
    if isinstance(graph, LinkSplit):
        return graph
    if config.forward_only and graph.num_backward is None:
        raise InputError(
            f"graph of {config.dataset} must be loaded with forward_only=True (load_graph does so), got all "
            "stored edges"
        )
    if config.normalise_features and graph.x is not None:
        graph = replace(graph, x=NormalizeFeatures()(Data(x=graph.x)).x)
    if config.by_time and graph.edge_time is None:
        raise InputError(f"by_time must be False for {config.dataset}, whose edges have no times, got True")
    time = graph.edge_time if config.by_time else None
    names = ("val_fraction", "test_fraction", "negatives_per_positive", "negatives", "seed", "symmetric")
    return split_links(graph, time=time, **{name: getattr(config, name) for name in names})


def warn_of_limits(config: RunConfig, split: LinkSplit) -> None:
    """Warn of what this graph and these settings cannot give."""
    part = split.part(calibration_part(config.fit_on))
    warn_of_few_links(part.num_positives, part.num_negatives, stacklevel=3)
    if split.graph.directed:
        text = f"{config.model} gives both directions of a pair the same score, while the graph is directed"
        warnings.warn(text, SymmetricDecoderWarning, stacklevel=3)
    from_edges = split.graph.features_from_edges or models.MODELS[config.model].cls.features_from_edges
    if from_edges and config.fit_on == "train-loo":
        what = "of this graph" if split.graph.features_from_edges else f"(positions) of {config.model}"
        text = (
            f"node features {what} are computed from the edges, and not anew without a pair's target link: "
            "leave-one-out scores keep a trace of it; fit on val"
        )
        warnings.warn(text, EdgeFeaturesWarning, stacklevel=3)


class TrainedModel(NamedTuple):
    """A training's outcome; the split's graph is the message-passing graph as the model reads it."""

    model: models.GraphModel
    split: LinkSplit
    config: models.TrainingConfig
    result: models.TrainingResult

    def score(self, part: str) -> LinkScores:
        """Scores of the labelled links of ``"train"``, ``"val"`` or ``"test"``, target link absent."""
        return score_links(self.model, self.split.graph, self.split.part(part))


def build_model(
    config: RunConfig, split: LinkSplit
) -> tuple[models.GraphModel, LinkSplit, models.TrainingConfig]:
    """Untrained model, the split with the graph as the model reads it, and how to train it.

    Later sources win: preset, its settings for the data set, ``hyperparameters``, ``epochs``, ``batch_size``.
    """
    x, spec = split.graph.x, models.MODELS[config.model]
    preset = spec.presets[config.preset].on(config.dataset)
    arguments = {**preset.model, **{k: v for k, v in config.hyperparameters if k not in TRAINING}}
    model = models.make_model(
        config.model, models.NODE_EMBEDDING_CHANNELS if x is None else x.size(1),
        num_nodes=split.graph.num_nodes if x is None else None, preset=config.preset, seed=config.seed,
        **{**spec.cls.options_for(split, **arguments), **arguments},
    )  # fmt: skip
    given: dict[str, Any] = {k: v for k, v in config.hyperparameters if k in TRAINING}
    given |= {k: v for k in ("epochs", "batch_size") if (v := getattr(config, k)) is not None}
    training = replace(preset.training, **given)
    return model, replace(split, graph=model.prepare(split.graph)), training


def train_model(
    config: RunConfig, split: LinkSplit, device: torch.device, progress: Progress | None = None
) -> TrainedModel:
    """Build and train the model of a run on a split that is on `device`."""
    model, split, training = build_model(config, split)

    def report(epoch: models.EpochReport) -> None:
        if progress is not None:
            progress(Step("train", epoch.epoch, epoch.epochs))

    result = models.train_link_predictor(
        model, split, training, seed=config.seed, device=device, progress=report
    )
    return TrainedModel(model, split, training, result)


def true_probability(split: LinkSplit) -> FloatArray | None:
    """Probability (L,) that each test pair is positive, where edge and sampling probabilities are known."""
    if split.graph.truth is None or split.test.negative_rate is None:
        return None
    edge_probability = split.graph.truth.edge_probability(split.test.edge_label_index.cpu())
    return split.test.to("cpu").label_probability(edge_probability).numpy().astype(np.float64)


def fit_links(scores: Mapping[str, LinkScores], fit_on: str) -> FitLinks:
    """Links that a fit reads, from the scores of ``val`` and, unless `fit_on` is that, ``train`` links."""
    calibration = scores[calibration_part(fit_on)]
    if fit_on == "train":
        calibration = replace(calibration, target_link="as-given")
    validation = None if calibration_part(fit_on) == "val" else scores["val"]
    return FitLinks(calibration, validation, scores["train"] if fit_on == "stacked" else None)


def fit_calibrators(
    config: RunConfig, name: str, links: Sequence[FitLinks], calibration_seeds: Sequence[int] = (0,)
) -> list[calibrators.Calibrator]:
    """Fit a calibrator on the `links` of each calibration seed.

    Calibration seed 0 is the run's own stream ``"calibration"``, k > 0 the stream ``"calibration-k"``. All
    have the same validation and base links.
    """
    params = dict(dict(config.calibrator_params).get(name, ()))
    kind = calibrators.CALIBRATORS[name].link_features
    blank = []
    for seed in calibration_seeds:
        calibrator = calibrators.make_calibrator(name, **params)
        if "random_state" in calibrator.get_params():
            stream = f"calibration-{seed}" if seed else "calibration"
            calibrator.set_params(random_state=stream_seed(config.seed, stream) % 2**31)
        blank.append(calibrator.clone_for(COLUMN_NAMES.get(kind)))

    def arrays(scores: LinkScores | None) -> Any:
        if scores is None:
            return None
        sample = network_sample(name, scores, max_links=config.max_network_links, seed=config.seed)
        return sample.to_arrays(kind)

    beside = links_beside(blank[0], arrays(links[0].validation), arrays(links[0].base))
    with blas_threads(1):
        return [
            calibrator.fit(*arrays(each.scores), **beside)
            for calibrator, each in zip(blank, links, strict=True)
        ]


def network_sample(name: str, scores: LinkScores, *, max_links: int | None, seed: int) -> LinkScores:
    """Links that a calibrator is fitted on: all, or at most `max_links` for those that train a network.

    The sample is the same for every calibrator, in the order of `scores`, and keeps the share of positives.
    """
    if not calibrators.CALIBRATORS[name].trains_network or max_links is None or len(scores) <= max_links:
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
    """The base rate that results are moved to, what that adds to a calibrated logit, and where it is from."""

    rate: float
    offset: float
    origin: str

    @classmethod
    def of(cls, config: RunConfig, split: LinkSplit) -> TargetRate | None:
        """The rate of a run's ``base_rate``; None if there is none."""
        if config.base_rate is None:
            return None
        rate = graph_density(split.graph) if config.base_rate == "density" else float(config.base_rate)
        offset = calibrators.base_rate_offset(1.0 / (1.0 + negatives_per_positive(config, split)), rate)
        return cls(rate, offset, base_rate_origin(config.base_rate))  # type: ignore[arg-type]

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
) -> dict[str, float]:
    """Metrics of calibrated links, as fractions; see :func:`linkcal.metrics.evaluate_links`.

    Known probabilities `truth` add ``true_error``, the mean absolute distance. With `rate`, for which
    `probability` and `logit` hold, negatives are weighted.
    """
    weight = None if rate is None else rate.weight(label)
    result = evaluate_at_base_rate(label, probability, logit, weight)
    if truth is not None:
        if rate is not None:  # the truth is known at the test links' own base rate
            truth = calibrators.shift_base_rate(truth, from_rate=float(label.mean()), to_rate=rate.rate)
        result["true_error"] = float(np.average(np.abs(probability - truth), weights=weight))
    return result
