"""Toggling for models that embed pairs by themselves: they are asked for both states."""

from __future__ import annotations

import torch
from torch import Tensor

from linkcal.exceptions import UnsupportedModelError
from linkcal.models import PairPredictor
from linkcal.toggle.embedding import widened
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.result import ToggledEmbeddings
from linkcal.toggle.watching import evaluating

__all__ = ["PairwiseToggle"]


class PairwiseToggle:
    """A :class:`~linkcal.models.PairPredictor` and a graph, ready to toggle any pairs.

    Parameters
    ----------
    predictor : PairPredictor
    x : Tensor [N, F] or [N]
    edge_index : Tensor [2, E], int64
    undirected : bool
    method : str
        Only ``"auto"``: there is one way, and it is exact by the model's definition.

    Raises
    ------
    UnsupportedModelError
        If another method is asked for.
    InputError
        If `undirected` and some edge stands in one direction only.
    """

    def __init__(
        self, predictor: PairPredictor, x: Tensor, edge_index: Tensor, *, undirected: bool, method: str
    ) -> None:
        if method != "auto":
            raise UnsupportedModelError(
                f"method must be 'auto' for {type(predictor).__name__}, which embeds pairs with and without "
                f"their own edge itself, got {method!r}"
            )
        self.predictor, self.x, self.edge_index = predictor, x, edge_index
        self.graph = ToggleGraph.from_edge_index(edge_index, x.size(0), undirected=undirected)

    def toggle(self, pairs: Tensor) -> ToggledEmbeddings:
        """Both states of pairs [2, L]; the model's mode is restored before this returns."""
        with torch.no_grad(), evaluating(self.predictor):
            absent, present = (
                self.predictor.embed_pairs(self.x, self.edge_index, pairs, own_edge=state)
                for state in ("absent", "present")
            )
            logit_absent, logit_present = self.predictor.head(absent), self.predictor.head(present)
        in_graph = self.graph.contains(pairs)
        return ToggledEmbeddings(
            absent=widened(absent),
            present=widened(present),
            logit_absent=widened(logit_absent),
            logit_present=widened(logit_present),
            in_graph=in_graph,
            method="pairwise",
        )
