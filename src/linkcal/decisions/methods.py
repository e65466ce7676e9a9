"""All decisions of a fitted predictor in one mixin."""

from __future__ import annotations

from linkcal.decisions.intervals import IntervalMethods
from linkcal.decisions.refreshing import RefreshMethods
from linkcal.decisions.selection import SelectionMethods
from linkcal.decisions.thresholds import ThresholdMethods

__all__ = ["DecisionMethods"]


class DecisionMethods(SelectionMethods, ThresholdMethods, IntervalMethods, RefreshMethods):
    """Decisions, intervals and refresh of a fitted :class:`~linkcal.CalibratedLinkPredictor`.

    A mixin: it uses the predictor's scores and the evidence that ``fit`` left.
    """
