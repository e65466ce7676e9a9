"""Colours and sizes shared by all figures (Okabe-Ito colours: told apart by colour-blind readers)."""

from __future__ import annotations

__all__ = ["BAND", "DIAGONAL", "INSIDE", "LINE", "OUTSIDE", "STRIP", "TEXT"]

INSIDE = "#0072B2"
OUTSIDE = "#D55E00"
BAND = "#D9DEE4"
DIAGONAL = "#5B6570"
LINE = "#9AA5B1"
STRIP = "#8FA3B5"
TEXT = "#1F2933"
