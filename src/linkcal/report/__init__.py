"""A run as one self-contained HTML page."""

from linkcal.report._page import Evaluation, write_report

__all__ = ["Evaluation", "write_report"]
