"""What defines a run, in one frozen record that goes to disk and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from linkcal._validation import (
    check_base_rate,
    check_choice,
    check_fraction,
    check_positive_float,
    check_positive_int,
)
from linkcal.calibrators import CALIBRATORS
from linkcal.data import NEGATIVE_KINDS
from linkcal.exceptions import InputError
from linkcal.experiments.presets import Hyperparameters, check_hyperparameters
from linkcal.experiments.protocols import Protocol, find_protocol
from linkcal.features import FIT_ON
from linkcal.models import MODELS

__all__ = ["OF_PROTOCOL", "RunConfig"]

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
        non-links); by default that of the test links.
    max_network_links : int, optional
        Most links that a calibrator with a network is fitted on, a sample of the calibration links
        (:func:`linkcal.experiments.fitting_links`); None takes all.
    negatives : {"uniform", "degree", "two-hop"}
        Kind of the non-links that calibrators are fitted on (validation links, or training links where
        `fit_on` says so) and measured on. The model's own training negatives are always uniform. See
        :func:`linkcal.data.split_links`. Not used with an official split either.
    calibrators : tuple of str
        In ``linkcal.calibrators.CALIBRATORS``.
    protocol : str
        In ``linkcal.experiments.PROTOCOLS``. It gives `fit_on`, `preset` and the fractions where they are
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
        check_positive_float(self.negatives_per_positive, "negatives_per_positive")
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
