"""Batches of the subgraphs around pairs that the fallback runs a model on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads
from linkcal.toggle._graph import ToggleGraph

__all__ = [
    "ARCS_PER_NODE",
    "FAR",
    "SubgraphBatch",
    "SubgraphExtractor",
    "ball",
    "batch_nodes",
    "compressed_rows",
    "count_subgraphs",
    "fill_subgraphs",
    "own_arcs",
]


# Compiled extraction of the subgraphs that the k-hop fallback runs the model on.
#
# For a pair (u, v) and L layers the subgraph holds every node within L hops of u or v (direction ignored) and
# every arc that touches such a node. Arcs that leave the set end in dummy nodes: a node at distance L is read
# by its neighbours through its input and its degree alone, so who is at the other end does not matter, how
# many there are does. The j-th outside neighbour of a node becomes dummy j, so that no two arcs of a node
# coincide that did not before; the dummies are shared by all subgraphs of a batch.

#: Hops of what no layer reads. Nodes as far have it too, which at worst keeps what could be left out.
FAR = 127

Array = Any


@compiled()
def _visit_row(
    node: int,
    indptr: Array,
    neighbours: Array,
    stamp: int,
    marks: Array,
    local: Array,
    queue: Array,
    size: int,
) -> int:
    """Append the unvisited neighbours of a node to the queue; returns the queue's new length."""
    for position in range(indptr[node], indptr[node + 1]):
        other = neighbours[position]
        if marks[other] != stamp:
            marks[other] = stamp
            local[other] = size
            queue[size] = other
            size += 1
    return size


@compiled()
def ball(
    u: int, v: int, hops: int, indptr: Array, senders: Array, out_indptr: Array, receivers: Array,
    directed: bool, stamp: int, marks: Array, local: Array, queue: Array, within: Array,
) -> int:  # fmt: skip
    """Breadth-first search from both endpoints; returns how many nodes lie within `hops` hops.

    Of each number of hops below, `within` [hops] is told how many.
    """
    queue[0], queue[1] = u, v
    marks[u], marks[v] = stamp, stamp
    local[u], local[v] = 0, 1
    start, size = 0, 2
    for hop in range(hops):
        stop = size
        within[hop] = size
        for item in range(start, stop):
            node = queue[item]
            size = _visit_row(node, indptr, senders, stamp, marks, local, queue, size)
            if directed:
                size = _visit_row(node, out_indptr, receivers, stamp, marks, local, queue, size)
        start = stop
    return size


@compiled(parallel=True)
def count_subgraphs(
    sources: Array, targets: Array, hops: int, stamp: int, all_marks: Array, all_local: Array, queues: Array,
    indptr: Array, senders: Array, in_count: Array, out_indptr: Array, receivers: Array, out_count: Array,
    loops: Array, directed: bool, num_nodes: Array, num_arcs: Array, num_outside: Array,
) -> None:  # fmt: skip
    """Sizes of every pair's subgraph on the graph as given.

    Parameters
    ----------
    sources, targets : int64 [L]
    hops : int
    stamp : int
        Marks of earlier pairs are below it.
    all_marks, all_local, queues : int64 [T, N]
        Workspace of T threads.
    indptr, senders, in_count : int64 [N + 1], int64 [E], int64 [E]
        Compressed rows of in-neighbours and their multiplicities.
    out_indptr, receivers, out_count : int64
        The same of out-neighbours.
    loops : int64 [N]
        Multiplicity of self-loops.
    directed : bool
        Whether the two sets of rows differ in their neighbours.
    num_nodes, num_arcs, num_outside : int64 [L]
        Written: nodes, arcs, and the largest number of outside neighbours of one node.
    """
    threads = all_marks.shape[0]
    for thread in prange(threads):
        marks, local, queue = all_marks[thread], all_local[thread], queues[thread]
        within = np.empty(hops, np.int64)
        for pair in range(thread, sources.shape[0], threads):
            size = ball(
                sources[pair], targets[pair], hops, indptr, senders, out_indptr, receivers, directed,
                stamp + pair, marks, local, queue, within,
            )  # fmt: skip
            arcs, outside = 0, 0
            for item in range(size):
                node = queue[item]
                arcs += loops[node]
                beyond_in, beyond_out = 0, 0
                for position in range(indptr[node], indptr[node + 1]):
                    arcs += in_count[position]
                    beyond_in += marks[senders[position]] != stamp + pair
                for position in range(out_indptr[node], out_indptr[node + 1]):
                    if marks[receivers[position]] != stamp + pair:
                        arcs += out_count[position]
                        beyond_out += 1
                outside = max(outside, beyond_in, beyond_out)
            num_nodes[pair], num_arcs[pair], num_outside[pair] = size, arcs, outside


@compiled(parallel=True)
def fill_subgraphs(
    sources: Array, targets: Array, removed: Array, inserted: Array, undirected: bool, hops: int, stamp: int,
    all_marks: Array, all_local: Array, queues: Array,
    indptr: Array, senders: Array, in_count: Array, out_indptr: Array, receivers: Array, out_count: Array,
    loops: Array, directed: bool, node_start: Array, arc_start: Array, nodes: Array, distance: Array,
    arcs: Array,
) -> None:  # fmt: skip
    """Write the nodes and arcs of a batch of subgraphs, each with its target link removed or inserted.

    Parameters
    ----------
    sources, targets : int64 [P]
    removed, inserted : bool [P]
        What happens to the pair's own arcs; neither leaves the graph as given.
    undirected : bool
        Whether both directions toggle.
    node_start, arc_start : int64 [P]
        Where each subgraph begins; numbers below ``node_start[0]`` are dummies.
    nodes : int64 [M]
        Written from ``node_start[0]`` on: the graph's node behind each subgraph node, endpoints first.
    distance : int8 [M]
        Written from ``node_start[0]`` on: hops to the nearer endpoint.
    arcs : int64 [2, A]
        Written, all of it: as many columns as the subgraphs have arcs after their toggles.
    The other parameters are those of :func:`count_subgraphs`.
    """
    threads = all_marks.shape[0]
    for thread in prange(threads):
        marks, local, queue = all_marks[thread], all_local[thread], queues[thread]
        within = np.empty(hops, np.int64)
        for pair in range(thread, sources.shape[0], threads):
            u, v = sources[pair], targets[pair]
            size = ball(
                u, v, hops, indptr, senders, out_indptr, receivers, directed, stamp + pair, marks, local,
                queue, within,
            )  # fmt: skip
            first, column = node_start[pair], arc_start[pair]
            hop = 0
            for item in range(size):
                node = queue[item]
                nodes[first + item] = node
                while hop < hops and item >= within[hop]:
                    hop += 1
                distance[first + item] = min(hop, FAR)
                dummy = 0
                for position in range(indptr[node], indptr[node + 1]):
                    other = senders[position]
                    if marks[other] == stamp + pair:
                        source = first + local[other]
                        own = (other == u and node == v) or (undirected and other == v and node == u)
                        if own and removed[pair]:
                            continue
                    else:
                        source = dummy
                        dummy += 1
                    for _ in range(in_count[position]):
                        arcs[0, column], arcs[1, column] = source, first + item
                        column += 1
                dummy = 0
                for position in range(out_indptr[node], out_indptr[node + 1]):
                    if marks[receivers[position]] != stamp + pair:
                        for _ in range(out_count[position]):
                            arcs[0, column], arcs[1, column] = first + item, dummy
                            column += 1
                        dummy += 1
                for _ in range(loops[node]):
                    arcs[0, column], arcs[1, column] = first + item, first + item
                    column += 1
            if inserted[pair]:
                arcs[0, column], arcs[1, column] = first, first + 1
                if undirected:
                    arcs[0, column + 1], arcs[1, column + 1] = first + 1, first


# Batches of the subgraphs around pairs that the fallback runs a model on.

#: Bounds on the nodes in one batch of subgraphs where the caller sets none: below, what is done once per
#: batch counts; above, there is nothing left to gain.
_FEW, _MANY = 1 << 14, 1 << 18
#: Arcs of a batch may be this many times its nodes: an arc carries two indices and one message.
ARCS_PER_NODE = 16
#: Pairs whose sizes are counted at once.
_COUNT_BLOCK = 1 << 16

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SubgraphBatch:
    """Disjoint subgraphs of P consecutive pairs.

    Parameters
    ----------
    pairs : slice
        Which pairs.
    nodes : Tensor [M], int64
        The graph's node behind each subgraph node.
    distance : Tensor [M], int8
        Hops to the nearer endpoint; more than any layer reaches for dummies.
    edge_index : Tensor [2, A], int64
    source, target : Tensor [P], int64
        Subgraph nodes of the endpoints.
    """

    pairs: slice
    nodes: Tensor
    distance: Tensor
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

    def __init__(self, graph: ToggleGraph, num_hops: int, max_batch_nodes: int) -> None:
        reverse = graph.transposed()
        self.graph = graph
        self.num_hops = num_hops
        self.max_batch_nodes = max_batch_nodes
        self.rows = (
            *compressed_rows(graph),
            *compressed_rows(reverse),
            graph.self_loops.cpu().numpy(),
            not graph.undirected,
        )
        # One row per thread: marks, local numbers, queue. Marks hold the stamp of the pair that set them.
        self.workspace = np.full((3, max(1, torch.get_num_threads()), graph.num_nodes), -1, dtype=np.int64)
        self.stamp = 0

    def batches(self, pairs: Tensor, insert: Tensor, *, toggle: bool = True) -> Iterator[SubgraphBatch]:
        """Subgraphs with each pair's target link inserted or removed, or as given if not `toggle`."""
        sources, targets = (np.ascontiguousarray(row) for row in pairs.cpu().numpy())
        inserted = insert.cpu().numpy() & toggle
        removed = ~insert.cpu().numpy() & toggle
        own = own_arcs(self.graph, pairs)
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

    def telling(self, pairs: Tensor) -> Tensor:
        """Pairs that share one batch and say most of a model: those with the largest subgraphs that fit.

        One pair at least, the smallest if none fits; no pair without an arc around it, so that there may be
        none at all.
        """
        sources, targets = (np.ascontiguousarray(row) for row in pairs.cpu().numpy())
        sizes = self._sizes(sources, targets)
        cost = np.where(sizes[1] > 0, _cost(sizes), np.iinfo(np.int64).max)
        order = np.argsort(-cost, kind="stable")
        chosen = order[cost[order] <= self.max_batch_nodes]
        chosen = chosen[np.cumsum(cost[chosen]) <= self.max_batch_nodes]
        if not chosen.size and (sizes[1] > 0).any():
            chosen = np.array([np.argmin(cost)])
        return pairs[:, torch.from_numpy(chosen).to(pairs.device)]

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
        distance = np.full(len(nodes), FAR, dtype=np.int8)
        arcs = np.empty((2, sizes[1].sum()), dtype=np.int64)
        with numba_threads(self.workspace.shape[1]):
            fill_subgraphs(
                sources, targets, removed, inserted, self.graph.undirected, self.num_hops, self.stamp,
                *self.workspace, *self.rows, node_start, arc_start, nodes, distance, arcs,
            )  # fmt: skip
        self.stamp += sources.size
        device = self.graph.indptr.device
        edge_index = torch.from_numpy(arcs).to(device)
        first = torch.from_numpy(node_start).to(device)
        return SubgraphBatch(
            chosen,
            torch.from_numpy(nodes).to(device),
            torch.from_numpy(distance).to(device),
            edge_index,
            first,
            first + 1,
        )


def batch_nodes(graph: ToggleGraph) -> int:
    """Bound on the nodes of a batch where the caller gives none.

    The larger a batch, the more pairs share a rim (:mod:`.shared_rim`): as many nodes as the graph has, or as
    many as hold twice its arcs, within 16,384 and 262,144.
    """
    by_arcs = 2 * graph.senders.numel() // ARCS_PER_NODE
    return min(max(graph.num_nodes, by_arcs, _FEW), _MANY)


def _cost(sizes: IntArray) -> IntArray:
    """What each pair takes of a batch's budget."""
    cost: IntArray = np.maximum(sizes[0], -(-sizes[1] // ARCS_PER_NODE))
    return cost


def compressed_rows(graph: ToggleGraph) -> tuple[IntArray, IntArray, IntArray]:
    """Row starts [N + 1], in-neighbours [E] and their multiplicities [E], for compiled code."""
    multiplicity = torch.ones_like(graph.senders) if graph.multiplicity is None else graph.multiplicity
    return graph.indptr.cpu().numpy(), graph.senders.cpu().numpy(), multiplicity.cpu().numpy()


def own_arcs(graph: ToggleGraph, pairs: Tensor) -> IntArray:
    """How many arcs of the graph a toggle of each pair removes, [L]."""
    number = torch.zeros(pairs.size(1), dtype=torch.int64, device=pairs.device)
    for source, target in (pairs, pairs.flip(0))[: 2 if graph.undirected else 1]:
        found, position = graph.find(source, target)
        repeated = graph.multiplicity
        number += found if repeated is None else torch.where(found, repeated[position], 0)
    own: IntArray = number.cpu().numpy()
    return own
