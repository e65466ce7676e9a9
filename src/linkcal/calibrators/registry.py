"""Calibrators by the names of the command line."""

from __future__ import annotations

from typing import Any

from linkcal._core.validation import check_choice
from linkcal.calibrators.base import Calibrator
from linkcal.calibrators.binning import BBQ, Histogram, Isotonic
from linkcal.calibrators.networks import EmbeddingMLP, InNOut
from linkcal.calibrators.scaling import Beta, Identity, Platt, Temperature
from linkcal.calibrators.structural import StructuralCalibrator, StructureOnly
from linkcal.exceptions import UnsupportedModelError

_CLASSES: tuple[type[Calibrator], ...] = (
    *(Identity, Temperature, Platt, Beta, Isotonic, Histogram, BBQ),
    *(EmbeddingMLP, InNOut, StructuralCalibrator, StructureOnly),
)

#: Classes of all calibrators by their ``name``, in the order in which tables show them.
CALIBRATORS: dict[str, type[Calibrator]] = {cls.name: cls for cls in _CLASSES}


def calibrator_name(calibrator: Calibrator) -> str:
    """Name in ``CALIBRATORS`` of a calibrator's class; UnsupportedModelError if it is not linkcal's own.

    Parameters
    ----------
    calibrator : Calibrator

    Returns
    -------
    str

    Examples
    --------
    >>> calibrator_name(Platt())
    'platt'
    """
    if CALIBRATORS.get(calibrator.name) is not type(calibrator):
        raise UnsupportedModelError(
            f"calibrator must be one of linkcal's own, got {type(calibrator).__name__}"
        )
    return calibrator.name


def make_calibrator(name: str, **params: Any) -> Calibrator:
    """Unfitted calibrator of a name in ``CALIBRATORS``.

    Parameters
    ----------
    name : str
    **params
        Hyper-parameters. InputError if one or the name is unknown; the message names the nearest one.

    Returns
    -------
    Calibrator

    Examples
    --------
    >>> make_calibrator("histogram", n_bins=10)
    Histogram(n_bins=10)
    """
    cls = CALIBRATORS[check_choice(name, "calibrator", CALIBRATORS)]
    known = cls().get_params()
    for key in params:
        check_choice(key, f"parameter of {name}", known)
    return cls(**params)
