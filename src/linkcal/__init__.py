"""Calibrated link probabilities from graph-neural-network link predictors.

Names are imported on first use, so that ``import linkcal`` and ``linkcal.metrics`` stay light.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linkcal.calibrators import (
        BBQ,
        Beta,
        EmbeddingMLP,
        Histogram,
        Identity,
        InNOut,
        Isotonic,
        Platt,
        StructuralCalibrator,
        Temperature,
    )
    from linkcal.features import LinkScores, score_links
    from linkcal.predictor import CalibratedLinkPredictor
    from linkcal.toggle import ToggledEmbeddings, toggle_edges

__version__ = version("linkcal")

__all__ = [
    "BBQ",
    "Beta",
    "CalibratedLinkPredictor",
    "EmbeddingMLP",
    "Histogram",
    "Identity",
    "InNOut",
    "Isotonic",
    "LinkScores",
    "Platt",
    "StructuralCalibrator",
    "Temperature",
    "ToggledEmbeddings",
    "__version__",
    "score_links",
    "toggle_edges",
]

_HOME = {
    "CalibratedLinkPredictor": "predictor",
    "LinkScores": "features",
    "ToggledEmbeddings": "toggle",
    "score_links": "features",
    "toggle_edges": "toggle",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'calibrators')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
