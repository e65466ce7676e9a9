"""Models by the names of the command line: presets and seeded construction."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from linkcal._core.random import torch_streams_forked
from linkcal._core.validation import check_choice, check_positive_int
from linkcal.models.base import GraphModel
from linkcal.models.gnn import GCN, GIN, SAGE, VGAE
from linkcal.models.peg import PEG
from linkcal.models.seal import SEAL
from linkcal.models.training import TrainingConfig

#: Default width of the learned node embedding of a graph without features.
NODE_EMBEDDING_CHANNELS = 32


@dataclass(frozen=True)
class Preset:
    """Arguments of a model's constructor and of its training that belong together.

    Parameters
    ----------
    model : dict
    training : TrainingConfig
    reduced : mapping of str to mapping
        By data set: arguments and settings that replace these to save time, not chosen for quality.
    """

    model: dict[str, Any]
    training: TrainingConfig
    reduced: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def on(self, dataset: str) -> Preset:
        """Preset for a data set, with its reduced settings."""
        values = self.reduced.get(dataset, {})
        settings = TrainingConfig.__dataclass_fields__
        training = {name: value for name, value in values.items() if name in settings}
        model = {name: value for name, value in values.items() if name not in settings}
        return Preset({**self.model, **model}, replace(self.training, **training))


@dataclass(frozen=True)
class ModelSpec:
    """A model's class, what it is in one line, and its presets.

    Parameters
    ----------
    cls : type of GraphModel
    description : str
    presets : dict of str to Preset
        ``"default"``: chosen by validation AUC on Cora. ``"paper"``: the paper's table, no early stopping.
    """

    cls: type[GraphModel]
    description: str
    presets: dict[str, Preset]


def _paper(hidden: int, out: int, layers: int, lr: float, epochs: int, batch: int | None = None) -> Preset:
    """Row of the table of best hyper-parameters in the paper's appendix."""
    model = {"hidden_channels": hidden, "out_channels": out, "num_layers": layers}
    return Preset(model, TrainingConfig(epochs=epochs, lr=lr, patience=None, batch_size=batch))


def _spec(cls: type[GraphModel], description: str, **presets: Preset) -> ModelSpec:
    return ModelSpec(cls, description, presets)


# Narrow layers, smaller subgraphs and fewer epochs keep a training within minutes of one core.
_SEAL_REDUCED: dict[str, dict[str, Any]] = {
    "citeseer": {"hidden_channels": 32, "feature_dropout": 0.3},
    "bitcoin-alpha": {"hidden_channels": 32, "feature_dropout": 0.8, "max_neighbors": 20, "epochs": 15},
    "bitcoin-otc": {"hidden_channels": 32, "feature_dropout": 0.8, "max_neighbors": 20, "epochs": 15},
    "chameleon": {"hidden_channels": 32, "feature_dropout": 0.3, "max_neighbors": 20, "epochs": 8},
    "twitch-pt": {"hidden_channels": 32, "feature_dropout": 0.8, "max_neighbors": 20, "epochs": 8},
    "pubmed": {"hidden_channels": 32, "feature_dropout": 0.3, "max_neighbors": 20, "epochs": 8},
}
_DROPOUT = TrainingConfig(epochs=150, weight_decay=5e-4, patience=40)

#: All models in the order in which tables show them.
MODELS: dict[str, ModelSpec] = {
    "gcn": _spec(
        GCN,
        "graph convolutional network, inner product",
        default=Preset({"hidden_channels": 32}, TrainingConfig(epochs=200, weight_decay=5e-4, patience=50)),
        paper=_paper(32, 16, 2, 0.001, 400),
    ),
    "sage": _spec(
        SAGE,
        "GraphSAGE with mean aggregation, linear layer on the endpoints' product",
        default=Preset({"hidden_channels": 32, "dropout": 0.5}, _DROPOUT),
        paper=_paper(128, 64, 2, 0.01, 1000),
    ),
    "gin": _spec(
        GIN,
        "graph isomorphism network with batch normalisation, inner product",
        default=Preset({"hidden_channels": 64, "dropout": 0.5}, _DROPOUT),
        paper=_paper(64, 16, 2, 0.01, 1000),
    ),
    "vgae": _spec(
        VGAE,
        "variational graph auto-encoder, inner product",
        default=Preset({"hidden_channels": 16}, TrainingConfig(epochs=200, patience=50)),
        paper=_paper(32, 16, 2, 0.001, 400),
    ),
    "peg": _spec(
        PEG,
        "GCN damped by positional distance, linear layer on the endpoints' product",
        # Weight decay pulls the product decoder into its saddle at zero.
        default=Preset({"hidden_channels": 20}, TrainingConfig(epochs=200, patience=50)),
        paper=_paper(20, 16, 2, 0.01, 400),
    ),
    "seal": _spec(
        SEAL,
        "graph network over each pair's enclosing subgraph, target link hidden; slow",
        default=Preset(
            # Without dropout the model memorises the features of a few thousand training pairs.
            {"hidden_channels": 128, "num_hops": 2, "max_neighbors": 50, "feature_channels": 128}
            | {"feature_dropout": 0.6},
            TrainingConfig(30, 3e-4, weight_decay=1e-3, patience=12, eval_every=1, batch_size=32),
            reduced=_SEAL_REDUCED,
        ),
        # The batch is not in the paper's table: SEAL's own code has 16 links and 16 negatives in a step.
        paper=_paper(32, 32, 3, 0.0001, 50, batch=16),
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
    """Untrained model of a name in ``MODELS``, with seeded weights; torch's global generators stay.

    Parameters
    ----------
    name, preset : str
        In ``MODELS`` and in ``MODELS[name].presets``.
    in_channels, num_nodes : int
        As in :class:`GraphModel`.
    seed : int
    **overrides
        Constructor arguments that replace the preset's (`dropout`, ...); an unknown one is an InputError.

    Examples
    --------
    >>> make_model("gcn", 8, hidden_channels=4).config["hidden_channels"]
    4
    """
    arguments = {**_preset(name, preset).model, **overrides}
    cls = MODELS[name].cls
    known = [key for key in inspect.signature(cls).parameters if key not in ("in_channels", "num_nodes")]
    for key in arguments:
        check_choice(key, f"argument of {name}", known)
    with torch_streams_forked(check_positive_int(seed, "seed", minimum=0), "initialisation"):
        return cls(in_channels, num_nodes=num_nodes, **arguments)


def _preset(name: str, preset: str) -> Preset:
    presets = MODELS[check_choice(name, "model", MODELS)].presets
    return presets[check_choice(preset, "preset", presets)]
