"""Hyper-parameters of a run: a named preset, what replaces parts of it, and presets in JSON files."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

from linkcal._files import written_whole
from linkcal._validation import check_choice
from linkcal.exceptions import InputError
from linkcal.models import MODELS, TrainingConfig, make_training_config

__all__ = [
    "Hyperparameters",
    "PresetFile",
    "check_hyperparameters",
    "preset_options",
    "read_preset",
    "split_hyperparameters",
    "write_preset",
]

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
