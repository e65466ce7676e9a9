"""The command ``linkcal``."""

from __future__ import annotations

from linkcal.cli._app import main

__all__ = ["main"]
