"""Compiled extraction of the subgraphs of many pairs that have one rim in common (:mod:`.shared_rim`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from linkcal.toggle.khop_kernel import FAR, ball

__all__ = ["fill_insides", "fill_rim", "plan_batch"]

Array = Any


@njit(cache=True)
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


@njit(parallel=True, cache=True)
def fill_insides(
    sources: Array, targets: Array, removed: Array, inserted: Array, undirected: bool, hops: int, stamp: int,
    all_marks: Array, all_local: Array, queues: Array, indptr: Array, senders: Array, in_count: Array,
    loops: Array, node_start: Array, arc_start: Array, first_of_rim: int, rim_place: Array, nodes: Array,
    distance: Array, arcs: Array,
) -> None:  # fmt: skip
    """Write the insides of a batch's subgraphs and all arcs into them, each with its own edge toggled.

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


@njit(parallel=True, cache=True)
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
