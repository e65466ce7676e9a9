"""The message-passing graph as toggling reads it: sorted rows of in-neighbours, weights, self-loops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal.data.graph import neighbour_rows
from linkcal.exceptions import InputError

Array = Any  # NumPy arrays


@dataclass(frozen=True, eq=False)
class ToggleGraph:
    """Compressed sparse rows of a graph without its self-loops, which are kept apart.

    Row i of (`indptr`, `senders`) lists the in-neighbours of i in increasing order. Repeated arcs are merged:
    message passing over two equal arcs is message passing over one of weight 2.
    """

    num_nodes: int
    indptr: Tensor  # [N + 1], int64
    senders: Tensor  # [E], int64
    multiplicity: Tensor | None  # [E], int64; None when every arc occurs once
    self_loops: Tensor  # [N], int64, their number
    undirected: bool
    weight: Tensor | None = None  # [E], repeated arcs summed; None without weights
    loop_weight: Tensor | None = None  # [2, N]: sum of the self-loops, and the last one given

    @classmethod
    def from_edge_index(
        cls, edge_index: Tensor, num_nodes: int, *, undirected: bool, edge_weight: Tensor | None = None
    ) -> ToggleGraph:
        """Compress [2, E], source row first; InputError if `undirected` and an edge is one-way."""
        source, target = edge_index[0], edge_index[1]
        order, first, indptr = (
            torch.from_numpy(part).to(edge_index.device)
            for part in sort_arcs(
                source.cpu().contiguous().numpy(), target.cpu().contiguous().numpy(), num_nodes
            )
        )
        is_loop, counts = source == target, first.diff()
        single = counts.numel() == order.numel()
        graph = cls(
            num_nodes=num_nodes,
            indptr=indptr,
            senders=source[order if single else order[first[:-1]]],
            multiplicity=None if single else counts,
            self_loops=torch.bincount(source[is_loop], minlength=num_nodes),
            undirected=undirected,
            weight=None if edge_weight is None else _merged(edge_weight[order], counts),
            loop_weight=None if edge_weight is None else _loops(source, is_loop, edge_weight, num_nodes),
        )
        if undirected:
            _require_both_directions(graph)
        return graph

    @cached_property
    def receivers(self) -> Tensor:
        """The row of each entry of `senders`, [E], int64."""
        return torch.repeat_interleave(
            torch.arange(self.num_nodes, device=self.indptr.device), self.indptr.diff()
        )

    @cached_property
    def keys(self) -> Tensor:
        """``receiver * N + sender``, [E], int64, increasing."""
        return self.receivers * self.num_nodes + self.senders

    def find(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each arc source -> target exists, and its position in `senders` (clamped where not)."""
        wanted = target * self.num_nodes + source
        if not self.senders.numel():
            return torch.zeros_like(wanted, dtype=torch.bool), torch.zeros_like(wanted)
        position = torch.searchsorted(self.keys, wanted).clamp(max=self.keys.numel() - 1)
        return self.keys[position] == wanted, position

    def contains(self, edge_label_index: Tensor) -> Tensor:
        """Whether each pair [2, L] is an edge, [L], bool."""
        return self.find(edge_label_index[0], edge_label_index[1])[0]

    def arc_weights(self) -> Tensor | None:
        """What each arc counts for in a sum, [E]: weight or multiplicity; None where that is 1 for all."""
        return self.multiplicity if self.weight is None else self.weight

    def in_degree(self, *, weighted: bool = True) -> Tensor:
        """What enters each node but for self-loops, [N]: weights (float64), or the number of arcs (int64)."""
        values = self.arc_weights() if weighted else self.multiplicity
        if values is None:
            return self.indptr.diff()
        if values.is_floating_point():
            values = values.double()
        degree = torch.zeros(self.num_nodes, dtype=values.dtype, device=self.indptr.device)
        return degree.index_add_(0, self.receivers, values)

    def transposed(self) -> ToggleGraph:
        """The graph with every arc reversed: row i lists the out-neighbours of i."""
        # With repeated or weighted edges the two directions may differ.
        if self.undirected and self.multiplicity is None and self.weight is None:
            return self
        # The arcs are sorted by receiver, so a stable sort by sender sorts the reversed ones.
        order = torch.argsort(self.senders, stable=True)
        indptr = torch.zeros_like(self.indptr)
        indptr[1:] = torch.cumsum(torch.bincount(self.senders, minlength=self.num_nodes), 0)
        return ToggleGraph(
            num_nodes=self.num_nodes,
            indptr=indptr,
            senders=self.receivers[order],
            multiplicity=None if self.multiplicity is None else self.multiplicity[order],
            self_loops=self.self_loops,
            undirected=self.undirected,
            weight=None if self.weight is None else self.weight[order],
            loop_weight=self.loop_weight,
        )

    def both_directions(self) -> tuple[Array, Array, Array, Array]:
        """Rows that list in- and out-neighbours alike, for compiled code.

        Row starts [N + 1], nodes int32 [A] increasing in each row, and the positions [A] in `senders` of the
        arcs from and to the neighbour, -1 without one.
        """
        starts, nodes = neighbour_rows(torch.stack([self.senders, self.receivers]), self.num_nodes)
        row = torch.from_numpy(np.repeat(np.arange(self.num_nodes), np.diff(starts)))
        near = torch.from_numpy(nodes)
        arriving, leaving = (
            torch.where(found, position, -1).numpy()
            for found, position in (self.find(near, row), self.find(row, near))
        )
        return starts, nodes.astype(np.int32), arriving, leaving


def _merged(values: Tensor, counts: Tensor) -> Tensor:
    """Sums of consecutive values, `counts` of them each."""
    if counts.numel() == values.numel():
        return values
    owner = torch.repeat_interleave(torch.arange(counts.numel(), device=values.device), counts)
    return values.new_zeros(counts.numel()).index_add_(0, owner, values)


def _loops(source: Tensor, is_loop: Tensor, edge_weight: Tensor, num_nodes: int) -> Tensor:
    nodes, values = source[is_loop], edge_weight[is_loop]
    out = edge_weight.new_zeros(2, num_nodes)
    out[0].index_add_(0, nodes, values)
    # PyG's add_remaining_self_loops keeps the last of repeated loops.
    out[1][nodes] = values
    return out


def _require_both_directions(graph: ToggleGraph) -> None:
    single = one_way_arc(graph.indptr.cpu().numpy(), graph.senders.cpu().numpy())
    if single < 0:
        return
    source, target = int(graph.senders[single]), int(graph.receivers[single])
    raise InputError(
        f"edge_index must hold both directions of every edge when undirected=True, got ({source}, {target}) "
        f"without ({target}, {source}); pass undirected=False for a directed graph"
    )


# Arcs are sorted by counting, O(E + N), not by comparing.


@compiled()
def sort_arcs(source: Array, target: Array, num_nodes: int) -> tuple[Array, Array, Array]:
    """Arcs that are no self-loops by target, then source, repeated ones merged.

    Returns their positions in the given list (stable), the bounds there of each distinct arc, and the bounds
    in the distinct arcs of each target [N + 1].
    """
    order = np.flatnonzero(source != target)
    order = _sorted_by(target, _sorted_by(source, order, num_nodes), num_nodes)
    first = np.empty(order.size + 1, np.int64)
    indptr = np.zeros(num_nodes + 1, np.int64)
    distinct = 0
    for item in range(order.size):
        s, t = source[order[item]], target[order[item]]
        if item == 0 or s != source[order[item - 1]] or t != target[order[item - 1]]:
            first[distinct] = item
            distinct += 1
            indptr[t + 1] += 1
    first[distinct] = order.size
    for node in range(num_nodes):
        indptr[node + 1] += indptr[node]
    return order, first[: distinct + 1].copy(), indptr


@compiled()
def _sorted_by(values: Array, order: Array, size: int) -> Array:
    """`order` sorted stably by ``values[order]``, which are in [0, size)."""
    rising = True
    for item in range(1, order.size):
        rising &= values[order[item]] >= values[order[item - 1]]
    if rising:
        return order
    start = np.zeros(size + 1, np.int64)
    for item in order:
        start[values[item] + 1] += 1
    for value in range(size):
        start[value + 1] += start[value]
    out = np.empty_like(order)
    for item in order:
        value = values[item]
        out[start[value]] = item
        start[value] += 1
    return out


@compiled()
def one_way_arc(indptr: Array, senders: Array) -> int:
    """Position of the first arc j -> i without i -> j, or -1; one pointer per sorted row suffices."""
    pointer = indptr[:-1].copy()
    for i in range(indptr.size - 1):
        for position in range(indptr[i], indptr[i + 1]):
            j = senders[position]
            while pointer[j] < indptr[j + 1] and senders[pointer[j]] < i:
                pointer[j] += 1
            if pointer[j] == indptr[j + 1] or senders[pointer[j]] != i:
                return position
    return -1
