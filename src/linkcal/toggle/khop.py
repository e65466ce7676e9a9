"""The fallback for any message-passing module: the model itself, run on small subgraphs around the pairs.

After L layers a node's embedding depends on its L-hop neighbourhood alone, so running the model on the
disjoint union of the pairs' neighbourhoods gives exactly what a pass over the whole graph gives, as long as
the degrees of all nodes in them are right (:mod:`.khop_kernel`). What the model computes over ALL nodes
(GraphNorm, pooling) would not see the rest of the graph: known modules of that kind are refused, and before
anything is toggled the untouched graph is run through the same extraction for some pairs and compared with
``encode``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from linkcal._memory import kept_pages
from linkcal.exceptions import UnsupportedModelError
from linkcal.toggle.naive import encode
from linkcal.toggle.shared_rim import SharedRimExtractor
from linkcal.toggle.subgraphs import ARCS_PER_NODE, SubgraphBatch, SubgraphExtractor
from linkcal.toggle.trimming import MessageTrimmer

__all__ = ["NUM_VERIFIED", "khop_endpoints", "refuse_global", "spread", "verify_khop"]

#: Pairs whose untouched embeddings are compared with ``encode`` before the method is trusted.
NUM_VERIFIED = 16

#: Modules that mix all nodes of the graph.
_GLOBAL = (
    pyg.GraphNorm, pyg.PairNorm, pyg.InstanceNorm, pyg.GraphSizeNorm, pyg.MeanSubtractionNorm,
    pyg.DiffGroupNorm, pyg.TopKPooling, pyg.SAGPooling, pyg.ASAPooling, pyg.MemPooling, nn.InstanceNorm1d,
)  # fmt: skip


def refuse_global(model: nn.Module) -> None:
    """Refuse a model with a module that is known to mix all nodes.

    Raises
    ------
    UnsupportedModelError
        Naming the module.
    """
    for name, module in model.named_modules():
        batch_norm = module if isinstance(module, nn.BatchNorm1d) else None
        mixes = (
            isinstance(module, _GLOBAL)
            or (batch_norm is not None and batch_norm.running_mean is None)
            or (isinstance(module, pyg.LayerNorm) and module.mode == "graph")
        )
        if mixes:
            raise UnsupportedModelError(
                f"model must not mix all nodes for method 'khop', got {type(module).__name__} at "
                f"{name or 'the top'!r}; use method='naive'"
            )


class _RowBuffer:
    """Rows of x gathered into memory that is kept: fresh pages for wide features cost more than the copy."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.memory = x.new_empty(0, *x.shape[1:])

    def gather(self, nodes: Tensor) -> Tensor:
        """``x[nodes]``, valid until the next call."""
        if nodes.numel() > self.memory.size(0):
            # An eighth more than asked: batches differ a little in size.
            self.memory = self.x.new_empty(nodes.numel() * 9 // 8, *self.x.shape[1:])
        rows = self.memory[: nodes.numel()]
        torch.index_select(self.x, 0, nodes, out=rows)
        return rows


def khop_endpoints(
    model: nn.Module,
    x: Tensor,
    extractor: SharedRimExtractor | SubgraphExtractor,
    pairs: Tensor,
    insert: Tensor,
    *,
    toggle: bool = True,
    trimmer: MessageTrimmer | None = None,
) -> tuple[Tensor, Tensor]:
    """Node embeddings of both endpoints of each pair after its edge is toggled.

    Parameters
    ----------
    model : nn.Module
        In evaluation mode, with ``encode(x, edge_index)``.
    x : Tensor [N, F] or [N]
        Rows (features or node ids) are gathered for each subgraph.
    extractor : SharedRimExtractor or SubgraphExtractor
    pairs : Tensor [2, L], int64
    insert : Tensor [L], bool
    toggle : bool
        False leaves every pair's edge as it is.
    trimmer : MessageTrimmer, optional
        Leaves out the messages that the endpoints do not depend on.

    Returns
    -------
    z_source, z_target : Tensor [L, d]

    Raises
    ------
    UnsupportedModelError
        If ``encode`` does not return one row per node of the subgraphs.
    """
    sources, targets = [], []
    rows = _RowBuffer(x)
    most_arcs = min(extractor.graph.senders.numel(), ARCS_PER_NODE * extractor.max_batch_nodes)
    with kept_pages(x.device, most_arcs):
        for batch in extractor.batches(pairs, insert, toggle=toggle):
            z = _embedded(model, rows.gather(batch.nodes), batch, trimmer)
            if z.size(0) != batch.nodes.numel():
                raise UnsupportedModelError(
                    f"model.encode must return one row per node of x, {batch.nodes.numel()}, "
                    f"got {z.size(0)}; method 'khop' runs it on subgraphs"
                )
            sources.append(z[batch.source])
            targets.append(z[batch.target])
    return torch.cat(sources), torch.cat(targets)


def _embedded(model: nn.Module, x: Tensor, batch: SubgraphBatch, trimmer: MessageTrimmer | None) -> Tensor:
    """``encode`` of a batch, without the messages that do not count where the trimmer fits the model."""
    if trimmer is not None and trimmer.fits:
        with trimmer.trimming(batch.distance):
            z = encode(model, x, batch.edge_index)
        if trimmer.fits:
            return z
    return encode(model, x, batch.edge_index)


def spread(pairs: Tensor, number: int = NUM_VERIFIED) -> Tensor:
    """At most so many of pairs [2, L], evenly spaced."""
    step = max(1, pairs.size(1) // number)
    return pairs[:, ::step][:, :number]


def verify_khop(
    model: nn.Module,
    x: Tensor,
    z: Tensor,
    extractor: SharedRimExtractor | SubgraphExtractor,
    pairs: Tensor,
    tolerance: float,
    *,
    trimmer: MessageTrimmer | None = None,
) -> None:
    """Check on pairs that the subgraphs of the untouched graph reproduce ``z = encode(x, edge_index)``.

    Raises
    ------
    UnsupportedModelError
        If they do not: the model sees more than `num_hops` hops, mixes all nodes, or draws at random. Also if
        there is no pair: where nothing is passed, nothing is shown.
    """
    if not pairs.size(1):
        raise UnsupportedModelError("pairs must have neighbours to check a model on, got none that has")
    nothing = torch.zeros(pairs.size(1), dtype=torch.bool, device=pairs.device)
    try:
        found = torch.cat(khop_endpoints(model, x, extractor, pairs, nothing, toggle=False, trimmer=trimmer))
    except UnsupportedModelError:
        raise
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise UnsupportedModelError(
            f"model.encode must run on subgraphs for method 'khop', got {type(error).__name__}: {reason[0]}"
        ) from error
    expected = torch.cat([z[pairs[0]], z[pairs[1]]])
    error_size = float((found - expected).abs().max()) if found.shape == expected.shape else float("inf")
    if not error_size <= tolerance:
        raise UnsupportedModelError(
            f"model.encode must depend on {extractor.num_hops} hops alone and be deterministic for "
            f"method 'khop', got embeddings that differ by {error_size:.1e} from those of the whole graph; "
            "pass a larger num_hops or use method='naive'"
        )
