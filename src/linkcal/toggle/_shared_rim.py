"""Subgraphs of many pairs that share one rim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._subgraphs import (
    ARCS_PER_NODE,
    FAR,
    IntArray,
    SubgraphBatch,
    ball,
    compressed_rows,
    own_arcs,
)

__all__ = ["SharedRimExtractor", "fill_insides", "fill_rim", "plan_batch"]


# Compiled extraction of the subgraphs of many pairs that have one rim in common (:mod:`.shared_rim`).

Array = Any


@compiled()
def plan_batch(
    start: int, sources: Array, targets: Array, extra: Array, hops: int, stamp: int, batch: int,
    marks: Array, local: Array, queue: Array, indptr: Array, senders: Array, arcs_into: Array,
    least_pairs: int, most_nodes: int, most_arcs: int, num_nodes: Array, num_arcs: Array, rim_batch: Array,
    rim_place: Array, rim: Array,
) -> tuple[int, int]:  # fmt: skip
    """Take pairs from `start` on while the batch stays within its bounds, and collect their rim.

    Parameters
    ----------
    start : int
        The first pair of the batch.
    sources, targets : int64 [P]
    extra : int64 [P]
        Arcs that each pair's toggle adds.
    hops : int
        L: nodes nearer than that are inside, those at that distance are the rim.
    stamp : int
        Marks of earlier pairs are below it.
    batch : int
        A number that no earlier batch had.
    marks, local, queue : int64 [N]
        Workspace of one thread.
    indptr, senders : int64 [N + 1], int64 [E]
    arcs_into : int64 [N]
        Arcs into each node, repeated ones and self-loops among them.
    least_pairs : int
        So many are taken whatever their sizes.
    most_nodes, most_arcs : int
    num_nodes, num_arcs : int64 [P]
        Written: nodes inside and the arcs into them, after the toggle.
    rim_batch, rim_place : int64 [N]
        Which batch a node was last in the rim of; its place there, written.
    rim : int64 [N]
        Written: the nodes of the rim.

    Returns
    -------
    stop, rim_size : int
        Pairs `start` to `stop` are the batch.
    """
    within = np.empty(hops, np.int64)
    nodes, arcs, rim_size = 0, 0, 0
    pair = start
    while pair < sources.shape[0]:
        size = ball(
            sources[pair], targets[pair], hops, indptr, senders, indptr, senders, False, stamp + pair, marks,
            local, queue, within,
        )  # fmt: skip
        inside = within[hops - 1]
        own_arcs = extra[pair]
        for item in range(inside):
            own_arcs += arcs_into[queue[item]]
        new_nodes, new_arcs = inside, own_arcs
        for item in range(inside, size):
            node = queue[item]
            if rim_batch[node] != batch:
                new_nodes += 1
                new_arcs += arcs_into[node]
        if pair >= start + least_pairs and (nodes + new_nodes > most_nodes or arcs + new_arcs > most_arcs):
            break
        nodes += new_nodes
        arcs += new_arcs
        num_nodes[pair], num_arcs[pair] = inside, own_arcs
        for item in range(inside, size):
            node = queue[item]
            if rim_batch[node] != batch:
                rim_batch[node], rim_place[node], rim[rim_size] = batch, rim_size, node
                rim_size += 1
        pair += 1
    return pair, rim_size


@compiled(parallel=True)
def fill_insides(
    sources: Array, targets: Array, removed: Array, inserted: Array, undirected: bool, hops: int, stamp: int,
    all_marks: Array, all_local: Array, queues: Array, indptr: Array, senders: Array, in_count: Array,
    loops: Array, node_start: Array, arc_start: Array, first_of_rim: int, rim_place: Array, nodes: Array,
    distance: Array, arcs: Array,
) -> None:  # fmt: skip
    """Write the insides of a batch's subgraphs and all arcs into them, each with its target link toggled.

    Parameters
    ----------
    sources, targets : int64 [P]
    removed, inserted : bool [P]
        What happens to the pair's own arcs; neither leaves the graph as given.
    undirected : bool
        Whether both directions toggle.
    all_marks, all_local, queues : int64 [T, N]
        Workspace of T threads.
    indptr, senders, in_count : int64 [N + 1], int64 [E], int64 [E]
        Compressed rows of in-neighbours and their multiplicities.
    loops : int64 [N]
    node_start, arc_start : int64 [P]
        Where each inside begins.
    first_of_rim : int
        Subgraph node of the rim's first place.
    nodes : int64 [M]
        Written: the graph's node behind each subgraph node, endpoints first.
    distance : int8 [M]
        Written: hops to the nearer endpoint.
    arcs : int64 [2, A]
        Written.
    The other parameters are those of :func:`plan_batch`.
    """
    threads = all_marks.shape[0]
    for thread in prange(threads):
        marks, local, queue = all_marks[thread], all_local[thread], queues[thread]
        within = np.empty(hops, np.int64)
        for pair in range(thread, sources.shape[0], threads):
            u, v = sources[pair], targets[pair]
            ball(
                u, v, hops, indptr, senders, indptr, senders, False, stamp + pair, marks, local, queue,
                within,
            )  # fmt: skip
            inside, first, column = within[hops - 1], node_start[pair], arc_start[pair]
            hop = 0
            for item in range(inside):
                node = queue[item]
                nodes[first + item] = node
                while item >= within[hop]:
                    hop += 1
                distance[first + item] = min(hop, FAR)
                for position in range(indptr[node], indptr[node + 1]):
                    other = senders[position]
                    own = (other == u and node == v) or (undirected and other == v and node == u)
                    if own and removed[pair]:
                        continue
                    at = local[other]
                    sender = first + at if at < inside else first_of_rim + rim_place[other]
                    for _ in range(in_count[position]):
                        arcs[0, column], arcs[1, column] = sender, first + item
                        column += 1
                for _ in range(loops[node]):
                    arcs[0, column], arcs[1, column] = first + item, first + item
                    column += 1
            if inserted[pair]:
                arcs[0, column], arcs[1, column] = first, first + 1
                if undirected:
                    arcs[0, column + 1], arcs[1, column + 1] = first + 1, first


@compiled(parallel=True)
def fill_rim(
    rim: Array, indptr: Array, in_count: Array, loops: Array, first_of_rim: int, arc_start: Array,
    arcs: Array,
) -> None:  # fmt: skip
    """Write the arcs into the rim, from dummy j for the j-th in-neighbour.

    Parameters
    ----------
    rim : int64 [R]
    arc_start : int64 [R]
        Where each node's arcs begin.
    The other parameters are those of :func:`fill_insides`.
    """
    for place in prange(rim.shape[0]):
        node, column, number = rim[place], arc_start[place], first_of_rim + place
        first = indptr[node]
        for position in range(first, indptr[node + 1]):
            for _ in range(in_count[position]):
                arcs[0, column], arcs[1, column] = position - first, number
                column += 1
        for _ in range(loops[node]):
            arcs[0, column], arcs[1, column] = number, number
            column += 1


# Subgraphs of many pairs that have one rim in common: what most of the fallback's work goes into, done once.
#
# Of a pair's subgraph the nodes at distance L, its rim, are read through their input and their number of arcs
# alone: the first of L rounds of message passing reads them, and no later one does. They are most of its
# nodes, and the arcs into them, there for these numbers alone, are most of its arcs. Toggling the pair
# changes neither, so a rim node may stand in a batch once for all pairs that it is in the rim of. Inside,
# nearer than L, each pair has its own copy of a node.
#
# The arcs out of a rim node then are those into all these copies, not those that the graph has: a layer that
# weighs by them (a directed graph's out-degrees, messages passed backwards) needs whole subgraphs
# (:mod:`.subgraphs`). It fails the check that the fallback makes before it trusts a way to extract.


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
        """Subgraphs with each pair's target link inserted or removed, or as given if not `toggle`."""
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
