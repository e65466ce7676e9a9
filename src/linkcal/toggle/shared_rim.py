"""Subgraphs of many pairs that have one rim in common: what most of the fallback's work goes into, done once.

Of a pair's subgraph the nodes at distance L, its rim, are read through their input and their number of arcs
alone: the first of L rounds of message passing reads them, and no later one does. They are most of its
nodes, and the arcs into them, there for these numbers alone, are most of its arcs. Toggling the pair changes
neither, so a rim node may stand in a batch once for all pairs that it is in the rim of. Inside, nearer than
L, each pair has its own copy of a node.

The arcs out of a rim node then are those into all these copies, not those that the graph has: a layer that
weighs by them (a directed graph's out-degrees, messages passed backwards) needs whole subgraphs
(:mod:`.subgraphs`). It fails the check that the fallback makes before it trusts a way to extract.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._threads import numba_threads
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.khop_kernel import FAR
from linkcal.toggle.shared_rim_kernel import fill_insides, fill_rim, plan_batch
from linkcal.toggle.subgraphs import ARCS_PER_NODE, IntArray, SubgraphBatch, compressed_rows, own_arcs

__all__ = ["SharedRimExtractor"]


class SharedRimExtractor:
    """Batches of subgraphs around pairs of one graph, with a common rim.

    Parameters
    ----------
    graph : ToggleGraph
    num_hops : int
        L, the number of message-passing layers.
    max_batch_nodes : int
        Bound on the nodes of a batch, dummies left out, and, times 16, on its arcs; a single pair may exceed
        it.
    least_pairs : int
        So many share a batch whatever their sizes, if there are as many.
    """

    def __init__(
        self, graph: ToggleGraph, num_hops: int, max_batch_nodes: int, *, least_pairs: int = 1
    ) -> None:
        self.graph = graph
        self.num_hops = num_hops
        self.max_batch_nodes = max_batch_nodes
        self.least_pairs = least_pairs
        self._indptr, self._senders, self._in_count = compressed_rows(graph)
        self._loops = graph.self_loops.cpu().numpy()
        self._arcs_into = graph.in_degree(weighted=False).cpu().numpy() + self._loops
        # One row per thread: marks, local numbers, queue. Marks hold the stamp of the pair that set them.
        self._workspace = np.full((3, max(1, torch.get_num_threads()), graph.num_nodes), -1, dtype=np.int64)
        # Of each node: the batch whose rim it was last in, and its place there; of each place, its node.
        self._rim_batch, self._rim_place, self._rim = np.full((3, graph.num_nodes), -1, dtype=np.int64)
        self._stamp, self._batch = 0, 0

    def batches(self, pairs: Tensor, insert: Tensor, *, toggle: bool = True) -> Iterator[SubgraphBatch]:
        """Subgraphs with each pair's own edge inserted or removed, or as given if not `toggle`."""
        ends = np.ascontiguousarray(pairs.cpu().numpy())
        inserted = insert.cpu().numpy() & toggle
        removed = ~insert.cpu().numpy() & toggle
        extra = inserted * (2 if self.graph.undirected else 1) - removed * own_arcs(self.graph, pairs)
        sizes = np.empty_like(ends)
        start = 0
        while start < extra.size:
            stop, rim_size = self._plan(start, ends, extra, sizes)
            chosen = slice(start, stop)
            yield self._extract(
                chosen, ends[:, chosen], removed[chosen], inserted[chosen], sizes[:, chosen], rim_size
            )
            start = stop

    def telling(self, pairs: Tensor, number: int) -> Tensor:
        """At most so many of the pairs, those with the largest rims; none that hides what is left out.

        A pair without a rim does, and on a directed graph one whose endpoints have no arc that leaves what is
        cut out around them: a model that reads arcs backwards would not miss any. Maybe there is no pair.
        """
        ends = np.ascontiguousarray(pairs.cpu().numpy())
        rims = np.empty_like(ends[0])
        away = None if self.graph.undirected else compressed_rows(self.graph.transposed())
        for pair in range(rims.size):
            one = np.ascontiguousarray(ends[:, pair : pair + 1])
            stamp = self._stamp
            _, rims[pair] = self._plan(0, one, np.zeros_like(one[0]), np.empty_like(one))
            if away is not None:
                heard_by = np.concatenate([away[1][away[0][end] : away[0][end + 1]] for end in one[:, 0]])
                rims[pair] *= bool((self._workspace[0, 0, heard_by] != stamp).any())
        order = np.argsort(-rims, kind="stable")[:number]
        return pairs[:, torch.from_numpy(order[rims[order] > 0]).to(pairs.device)]

    def _plan(self, start: int, ends: IntArray, extra: IntArray, sizes: IntArray) -> tuple[int, int]:
        """Where the batch that begins with a pair ends, and how many nodes its rim has."""
        stop, rim_size = plan_batch(
            start, *ends, extra, self.num_hops, self._stamp, self._batch, *self._workspace[:, 0],
            self._indptr, self._senders, self._arcs_into, self.least_pairs, self.max_batch_nodes,
            ARCS_PER_NODE * self.max_batch_nodes, *sizes, self._rim_batch, self._rim_place, self._rim,
        )  # fmt: skip
        # Marks were numbered by pair, and the pair that did not fit any more was marked as well.
        self._stamp += stop + 1
        self._batch += 1
        return stop, rim_size

    def _extract(
        self,
        chosen: slice,
        ends: IntArray,
        removed: NDArray[np.bool],
        inserted: NDArray[np.bool],
        sizes: IntArray,
        rim_size: int,
    ) -> SubgraphBatch:
        rim = self._rim[:rim_size]
        # Dummies come first, then the rim, then the insides.
        dummies = int((self._indptr[rim + 1] - self._indptr[rim]).max(initial=0))
        behind, arcs_of_rim = dummies + rim_size, self._arcs_into[rim]
        node_start = behind + np.cumsum(sizes[0]) - sizes[0]
        arc_start = np.cumsum(sizes[1]) - sizes[1]
        arcs_inside = int(sizes[1].sum())
        nodes = np.empty(behind + sizes[0].sum(), dtype=np.int64)
        # Dummies stand for the first source: any input that the model accepts will do.
        nodes[:dummies], nodes[dummies:behind] = ends[0, 0], rim
        distance = np.full(len(nodes), FAR, dtype=np.int8)
        distance[dummies:behind] = min(self.num_hops, FAR)
        arcs = np.empty((2, arcs_inside + arcs_of_rim.sum()), dtype=np.int64)
        rows = self._indptr, self._senders, self._in_count
        with numba_threads(self._workspace.shape[1]):
            fill_insides(
                *ends, removed, inserted, self.graph.undirected, self.num_hops, self._stamp, *self._workspace,
                *rows, self._loops, node_start, arc_start, dummies, self._rim_place, nodes, distance, arcs,
            )  # fmt: skip
            rim_start = arcs_inside + np.cumsum(arcs_of_rim) - arcs_of_rim
            fill_rim(rim, self._indptr, self._in_count, self._loops, dummies, rim_start, arcs)
        self._stamp += chosen.stop - chosen.start
        device = self.graph.indptr.device
        first = torch.from_numpy(node_start).to(device)
        return SubgraphBatch(
            chosen,
            torch.from_numpy(nodes).to(device),
            torch.from_numpy(distance).to(device),
            torch.from_numpy(arcs).to(device),
            first,
            first + 1,
        )
