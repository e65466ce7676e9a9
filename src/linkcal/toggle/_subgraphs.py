"""Batches of the subgraphs around pairs that the k-hop method runs a model on.

For a pair (u, v) and L layers a subgraph holds every node within L hops of u or v and every arc into these
nodes. Of the rim, the nodes at distance L, only input and number of arcs matter; arcs from outside come from
dummy nodes, the j-th outside neighbour of a node being dummy j. There are two forms:

- whole: every pair has its own copy of all its nodes, hops ignore direction, and arcs that leave the set end
  in dummies, so that out-degrees are right too;
- shared: rim nodes, which a toggle does not change, and the arcs into them stand in a batch once for all
  pairs. Several times as fast, but out-degrees are wrong, and hops follow arcs backwards only.
"""

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

Array = Any  # NumPy arrays
IntArray = NDArray[np.int64]

#: Hops of what no layer reads. Nodes as far have it too, which at worst keeps what could be left out.
FAR = 127
#: Bounds on the nodes in one batch where the caller sets none.
_FEW, _MANY = 1 << 14, 1 << 18
#: Arcs of a batch may be this many times its nodes: an arc carries two indices and one message.
ARCS_PER_NODE = 16


def batch_nodes(graph: ToggleGraph) -> int:
    """Bound on the nodes of a batch where the caller gives none: the larger, the more pairs share a rim."""
    by_arcs = 2 * graph.senders.numel() // ARCS_PER_NODE
    return min(max(graph.num_nodes, by_arcs, _FEW), _MANY)


@dataclass(frozen=True, eq=False)
class SubgraphBatch:
    """Disjoint subgraphs of P consecutive pairs."""

    pairs: slice  # which pairs
    nodes: Tensor  # [M], int64: the graph's node behind each subgraph node
    distance: Tensor  # [M], int8: hops to the nearer endpoint; more than any layer reaches for dummies
    edge_index: Tensor  # [2, A], int64
    source: Tensor  # [P], int64: subgraph nodes of the first endpoints
    target: Tensor  # [P], int64


class Subgraphs:
    """Subgraphs within L = `num_hops` of pairs of one graph, with a shared rim or whole.

    `max_batch_nodes` bounds the nodes of a batch (and, times 16, its arcs), dummies left out; one pair may
    exceed it, and `least_pairs` share a batch whatever their sizes.
    """

    def __init__(
        self, graph: ToggleGraph, num_hops: int, max_batch_nodes: int, *, shared: bool, least_pairs: int = 1
    ) -> None:
        self.graph, self.num_hops, self.shared = graph, num_hops, shared
        self.max_batch_nodes, self.least_pairs = max_batch_nodes, least_pairs
        loops = graph.self_loops.cpu().numpy()
        rows, away = _compressed_rows(graph), _compressed_rows(graph.transposed())
        self._rows = (*rows, *away, loops, graph.in_degree(weighted=False).cpu().numpy() + loops)
        self._backwards = not shared and not graph.undirected
        # One row per thread: marks, local numbers, queue. Marks hold the stamp of the pair that set them.
        self._workspace = np.full((3, max(1, torch.get_num_threads()), graph.num_nodes), -1, dtype=np.int64)
        # Of each node: the batch whose rim it was last in, and its place there; of each place, its node.
        self._rim_batch, self._rim_place, self._rim = np.full((3, graph.num_nodes), -1, dtype=np.int64)
        self._stamp, self._batch = 0, 0

    def batches(self, pairs: Tensor, insert: Tensor, *, toggle: bool = True) -> Iterator[SubgraphBatch]:
        """Subgraphs with each pair's target link inserted or removed, or as given if not `toggle`."""
        ends = np.ascontiguousarray(pairs.cpu().numpy())
        inserted, removed = insert.cpu().numpy() & toggle, ~insert.cpu().numpy() & toggle
        extra = inserted * (2 if self.graph.undirected else 1) - removed * _own_arcs(self.graph, pairs)
        sizes = np.empty_like(ends)
        start = 0
        while start < extra.size:
            stop, rim_size, dummies = self._plan(start, ends, extra, sizes)
            part = slice(start, stop)
            yield self._extract(
                part, ends[:, part], removed[part], inserted[part], sizes[:, part], rim_size, dummies
            )
            start = stop

    def sizes(self, pairs: Tensor) -> IntArray:
        """Of each pair: own nodes, arcs into them, rim nodes, and out-neighbours left outside, [4, P]."""
        out = np.empty((4, pairs.size(1)), dtype=np.int64)
        away, receivers = self._rows[3:5]
        for pair, (u, v) in enumerate(pairs.T.tolist()):
            stamp, own = self._stamp, np.empty((2, 1), dtype=np.int64)
            out[2, pair] = self._plan(0, np.array([[u], [v]]), np.zeros(1, dtype=np.int64), own)[1]
            heard_by = np.concatenate([receivers[away[end] : away[end + 1]] for end in (u, v)])
            out[3, pair] = (self._workspace[0, 0, heard_by] != stamp).sum()
            out[:2, pair] = own[:, 0]
        return out

    def _plan(self, start: int, ends: IntArray, extra: IntArray, sizes: IntArray) -> tuple[int, int, int]:
        """Where the batch that begins with a pair ends, and how many rim nodes and dummies it has."""
        planned: tuple[int, int, int] = _plan_batch(
            start, ends[0], ends[1], extra, self.num_hops, self.shared, self._backwards, self._stamp,
            self._batch, *self._workspace[:, 0], *self._rows, self.least_pairs, self.max_batch_nodes,
            ARCS_PER_NODE * self.max_batch_nodes, *sizes, self._rim_batch, self._rim_place, self._rim,
        )  # fmt: skip
        # Marks were numbered by pair, and the pair that did not fit any more was marked as well.
        self._stamp += planned[0] + 1
        self._batch += 1
        return planned

    def _extract(
        self,
        part: slice,
        ends: IntArray,
        removed: NDArray[np.bool],
        inserted: NDArray[np.bool],
        sizes: IntArray,
        rim_size: int,
        dummies: int,
    ) -> SubgraphBatch:
        rim, indptr = self._rim[:rim_size], self._rows[0]
        if self.shared:
            dummies = int((indptr[rim + 1] - indptr[rim]).max(initial=0))
        # Dummies come first, then the rim, then the pairs' own nodes.
        node_start = dummies + rim_size + np.cumsum(sizes[0]) - sizes[0]
        arc_start = np.cumsum(sizes[1]) - sizes[1]
        nodes = np.empty(dummies + rim_size + sizes[0].sum(), dtype=np.int64)
        # Dummies stand for the first source: any input that the model accepts will do.
        nodes[:dummies], nodes[dummies : dummies + rim_size] = ends[0, 0], rim
        distance = np.full(nodes.size, FAR, dtype=np.int8)
        distance[dummies : dummies + rim_size] = min(self.num_hops, FAR)
        arcs = np.empty((2, sizes[1].sum()), dtype=np.int64)
        with numba_threads(self._workspace.shape[1]):
            _fill(
                ends[0], ends[1], removed, inserted, self.graph.undirected, self.num_hops, self.shared,
                self._backwards, self._stamp, *self._workspace, *self._rows[:7], node_start, arc_start,
                dummies, self._rim_place, nodes, distance, arcs,
            )  # fmt: skip
        self._stamp += ends.shape[1]
        device, first = self.graph.indptr.device, torch.from_numpy(node_start)
        edge_index = np.concatenate([arcs, self._arcs_into_rim(rim, dummies)], axis=1)
        return SubgraphBatch(
            part,
            torch.from_numpy(nodes).to(device),
            torch.from_numpy(distance).to(device),
            torch.from_numpy(edge_index).to(device),
            first.to(device),
            (first + 1).to(device),
        )

    def _arcs_into_rim(self, rim: IntArray, dummies: int) -> IntArray:
        """Arcs into the rim, [2, A]: from dummy j for the j-th in-neighbour, and self-loops."""
        indptr, in_count, loops = self._rows[0], self._rows[2], self._rows[6]
        length = indptr[rim + 1] - indptr[rim]
        place = np.repeat(np.arange(rim.size), length)
        dummy = np.arange(place.size) - np.repeat(np.cumsum(length) - length, length)
        arcs = np.repeat([dummy, dummies + place], in_count[indptr[rim][place] + dummy], axis=1)
        own = np.repeat(dummies + np.arange(rim.size), loops[rim])
        return np.concatenate([arcs, [own, own]], axis=1)


def _compressed_rows(graph: ToggleGraph) -> tuple[IntArray, IntArray, IntArray]:
    """Row starts [N + 1], in-neighbours [E] and their multiplicities [E], for compiled code."""
    multiplicity = torch.ones_like(graph.senders) if graph.multiplicity is None else graph.multiplicity
    return graph.indptr.cpu().numpy(), graph.senders.cpu().numpy(), multiplicity.cpu().numpy()


def _own_arcs(graph: ToggleGraph, pairs: Tensor) -> IntArray:
    """How many arcs of the graph a toggle of each pair removes, [L]."""
    number = torch.zeros(pairs.size(1), dtype=torch.int64, device=pairs.device)
    for source, target in (pairs, pairs.flip(0))[: 2 if graph.undirected else 1]:
        found, position = graph.find(source, target)
        repeated = graph.multiplicity
        number += found if repeated is None else torch.where(found, repeated[position], 0)
    own: IntArray = number.cpu().numpy()
    return own


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
def _ball(
    u: int, v: int, hops: int, indptr: Array, senders: Array, out_indptr: Array, receivers: Array,
    backwards: bool, stamp: int, marks: Array, local: Array, queue: Array, within: Array,
) -> None:  # fmt: skip
    """Breadth-first search from both endpoints: how many nodes lie within 0 to `hops` hops, into `within`."""
    queue[0], queue[1] = u, v
    marks[u], marks[v] = stamp, stamp
    local[u], local[v] = 0, 1
    start, within[0] = 0, 2
    for hop in range(hops):
        size = within[hop]
        for item in range(start, within[hop]):
            node = queue[item]
            size = _visit_row(node, indptr, senders, stamp, marks, local, queue, size)
            if backwards:
                size = _visit_row(node, out_indptr, receivers, stamp, marks, local, queue, size)
        start, within[hop + 1] = within[hop], size


@compiled()
def _plan_batch(
    start: int, sources: Array, targets: Array, extra: Array, hops: int, shared: bool, backwards: bool,
    stamp: int, batch: int, marks: Array, local: Array, queue: Array, indptr: Array, senders: Array,
    _in_count: Array, out_indptr: Array, receivers: Array, out_count: Array, _loops: Array, arcs_into: Array,
    least_pairs: int, most_nodes: int, most_arcs: int, num_nodes: Array, num_arcs: Array, rim_batch: Array,
    rim_place: Array, rim: Array,
) -> tuple[int, int, int]:  # fmt: skip
    """Add pairs from `start` on while the batch stays within its bounds, and collect their rim.

    Marks of earlier pairs are below `stamp`. Writes each pair's own nodes and arcs into them after the toggle
    to `num_nodes`, `num_arcs`; returns where the batch stops, the rim's size, the dummies of whole subgraphs.
    """
    within = np.empty(hops + 1, np.int64)
    nodes, arcs, rim_size, dummies = 0, 0, 0, 0
    pair = start
    while pair < sources.shape[0]:
        _ball(sources[pair], targets[pair], hops, indptr, senders, out_indptr, receivers, backwards,
              stamp + pair, marks, local, queue, within)  # fmt: skip
        inside, size = within[hops - 1] if shared else within[hops], within[hops]
        own_arcs, outside = extra[pair], 0
        for item in range(inside):
            node = queue[item]
            own_arcs += arcs_into[node]
            if not shared:
                away, come = 0, 0
                for position in range(indptr[node], indptr[node + 1]):
                    come += marks[senders[position]] != stamp + pair
                for position in range(out_indptr[node], out_indptr[node + 1]):
                    if marks[receivers[position]] != stamp + pair:
                        own_arcs += out_count[position]
                        away += 1
                outside = max(outside, come, away)
        new_nodes, new_arcs = inside, own_arcs
        for item in range(inside, size):
            if rim_batch[queue[item]] != batch:
                new_nodes += 1
                new_arcs += arcs_into[queue[item]]
        if pair >= start + least_pairs and (nodes + new_nodes > most_nodes or arcs + new_arcs > most_arcs):
            break
        nodes += new_nodes
        arcs += new_arcs
        dummies = max(dummies, outside)
        num_nodes[pair], num_arcs[pair] = inside, own_arcs
        for item in range(inside, size):
            node = queue[item]
            if rim_batch[node] != batch:
                rim_batch[node], rim_place[node], rim[rim_size] = batch, rim_size, node
                rim_size += 1
        pair += 1
    return pair, rim_size, dummies


@compiled(parallel=True)
def _fill(
    sources: Array, targets: Array, removed: Array, inserted: Array, undirected: bool, hops: int,
    shared: bool, backwards: bool, stamp: int, all_marks: Array, all_local: Array, queues: Array,
    indptr: Array, senders: Array, in_count: Array, out_indptr: Array, receivers: Array, out_count: Array,
    loops: Array, node_start: Array, arc_start: Array, first_of_rim: int, rim_place: Array, nodes: Array,
    distance: Array, arcs: Array,
) -> None:  # fmt: skip
    """Write the own nodes of each pair, their distances and all arcs into them, each pair toggled."""
    threads = all_marks.shape[0]
    for thread in prange(threads):
        marks, local, queue = all_marks[thread], all_local[thread], queues[thread]
        within = np.empty(hops + 1, np.int64)
        for pair in range(thread, sources.shape[0], threads):
            u, v = sources[pair], targets[pair]
            _ball(u, v, hops, indptr, senders, out_indptr, receivers, backwards, stamp + pair, marks, local,
                  queue, within)  # fmt: skip
            inside = within[hops - 1] if shared else within[hops]
            first, column, hop = node_start[pair], arc_start[pair], 0
            for item in range(inside):
                node, dummy = queue[item], 0
                nodes[first + item] = node
                while item >= within[hop]:
                    hop += 1
                distance[first + item] = min(hop, FAR)
                for position in range(indptr[node], indptr[node + 1]):
                    other = senders[position]
                    own = (other == u and node == v) or (undirected and other == v and node == u)
                    if own and removed[pair]:
                        continue
                    if marks[other] == stamp + pair and local[other] < inside:
                        sender = first + local[other]
                    elif shared:
                        sender = first_of_rim + rim_place[other]
                    else:
                        sender = dummy
                        dummy += 1
                    for _ in range(in_count[position]):
                        arcs[0, column], arcs[1, column] = sender, first + item
                        column += 1
                dummy = 0
                for position in range(out_indptr[node], out_indptr[node + 1]):
                    if not shared and marks[receivers[position]] != stamp + pair:
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
