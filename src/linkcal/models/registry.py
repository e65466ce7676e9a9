"""Models by the names of the command line: presets, search ranges, and seeded construction."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from typing import Any

from linkcal._core.random import torch_streams_forked
from linkcal._core.validation import check_choice, check_positive_int
from linkcal.models.base import GraphModel
from linkcal.models.gnn import GCN, GIN, SAGE, VGAE
from linkcal.models.peg import PEG
from linkcal.models.seal import SEAL
from linkcal.models.training import TrainingConfig

__all__ = ["MODELS", "NODE_EMBEDDING_CHANNELS", "ModelSpec", "Preset", "make_model", "make_training_config"]


#: Width of the learned node embedding of a graph without features, where nothing else is asked for.
NODE_EMBEDDING_CHANNELS = 32


@dataclass(frozen=True)
class Preset:
    """Hyper-parameters that belong together.

    Parameters
    ----------
    model : dict
        Arguments of the model's constructor.
    training : TrainingConfig
    reduced : mapping of str to mapping
        By data set: arguments of the model and training settings that replace these there, so that a training
        ends within minutes. A concession to time: they were not chosen for quality.

    Examples
    --------
    >>> MODELS["gcn"].presets["default"].model
    {'hidden_channels': 32}
    """

    model: dict[str, Any]
    training: TrainingConfig
    reduced: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def on(self, dataset: str) -> Preset:
        """Preset for a data set, its reduced settings in place.

        Examples
        --------
        >>> preset = Preset({"num_hops": 2}, TrainingConfig(epochs=30), {"large": {"epochs": 5}})
        >>> preset.on("large").training.epochs, preset.on("cora").training.epochs
        (5, 30)
        """
        values = self.reduced.get(dataset, {})
        settings = TrainingConfig.__dataclass_fields__
        training = {name: value for name, value in values.items() if name in settings}
        model = {name: value for name, value in values.items() if name not in settings}
        return Preset({**self.model, **model}, replace(self.training, **training))


@dataclass(frozen=True)
class ModelSpec:
    """A model's class, what it is in one line, its presets, and where to search.

    Parameters
    ----------
    cls : type of GraphModel
    description : str
    presets : dict of str to Preset
        ``"default"``: chosen by validation AUC on Cora. ``"paper"``: the paper's table, no early stopping. A
        model may have more, named after what they change.
    search : dict of str to list
        Values of constructor arguments and of :class:`TrainingConfig` fields: the paper's grid.

    Examples
    --------
    >>> spec = MODELS["peg"]
    >>> sorted(spec.presets), spec.search["num_layers"]
    (['default', 'paper'], [1, 2, 3])
    """

    cls: type[GraphModel]
    description: str
    presets: dict[str, Preset]
    search: dict[str, list[Any]] = field(default_factory=dict)


# Appendix of the paper; dropout and weight decay are not in its grid.
_SEARCH: dict[str, list[Any]] = {
    "hidden_channels": [16, 32, 64, 128],
    "out_channels": [16, 32, 64, 128],
    "num_layers": [1, 2, 3],
    "dropout": [0.0, 0.25, 0.5],
    "lr": [0.1, 0.01, 0.001],
    "weight_decay": [0.0, 5e-4],
    "epochs": [400, 600, 800, 1000],
}


#: Not in the paper's table: SEAL's own code takes 32 pairs per step, which are 16 links and 16 negatives.
_PAPER_BATCH_SIZE = {"seal": 16}


def _paper_presets() -> dict[str, Preset]:
    """Read the paper's hyper-parameters, by lower-case model name."""
    text = (files("linkcal.models") / "paper_hyperparameters.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {
        row["model"]: Preset(
            model={
                "hidden_channels": int(row["hidden"]),
                "out_channels": int(row["out"]),
                "num_layers": int(row["layers"]),
            },
            training=TrainingConfig(
                epochs=int(row["epochs"]),
                lr=float(row["lr"]),
                patience=None,
                batch_size=_PAPER_BATCH_SIZE.get(row["model"]),
            ),
        )
        for row in rows
    }


_PAPER = _paper_presets()


def _spec(name: str, cls: type[GraphModel], description: str, default: Preset, **more: Preset) -> ModelSpec:
    return ModelSpec(cls, description, {"default": default, "paper": _PAPER[name], **more}, _SEARCH)


# Narrow layers, smaller subgraphs of dense graphs and fewer epochs keep a training within minutes of one
# core. Where features are few, more of them are hidden.
_SEAL_REDUCED: dict[str, dict[str, Any]] = {
    "citeseer": {"hidden_channels": 32, "feature_dropout": 0.3},
    "bitcoin-alpha": {"hidden_channels": 32, "feature_dropout": 0.8, "max_neighbors": 20, "epochs": 15},
    "bitcoin-otc": {"hidden_channels": 32, "feature_dropout": 0.8, "max_neighbors": 20, "epochs": 15},
    "chameleon": {"hidden_channels": 32, "feature_dropout": 0.3, "max_neighbors": 20, "epochs": 8},
    "twitch-pt": {"hidden_channels": 32, "feature_dropout": 0.8, "max_neighbors": 20, "epochs": 8},
    "pubmed": {"hidden_channels": 32, "feature_dropout": 0.3, "max_neighbors": 20, "epochs": 8},
}

#: All models in the order in which tables show them.
MODELS: dict[str, ModelSpec] = {
    "gcn": _spec(
        "gcn",
        GCN,
        "graph convolutional network, inner product",
        Preset({"hidden_channels": 32}, TrainingConfig(epochs=200, weight_decay=5e-4, patience=50)),
    ),
    "sage": _spec(
        "sage",
        SAGE,
        "GraphSAGE with mean aggregation, linear layer on the endpoints' product",
        Preset(
            {"hidden_channels": 32, "dropout": 0.5},
            TrainingConfig(epochs=150, weight_decay=5e-4, patience=40),
        ),
    ),
    "gin": _spec(
        "gin",
        GIN,
        "graph isomorphism network with batch normalisation, inner product",
        Preset(
            {"hidden_channels": 64, "dropout": 0.5},
            TrainingConfig(epochs=150, weight_decay=5e-4, patience=40),
        ),
    ),
    "vgae": _spec(
        "vgae",
        VGAE,
        "variational graph auto-encoder, inner product",
        Preset({"hidden_channels": 16}, TrainingConfig(epochs=200, patience=50)),
    ),
    "peg": _spec(
        "peg",
        PEG,
        "GCN damped by positional distance, linear layer on the endpoints' product",
        # Weight decay pulls the product decoder into its saddle at zero (AUC 67 on one of two seeds).
        Preset({"hidden_channels": 20}, TrainingConfig(epochs=200, patience=50)),
    ),
    "seal": _spec(
        "seal",
        SEAL,
        "graph network over each pair's enclosing subgraph, target link hidden; slow",
        # Most coordinates are hidden at each step: a few thousand pairs are else learned by heart.
        Preset(
            {
                "hidden_channels": 128,
                "num_hops": 2,
                "max_neighbors": 50,
                "feature_channels": 128,
                "feature_dropout": 0.6,
            },
            TrainingConfig(epochs=30, lr=3e-4, weight_decay=1e-3, patience=12, eval_every=1, batch_size=32),
            reduced=_SEAL_REDUCED,
        ),
    ),
}


def make_model(
    name: str,
    in_channels: int,
    *,
    num_nodes: int | None = None,
    preset: str = "default",
    seed: int = 0,
    **overrides: Any,
) -> GraphModel:
    """Untrained model of a name in ``MODELS``, its weights drawn from a stream of their own.

    Parameters
    ----------
    name : str
    in_channels : int
        F, the number of node features; with `num_nodes`, the width of the learned node embedding.
    num_nodes : int, optional
        For a graph without features.
    preset : str
        In ``MODELS[name].presets``.
    seed : int
        The weights follow the stream ``"initialisation"`` of this seed; torch's global generators are left as
        they were.
    **overrides
        Constructor arguments that replace the preset's (`hidden_channels`, `dropout`, ...).

    Returns
    -------
    LinkPredictor or PairPredictor

    Raises
    ------
    InputError
        If a name is unknown (the message names the nearest one) or a value is out of range.

    Examples
    --------
    >>> make_model("gcn", 8, hidden_channels=4).config["hidden_channels"]
    4
    """
    spec = MODELS[check_choice(name, "model", MODELS)]
    arguments = {**_preset(spec, preset).model, **overrides}
    known = [key for key in inspect.signature(spec.cls).parameters if key not in ("in_channels", "num_nodes")]
    for key in arguments:
        check_choice(key, f"argument of {name}", known)
    seed = check_positive_int(seed, "seed", minimum=0)
    with torch_streams_forked(seed, "initialisation"):
        return spec.cls(in_channels, num_nodes=num_nodes, **arguments)


def make_training_config(name: str, *, preset: str = "default", **overrides: Any) -> TrainingConfig:
    """Training settings of a model's preset.

    Parameters
    ----------
    name : str
        In ``MODELS``.
    preset : str
        In ``MODELS[name].presets``.
    **overrides
        Fields that replace the preset's (`epochs`, `lr`, ...).

    Returns
    -------
    TrainingConfig

    Raises
    ------
    InputError
        If a name is unknown or a value is out of range.

    Examples
    --------
    >>> make_training_config("vgae", epochs=10).epochs
    10
    """
    training = _preset(MODELS[check_choice(name, "model", MODELS)], preset).training
    settings = asdict(training)
    for key in overrides:
        check_choice(key, "training setting", settings)
    return TrainingConfig(**{**settings, **overrides})


def _preset(spec: ModelSpec, preset: str) -> Preset:
    return spec.presets[check_choice(preset, "preset", spec.presets)]
