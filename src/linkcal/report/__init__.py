"""A run as one self-contained HTML page."""

from linkcal.report._page import write_report

__all__ = ["write_report"]
