"""Which way of running a model on subgraphs is the cheapest one that is right for it.

What is shared between pairs or left out must not matter to the model. That shows on the untouched graph, and
there only on pairs that have something to share and to leave out: where none of those looked at has, nothing
is shared or left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from linkcal.exceptions import UnsupportedModelError
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.khop import NUM_VERIFIED, spread, verify_khop
from linkcal.toggle.shared_rim import SharedRimExtractor
from linkcal.toggle.subgraphs import SubgraphExtractor
from linkcal.toggle.trimming import MessageTrimmer, Round

__all__ = ["Way", "cheapest_way"]

#: What cuts subgraphs out, and what leaves messages out, if anything does.
Way = tuple[SharedRimExtractor | SubgraphExtractor, MessageTrimmer | None]


def cheapest_way(
    model: nn.Module,
    x: Tensor,
    z: Tensor,
    graph: ToggleGraph,
    num_hops: int,
    max_batch_nodes: int,
    sample: Tensor,
    rounds: list[Round],
    tolerance: float,
) -> Way:
    """The first of four ways that reproduces ``z = encode(x, edge_index)`` on pairs of `sample`.

    Parameters
    ----------
    model : nn.Module
        In evaluation mode.
    x : Tensor [N, F] or [N]
    z : Tensor [N, d]
    graph : ToggleGraph
    num_hops : int
    max_batch_nodes : int
    sample : Tensor [2, L], int64
        No pair leaves nothing to check: nothing is shared or left out then.
    rounds : list of Round
        What was seen of the model on the whole graph.
    tolerance : float
        Rounding error allowed.

    Raises
    ------
    UnsupportedModelError
        If no way does.
    """
    whole = SubgraphExtractor(graph, num_hops, max_batch_nodes)
    if not sample.size(1):
        return whole, None
    shared = SharedRimExtractor(graph, num_hops, max_batch_nodes)
    telling = shared.telling(spread(sample, 4 * NUM_VERIFIED), NUM_VERIFIED // 2)
    if telling.size(1):
        trimmer = MessageTrimmer(model, rounds)
        some = torch.cat([telling, spread(sample, NUM_VERIFIED // 2)], dim=1)
        one = telling[:, :1]
        # A rim node's arcs to the insides may be as many as it has in the graph; not both for one pair and
        # for two in a batch.
        crowded = SharedRimExtractor(graph, num_hops, max_batch_nodes, least_pairs=2)
        checks: list[tuple[SharedRimExtractor | SubgraphExtractor, Tensor]]
        ways: tuple[Way, ...] = ((shared, trimmer), (shared, None), (whole, trimmer))
        for extractor, leaving_out in ways:
            checks = [(extractor, some)]
            if extractor is shared:
                checks += [(crowded, one), (crowded, one.repeat(1, 2))]
            try:
                for checked, pairs in checks:
                    verify_khop(model, x, z, checked, pairs, tolerance, trimmer=leaving_out)
            except UnsupportedModelError:
                continue
            return extractor, leaving_out
    verify_khop(model, x, z, whole, spread(sample), tolerance)
    return whole, None
