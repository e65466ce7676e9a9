"""Fitting a calibrator on scored links."""

from __future__ import annotations

from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from linkcal.calibrators import Calibrator
from linkcal.features import LinkScores

__all__ = ["fit_calibrator"]


def fit_calibrator(
    calibrator: Calibrator, scores: LinkScores, validation: LinkScores | None = None
) -> Calibrator:
    """Fit a clone of `calibrator` on labelled scores.

    Parameters
    ----------
    calibrator : Calibrator
    scores : LinkScores
        With labels.
    validation : LinkScores, optional
        Labelled links for calibrators that choose something on validation data (``X_val`` of their ``fit``).

    Returns
    -------
    Calibrator
    """
    fresh: Calibrator = clone(calibrator)
    kind = fresh.link_features
    X, y = scores.to_arrays(kind)
    if validation is not None and has_fit_parameter(fresh, "X_val"):
        X_val, y_val = validation.to_arrays(kind)
        return fresh.fit(X, y, X_val=X_val, y_val=y_val)  # type: ignore[call-arg]
    return fresh.fit(X, y)
