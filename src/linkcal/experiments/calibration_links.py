"""The links that each calibration seed is fitted on: the positives stay, the non-links are drawn anew."""

from __future__ import annotations

import torch
from torch import Tensor

from linkcal._random import numpy_stream
from linkcal.data import Graph, LinkSplit, sample_negatives

__all__ = ["draw_calibration_negatives"]


def draw_calibration_negatives(split: LinkSplit, part: str, seed: int, calibration_seed: int) -> Tensor:
    """Draw as many non-links as a part of the split has, for calibration seed 1, 2, ...

    Calibration seed 0 keeps the split's own non-links, as ``linkcal run`` does.

    Parameters
    ----------
    split : LinkSplit
    part : {"train", "val"}
    seed : int
        The training seed.
    calibration_seed : int > 0

    Returns
    -------
    Tensor [2, L], int64
        Of the split's kind (``LinkSplit.negatives``; uniform for an official split), without repeats. Never
        a link of any part, and never a non-link of another part: the test pairs stay unseen. From the stream
        ``"calibration-negatives-<part>-<calibration seed>"``.
    """
    links = [split.part(name) for name in ("train", "val", "test")]
    positives = [pairs.edge_label_index[:, pairs.edge_label == 1] for pairs in links]
    others = [split.part(name) for name in ("train", "val", "test") if name != part]
    negatives = [pairs.edge_label_index[:, pairs.edge_label == 0] for pairs in others]
    # Degrees and common neighbours are those of the full graph, as in the split itself.
    full = Graph.from_edges(torch.cat(positives, dim=1), split.graph.num_nodes, directed=split.graph.directed)
    stream = numpy_stream(seed, f"calibration-negatives-{part}-{calibration_seed}")
    return sample_negatives(
        full,
        split.part(part).num_negatives,
        stream,
        kind=split.negatives or "uniform",  # type: ignore[arg-type]
        exclude=torch.cat([split.graph.pairs, *negatives], dim=1),
    )
