"""What a fitted predictor does beyond a probability: select, find thresholds, give intervals, refresh."""

from linkcal.decisions.methods import DecisionMethods
from linkcal.decisions.selection import SelectedLinks
from linkcal.scoring import BaseRate, base_rate_origin, graph_density

__all__ = ["BaseRate", "DecisionMethods", "SelectedLinks", "base_rate_origin", "graph_density"]
