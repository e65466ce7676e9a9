"""The command ``linkcal``."""

from linkcal.cli._app import main

__all__ = ["main"]
