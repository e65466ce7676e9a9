"""Thresholds: from which probability on to call pairs links."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from linkcal.calibrators import LinkThreshold, base_rate_offset, certified_threshold, expected_threshold
from linkcal.data import LinkPairs, pair_keys
from linkcal.decisions.base import EvidenceMethods
from linkcal.exceptions import InputError
from linkcal.scoring import BaseRate

__all__ = ["ThresholdMethods"]


class ThresholdMethods(EvidenceMethods):
    """The method ``threshold_for``."""

    def threshold_for(
        self,
        links: LinkPairs | Tensor | None = None,
        *,
        precision: float | None = None,
        recall: float | None = None,
        base_rate: BaseRate | None = None,
        confidence: float = 0.95,
    ) -> LinkThreshold:
        """From which probability on to call pairs links, for a wanted precision or recall.

        Parameters
        ----------
        links : Tensor [2, L] or LinkPairs, optional
            A tensor: the pairs that will be decided about; the answer is the expected one for them.
            Labelled links that nothing was fitted on: the answer is tested on their labels and holds with
            probability `confidence`. By default the calibration links, and the answer is the expected one.
        precision, recall : float in (0, 1)
            One of the two. The smallest threshold with that precision, or the largest with that recall.
        base_rate : float in (0, 1) or "density", optional
            Share of links among the pairs that will be decided about; the threshold is on the probability at
            that base rate. By default the one given to ``fit``; without one that of labelled `links`, else
            that of the calibration links.
        confidence : float in (0, 1)
            Used with labelled links only.

        Returns
        -------
        LinkThreshold
            Compare ``predictor(pairs, base_rate=found.base_rate)`` with ``found.logit``: probabilities in the
            model's own dtype are rounded, so that with ``found.probability`` pairs at the threshold itself
            can fall on the other side.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If no threshold reaches the value: the message says what can be reached. If most of the
            labelled `links` are ones that the calibrator was fitted on: their labels prove nothing any more.

        Notes
        -----
        :func:`linkcal.calibrators.expected_threshold` and
        :func:`linkcal.calibrators.certified_threshold` state both rules.
        """
        self._require_fitted()
        rate = None if base_rate is None else self.resolve_base_rate(base_rate)
        if rate is None and "base_rate" in self.info_:
            rate = self.base_rate
        wanted = {"precision": precision, "recall": recall}
        if isinstance(links, LinkPairs):
            self._check_new(links)
            z, y = self._labelled(links)
            # At the labels' own share of links, from where the rule moves it on.
            share = float(np.clip(y.sum() / max(y.size, 1), 1e-12, 1.0 - 1e-12))
            z = z + base_rate_offset(self.calibration_rate, share)
            return certified_threshold(z, y, base_rate=rate, confidence=confidence, **wanted)
        rate = self.base_rate if rate is None else rate
        weight = None
        if links is None:
            z, y = self._labelled(self._evidence().calibration)
            share = float(y.mean())
            weight = np.where(y == 1.0, rate / share, (1.0 - rate) / (1.0 - share))
        else:
            z = self._calibrated(self.scorer().score(self._placed(links)))
        z = z + base_rate_offset(self.calibration_rate, rate)
        found = expected_threshold(z, sample_weight=weight, **wanted)
        return LinkThreshold(found.probability, found.logit, found.precision, found.recall, rate)

    def _check_new(self, links: LinkPairs) -> None:
        """Refuse labelled links that are those of the calibration, as far as these are known.

        Links drawn anew on a small graph repeat some of them by chance, which is no mistake.
        """
        if self.evidence_ is None:
            return
        used, asked = (
            pair_keys(part.edge_label_index.cpu(), self.graph_.num_nodes, directed=self.graph_.directed)
            for part in (self.evidence_.calibration, links)
        )
        known = int(torch.isin(asked, used).sum())
        if 2 * known > len(links):
            raise InputError(
                f"links must be new to the calibrator, got {known} of {len(links)} that it was fitted on"
            )
