"""Fitting a calibrator on scored links."""

from __future__ import annotations

from typing import NamedTuple

from sklearn.base import clone
from torch import nn

from linkcal.calibrators import Calibrator
from linkcal.calibrators.together import links_beside
from linkcal.data import LinkSplit
from linkcal.features import FitOn, LinkScores, calibration_links, calibration_part, score_links

__all__ = ["FitLinks", "fit_calibrator", "score_fit_links"]


class FitLinks(NamedTuple):
    """Labelled scores that a fit reads.

    Parameters
    ----------
    scores : LinkScores
        The calibration links.
    validation : LinkScores, optional
        Validation links where the calibration links are others: some calibrators choose something on them.
    base : LinkScores, optional
        Training links, leave-one-out, under those of ``fit_on="stacked"``.
    """

    scores: LinkScores
    validation: LinkScores | None = None
    base: LinkScores | None = None


def score_fit_links(
    model: nn.Module, split: LinkSplit, fit_on: FitOn, *, features: str = "structural"
) -> FitLinks:
    """Score all links that a fit reads; test links are not among them.

    Parameters
    ----------
    model : nn.Module
    split : LinkSplit
    fit_on : {"val", "stacked", "train-loo", "train"}
        See :func:`linkcal.features.calibration_links`.
    features : {"structural", "none", "embedding", "difference"}, default="structural"
        What the fit will ask of the scores; see :func:`linkcal.features.score_links`.

    Returns
    -------
    FitLinks

    Raises
    ------
    InputError
        If `fit_on` or `features` is unknown.
    """
    scores = calibration_links(model, split, fit_on, features=features)
    on_val = calibration_part(fit_on) == "val"
    validation = None if on_val else score_links(model, split.graph, split.val, features=features)
    base = calibration_links(model, split, "train-loo", features=features) if fit_on == "stacked" else None
    return FitLinks(scores, validation, base)


def fit_calibrator(
    calibrator: Calibrator,
    scores: LinkScores,
    validation: LinkScores | None = None,
    base: LinkScores | None = None,
) -> Calibrator:
    """Fit a clone of `calibrator` on labelled scores.

    Parameters
    ----------
    calibrator : Calibrator
    scores : LinkScores
        With labels.
    validation : LinkScores, optional
        Labelled links for calibrators that choose something on validation data (``X_val`` of their ``fit``).
    base : LinkScores, optional
        Labelled links for calibrators that build on others (``X_base`` of their ``fit``).

    Returns
    -------
    Calibrator
    """
    fresh: Calibrator = clone(calibrator)
    kind = fresh.link_features
    X, y = scores.to_arrays(kind)
    beside = (None if links is None else links.to_arrays(kind) for links in (validation, base))
    return fresh.fit(X, y, **links_beside(fresh, *beside))
