"""Calibrators by the names of the command line, with search ranges for their hyper-parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from linkcal._core.validation import check_choice
from linkcal.calibrators.base import Calibrator
from linkcal.calibrators.binning import BBQ, Histogram, Isotonic
from linkcal.calibrators.networks import EmbeddingMLP, InNOut
from linkcal.calibrators.scaling import Beta, Identity, Platt, Temperature
from linkcal.calibrators.structural import StructuralCalibrator
from linkcal.exceptions import UnsupportedModelError

__all__ = ["CALIBRATORS", "CalibratorSpec", "calibrator_name", "make_calibrator"]


@dataclass(frozen=True)
class CalibratorSpec:
    """A calibrator's class, what it does in one line, and where to search.

    Parameters
    ----------
    cls : type of Calibrator
    description : str
    search : dict of str to list
        Values of hyper-parameters for ``GridSearchCV`` or ``RandomizedSearchCV``; empty if there are none.
    trains_network : bool
        Whether a fit makes thousands of passes over the links.

    Examples
    --------
    >>> CALIBRATORS["histogram"].search["n_bins"]
    [5, 10, 15, 20, 30]
    """

    cls: type[Calibrator]
    description: str
    search: dict[str, list[Any]] = field(default_factory=dict)
    trains_network: bool = False


_NET_SEARCH: dict[str, list[Any]] = {
    "hidden_channels": [8, 16, 32, 64],
    "learning_rate": [1e-4, 1e-3, 1e-2],
    "ece_weights": [(0.0,), (1.0,), (10.0,), (0.0, 1.0, 10.0)],
}

#: All calibrators in the order in which tables show them.
CALIBRATORS: dict[str, CalibratorSpec] = {
    "uncalibrated": CalibratorSpec(Identity, "the predictor's own probability, sigmoid(s)"),
    "temperature": CalibratorSpec(Temperature, "sigmoid(s / T), one temperature for all links"),
    "platt": CalibratorSpec(Platt, "sigmoid(a s + b)"),
    "beta": CalibratorSpec(Beta, "beta calibration: both tails stretched, three parameters"),
    "isotonic": CalibratorSpec(Isotonic, "best increasing map of the logit"),
    "histogram": CalibratorSpec(
        Histogram,
        "share of links in each bin of the probability",
        {"n_bins": [5, 10, 15, 20, 30], "strategy": ["uniform", "quantile"]},
    ),
    "bbq": CalibratorSpec(
        BBQ,
        "Bayesian average of histograms (binning into quantiles)",
        {"strategy": ["quantile", "uniform"], "criterion": ["bayes", "bic"]},
    ),
    "embedding-mlp": CalibratorSpec(
        EmbeddingMLP,
        "temperature of each link from its embedding (ablation of in-n-out)",
        _NET_SEARCH,
        trains_network=True,
    ),
    "in-n-out": CalibratorSpec(
        InNOut,
        "temperature of each link from its embedding with and without its target link",
        {"gamma": ["difference", "distance"], **_NET_SEARCH},
        trains_network=True,
    ),
    "in-n-out-plus": CalibratorSpec(
        StructuralCalibrator,
        "additive model of the logit, of what the target link does, and of the link's place in the graph",
        {"n_knots": [2, 4, 8], "monotone": [False, True]},
    ),
}


def calibrator_name(calibrator: Calibrator) -> str:
    """Name in ``CALIBRATORS`` of a calibrator's class.

    Parameters
    ----------
    calibrator : Calibrator

    Returns
    -------
    str

    Raises
    ------
    UnsupportedModelError
        If it is not one of linkcal's own.

    Examples
    --------
    >>> calibrator_name(Platt())
    'platt'
    """
    for name, spec in CALIBRATORS.items():
        if type(calibrator) is spec.cls:
            return name
    raise UnsupportedModelError(f"calibrator must be one of linkcal's own, got {type(calibrator).__name__}")


def make_calibrator(name: str, **params: Any) -> Calibrator:
    """Unfitted calibrator of a name in ``CALIBRATORS``.

    Parameters
    ----------
    name : str
    **params
        Its hyper-parameters.

    Returns
    -------
    Calibrator

    Raises
    ------
    InputError
        If the name or a hyper-parameter is unknown; the message names the nearest one.

    Examples
    --------
    >>> make_calibrator("histogram", n_bins=10)
    Histogram(n_bins=10)
    """
    cls = CALIBRATORS[check_choice(name, "calibrator", CALIBRATORS)].cls
    known = cls().get_params()
    for key in params:
        check_choice(key, f"parameter of {name}", known)
    return cls(**params)
