"""The fallback for any message-passing module: the model itself, run on small subgraphs around the pairs.

After L layers a node's embedding depends on its L-hop neighbourhood alone, so running the model on the
disjoint union of the pairs' neighbourhoods gives exactly what a pass over the whole graph gives, as long as
the degrees of all nodes in them are right (:mod:`.khop_kernel`). What the model computes over ALL nodes
(GraphNorm, pooling) would not see the rest of the graph: known modules of that kind are refused, and before
anything is toggled the untouched graph is run through the same extraction for some pairs and compared with
``encode``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric import nn as pyg

from linkcal._threads import numba_threads
from linkcal.exceptions import UnsupportedModelError
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.khop_kernel import count_subgraphs, fill_subgraphs

__all__ = [
    "MAX_BATCH_NODES",
    "SubgraphBatch",
    "SubgraphExtractor",
    "khop_endpoints",
    "refuse_global",
    "verify_khop",
]

#: Nodes in one batch of subgraphs unless the caller says otherwise.
MAX_BATCH_NODES = 1 << 14
#: Arcs of a batch may be this many times its nodes: an arc carries two indices and one message.
_ARCS_PER_NODE = 16
#: Pairs whose untouched embeddings are compared with ``encode`` before the method is trusted.
_NUM_VERIFIED = 16
#: Pairs whose sizes are counted at once.
_COUNT_BLOCK = 1 << 16

#: Modules that mix all nodes of the graph.
_GLOBAL = (
    pyg.GraphNorm, pyg.PairNorm, pyg.InstanceNorm, pyg.GraphSizeNorm, pyg.MeanSubtractionNorm,
    pyg.DiffGroupNorm, pyg.TopKPooling, pyg.SAGPooling, pyg.ASAPooling, pyg.MemPooling, nn.InstanceNorm1d,
)  # fmt: skip

IntArray = NDArray[np.int64]


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


@dataclass(frozen=True, eq=False)
class SubgraphBatch:
    """Disjoint subgraphs of P consecutive pairs.

    Parameters
    ----------
    pairs : slice
        Which pairs.
    nodes : Tensor [M], int64
        The graph's node behind each subgraph node.
    edge_index : Tensor [2, A], int64
    source, target : Tensor [P], int64
        Subgraph nodes of the endpoints.
    """

    pairs: slice
    nodes: Tensor
    edge_index: Tensor
    source: Tensor
    target: Tensor


class SubgraphExtractor:
    """Batches of subgraphs around pairs of one graph.

    Parameters
    ----------
    graph : ToggleGraph
    num_hops : int
        L, the number of message-passing layers.
    max_batch_nodes : int
        Bound on the nodes of a batch (and, times 16, on its arcs); a single pair may exceed it.
    """

    def __init__(self, graph: ToggleGraph, num_hops: int, max_batch_nodes: int = MAX_BATCH_NODES) -> None:
        reverse = graph.transposed()
        self.graph = graph
        self.num_hops = num_hops
        self.max_batch_nodes = max_batch_nodes
        self.rows = (*_rows(graph), *_rows(reverse), graph.self_loops.cpu().numpy(), not graph.undirected)
        # One row per thread: marks, local numbers, queue. Marks hold the stamp of the pair that set them.
        self.workspace = np.full((3, max(1, torch.get_num_threads()), graph.num_nodes), -1, dtype=np.int64)
        self.stamp = 0

    def batches(self, pairs: Tensor, insert: Tensor, *, toggle: bool = True) -> Iterator[SubgraphBatch]:
        """Subgraphs with each pair's own edge inserted or removed, or as given if not `toggle`."""
        sources, targets = (np.ascontiguousarray(row) for row in pairs.cpu().numpy())
        inserted = insert.cpu().numpy() & toggle
        removed = ~insert.cpu().numpy() & toggle
        own = self._own_arcs(pairs)
        for start in range(0, sources.size, _COUNT_BLOCK):
            block = slice(start, start + _COUNT_BLOCK)
            sizes = self._sizes(sources[block], targets[block])
            added = inserted[block] * (2 if self.graph.undirected else 1)
            sizes[1] += added - removed[block] * own[block]
            for part in self._split(sizes):
                chosen = slice(start + part.start, start + part.stop)
                yield self._extract(
                    chosen,
                    sources[chosen],
                    targets[chosen],
                    removed[chosen],
                    inserted[chosen],
                    sizes[:, part],
                )

    def smallest(self, pairs: Tensor) -> Tensor:
        """Those of the pairs with the smallest subgraphs that share one batch; one pair at least."""
        sources, targets = (np.ascontiguousarray(row) for row in pairs.cpu().numpy())
        sizes = self._sizes(sources, targets)
        order = np.argsort(_cost(sizes), kind="stable")
        fitting = next(self._split(sizes[:, order]), slice(0, 0)).stop
        return pairs[:, torch.from_numpy(order[:fitting]).to(pairs.device)]

    def _own_arcs(self, pairs: Tensor) -> IntArray:
        """How many arcs of the graph a toggle of each pair removes, [L]."""
        number = torch.zeros(pairs.size(1), dtype=torch.int64, device=pairs.device)
        for source, target in (pairs, pairs.flip(0))[: 2 if self.graph.undirected else 1]:
            found, position = self.graph.find(source, target)
            repeated = self.graph.multiplicity
            number += found if repeated is None else torch.where(found, repeated[position], 0)
        own: IntArray = number.cpu().numpy()
        return own

    def _sizes(self, sources: IntArray, targets: IntArray) -> IntArray:
        """Nodes, arcs and outside neighbours of each pair in the graph as given, [3, P]."""
        sizes = np.empty((3, sources.size), dtype=np.int64)
        with numba_threads(self.workspace.shape[1]):
            count_subgraphs(sources, targets, self.num_hops, self.stamp, *self.workspace, *self.rows, *sizes)
        self.stamp += sources.size
        return sizes

    def _split(self, sizes: IntArray) -> Iterator[slice]:
        total = np.cumsum(_cost(sizes))
        start = 0
        while start < total.size:
            spent = total[start - 1] if start else 0
            stop = int(np.searchsorted(total, spent + self.max_batch_nodes, side="right"))
            stop = max(stop, start + 1)
            yield slice(start, stop)
            start = stop

    def _extract(
        self,
        chosen: slice,
        sources: IntArray,
        targets: IntArray,
        removed: Any,
        inserted: Any,
        sizes: IntArray,
    ) -> SubgraphBatch:
        dummies = int(sizes[2].max())
        node_start = dummies + np.cumsum(sizes[0]) - sizes[0]
        arc_start = np.cumsum(sizes[1]) - sizes[1]
        # Dummies stand for the first source: any input that the model accepts will do.
        nodes = np.empty(dummies + sizes[0].sum(), dtype=np.int64)
        nodes[:dummies] = sources[0]
        arcs = np.empty((2, sizes[1].sum()), dtype=np.int64)
        with numba_threads(self.workspace.shape[1]):
            fill_subgraphs(
                sources, targets, removed, inserted, self.graph.undirected, self.num_hops, self.stamp,
                *self.workspace, *self.rows, node_start, arc_start, nodes, arcs,
            )  # fmt: skip
        self.stamp += sources.size
        device = self.graph.indptr.device
        edge_index = torch.from_numpy(arcs).to(device)
        first = torch.from_numpy(node_start).to(device)
        return SubgraphBatch(chosen, torch.from_numpy(nodes).to(device), edge_index, first, first + 1)


def _cost(sizes: IntArray) -> IntArray:
    """What each pair takes of a batch's budget."""
    cost: IntArray = np.maximum(sizes[0], -(-sizes[1] // _ARCS_PER_NODE))
    return cost


def _rows(graph: ToggleGraph) -> tuple[IntArray, IntArray, IntArray]:
    multiplicity = torch.ones_like(graph.senders) if graph.multiplicity is None else graph.multiplicity
    return graph.indptr.cpu().numpy(), graph.senders.cpu().numpy(), multiplicity.cpu().numpy()


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
    extractor: SubgraphExtractor,
    pairs: Tensor,
    insert: Tensor,
    *,
    toggle: bool = True,
) -> tuple[Tensor, Tensor]:
    """Node embeddings of both endpoints of each pair after its edge is toggled.

    Parameters
    ----------
    model : nn.Module
        In evaluation mode, with ``encode(x, edge_index)``.
    x : Tensor [N, F] or [N]
        Rows (features or node ids) are gathered for each subgraph.
    extractor : SubgraphExtractor
    pairs : Tensor [2, L], int64
    insert : Tensor [L], bool
    toggle : bool
        False leaves every pair's edge as it is.

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
    for batch in extractor.batches(pairs, insert, toggle=toggle):
        z = model.encode(rows.gather(batch.nodes), batch.edge_index)  # type: ignore[operator]
        if z.size(0) != batch.nodes.numel():
            raise UnsupportedModelError(
                f"model.encode must return one row per node of x, {batch.nodes.numel()}, got {z.size(0)}; "
                "method 'khop' runs it on subgraphs"
            )
        sources.append(z[batch.source])
        targets.append(z[batch.target])
    return torch.cat(sources), torch.cat(targets)


def verify_khop(
    model: nn.Module,
    x: Tensor,
    z: Tensor,
    extractor: SubgraphExtractor,
    pairs: Tensor,
    tolerance: float,
    *,
    one_batch: bool = False,
) -> None:
    """Check on some pairs that the subgraphs of the untouched graph reproduce ``z = encode(x, edge_index)``.

    With `one_batch` on those with the smallest subgraphs, as many as share a batch of the extractor.

    Raises
    ------
    UnsupportedModelError
        If they do not: the model sees more than `num_hops` hops, mixes all nodes, or draws at random.
    """
    step = max(1, pairs.size(1) // _NUM_VERIFIED)
    some = pairs[:, ::step][:, :_NUM_VERIFIED]
    if one_batch:
        some = extractor.smallest(some)
    nothing = torch.zeros(some.size(1), dtype=torch.bool, device=some.device)
    try:
        found = torch.cat(khop_endpoints(model, x, extractor, some, nothing, toggle=False))
    except UnsupportedModelError:
        raise
    except (AssertionError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise UnsupportedModelError(
            f"model.encode must run on subgraphs for method 'khop', got {type(error).__name__}: {reason[0]}"
        ) from error
    expected = torch.cat([z[some[0]], z[some[1]]])
    error_size = float((found - expected).abs().max()) if found.shape == expected.shape else float("inf")
    if not error_size <= tolerance:
        raise UnsupportedModelError(
            f"model.encode must depend on {extractor.num_hops} hops alone and be deterministic for "
            f"method 'khop', got embeddings that differ by {error_size:.1e} from those of the whole graph; "
            "pass a larger num_hops or use method='naive'"
        )
