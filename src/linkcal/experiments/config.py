"""What defines a run, in one frozen record that goes to disk and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from linkcal._validation import check_choice, check_fraction, check_positive_float, check_positive_int
from linkcal.calibrators import CALIBRATORS
from linkcal.data import NEGATIVE_KINDS
from linkcal.exceptions import InputError
from linkcal.features import FIT_ON
from linkcal.models import MODELS

__all__ = ["RunConfig"]


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
    fit_on : {"val", "train-loo", "train"}
        Links that the calibrators are fitted on.
    preset : {"default", "paper"}
        Hyper-parameters of model and training.
    epochs : int, optional
        In place of the preset's.
    batch_size : int, optional
        Training links per optimiser step, in place of the preset's.
    val_fraction, test_fraction : float, in (0, 1)
        Not used with an official split, no more than the next.
    negatives_per_positive : float > 0
        In every part of the split.
    negatives : {"uniform", "degree", "two-hop"}
        Kind of the non-links that calibrators are fitted on (validation links, or training links where
        `fit_on` says so) and measured on. The model's own training negatives are always uniform. See
        :func:`linkcal.data.split_links`. Not used with an official split either.
    calibrators : tuple of str
        In ``linkcal.calibrators.CALIBRATORS``.

    Raises
    ------
    InputError
        If a value is unknown or out of range.

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
    negatives: str = "uniform"
    calibrators: tuple[str, ...] = tuple(CALIBRATORS)

    def __post_init__(self) -> None:
        check_choice(self.model, "model", MODELS)
        check_choice(self.preset, "preset", MODELS[self.model].presets)
        check_choice(self.fit_on, "fit_on", FIT_ON)
        check_positive_int(self.seed, "seed", minimum=0)
        if self.epochs is not None:
            check_positive_int(self.epochs, "epochs")
        if self.batch_size is not None:
            check_positive_int(self.batch_size, "batch_size")
        check_fraction(self.val_fraction, "val_fraction")
        check_fraction(self.test_fraction, "test_fraction")
        check_positive_float(self.negatives_per_positive, "negatives_per_positive")
        check_choice(self.negatives, "negatives", NEGATIVE_KINDS)
        if not self.calibrators:
            raise InputError(f"calibrators must name one of {', '.join(CALIBRATORS)}, got none")
        for name in self.calibrators:
            check_choice(name, "calibrators", CALIBRATORS)

    def to_dict(self) -> dict[str, Any]:
        """JSON values by field name."""
        return {**asdict(self), "calibrators": list(self.calibrators)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build from JSON values; an unknown key is an error."""
        known = [field.name for field in fields(cls)]
        for key in values:
            check_choice(key, "configuration key", known)
        return cls(**{**values, "calibrators": tuple(values.get("calibrators", tuple(CALIBRATORS)))})
