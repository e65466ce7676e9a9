"""The command ``linkcal``."""

from __future__ import annotations

from linkcal.cli.main import main

__all__ = ["main"]
