"""Enclosing subgraphs of pairs with their DRNL labels (see :class:`SEAL`), extracted by a compiled kernel.

The enclosing subgraph of (u, v) holds all nodes within h hops of u or v and all edges among them but (u, v).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads
from linkcal.data.graph import neighbour_rows

Array = Any
IntArray = NDArray[np.int64]

#: Labels from here on share one number; within two hops of a pair they do not occur in practice.
MAX_LABEL = 999


class SubgraphBatch(NamedTuple):
    """Disjoint enclosing subgraphs of P pairs; pair i's ends are subgraph nodes ``start[i]`` and the next."""

    nodes: Tensor  # [M], the graph's node behind each subgraph node
    label: Tensor  # [M], DRNL in [0, MAX_LABEL]; 0 where one end is out of reach
    indptr: Tensor  # [M + 1], compressed rows of the symmetric adjacency with a self-loop at every node
    neighbors: Tensor  # [A], subgraph nodes, row by row, the node itself first
    start: Tensor  # [P + 1]

    def to(self, device: torch.device) -> SubgraphBatch:
        return SubgraphBatch(*(tensor.to(device) for tensor in self))


class EnclosingSubgraphs:
    """Subgraphs within `num_hops` of pairs of one graph, extracted on demand; threads may share it.

    Direction, repeats and self-loops of `edge_index` [2, E] are ignored. Per hop at most `max_neighbors` new
    nodes are added, chosen by a hash of node and pair: no subgraph depends on the other pairs.
    """

    def __init__(
        self, edge_index: Tensor, num_nodes: int, num_hops: int = 1, max_neighbors: int | None = None
    ) -> None:
        indptr, neighbors = neighbour_rows(edge_index, num_nodes)
        self.num_nodes = num_nodes
        cap = num_nodes if max_neighbors is None else max_neighbors
        self.graph = (num_hops, cap, indptr, neighbors.astype(np.int32))
        # Per thread: local number of a node or -1, and two queues and two distances by local number.
        self.threads = max(1, torch.get_num_threads())
        self.workspace = np.full((5, self.threads, num_nodes), -1, dtype=np.int32)

    def sizes(self, pairs: IntArray) -> IntArray:
        """Nodes and entries (arcs and self-loops without the target link) of the pairs' subgraphs, (2, P)."""
        out = np.empty((2, pairs.shape[1]), dtype=np.int64)
        low, high = np.sort(pairs, axis=0)
        with numba_threads(self.threads):
            _count(low, high, *self.graph, self.workspace, *out)
        return out

    def extract(
        self, pairs: IntArray, sizes: IntArray | None = None, *, target_link: bool = False
    ) -> SubgraphBatch:
        """Subgraphs of pairs (2, P), in their order; `sizes` if they are known from :meth:`sizes`.

        `target_link` adds each pair's target link but keeps the labels of the subgraph without it. The end
        with the smaller number comes first: (u, v) and (v, u) have one subgraph.
        """
        num_nodes, num_entries = self.sizes(pairs) if sizes is None else sizes
        start = np.concatenate([[0], np.cumsum(num_nodes)])
        entry_start = np.concatenate([[0], np.cumsum(num_entries + 2 * target_link)])
        nodes, label = np.empty((2, start[-1]), dtype=np.int64)
        indptr = np.empty(start[-1] + 1, dtype=np.int64)
        indptr[-1] = entry_start[-1]
        entries = np.empty(entry_start[-1], dtype=np.int64)
        low, high = np.sort(pairs, axis=0)
        with numba_threads(self.threads):
            _fill(
                low, high, *self.graph, self.workspace, target_link, start, entry_start, nodes, label, indptr,
                entries,
            )  # fmt: skip
        return SubgraphBatch(*map(torch.from_numpy, (nodes, label, indptr, entries, start)))


@compiled()
def _hash(node: int, u: int, v: int) -> Any:
    """Mix three numbers into 64 bits (the finaliser of splitmix64)."""
    state = np.uint64(0)
    for part in (np.uint64(u), np.uint64(v), np.uint64(node)):
        state = (state ^ part) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


@compiled()
def _keep_some(u: int, v: int, first: int, stop: int, cap: int, local: Array, queue: Array) -> int:
    """Keep the `cap` nodes of ``queue[first:stop]`` with the smallest hashes, in their old order."""
    hashes = np.empty(stop - first, dtype=np.uint64)
    for i in range(first, stop):
        hashes[i - first] = _hash(queue[i], u, v)
    bound = np.sort(hashes)[cap - 1]
    size = first
    for i in range(first, stop):
        node = queue[i]
        if hashes[i - first] <= bound:
            queue[size] = node
            local[node] = size
            size += 1
        else:
            local[node] = -1
    return size


@compiled()
def _collect(u: int, v: int, hops: int, cap: int, indptr: Any, neighbors: Any, local: Any, queue: Any) -> int:
    """Breadth-first search from both ends; writes the nodes to `queue`, their numbers to `local`."""
    queue[0], queue[1] = u, v
    local[u], local[v] = 0, 1
    first, size = 0, 2
    for _ in range(hops):
        stop = size
        for i in range(first, stop):
            for position in range(indptr[queue[i]], indptr[queue[i] + 1]):
                node = neighbors[position]
                if local[node] < 0:
                    local[node] = size
                    queue[size] = node
                    size += 1
        if size - stop > cap:
            size = _keep_some(u, v, stop, size, cap, local, queue)
        first = stop
    return size


@compiled()
def _distances(
    origin: int, barred: int, base: int, size: int, end: int, indptr: Array, entries: Array,
    distance: Array, queue: Array,
) -> None:  # fmt: skip
    """Distances from local node `origin` on paths that avoid `barred`; -1 where there is none."""
    for i in range(size):
        distance[i] = -1
    distance[origin] = 0
    queue[0] = origin
    first, stop = 0, 1
    while first < stop:
        node = queue[first]
        first += 1
        # The row after the last belongs to the next pair, which another thread fills.
        row_end = end if node == size - 1 else indptr[base + node + 1]
        for position in range(indptr[base + node], row_end):
            other = entries[position] - base
            if other != barred and distance[other] < 0:
                distance[other] = distance[node] + 1
                queue[stop] = other
                stop += 1


@compiled()
def _drnl(to_u: int, to_v: int) -> int:
    """Label of a node at these distances from the ends; 0 if one is out of reach."""
    if to_u < 0 or to_v < 0:
        return 0
    both = to_u + to_v
    half = both // 2
    return min(1 + min(to_u, to_v) + half * (half + both % 2 - 1), MAX_LABEL)


@compiled(parallel=True)
def _count(
    low: Array, high: Array, hops: int, cap: int, indptr: Array, neighbors: Array, work: Array,
    num_nodes: Array, num_entries: Array,
) -> None:  # fmt: skip
    """Nodes and entries of each subgraph, int64 [P] each, written."""
    threads = work.shape[1]
    for thread in prange(threads):
        local, queue = work[0, thread], work[1, thread]
        for pair in range(thread, low.shape[0], threads):
            size = _collect(low[pair], high[pair], hops, cap, indptr, neighbors, local, queue)
            entries = size
            for i in range(size):
                for position in range(indptr[queue[i]], indptr[queue[i] + 1]):
                    other = local[neighbors[position]]
                    if other >= 0 and i + other != 1:  # 0 + 1: the target link
                        entries += 1
            num_nodes[pair], num_entries[pair] = size, entries
            for i in range(size):
                local[queue[i]] = -1


@compiled(parallel=True)
def _fill(
    low: Array, high: Array, hops: int, cap: int, indptr: Array, neighbors: Array, work: Array,
    target_link: bool, start: Array, entry_start: Array, nodes: Array, label: Array, rows: Array,
    entries: Array,
) -> None:  # fmt: skip
    """Nodes, labels and rows of each subgraph, written from ``start`` and ``entry_start`` on."""
    threads = work.shape[1]
    for thread in prange(threads):
        local, queue, search = work[0, thread], work[1, thread], work[2, thread]
        to_u, to_v = work[3, thread], work[4, thread]
        for pair in range(thread, low.shape[0], threads):
            size = _collect(low[pair], high[pair], hops, cap, indptr, neighbors, local, queue)
            base, filled = start[pair], entry_start[pair]
            for i in range(size):
                rows[base + i] = filled
                entries[filled] = base + i
                filled += 1
                if target_link and i < 2:
                    entries[filled] = base + 1 - i
                    filled += 1
                for position in range(indptr[queue[i]], indptr[queue[i] + 1]):
                    other = local[neighbors[position]]
                    if other >= 0 and i + other != 1:
                        entries[filled] = base + other
                        filled += 1
            _distances(0, 1, base, size, filled, rows, entries, to_u, search)
            _distances(1, 0, base, size, filled, rows, entries, to_v, search)
            for i in range(size):
                label[base + i] = 1 if i < 2 else _drnl(to_u[i], to_v[i])
                nodes[base + i] = queue[i]
                local[queue[i]] = -1
