"""Selection: which of many pairs to call links, at a bounded rate of false discoveries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from linkcal._validation import check_edge_index
from linkcal.calibrators import conformal_p_values, select_links
from linkcal.data import pair_keys
from linkcal.decisions.base import EvidenceMethods
from linkcal.exceptions import InputError

__all__ = ["SelectedLinks", "SelectionMethods"]


@dataclass(frozen=True, eq=False)
class SelectedLinks:
    """Which of L pairs to call links.

    Parameters
    ----------
    selected : Tensor [L], bool
    p_value : Tensor [L], float64
        Conformal p-value; NaN for a known edge, about which there is nothing to find out.
    known : Tensor [L], bool
        Whether the pair is a known edge; such pairs take no part and are not selected.
    num_null : int
        Null scores that the p-values rest on; the smallest possible one is ``1 / (num_null + 1)``.
    num_tested : int
        Different pairs that took part; k of them are selected if k p-values are at most
        ``k fdr / num_tested``.

    Examples
    --------
    >>> p_value = torch.tensor([0.01, 0.9])
    >>> one = SelectedLinks(p_value <= 0.05, p_value, torch.zeros(2).bool(), num_null=99, num_tested=2)
    >>> one.selected.nonzero()[:, 0]
    tensor([0])
    """

    selected: Tensor
    p_value: Tensor
    known: Tensor
    num_null: int
    num_tested: int


class SelectionMethods(EvidenceMethods):
    """The method ``select``."""

    def select(
        self, edge_label_index: Tensor, *, fdr: float = 0.1, null_pairs: Tensor | None = None
    ) -> SelectedLinks:
        """Pairs to call links, so that on average at most a share `fdr` of them are none.

        Parameters
        ----------
        edge_label_index : Tensor [2, L], int
            Pairs asked about. A pair that stands there more than once is tested once; known edges take no
            part.
        fdr : float in (0, 1)
            Bound on the false discovery rate.
        null_pairs : Tensor [2, m], int, optional
            Pairs without a link, drawn as the non-links among the asked pairs were. By default those of
            ``evidence_``, which are of the kind of the calibration non-links: by default uniform over all
            pairs that are no known edge, right if the asked non-links are uniform too. Whoever asks about
            pairs at distance 2, say, must calibrate with such non-links or give such null pairs: uniform ones
            are easier, and the rate would be exceeded.

        Returns
        -------
        SelectedLinks

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If a pair is out of range, `fdr` is not in (0, 1), or there is no null pair.

        Notes
        -----
        Conformal p-values of the calibrated logits and Benjamini-Hochberg,
        :func:`linkcal.calibrators.select_links`. The bound holds whatever the model and calibrator, if the
        non-links among the asked pairs and the null pairs are exchangeable. Links that nobody knows of among
        the null pairs make it more careful. No p-value is below ``1 / (m + 1)``, so that among L asked pairs
        with fewer than ``L / (fdr (m + 1))`` clear links nothing can be selected.
        """
        self._require_fitted()
        pairs = check_edge_index(edge_label_index, self.graph_.num_nodes, "edge_label_index")
        if null_pairs is None:
            null_pairs = self._evidence().null_pairs
        null = check_edge_index(null_pairs, self.graph_.num_nodes, "null_pairs")
        if not null.size(1):
            raise InputError("null_pairs must hold at least one pair without a link, got none")
        known = self.known_edges(pairs).cpu()
        keys = pair_keys(pairs, self.graph_.num_nodes, directed=self.graph_.directed).cpu()[~known]
        _, first, inverse = np.unique(keys.numpy(), return_index=True, return_inverse=True)
        scorer = self.scorer()
        asked = self._calibrated(scorer.score(self._placed(pairs.cpu()[:, ~known][:, first])))
        reference = self._calibrated(scorer.score(self._placed(null)))
        chosen = select_links(asked, reference, fdr=fdr)[inverse]
        selected = torch.zeros(pairs.size(1), dtype=torch.bool)
        selected[~known] = torch.from_numpy(chosen)
        p_value = torch.full((pairs.size(1),), torch.nan, dtype=torch.float64)
        p_value[~known] = torch.from_numpy(conformal_p_values(asked, reference)[inverse])
        return SelectedLinks(selected, p_value, known, null.size(1), len(first))
