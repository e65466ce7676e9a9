"""The command ``linkcal``."""

from linkcal.cli.main import main

__all__ = ["main"]
