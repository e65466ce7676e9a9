"""Figures of calibration. matplotlib is imported when the first one is drawn."""

from __future__ import annotations

from linkcal.plots.grid import reliability_figure, save_figure
from linkcal.plots.reliability import ReliabilityArtists, plot_counts, plot_reliability

__all__ = ["ReliabilityArtists", "plot_counts", "plot_reliability", "reliability_figure", "save_figure"]
