"""Which fitted calibrator a user gets by default: chosen on calibration data, never on the test set."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from sklearn.model_selection import StratifiedKFold

from linkcal._math import bernoulli_nll
from linkcal._random import numpy_stream
from linkcal.calibrators import Calibrator
from linkcal.exceptions import LinkcalWarning, RareClassWarning
from linkcal.features import LinkScores

__all__ = ["CANDIDATES", "select_calibrator"]

#: Calibrators that compete to be the default. The two with networks are left out: a fit takes seconds instead
#: of milliseconds, and a temperature cannot move a base rate, so they seldom win.
CANDIDATES = ("uncalibrated", "temperature", "platt", "beta", "isotonic", "histogram", "bbq", "in-n-out-plus")

_FOLDS = 5


def select_calibrator(
    fitted: Mapping[str, Calibrator],
    scores: LinkScores,
    validation: LinkScores | None,
    *,
    seed: int,
) -> str:
    """Name of the calibrator with the smallest held-out negative log-likelihood.

    Parameters
    ----------
    fitted : mapping of str to Calibrator
        Fitted on `scores`.
    scores : LinkScores
        The calibration links.
    validation : LinkScores, optional
        Links that nothing was fitted on; without them, stratified 5-fold cross-validation on `scores`.
    seed : int
        The folds follow the stream ``"selection"``.

    Returns
    -------
    str
        Ties go to the first; if no candidate was fitted, the first calibrator.

    Warns
    -----
    RareClassWarning
        If a class has fewer than two links to cross-validate on; the first candidate is then taken.
    """
    candidates = [name for name in fitted if name in CANDIDATES] or list(fitted)[:1]
    rarest = int(scores.label.sum().item()) if scores.label is not None else 0
    rarest = min(rarest, len(scores) - rarest)
    if validation is None and rarest < 2:
        warnings.warn(
            f"calibration links must hold at least 2 of each class to choose a calibrator by, got {rarest}: "
            f"{candidates[0]} is taken",
            RareClassWarning,
            stacklevel=2,
        )
        return candidates[0]
    if validation is not None:
        losses = {name: _loss(fitted[name], validation) for name in candidates}
    else:
        losses = {name: _cross_validated_loss(fitted[name], scores, seed) for name in candidates}
    return min(candidates, key=losses.__getitem__)


def _loss(calibrator: Calibrator, scores: LinkScores) -> float:
    X, y = scores.to_arrays(calibrator.link_features)
    return float(bernoulli_nll(calibrator.decision_function(X), y.astype(np.float64)).mean())


def _cross_validated_loss(calibrator: Calibrator, scores: LinkScores, seed: int) -> float:
    _, y = scores.to_arrays()
    folds = min(_FOLDS, int(np.bincount(y, minlength=2).min()))
    state = int(numpy_stream(seed, "selection").integers(2**31))
    total = 0.0
    for train, held_out in StratifiedKFold(folds, shuffle=True, random_state=state).split(y, y):
        with warnings.catch_warnings():
            # The fit on all links has said it already.
            warnings.simplefilter("ignore", LinkcalWarning)
            part = calibrator.refitted(*scores.take(train).to_arrays(calibrator.link_features))
        total += _loss(part, scores.take(held_out)) * len(held_out)
    return total / len(y)
