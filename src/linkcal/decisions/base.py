"""What all decisions rest on: the scores of the evidence that ``fit`` left."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from linkcal.data import LinkPairs
from linkcal.evidence import Evidence
from linkcal.exceptions import InputError
from linkcal.features import LinkScores
from linkcal.scoring import ScoringMethods

__all__ = ["EvidenceMethods"]

FloatArray = NDArray[np.float64]


class EvidenceMethods(ScoringMethods):
    """Base of the mixins in this package."""

    evidence_: Evidence | None

    def _evidence(self) -> Evidence:
        if self.evidence_ is None:
            raise InputError(
                "predictor must have calibration links and null pairs, got an artifact without evidence: "
                "fit and save it again, or give links or null pairs"
            )
        return self.evidence_

    def _score_evidence(self, links: LinkPairs) -> LinkScores:
        own_edge: Literal["absent", "as-given"] = "as-given" if self.info_["fit_on"] == "train" else "absent"
        return self.scorer().score(self._on_graph(links), own_edge=own_edge)

    def _labelled(self, links: LinkPairs) -> tuple[FloatArray, FloatArray]:
        """Calibrated logits and labels of labelled links."""
        is_own = self.evidence_ is not None and links is self.evidence_.calibration
        placed = self._on_graph(links)
        scores = self._score_evidence(links) if is_own else self.scorer().score(placed)
        return self._calibrated(scores), links.edge_label.cpu().numpy().astype(np.float64)

    def _on_graph(self, links: LinkPairs) -> LinkPairs:
        """The links on the device of the message graph."""
        return links.to(self.graph_.edge_index.device)
