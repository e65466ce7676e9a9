"""Calibrated link probabilities from graph-neural-network link predictors.

Names are imported on first use, so that ``import linkcal`` and ``linkcal.metrics`` stay light.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linkcal.batches import scoring_function
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
    from linkcal.embeddings import decode_embeddings
    from linkcal.features import LinkScores, score_links
    from linkcal.predictor import CalibratedLinkPredictor
    from linkcal.scores import CalibratedScores, calibrate_scores
    from linkcal.toggle import ToggledEmbeddings, toggle_edges

__version__ = version("linkcal")

__all__ = [
    "BBQ", "Beta", "CalibratedLinkPredictor", "CalibratedScores", "EmbeddingMLP", "Histogram", "Identity",
    "InNOut", "Isotonic", "LinkScores", "Platt", "StructuralCalibrator", "Temperature",
    "ToggledEmbeddings", "__version__", "calibrate_scores", "decode_embeddings", "score_links",
    "scoring_function", "toggle_edges",
]  # fmt: skip

_HOME = {
    "CalibratedLinkPredictor": "predictor", "CalibratedScores": "scores", "LinkScores": "features",
    "ToggledEmbeddings": "toggle", "calibrate_scores": "scores", "decode_embeddings": "embeddings",
    "score_links": "features", "scoring_function": "batches", "toggle_edges": "toggle",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from linkcal.exceptions import extra_needed

    with extra_needed(f"{__name__}.{name}"):
        return getattr(import_module(f"{__name__}.{_HOME.get(name, 'calibrators')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
