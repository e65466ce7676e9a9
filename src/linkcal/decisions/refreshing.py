"""Refresh: a new base rate from a few new labels."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from linkcal._validation import check_binary_labels, check_edge_index
from linkcal.data import LinkPairs
from linkcal.decisions.base import EvidenceMethods
from linkcal.exceptions import InputError

__all__ = ["RefreshMethods"]


class RefreshMethods(EvidenceMethods):
    """The method ``refresh``."""

    def refresh(self, links: LinkPairs | Tensor, labels: Any = None) -> Self:
        """Refit only the offset of the calibrated logit on newly labelled pairs.

        Parameters
        ----------
        links : LinkPairs or Tensor [2, L]
        labels : array-like [L], values 0 and 1
            Not with LinkPairs, which have their own.

        Returns
        -------
        self
            ``info_["refresh"]`` holds ``links``, ``positives``, ``offset`` and its ``standard_error``;
            probabilities hold from now on for the share of links among these pairs (``calibration_rate``).
            It is saved with the predictor.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If labels are missing, other than 0 and 1, of another number than the pairs, or of one class.

        Notes
        -----
        See :meth:`linkcal.calibrators.Calibrator.refresh`. The ranking, and with it ``select``, stays.
        """
        self._require_fitted()
        if not isinstance(links, LinkPairs):
            if labels is None:
                raise InputError("labels must be given with a tensor of pairs, got None")
            pairs = check_edge_index(links, self.graph_.num_nodes, "links")
            label = check_binary_labels(labels, pairs.size(1), "labels")
            links = LinkPairs(pairs, torch.as_tensor(label, dtype=torch.float32))
        elif labels is not None:
            raise InputError("labels must be left out with LinkPairs, which have their own, got both")
        X, y = self.scorer().score(self._on_graph(links)).to_arrays(self.calibrator_.link_features)
        calibrator = self.calibrator_.refresh(X, y)
        positives = int(y.sum())
        self.info_ = {
            **self.info_,
            "negatives_per_positive": (len(y) - positives) / positives,
            "refresh": {
                "links": len(y),
                "positives": positives,
                "offset": calibrator.offset_,
                "standard_error": calibrator.offset_standard_error_,
            },
        }
        return self
