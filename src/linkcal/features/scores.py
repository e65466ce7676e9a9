"""The seam between graphs and calibrators: a frozen record of scored links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._validation import check_choice, to_float64
from linkcal.exceptions import InputError
from linkcal.features.structural import structural_features
from linkcal.toggle import ToggledEmbeddings

__all__ = ["FEATURE_KINDS", "LinkScores", "OwnEdge"]

#: State of a pair's own edge when its logit is taken: ``"absent"`` removes it first (leave-one-out for
#: edges of the graph), ``"as-given"`` leaves the graph as it is.
OwnEdge = Literal["absent", "as-given"]


@dataclass(frozen=True, eq=False)
class LinkScores:
    """Logits, toggled embeddings and labels of L links; converts to the arrays that calibrators take.

    Parameters
    ----------
    toggled : ToggledEmbeddings
    own_edge : {"absent", "as-given"}
        Which logit is the one to calibrate.
    label : Tensor [L], optional
        1 for a link, 0 for a non-link.
    structure : Tensor [L, 3], int64, optional
        Degrees and common neighbours, see :func:`linkcal.features.pair_structure`.
    attributes : Tensor [L, 2], float32, optional
        Likeness of the endpoints' features, see :func:`linkcal.features.attribute_similarity`.
        :func:`score_links` fills both unless told that nobody will read them.

    Examples
    --------
    >>> from linkcal.data import simulate_graph
    >>> from linkcal.features import score_links
    >>> from linkcal.models import make_model
    >>> graph = simulate_graph(50, num_edges=100, num_features=5, seed=0)
    >>> scores = score_links(make_model("gcn", 5, out_channels=4), graph, graph.pairs[:, :10])
    >>> scores.to_matrix("difference").shape  # the logit and h - h+
    (10, 5)
    """

    toggled: ToggledEmbeddings
    own_edge: OwnEdge = "absent"
    label: Tensor | None = None
    structure: Tensor | None = None
    attributes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.toggled)

    @property
    def logit(self) -> Tensor:
        """Uncalibrated logits [L]."""
        toggled = self.toggled
        if self.own_edge == "absent":
            return toggled.logit_absent
        return torch.where(toggled.in_graph, toggled.logit_present, toggled.logit_absent)

    def features(self, kind: str) -> Tensor:
        """Link features [L, k] of a kind in ``FEATURE_KINDS``.

        Raises
        ------
        InputError
            If `kind` is unknown, or ``"structural"`` is asked of links without `structure` or `attributes`.
        """
        return FEATURE_KINDS[check_choice(kind, "kind", FEATURE_KINDS)](self)

    def take(self, rows: Any) -> LinkScores:
        """The links at the given positions, [n], int."""
        index = torch.as_tensor(rows, device=self.logit.device)
        rest = (self.label, self.structure, self.attributes)
        chosen = (None if part is None else part[index] for part in rest)
        return LinkScores(self.toggled.take(index), self.own_edge, *chosen)

    def to_matrix(self, kind: str = "none") -> NDArray[np.float64]:
        """X (L, 1 + k), float64: the logit in column 0, then the features of `kind`."""
        columns = torch.cat([self.logit[:, None], self.features(kind)], dim=1)
        return to_float64(columns)

    def to_arrays(self, kind: str = "none") -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """X as in :meth:`to_matrix` and labels y (L,).

        Raises
        ------
        InputError
            If the links have no labels.
        """
        if self.label is None:
            raise InputError("label must be given to make (X, y), got None")
        return self.to_matrix(kind), self.label.detach().cpu().numpy().astype(np.int64)


def _structural(scores: LinkScores) -> Tensor:
    if scores.structure is None or scores.attributes is None:
        missing = "structure" if scores.structure is None else "attributes"
        raise InputError(f"{missing} must be given to make structural features, got None; see score_links")
    return structural_features(scores.toggled, scores.structure, scores.attributes)


#: Link features by name: what a calibrator may ask for beside the logit (its ``link_features``).
FEATURE_KINDS: dict[str, Callable[[LinkScores], Tensor]] = {
    "none": lambda scores: scores.toggled.absent[:, :0],
    # The paper's ablation: temperature from the link embedding alone.
    "embedding": lambda scores: scores.toggled.absent,
    # gamma = h - h+ of the paper; its norm is the distance form, which calibrators derive themselves.
    "difference": lambda scores: scores.toggled.absent - scores.toggled.present,
    # What the own edge does, and how alike the ends are: linkcal.features.STRUCTURAL_COLUMNS.
    "structural": _structural,
}
