"""Calibrators by the names of the command line."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from linkcal._core.maths import bernoulli_nll
from linkcal._core.random import numpy_stream
from linkcal._core.validation import check_choice
from linkcal.calibrators.base import Calibrator
from linkcal.calibrators.binning import BBQ, Histogram, Isotonic
from linkcal.calibrators.networks import EmbeddingMLP, InNOut
from linkcal.calibrators.scaling import Beta, Identity, Platt, Temperature
from linkcal.calibrators.structural import StructuralCalibrator, StructureOnly
from linkcal.exceptions import LinkcalWarning, RareClassWarning, UnsupportedModelError

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
        came = type(calibrator).__name__
        raise UnsupportedModelError(f"calibrator must be linkcal's own to be saved, got {came}: pickle it")
    return calibrator.name


def make_calibrator(name: str, **params: Any) -> Calibrator:
    """Unfitted calibrator of a name in ``CALIBRATORS``.

    Parameters
    ----------
    name : str
    **params
        Hyper-parameters. InputError if one or the name is unknown; the message names the nearest one.

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


#: Calibrators that compete to be the default; the two with networks are slow to fit and seldom win.
CANDIDATES = ("uncalibrated", "temperature", "platt", "beta", "isotonic", "histogram", "bbq", "in-n-out-plus")

#: X (n, 1 + k) and labels y (n,) of links, with the features that a calibrator reads.
LinksFor = Callable[[Calibrator], tuple[Any, Any]]


def select_calibrator(
    fitted: Mapping[str, Calibrator], links: LinksFor, validation: LinksFor | None = None, *, seed: int
) -> str:
    """Name of the calibrator with the smallest held-out negative log-likelihood; ties go to the first.

    Measured on `validation`, links that nothing was fitted on, or else by stratified 5-fold cross-validation
    on the calibration `links`. Without any of ``CANDIDATES``, the first calibrator of the model.
    """
    of_model = [name for name in fitted if name != "structure-only"] or list(fitted)
    candidates = [name for name in of_model if name in CANDIDATES] or of_model[:1]
    _, y = links(fitted[candidates[0]])
    rarest = int(np.bincount(y.astype(np.int64), minlength=2).min())
    if validation is None and rarest < 2:
        text = f"calibration links must hold at least 2 of each class to choose a calibrator by, got {rarest}"
        warnings.warn(f"{text}: {candidates[0]} is taken", RareClassWarning, stacklevel=2)
        return candidates[0]

    state = int(numpy_stream(seed, "selection").integers(2**31))
    folds = StratifiedKFold(min(5, max(rarest, 2)), shuffle=True, random_state=state)

    def loss(name: str) -> float:
        if validation is not None:
            return _loss(fitted[name], *validation(fitted[name]))
        (X, y), total = links(fitted[name]), 0.0
        for train, held_out in folds.split(y, y):
            with warnings.catch_warnings():
                # The fit on all links gave the same warnings.
                warnings.simplefilter("ignore", LinkcalWarning)
                part = fitted[name].refitted(X[train], y[train])
            total += _loss(part, X[held_out], y[held_out]) * len(held_out)
        return total / len(y)

    return min(candidates, key=loss)


def _loss(calibrator: Calibrator, X: Any, y: Any) -> float:
    return float(bernoulli_nll(calibrator.decision_function(X), y.astype(np.float64)).mean())
