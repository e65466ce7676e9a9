"""What defines a run: settings, protocols, presets."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any

from linkcal._core.files import written_whole
from linkcal._core.validation import (
    check_base_rate,
    check_choice,
    check_fraction,
    check_positive_float,
    check_positive_int,
)
from linkcal.calibrators import CALIBRATORS
from linkcal.data import NEGATIVE_KINDS
from linkcal.exceptions import InputError
from linkcal.features import FIT_ON
from linkcal.models import MODELS, TrainingConfig, make_training_config

__all__ = [
    "OF_PROTOCOL",
    "PROTOCOLS",
    "Hyperparameters",
    "PresetFile",
    "Protocol",
    "RunConfig",
    "SplitRule",
    "check_hyperparameters",
    "find_protocol",
    "preset_options",
    "read_preset",
    "split_hyperparameters",
    "write_preset",
]


# Protocols: how links are split, models trained, calibrators fitted, and which number stands for each.

_frozen = MappingProxyType
_NOTHING: Mapping[str, Any] = _frozen({})


@dataclass(frozen=True)
class SplitRule:
    """Shares of the links that are held out, and which stored edges are links at all.

    Parameters
    ----------
    val_fraction, test_fraction : float, in (0, 1)
    forward_only : bool
        Keep only the stored edges with row < column (``load_dataset(forward_only=True)``).
    """

    val_fraction: float
    test_fraction: float
    forward_only: bool = False


@dataclass(frozen=True)
class Protocol:
    """One way to get a table of calibrators, as a frozen record.

    Parameters
    ----------
    name, description : str
    preset : str
        Hyper-parameters of model and training, in ``ModelSpec.presets``.
    fit_on : {"val", "stacked", "train-loo", "train"}
        Links that the calibrators are fitted on.
    split : SplitRule
        Of data sets that have no official split.
    split_exceptions : mapping of str to SplitRule
        By data set.
    normalise_features : bool
        Make every node's features sum to one (:func:`row_normalised`), where there are stored features and no
        official split.
    training : mapping of str to mapping
        By model: training settings in place of the preset's.
    calibrators : mapping of str to mapping
        By calibrator: hyper-parameters in place of its defaults.
    headline : str
        Column of the result table that stands for a calibrator in a one-column table.
    headline_exceptions : mapping of str to str
        By calibrator. Every calibrator is still measured by every metric.
    trainings, calibrations : int
        A published cell is the mean over so many trainings times so many calibrations of each.

    Examples
    --------
    >>> released = find_protocol("released-code")
    >>> released.headline_of("histogram"), released.headline_of("in-n-out")
    ('ece', 'ece_top_label')
    >>> find_protocol("paper").split_of("chameleon").forward_only
    True
    """

    name: str
    description: str
    preset: str
    fit_on: str
    split: SplitRule
    split_exceptions: Mapping[str, SplitRule] = field(default_factory=lambda: _NOTHING)
    normalise_features: bool = False
    training: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _NOTHING)
    calibrators: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _NOTHING)
    headline: str = "ece"
    headline_exceptions: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    trainings: int = 5
    calibrations: int = 5

    def split_of(self, dataset: str) -> SplitRule:
        """Split rule of a data set."""
        return self.split_exceptions.get(dataset, self.split)

    def training_of(self, model: str) -> Mapping[str, Any]:
        """Training settings of a model that replace those of ``preset``."""
        return self.training.get(model, _NOTHING)

    def calibrator_params(self, name: str) -> Mapping[str, Any]:
        """Hyper-parameters of a calibrator that replace its defaults."""
        return self.calibrators.get(name, _NOTHING)

    def headline_of(self, name: str) -> str:
        """Column of the result table that stands for a calibrator."""
        return self.headline_exceptions.get(name, self.headline)


def find_protocol(name: str) -> Protocol:
    """Protocol of a name in ``PROTOCOLS``.

    Parameters
    ----------
    name : str

    Returns
    -------
    Protocol

    Raises
    ------
    InputError
        If there is none; the message names the nearest one.

    Examples
    --------
    >>> find_protocol("default").fit_on
    'val'
    """
    return PROTOCOLS[check_choice(name, "protocol", PROTOCOLS)]


# The list of Chameleon is directed: 23,370 of its 36,101 stored edges have row < column, and 85 % of them,
# both directions counted, are the 39,730 edges of the paper's table of data sets.
_CHAMELEON = _frozen({"chameleon": SplitRule(0.05, 0.10, forward_only=True)})

# The number of epochs is a hyper-parameter of the paper's table, so the last epoch counts, not the best one.
_LAST_EPOCH = _frozen({model: _frozen({"keep_best": False}) for model in MODELS})

# 5,000 epochs, all of them. The paper states no width; lambda is chosen by validation ECE from the default
# candidates, since it gives none.
_PAPER_NET = _frozen({"max_iter": 5000, "learning_rate": 1e-4, "weight_decay": 5e-8, "early_stopping": False})

#: All protocols by name. docs/protocols.md says what each leaves out, and what they give on Cora.
PROTOCOLS: Mapping[str, Protocol] = _frozen(
    {
        protocol.name: protocol
        for protocol in (
            Protocol(
                "default",
                "calibrators fitted on validation links, one metric for all",
                preset="default",
                fit_on="val",
                split=SplitRule(0.1, 0.1),
            ),
            Protocol(
                "paper",
                "as arXiv 2403.04605 states it: fitted on training links as they are, 5,000 epochs",
                preset="paper",
                fit_on="train",
                split=SplitRule(0.1, 0.1),
                split_exceptions=_CHAMELEON,
                # Not in the paper's text; its released code does so, and without it VGAE's AUC on Cora is far
                # from the published one (docs/protocols.md).
                normalise_features=True,
                training=_LAST_EPOCH,
                calibrators=_frozen(
                    {
                        "histogram": _frozen({"n_bins": 16}),
                        "embedding-mlp": _PAPER_NET,
                        "in-n-out": _PAPER_NET,
                    }
                ),
            ),
            Protocol(
                "released-code",
                "as the paper's released code runs: 85/5/10, 2 s t for s / T, 20 epochs, two metrics mixed",
                preset="paper",
                fit_on="train",
                split=SplitRule(0.05, 0.10),
                split_exceptions=_CHAMELEON,
                normalise_features=True,
                training=_frozen({**_LAST_EPOCH, "vgae": _frozen({"lr": 0.01, "keep_best": False})}),
                calibrators=_frozen(
                    {
                        "histogram": _frozen({"n_bins": 16}),
                        "in-n-out": _frozen(
                            {
                                "scaling": "multiply-doubled",
                                "hidden_channels": 128,
                                "ece_weights": (1.0,),
                                "max_iter": 20,
                                "learning_rate": 1e-3,
                                "weight_decay": 5e-8,
                                "early_stopping": False,
                            }
                        ),
                    }
                ),
                headline_exceptions=_frozen({"in-n-out": "ece_top_label"}),
            ),
        )
    }
)


# Hyper-parameters of a run: a named preset, what replaces parts of it, and presets in JSON files.

#: Hyper-parameters by name, in a form that can stand in a frozen record: sorted pairs.
Hyperparameters = tuple[tuple[str, int | float | None], ...]

_FORMAT = "linkcal preset 1"
_KEYS = ("format", "name", "model", "base", "hyperparameters", "origin")


@dataclass(frozen=True)
class PresetFile:
    """A preset that is data: what ``linkcal search`` writes and ``--preset FILE.json`` reads.

    Parameters
    ----------
    name : str
    model : str
        The model that it belongs to.
    hyperparameters : tuple of (str, number or None)
        Arguments of the model and training settings, in place of those of `base`.
    base : str
        Named preset that gives everything else.
    origin : dict
        Where the values come from: JSON values, not interpreted.

    Raises
    ------
    InputError
        If a name is unknown, or a value is no number or None, or out of range for the training.

    Examples
    --------
    >>> PresetFile("mine", "vgae", (("lr", 0.1),)).hyperparameters
    (('lr', 0.1),)
    """

    name: str
    model: str
    hyperparameters: Hyperparameters
    base: str = "default"
    origin: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice(self.model, "model", MODELS)
        check_choice(self.base, "base", MODELS[self.model].presets)
        checked = check_hyperparameters(self.model, self.hyperparameters)
        object.__setattr__(self, "hyperparameters", checked)

    def options_for(self, model: str) -> dict[str, Any]:
        """Arguments ``preset`` and ``hyperparameters`` of a ``RunConfig`` for `model`.

        Raises
        ------
        InputError
            If the preset belongs to another model.
        """
        if model != self.model:
            raise InputError(f"preset {self.name!r} must be used with model {self.model!r}, got {model!r}")
        return {"preset": self.base, "hyperparameters": self.hyperparameters}


def check_hyperparameters(
    model: str, values: Mapping[str, Any] | Iterable[tuple[str, Any]]
) -> Hyperparameters:
    """Return hyper-parameters of a model and of its training as sorted pairs, checked.

    Parameters
    ----------
    model : str
        In ``MODELS``.
    values : mapping, or pairs (name, value)

    Returns
    -------
    tuple of (str, number or None)

    Raises
    ------
    InputError
        If a name is neither an argument of the model nor a training setting, or a value is no number or
        None, or a training setting is out of range. (Arguments of the model are checked when it is built.)

    Examples
    --------
    >>> check_hyperparameters("gcn", {"lr": 0.1, "hidden_channels": 64})
    (('hidden_channels', 64), ('lr', 0.1))
    """
    pairs = dict(values)
    known = [*_model_arguments(model), *_training_settings()]
    for name, value in pairs.items():
        check_choice(name, f"hyper-parameter of {model}", known)
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise InputError(f"{name} must be a number or null, got {value!r}")
    make_training_config(model, **{name: pairs[name] for name in pairs if name in _training_settings()})
    return tuple(sorted(pairs.items()))


def split_hyperparameters(values: Hyperparameters) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part checked hyper-parameters into the model's and the training's."""
    training = {name: value for name, value in values if name in _training_settings()}
    return {name: value for name, value in values if name not in training}, training


def write_preset(preset: PresetFile, path: str | os.PathLike[str]) -> None:
    """Write a preset as JSON, whole or not at all.

    Parameters
    ----------
    preset : PresetFile
    path : path
    """
    record = {"format": _FORMAT, **asdict(preset), "hyperparameters": dict(preset.hyperparameters)}
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_preset(path: str | os.PathLike[str]) -> PresetFile:
    """Read what :func:`write_preset` wrote, or a file written by hand.

    Parameters
    ----------
    path : path
        JSON object with ``format`` ("linkcal preset 1"), ``name``, ``model``, ``hyperparameters`` (object)
        and, if wanted, ``base`` and ``origin``.

    Returns
    -------
    PresetFile

    Raises
    ------
    InputError
        If the file is missing or no such object, or a value in it is wrong.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_preset(PresetFile("mine", "gin", (("lr", 0.1),)), f"{folder}/mine.json")
    ...     read_preset(f"{folder}/mine.json").options_for("gin")
    {'preset': 'default', 'hyperparameters': (('lr', 0.1),)}
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"preset file {path} must be readable JSON, got {reason}") from error
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        found = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise InputError(f"preset file {path} must be an object of format {_FORMAT!r}, got {found!r}")
    kinds = {"name": str, "model": str, "hyperparameters": dict, "base": str, "origin": dict}
    for key in record:
        check_choice(key, f"key of preset file {path}", _KEYS)
    for key, kind in kinds.items():
        value = record.get(key, kind() if key == "origin" else "default" if key == "base" else None)
        if not isinstance(value, kind):
            raise InputError(f"{key} of preset file {path} must be a {kind.__name__}, got {value!r}")
    del record["format"]
    return PresetFile(**{**record, "hyperparameters": tuple(record["hyperparameters"].items())})


def preset_options(preset: str, model: str) -> dict[str, Any]:
    """Arguments of a ``RunConfig`` for a preset's name, or for a file that ends in ``.json``.

    Parameters
    ----------
    preset : str
    model : str

    Returns
    -------
    dict

    Raises
    ------
    InputError
        If the file is no preset of `model`, or there is no preset of that name. (An unknown model is left to
        ``RunConfig``.)

    Examples
    --------
    >>> preset_options("paper", "vgae")
    {'preset': 'paper'}
    """
    if Path(preset).suffix == ".json":
        return read_preset(preset).options_for(model)
    if model in MODELS:
        # The file stands among the choices, so that who mistypes either way reads of both.
        check_choice(preset, "preset", (*MODELS[model].presets, "FILE.json"))
    return {"preset": preset}


def _model_arguments(model: str) -> list[str]:
    parameters = inspect.signature(MODELS[model].cls).parameters
    return [name for name in parameters if name not in ("in_channels", "num_nodes")]


def _training_settings() -> list[str]:
    return list(TrainingConfig.__dataclass_fields__)


# What defines a run, in one frozen record that goes to disk and back.

#: Stands for the protocol's value where a setting is not given. Construction replaces it, so that every field
#: of a ``RunConfig`` holds what is really used.
OF_PROTOCOL: Any = None


@dataclass(frozen=True)
class RunConfig:
    """Settings of one run. Equal settings on one machine give equal numbers.

    Parameters
    ----------
    dataset : str
        Name of the graph: a data set's, or a file's.
    model : str
        In ``linkcal.models.MODELS``.
    seed : int
        The one seed; split, negatives, initialisation, training and calibration draw from streams named after
        them.
    fit_on : {"val", "stacked", "train-loo", "train"}, optional
        Links that the calibrators are fitted on.
    preset : {"default", "paper"}, optional
        Hyper-parameters of model and training.
    hyperparameters : pairs (name, value) or mapping
        Arguments of the model and training settings in place of the preset's, such as a preset from a file
        gives; kept as sorted pairs.
    epochs : int, optional
        In place of the preset's.
    batch_size : int, optional
        Training links per optimiser step, in place of the preset's.
    val_fraction, test_fraction : float, in (0, 1), optional
        Not used with an official split, no more than the next.
    negatives_per_positive : float > 0
        In every part of the split.
    base_rate : float in (0, 1) or "density", optional
        Share of links for which probabilities and metrics are given (metrics through weights of the
        negatives); by default that of the test links.
    max_network_links : int, optional
        Most links that a calibrator with a network is fitted on, a sample of the calibration links
        (:func:`linkcal.workflow.steps`); None takes all.
    negatives : {"uniform", "degree", "two-hop"}
        Kind of the negatives that calibrators are fitted on (validation links, or training links where
        `fit_on` says so) and measured on. The model's own training negatives are always uniform. See
        :func:`linkcal.data.split_links`. Not used with an official split either.
    calibrators : tuple of str
        In ``linkcal.calibrators.CALIBRATORS``.
    protocol : str
        In ``linkcal.workflow.PROTOCOLS``. It gives `fit_on`, `preset` and the fractions where they are
        None, and hyper-parameters to calibrators. What is given explicitly wins over the protocol and is
        recorded in :meth:`departures`.

    Raises
    ------
    InputError
        If a value is unknown or out of range.

    Examples
    --------
    >>> config = RunConfig(dataset="cora", model="vgae", epochs=10)
    >>> RunConfig.from_dict(config.to_dict()) == config
    True
    >>> RunConfig("cora", "vgae", protocol="paper", fit_on="val").departures()
    {'fit_on': ['train', 'val']}
    """

    dataset: str
    model: str
    seed: int = 0
    fit_on: str = OF_PROTOCOL
    preset: str = OF_PROTOCOL
    epochs: int | None = None
    batch_size: int | None = None
    val_fraction: float = OF_PROTOCOL
    test_fraction: float = OF_PROTOCOL
    negatives_per_positive: float = 1.0
    base_rate: float | str | None = None
    max_network_links: int | None = 100_000
    negatives: str = "uniform"
    calibrators: tuple[str, ...] = tuple(CALIBRATORS)
    hyperparameters: Hyperparameters = ()
    protocol: str = "default"

    def __post_init__(self) -> None:
        for name, value in self._of_protocol().items():
            if getattr(self, name) is OF_PROTOCOL:
                object.__setattr__(self, name, value)
        check_choice(self.model, "model", MODELS)
        checked = check_hyperparameters(self.model, self.hyperparameters)
        object.__setattr__(self, "hyperparameters", checked)
        check_choice(self.preset, "preset", MODELS[self.model].presets)
        check_choice(self.fit_on, "fit_on", FIT_ON)
        check_positive_int(self.seed, "seed", minimum=0)
        if self.epochs is not None:
            check_positive_int(self.epochs, "epochs")
        if self.batch_size is not None:
            check_positive_int(self.batch_size, "batch_size")
        if self.max_network_links is not None:
            check_positive_int(self.max_network_links, "max_network_links", minimum=2)
        check_fraction(self.val_fraction, "val_fraction")
        check_fraction(self.test_fraction, "test_fraction")
        check_positive_float(self.negatives_per_positive, "negatives_per_positive", maximum=1e9)
        check_choice(self.negatives, "negatives", NEGATIVE_KINDS)
        if self.base_rate is not None:
            check_base_rate(self.base_rate, self.negatives)
        if not self.calibrators:
            raise InputError(f"calibrators must name one of {', '.join(CALIBRATORS)}, got none")
        for name in self.calibrators:
            check_choice(name, "calibrators", CALIBRATORS)
        if len(set(self.calibrators)) < len(self.calibrators):
            raise InputError(f"calibrators must hold each name once, got {', '.join(self.calibrators)}")

    def protocol_record(self) -> Protocol:
        """The protocol by its name."""
        return find_protocol(self.protocol)

    def departures(self) -> dict[str, list[Any]]:
        """Settings that are not the protocol's: its value and the one used, by field name."""
        expected = {**self._of_protocol(), "epochs": None, "batch_size": None, "negatives_per_positive": 1.0}
        out = {
            name: [value, getattr(self, name)]
            for name, value in expected.items()
            if getattr(self, name) != value
        }
        if self.hyperparameters:
            out["hyperparameters"] = [{}, dict(self.hyperparameters)]
        return out

    def to_dict(self) -> dict[str, Any]:
        """JSON values by field name."""
        return {
            **asdict(self),
            "calibrators": list(self.calibrators),
            "hyperparameters": dict(self.hyperparameters),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build from JSON values; an unknown key is an error."""
        known = [field.name for field in fields(cls)]
        for key in values:
            check_choice(key, "configuration key", known)
        return cls(**{**values, "calibrators": tuple(values.get("calibrators", tuple(CALIBRATORS)))})

    def _of_protocol(self) -> dict[str, Any]:
        protocol = self.protocol_record()
        split = protocol.split_of(self.dataset)
        return {
            "fit_on": protocol.fit_on,
            "preset": protocol.preset,
            "val_fraction": split.val_fraction,
            "test_fraction": split.test_fraction,
        }
