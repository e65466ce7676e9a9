"""Exact link embeddings with and without the target link."""

from linkcal.toggle.api import METHODS, toggle_edges
from linkcal.toggle.result import ToggledEmbeddings

__all__ = ["METHODS", "ToggledEmbeddings", "toggle_edges"]
