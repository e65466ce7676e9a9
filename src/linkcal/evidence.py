"""What decisions and intervals are based on: the calibration links, and pairs that nothing was fitted on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from linkcal._random import numpy_stream
from linkcal._validation import check_choice, check_positive_int
from linkcal.data import LinkPairs, LinkSplit, NegativeSampler
from linkcal.features import FIT_ON

__all__ = ["NUM_NULL_PAIRS", "Evidence", "gather_evidence"]

#: Null pairs drawn unless the caller says otherwise: no conformal p-value is below one in as many, and the
#: relative error of a false discovery rate is about one in the root of the number above the threshold.
NUM_NULL_PAIRS = 10_000


@dataclass(frozen=True, eq=False)
class Evidence:
    """Pairs, not scores: scores follow from the model, the message graph and the calibrator beside them.

    Parameters
    ----------
    calibration : LinkPairs
        The links that the calibrators were fitted on.
    null_pairs : Tensor [2, m], int64
        Drawn uniformly from the pairs that are no known edge and no non-link of training or calibration.
    """

    calibration: LinkPairs
    null_pairs: Tensor

    def to(self, device: torch.device | str) -> Evidence:
        """Copy with tensors on `device`."""
        return Evidence(self.calibration.to(device), self.null_pairs.to(device))


def gather_evidence(
    split: LinkSplit,
    fit_on: str,
    *,
    num_null: int = NUM_NULL_PAIRS,
    seed: int | None = None,
    spare_test: bool = False,
) -> Evidence:
    """Calibration links of a split and a fresh draw of null pairs.

    Parameters
    ----------
    split : LinkSplit
    fit_on : {"val", "train-loo", "train"}
    num_null : int
        m at most; fewer where the graph has fewer such pairs.
    seed : int, optional
        The stream ``"null pairs"`` is read; by default the split's seed, or 0.
    spare_test : bool
        Whether test pairs are left out too. Without it they are not read, so that a test link can be drawn as
        a null pair, as any link that nobody knows of can: with the chance of the graph's density, and then a
        selection is a little too careful.

    Returns
    -------
    Evidence
        On the split's device.
    """
    check_choice(fit_on, "fit_on", FIT_ON)
    num_null = check_positive_int(num_null, "num_null", minimum=0)
    calibration = split.val if fit_on == "val" else split.train
    parts = [split.train, split.val] + ([split.test] if spare_test else [])
    taken = torch.cat([part.edge_label_index for part in parts], dim=1)
    sampler = NegativeSampler(split.graph, exclude=taken)
    stream = numpy_stream((split.seed or 0) if seed is None else seed, "null pairs")
    null_pairs = sampler.sample(min(num_null, sampler.num_available), stream)
    return Evidence(replace(calibration, positive_rate=None, negative_rate=None), null_pairs)
