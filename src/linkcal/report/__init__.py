"""A run as one self-contained HTML page."""

from __future__ import annotations

from linkcal.report._page import ARTIFACT_FOLDER, write_report, write_results

__all__ = ["ARTIFACT_FOLDER", "write_report", "write_results"]
