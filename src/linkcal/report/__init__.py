"""A run as one self-contained HTML page."""

from __future__ import annotations

from linkcal.report._page import write_report

__all__ = ["write_report"]
