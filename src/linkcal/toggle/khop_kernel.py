"""Compiled extraction of the subgraphs that the k-hop fallback runs the model on.

For a pair (u, v) and L layers the subgraph holds every node within L hops of u or v (direction ignored) and
every arc that touches such a node. Arcs that leave the set end in dummy nodes: a node at distance L is read
by its neighbours through its input and its degree alone, so who is at the other end does not matter, how many
there are does. The j-th outside neighbour of a node becomes dummy j, so that no two arcs of a node coincide
that did not before; the dummies are shared by all subgraphs of a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

__all__ = ["FAR", "ball", "count_subgraphs", "fill_subgraphs"]

#: Hops of what no layer reads. Nodes as far have it too, which at worst keeps what could be left out.
FAR = 127

Array = Any


@njit(cache=True)
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


@njit(cache=True)
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


@njit(parallel=True, cache=True)
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


@njit(parallel=True, cache=True)
def fill_subgraphs(
    sources: Array, targets: Array, removed: Array, inserted: Array, undirected: bool, hops: int, stamp: int,
    all_marks: Array, all_local: Array, queues: Array,
    indptr: Array, senders: Array, in_count: Array, out_indptr: Array, receivers: Array, out_count: Array,
    loops: Array, directed: bool, node_start: Array, arc_start: Array, nodes: Array, distance: Array,
    arcs: Array,
) -> None:  # fmt: skip
    """Write the nodes and arcs of a batch of subgraphs, each with its own edge removed or inserted.

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
