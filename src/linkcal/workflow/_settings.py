"""What defines a run: its settings, and presets of hyper-parameters in files."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any

from linkcal._core.files import written_whole
from linkcal._core.validation import (
    check_base_rate,
    check_choice,
    check_fraction,
    check_positive_float,
    check_positive_int,
)
from linkcal.calibrators import CALIBRATORS, make_calibrator
from linkcal.data import NEGATIVE_KINDS
from linkcal.exceptions import InputError
from linkcal.features import FIT_ON
from linkcal.models import MODELS, TrainingConfig, make_training_config

#: Hyper-parameters by name in a form that can stand in a frozen record: sorted pairs.
Hyperparameters = tuple[tuple[str, int | float | bool | None], ...]

_TRAINING = {each.name: each for each in fields(TrainingConfig)}


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
        The one seed; split, negatives, initialisation, training and calibration have streams of their own.
    fit_on : {"val", "stacked", "train-loo", "train"}
        As in :func:`linkcal.features.calibration_links`.
    preset : {"default", "paper"}
        Hyper-parameters of model and training.
    epochs, batch_size : int, optional
        In place of the preset's; `batch_size` counts training links per optimiser step.
    val_fraction, test_fraction, negatives_per_positive, negatives
        As in :func:`linkcal.data.split_links`; not used with an official split. The model's own training
        negatives are always uniform.
    base_rate : float in (0, 1) or "density", optional
        For which probabilities and metrics are given (metrics by weighting negatives); default: that of the
        test links.
    max_network_links : int, optional
        Most calibration links, sampled, that a calibrator with a network is fitted on; None sets no bound.
    calibrators : tuple of str
        In ``linkcal.calibrators.CALIBRATORS``.
    hyperparameters, calibrator_params : mapping or pairs
        In place of the preset's, for model and training; in place of a calibrator's defaults, by calibrator.
    forward_only : bool
        Keep only the stored edges with row < column (``load_dataset(forward_only=True)``).
    normalise_features : bool
        Make every node's features sum to one, where there are stored features and no official split.

    Examples
    --------
    >>> config = RunConfig(dataset="cora", model="vgae", epochs=10)
    >>> RunConfig.from_dict(config.to_dict()) == config
    True
    """

    dataset: str
    model: str
    seed: int = 0
    fit_on: str = "val"
    preset: str = "default"
    epochs: int | None = None
    batch_size: int | None = None
    val_fraction: float = 0.1
    test_fraction: float = 0.1
    negatives_per_positive: float = 1.0
    base_rate: float | str | None = None
    max_network_links: int | None = 100_000
    negatives: str = "uniform"
    calibrators: tuple[str, ...] = tuple(CALIBRATORS)
    hyperparameters: Hyperparameters = ()
    forward_only: bool = False
    normalise_features: bool = False
    calibrator_params: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()

    def __post_init__(self) -> None:
        check_choice(self.model, "model", MODELS)
        check_choice(self.preset, "preset", MODELS[self.model].presets)
        checked = check_hyperparameters(self.model, self.hyperparameters, self.preset)
        object.__setattr__(self, "hyperparameters", checked)
        check_choice(self.fit_on, "fit_on", FIT_ON)
        check_positive_int(self.seed, "seed", minimum=0)
        for name, minimum in (("epochs", 1), ("batch_size", 1), ("max_network_links", 2)):
            if getattr(self, name) is not None:
                check_positive_int(getattr(self, name), name, minimum=minimum)
        check_fraction(self.val_fraction, "val_fraction")
        check_fraction(self.test_fraction, "test_fraction")
        check_positive_float(self.negatives_per_positive, "negatives_per_positive", maximum=1e9)
        check_choice(self.negatives, "negatives", NEGATIVE_KINDS)
        if self.base_rate is not None:
            check_base_rate(self.base_rate, self.negatives)
        for name in ("forward_only", "normalise_features"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be true or false, got {getattr(self, name)!r}")
        if not self.calibrators:
            raise InputError(f"calibrators must name one of {', '.join(CALIBRATORS)}, got none")
        for name in self.calibrators:
            check_choice(name, "calibrators", CALIBRATORS)
        if len(set(self.calibrators)) < len(self.calibrators):
            raise InputError(f"calibrators must hold each name once, got {', '.join(self.calibrators)}")
        params = {name: dict(values) for name, values in sorted(dict(self.calibrator_params).items())}
        for name, values in params.items():
            make_calibrator(name, **values)
        frozen = tuple(
            (name, tuple((key, _frozen(value)) for key, value in sorted(values.items())))
            for name, values in params.items()
        )
        object.__setattr__(self, "calibrator_params", frozen)

    def to_dict(self) -> dict[str, Any]:
        """JSON values by field name."""
        return {
            **asdict(self),
            "calibrators": list(self.calibrators),
            "hyperparameters": dict(self.hyperparameters),
            "calibrator_params": {name: dict(values) for name, values in self.calibrator_params},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build from JSON values; an unknown key is an error."""
        for key in values:
            check_choice(key, "configuration key", [each.name for each in fields(cls)])
        return cls(**{**values, "calibrators": tuple(values.get("calibrators", tuple(CALIBRATORS)))})


def _frozen(value: Any) -> Any:
    """A value that went through JSON as a list, as the tuple that it was."""
    return tuple(value) if isinstance(value, list) else value


def check_hyperparameters(
    model: str, values: Mapping[str, Any] | Iterable[tuple[str, Any]], preset: str = "default"
) -> Hyperparameters:
    """Sorted pairs of hyper-parameters of a model and its training that may replace those of `preset`.

    Arguments of the model are checked when it is built.
    """
    pairs = dict(values)
    arguments = inspect.signature(MODELS[model].cls).parameters
    known = [*(name for name in arguments if name not in ("in_channels", "num_nodes")), *_TRAINING]
    for name, value in pairs.items():
        check_choice(name, f"hyper-parameter of {model}", known)
        if name in _TRAINING and _TRAINING[name].type in (bool, "bool"):
            continue  # TrainingConfig refuses all but a bool there
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise InputError(f"{name} must be a number or null, got {value!r}")
    make_training_config(model, preset=preset, **{name: pairs[name] for name in pairs if name in _TRAINING})
    return tuple(sorted(pairs.items()))


def split_hyperparameters(values: Hyperparameters) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part checked hyper-parameters into the model's and the training's."""
    training = {name: value for name, value in values if name in _TRAINING}
    return {name: value for name, value in values if name not in training}, training


_FORMAT = "linkcal preset 1"
#: Keys of a preset file with the kind of their value, and what a missing one stands for.
_KEYS: dict[str, tuple[type, Any]] = {
    "format": (str, None),
    "name": (str, None),
    "model": (str, None),
    "base": (str, "default"),
    "hyperparameters": (dict, None),
    "origin": (dict, {}),
}


@dataclass(frozen=True)
class PresetFile:
    """A preset that is data: what ``linkcal-lab search`` writes and ``--preset FILE.json`` reads.

    Parameters
    ----------
    name : str
    model : str
        That the preset belongs to.
    hyperparameters : tuple of (str, number, bool or None)
        Arguments of the model and training settings, in place of those of the named preset `base`.
    base : str
    origin : dict
        Where the values come from: JSON values, not interpreted.
    """

    name: str
    model: str
    hyperparameters: Hyperparameters
    base: str = "default"
    origin: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice(self.model, "model", MODELS)
        check_choice(self.base, "base", MODELS[self.model].presets)
        checked = check_hyperparameters(self.model, self.hyperparameters, self.base)
        object.__setattr__(self, "hyperparameters", checked)

    def options_for(self, model: str) -> dict[str, Any]:
        """Arguments of a ``RunConfig`` for `model`; an error if the preset belongs to another one."""
        if model != self.model:
            raise InputError(f"preset {self.name!r} must be used with model {self.model!r}, got {model!r}")
        return {"preset": self.base, "hyperparameters": self.hyperparameters}


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
        and, optionally, ``base`` and ``origin``.

    Returns
    -------
    PresetFile
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"preset file {path} must be readable JSON, got {reason}") from error
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        found = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise InputError(f"preset file {path} must be an object of format {_FORMAT!r}, got {found!r}")
    for key in record:
        check_choice(key, f"key of preset file {path}", _KEYS)
    values = {}
    for key, (kind, default) in _KEYS.items():
        values[key] = record.get(key, default)
        if not isinstance(values[key], kind):
            raise InputError(f"{key} of preset file {path} must be a {kind.__name__}, got {values[key]!r}")
    del values["format"]
    return PresetFile(**{**values, "hyperparameters": tuple(values["hyperparameters"].items())})


def preset_options(preset: str, model: str) -> dict[str, Any]:
    """Arguments of a ``RunConfig`` for a preset's name, or for a ``.json`` file that belongs to `model`.

    Parameters
    ----------
    preset, model : str

    Returns
    -------
    dict
    """
    if Path(preset).suffix == ".json":
        return read_preset(preset).options_for(model)
    if model in MODELS:
        # The message lists the file among the choices.
        check_choice(preset, "preset", (*MODELS[model].presets, "FILE.json"))
    return {"preset": preset}
