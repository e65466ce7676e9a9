"""What decisions and intervals are based on: the calibration links, and pairs that nothing was fitted on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from linkcal._random import numpy_stream
from linkcal._validation import check_positive_int
from linkcal.data import Graph, LinkPairs, LinkSplit, sample_negatives
from linkcal.exceptions import ShortageError
from linkcal.features import calibration_part

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
        Of the kind of the split's non-links (uniform unless it says otherwise), among the pairs that are no
        known edge and no non-link of training or calibration.
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
    fit_on : {"val", "stacked", "train-loo", "train"}
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
    num_null = check_positive_int(num_null, "num_null", minimum=0)
    calibration = split.part(calibration_part(fit_on))
    parts = [split.train, split.val] + ([split.test] if spare_test else [])
    taken = torch.cat([part.edge_label_index for part in parts], dim=1)
    # Degrees and common neighbours of all edges that may be read, as for the split's own non-links.
    links = [part.edge_label_index[:, part.edge_label == 1] for part in parts]
    known = Graph.from_edges(
        torch.cat([split.graph.pairs, *links], dim=1), split.graph.num_nodes, directed=split.graph.directed
    )
    draw = partial(
        sample_negatives,
        known,
        generator=numpy_stream((split.seed or 0) if seed is None else seed, "null pairs"),
        kind=split.negatives or "uniform",  # type: ignore[arg-type]
        exclude=taken,
    )
    try:
        null_pairs = draw(num_null)
    except ShortageError as shortage:
        null_pairs = draw(shortage.available)
    return Evidence(replace(calibration, positive_rate=None, negative_rate=None), null_pairs)
