"""From settings to links, a trained model and unfitted calibrators."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal import data
from linkcal._core.random import numpy_stream, stream_seed
from linkcal.calibrators import CALIBRATORS, Calibrator, make_calibrator
from linkcal.data import Graph, LinkSplit, split_links
from linkcal.exceptions import EdgeFeaturesWarning, InputError, SymmetricDecoderWarning
from linkcal.features import LinkScores, calibration_part
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
from linkcal.workflow.config import RunConfig, split_hyperparameters

__all__ = [
    "Step",
    "build_model",
    "configured_calibrator",
    "fitting_links",
    "load_graph",
    "negatives_per_positive",
    "row_normalised",
    "split_for_run",
    "split_graph",
    "train_for_run",
    "true_probability",
    "warn_of_limits",
]


# From a run's settings to the links it works on: the graph or official split, and the run's own split.


def load_graph(config: RunConfig, *, data_root: str | os.PathLike[str] | None = None) -> Graph | LinkSplit:
    """Load the named data set of a run as its protocol wants it.

    Parameters
    ----------
    config : RunConfig
    data_root : path, optional
        As in :func:`linkcal.data.load_dataset`.

    Returns
    -------
    Graph or LinkSplit
        A split where there is an official one, whatever the protocol.

    Raises
    ------
    InputError
        If the name is unknown, or another ratio of negatives is asked of an official split.
    DataNotFoundError
        If a raw file is missing and cannot be fetched.

    Examples
    --------
    >>> load_graph(RunConfig("simulated", "gcn")).name
    'simulated'
    """
    if config.dataset in data.OFFICIAL_SPLITS:
        _refuse_for_official(config)
        return data.load_official_split(config.dataset, data_root=data_root, seed=config.seed)
    if config.protocol_record().split_of(config.dataset).forward_only:
        return data.load_dataset(config.dataset, data_root=data_root, forward_only=True)
    return data.load_dataset(config.dataset, data_root=data_root)


def _refuse_for_official(config: RunConfig) -> None:
    asked = {
        "--negatives-per-positive": (config.negatives_per_positive, 1.0),
        "--negatives": (config.negatives, "uniform"),
    }
    for option, (value, default) in asked.items():
        if value != default:
            raise InputError(
                f"{option} must be left out for {config.dataset}, whose split is fixed, got {value}"
            )


def split_graph(config: RunConfig, graph: Graph) -> LinkSplit:
    """Split a graph as a run's settings say.

    Parameters
    ----------
    config : RunConfig
    graph : Graph

    Returns
    -------
    LinkSplit

    Raises
    ------
    InputError
        If the protocol keeps only edges stored with row < column and the graph has all of them, or if the
        graph cannot be split as asked.

    Examples
    --------
    >>> from linkcal.data import simulate_graph
    >>> graph = simulate_graph(100, num_edges=200, num_features=5, seed=0)
    >>> split_graph(RunConfig("mine", "gcn"), graph).test.num_positives == graph.num_pairs // 10
    True
    """
    if config.protocol_record().split_of(config.dataset).forward_only and graph.num_backward is None:
        raise InputError(
            f"graph of {config.dataset} must be loaded with forward_only=True for protocol "
            f"{config.protocol!r} (load_graph does so), got all stored edges"
        )
    if config.protocol_record().normalise_features and graph.x is not None:
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
    """Features [N, F] shifted to a smallest value of 0, then each row divided by its sum.

    Rows that sum to less than 1 are left as they are, as PyG's ``NormalizeFeatures`` does.

    Parameters
    ----------
    x : Tensor [N, F]

    Returns
    -------
    Tensor [N, F]

    Examples
    --------
    >>> import torch
    >>> row_normalised(torch.tensor([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    shifted = x - x.min()
    return shifted / shifted.sum(dim=1, keepdim=True).clamp(min=1.0)


# What runs, sweeps and searches do alike: split, build, train, and calibrators as the settings say.


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
            f"node features {what} are computed from the edges, and not anew without a pair's target link: "
            "leave-one-out scores keep a trace of it; fit on val",
            EdgeFeaturesWarning,
            stacklevel=3,
        )


def build_model(config: RunConfig, split: LinkSplit) -> tuple[GraphModel, LinkSplit, TrainingConfig]:
    """Untrained model, the split with the graph as the model reads it, and how to train it.

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
    """Trained model, the split with the graph as the model reads it, and how it was trained."""
    model, split, training_config = build_model(config, split)

    def report(epoch: EpochReport) -> None:
        notify(Step("train", epoch.epoch, epoch.epochs))

    result = train_link_predictor(
        model, split, training_config, seed=config.seed, device=device, progress=report
    )
    return model, split, training_config, result


def negatives_per_positive(config: RunConfig, split: LinkSplit) -> float:
    """Ratio of negatives to links for which the probabilities hold: that of the calibration links."""
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


# Links that a calibrator is fitted on: all of them, or a sample for those that train a network.


def fitting_links(name: str, scores: LinkScores, *, max_network_links: int | None, seed: int) -> LinkScores:
    """Links that a calibrator is to be fitted on.

    A temperature network is trained for thousands of passes over its links, so that a fit takes time in
    proportion to them (0.03 s a pass on 200,000 links), while its few hundred weights gain nothing from the
    millionth link. All other calibrators get every link.

    Parameters
    ----------
    name : str
        In ``linkcal.calibrators.CALIBRATORS``.
    scores : LinkScores
        With labels.
    max_network_links : int, optional
        Bound for calibrators that train a network; None sets none.
    seed : int
        The sample follows the stream ``"network-links"``, is the same for every calibrator, and keeps the
        share of links, to the nearest whole number.

    Returns
    -------
    LinkScores
        `scores` itself where it is not above the bound; else a sample in the order of `scores`.

    Examples
    --------
    >>> import torch
    >>> from linkcal.toggle import ToggledEmbeddings
    >>> embedding, logit, label = torch.zeros(8, 1), torch.zeros(8), torch.arange(8) % 4 == 0
    >>> toggled = ToggledEmbeddings(embedding, embedding, logit, logit, label, "naive")
    >>> scores = LinkScores(toggled, label=label.float())
    >>> fitting_links("in-n-out", scores, max_network_links=4, seed=0).label.sort().values.tolist()
    [0.0, 0.0, 0.0, 1.0]
    >>> len(fitting_links("platt", scores, max_network_links=4, seed=0))
    8
    """
    if not CALIBRATORS[name].trains_network or max_network_links is None or len(scores) <= max_network_links:
        return scores
    _, label = scores.to_arrays()
    rng = numpy_stream(seed, "network-links")
    links, others = rng.permutation(np.flatnonzero(label == 1)), rng.permutation(np.flatnonzero(label == 0))
    # At least one of each class that there is: a calibrator cannot be fitted on a single class.
    wanted = round(max_network_links * links.size / len(scores))
    wanted = min(max(wanted, min(links.size, 1)), max_network_links - min(others.size, 1))
    return scores.take(np.sort(np.concatenate([links[:wanted], others[: max_network_links - wanted]])))
