"""Which links of a split a calibrator is fitted on."""

from __future__ import annotations

from typing import Any, Literal, get_args

from torch import nn

from linkcal._validation import check_choice
from linkcal.data import LinkSplit
from linkcal.features.scorer import score_links
from linkcal.features.scores import LinkScores, OwnEdge

__all__ = ["FIT_ON", "FitOn", "calibration_links", "calibration_part"]

#: Links that a calibrator is fitted on, and the state of their own edge; see :func:`calibration_links`.
FitOn = Literal["val", "stacked", "train-loo", "train"]
FIT_ON: tuple[str, ...] = get_args(FitOn)


def calibration_part(fit_on: str) -> Literal["val", "train"]:
    """Part of the split that holds the calibration links of a `fit_on`.

    Parameters
    ----------
    fit_on : {"val", "stacked", "train-loo", "train"}

    Returns
    -------
    str
        ``"val"`` or ``"train"``.

    Raises
    ------
    InputError
        If it is unknown.

    Examples
    --------
    >>> calibration_part("stacked"), calibration_part("train-loo")
    ('val', 'train')
    """
    check_choice(fit_on, "fit_on", FIT_ON)
    return "val" if fit_on in ("val", "stacked") else "train"


def calibration_links(
    model: nn.Module, split: LinkSplit, fit_on: FitOn = "val", **toggle_options: Any
) -> LinkScores:
    """Score the links that a calibrator is to be fitted on, on the split's message graph.

    Parameters
    ----------
    model : nn.Module
    split : LinkSplit
    fit_on : {"val", "stacked", "train-loo", "train"}
        ``"val"`` and ``"stacked"``: validation links, which are no edges of the message graph (``"stacked"``
        has base links beside them, see :func:`linkcal.fitting.score_fit_links`). ``"train-loo"``: training
        links, each scored with its own edge removed (leave-one-out). ``"train"``: training links on the
        graph as given, so that the model sees the edge it scores (the protocol of arXiv 2403.04605).
    **toggle_options
        As in :func:`linkcal.features.score_links`.

    Returns
    -------
    LinkScores

    Raises
    ------
    InputError
        If `fit_on` is unknown.
    """
    part = split.part(calibration_part(fit_on))
    own_edge: OwnEdge = "as-given" if fit_on == "train" else "absent"
    return score_links(model, split.graph, part, own_edge=own_edge, **toggle_options)
