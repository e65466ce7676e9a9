"""What defines a run: its settings, and presets of hyper-parameters in files."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Real
from pathlib import Path
from typing import Any

from linkcal._core.files import damage_named, written_whole
from linkcal._core.validation import (
    check_base_rate,
    check_choice,
    check_flag,
    check_fraction,
    check_positive_float,
    check_positive_int,
)
from linkcal.calibrators import CALIBRATORS, make_calibrator
from linkcal.data import NEGATIVE_KINDS
from linkcal.exceptions import InputError
from linkcal.features import FIT_ON
from linkcal.models import MODELS, TrainingConfig

#: Hyper-parameters by name in a form that can stand in a frozen record: sorted pairs.
Hyperparameters = tuple[tuple[str, int | float | bool | None], ...]

#: Settings of a training; other hyper-parameters are arguments of a model.
TRAINING = {each.name: each for each in fields(TrainingConfig)}


@dataclass(frozen=True)
class RunConfig:
    """Settings of one run. Equal settings on one machine give equal numbers.

    Parameters
    ----------
    dataset, model : str
        Name of a data set or file; key of ``linkcal.models.MODELS``.
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
    forward_only, normalise_features, by_time, symmetric : bool
        Keep only the stored edges with row < column (``load_dataset(forward_only=True)``); make every node's
        stored features sum to one; neither changes an official split. Split by ``Graph.edge_time``, not at
        random.

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
    by_time: bool = False
    symmetric: bool = False

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
        for name in ("forward_only", "normalise_features", "by_time", "symmetric"):
            check_flag(getattr(self, name), name)
        if not self.calibrators:
            raise InputError(f"calibrators must name one of {', '.join(CALIBRATORS)}, got none")
        for name in self.calibrators:
            check_choice(name, "calibrators", CALIBRATORS)
        if len(set(self.calibrators)) < len(self.calibrators):
            raise InputError(f"calibrators must hold each name once, got {', '.join(self.calibrators)}")
        frozen = []
        for name, values in sorted(dict(self.calibrator_params).items()):
            make_calibrator(name, **dict(values))
            # JSON made lists of tuples.
            pairs = [(key, tuple(v) if isinstance(v, list) else v) for key, v in dict(values).items()]
            frozen.append((name, tuple(sorted(pairs))))
        object.__setattr__(self, "calibrator_params", tuple(frozen))

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


def check_hyperparameters(
    model: str, values: Mapping[str, Any] | Iterable[tuple[str, Any]], preset: str = "default"
) -> Hyperparameters:
    """Sorted pairs of hyper-parameters of a model and its training that may replace those of `preset`.

    Arguments of the model are checked when it is built.
    """
    pairs = dict(values)
    arguments = inspect.signature(MODELS[model].cls).parameters
    known = [*(name for name in arguments if name not in ("in_channels", "num_nodes")), *TRAINING]
    for name, value in pairs.items():
        check_choice(name, f"hyper-parameter of {model}", known)
        if name in TRAINING and TRAINING[name].type in (bool, "bool"):
            continue  # TrainingConfig refuses all but a bool there
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise InputError(f"{name} must be a number or null, got {value!r}")
    replace(MODELS[model].presets[preset].training, **{n: pairs[n] for n in pairs if n in TRAINING})
    return tuple(sorted(pairs.items()))


_FORMAT = "linkcal preset 1"
#: Keys of a preset file, and the kind of their values.
_KEYS = {"format": str, "name": str, "model": str, "base": str, "hyperparameters": dict, "origin": dict}


@dataclass(frozen=True)
class PresetFile:
    """A preset that is data: what ``linkcal-lab search`` writes and ``--preset FILE.json`` reads.

    Parameters
    ----------
    name, model, base : str
        The preset's own name, the model that it belongs to, and the named preset whose values it replaces.
    hyperparameters : mapping or pairs
        Arguments of the model and training settings.
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


def write_preset(preset: PresetFile, path: str | os.PathLike[str]) -> None:
    """Write a preset as JSON, whole or not at all."""
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
    """
    with damage_named(Path(path), "preset file", "readable JSON"):
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    found = record.get("format") if isinstance(record, dict) else type(record).__name__
    if found != _FORMAT:
        raise InputError(f"preset file {path} must be an object of format {_FORMAT!r}, got {found!r}")
    record = {"base": "default", "origin": {}, **record}
    for key in record:
        check_choice(key, f"key of preset file {path}", _KEYS)
    for key, kind in _KEYS.items():
        if not isinstance(record.get(key), kind):
            came = repr(record.get(key))
            raise InputError(f"{key} of preset file {path} must be a {kind.__name__}, got {came}")
    del record["format"]
    return PresetFile(**record)


def preset_options(preset: str, model: str) -> dict[str, Any]:
    """Arguments of a ``RunConfig`` for a preset's name, or for a ``.json`` file that belongs to `model`."""
    if Path(preset).suffix == ".json":
        found = read_preset(preset)
        if model != found.model:
            raise InputError(f"preset {found.name!r} must be used with model {found.model!r}, got {model!r}")
        return {"preset": found.base, "hyperparameters": found.hyperparameters}
    if model in MODELS:
        # The message lists the file among the choices.
        check_choice(preset, "preset", (*MODELS[model].presets, "FILE.json"))
    return {"preset": preset}
