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

    Examples
    --------
    >>> from linkcal import CalibratedLinkPredictor, Platt
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import make_model
    >>> split = split_links(simulate_graph(200, num_edges=600, num_features=10, seed=0), seed=0)
    >>> clp = CalibratedLinkPredictor(make_model("gcn", 10), Platt()).fit(split)
    >>> pairs = split.test.edge_label_index
    >>> chosen = clp.select(pairs, fdr=0.2)
    >>> chosen.selected.shape == (pairs.size(1),), bool(chosen.known.any())
    (True, False)
    >>> clp.predict_interval(pairs, level=0.9).shape == (pairs.size(1), 2)
    True
    >>> refreshed = clp.refresh(split.test)
    >>> round(refreshed.calibration_rate, 2)
    0.5
    """
