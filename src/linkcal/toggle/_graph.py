"""The message-passing graph as toggling reads it: sorted compressed rows, weights, self-loops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads
from linkcal.data.graph import place_in_row
from linkcal.exceptions import InputError
from linkcal.toggle._compiled import at_hand, fetch_row, prefetch

__all__ = [
    "ToggleGraph",
    "find_arcs",
    "opposite_arcs",
    "row_starts_if_sorted",
    "rows_are_symmetric",
    "sort_arcs",
    "sort_by_value",
    "sum_rows",
]


# Compiled parts of :mod:`.graph`: sorting arcs into rows, finding arcs, matching opposite arcs.
#
# Node numbers are small integers, so arcs are sorted by counting (two passes, O(E + N)), not by comparing.

Array = Any  # int64 arrays, unless said otherwise

#: How many entries ahead what an entry leads to is asked for; where that leads on, twice as many.
_AHEAD = 16


@compiled()
def sort_by_value(values: Array, order: Array, size: int) -> Array:
    """`order` sorted stably by ``values[order]``, which are in [0, size); int64."""
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
def _without_loops(source: Array, target: Array) -> Array:
    """Positions of the arcs that join two different nodes."""
    out = np.empty(source.size, np.int64)
    count = 0
    for arc in range(source.size):
        if source[arc] != target[arc]:
            out[count] = arc
            count += 1
    return out[:count]


@compiled()
def _is_sorted(values: Array, order: Array) -> bool:
    rising = True
    for item in range(1, order.size):
        rising &= values[order[item]] >= values[order[item - 1]]
    return rising


@compiled()
def sort_arcs(source: Array, target: Array, num_nodes: int) -> tuple[Array, Array, Array]:
    """Arcs that are no self-loops by target, then source, repeated ones merged.

    Parameters
    ----------
    source, target : int64 [E']
    num_nodes : int

    Returns
    -------
    order : int64 [A]
        Positions of the arcs in the given list, sorted; equal arcs in their given order.
    first : int64 [E + 1]
        Bounds in `order` of each distinct arc.
    indptr : int64 [N + 1]
        Bounds in the distinct arcs of each target.
    """
    order = _without_loops(source, target)
    if not _is_sorted(source, order):
        order = sort_by_value(source, order, num_nodes)
    order = sort_by_value(target, order, num_nodes)
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
def row_starts_if_sorted(row: Array, column: Array, num_nodes: int) -> Array:
    """Where each row starts, int64 [N + 1], in entries that increase by row, then column.

    Empty where they do not, or where an entry is repeated or lies on the diagonal.
    """
    starts = np.zeros(num_nodes + 1, np.int64)
    last_row, last_column = 0, -1
    for item in range(row.size):
        r, c = row[item], column[item]
        if r < last_row or (r == last_row and c <= last_column) or r == c:
            return starts[:0]
        for node in range(last_row, r):
            starts[node + 1] = item
        last_row, last_column = r, c
    for node in range(last_row, num_nodes):
        starts[node + 1] = row.size
    return starts


@compiled(parallel=True)
def rows_are_symmetric(starts: Array, columns: Array, pointers: Array) -> bool:
    """Whether j stands in row i wherever i stands in row j; rows increase, without i in row i.

    `pointers` [T, N] is workspace: each of T threads takes about as many entries.
    """
    parts, matched = pointers.shape[0], 0
    for part in prange(parts):
        first = np.searchsorted(starts[:-1], columns.size * part // parts) if part else 0
        last = starts.size - 1
        if part + 1 < parts:
            last = np.searchsorted(starts[:-1], columns.size * (part + 1) // parts)
        matched += _matched(starts, columns, pointers[part], first, last)
    # Each entry above the diagonal has met its own one below it; now they are as many.
    return bool(2 * matched == columns.size)


@compiled()
def _matched(starts: Array, columns: Array, pointer: Array, first: int, last: int) -> int:
    """How many entries above the diagonal rows `first` to `last` hold; 0 if one lacks that below it.

    Rows are visited in increasing order, so the rows i < j that list j are met in the order in which row j
    must list them.
    """
    for j in range(first, starts.size - 1):
        pointer[j] = starts[j]
        while pointer[j] < starts[j + 1] and columns[pointer[j]] < first:
            pointer[j] += 1
    above = 0
    for i in range(first, last):
        for position in range(starts[i], starts[i + 1]):
            if position + 2 * _AHEAD < columns.size:
                prefetch(pointer, columns[position + 2 * _AHEAD])
                prefetch(starts, columns[position + 2 * _AHEAD] + 1)
                if columns[position + _AHEAD] > i:
                    prefetch(columns, pointer[columns[position + _AHEAD]])
            j = columns[position]
            if j > i:
                place = pointer[j]
                if place == starts[j + 1] or columns[place] != i:
                    return 0
                pointer[j] = place + 1
                above += 1
    return above


@compiled()
def opposite_arcs(indptr: Array, senders: Array) -> Array:
    """For each arc j -> i the position of the arc i -> j, or -1 where there is none; int64 [E].

    Rows are visited in increasing order and each is sorted, so the arcs out of a node are met in the order in
    which its own row lists them: one pointer per row suffices.
    """
    out = np.full(senders.size, -1, np.int64)
    pointer = indptr[:-1].copy()
    for i in range(indptr.size - 1):
        for position in range(indptr[i], indptr[i + 1]):
            j = senders[position]
            while pointer[j] < indptr[j + 1] and senders[pointer[j]] < i:
                pointer[j] += 1
            if pointer[j] < indptr[j + 1] and senders[pointer[j]] == i:
                out[position] = pointer[j]
    return out


@compiled(parallel=True)
def find_arcs(indptr: Array, senders: Array, source: Array, target: Array) -> Array:
    """Position of each arc source -> target in `senders`, or -1 where there is none; int64 [L]."""
    out = np.empty(source.size, np.int64)
    for item in prange(source.size):
        if item + 12 < source.size:
            prefetch(indptr, target[item + 12])
            prefetch(senders, indptr[target[item + 6]])
        row = target[item]
        out[item] = place_in_row(senders, indptr[row], indptr[row + 1], source[item])
    return out


@compiled(parallel=True)
def sum_rows(starts: Array, columns: Array, weights: Array, values: Array, out: Array) -> None:
    """``out[i] = sum_j weights_ij values[j]`` over the entries j of each row i.

    Parameters
    ----------
    starts : int64 [N + 1]
    columns : int64 [E]
    weights : float [E], or [0] where all are 1
    values, out : float [N, k]
    """
    for i in prange(starts.size - 1):
        for c in range(out.shape[1]):
            out[i, c] = 0.0
        for position in range(starts[i], starts[i + 1]):
            if position + _AHEAD < columns.size:
                fetch_row(values, columns[position + _AHEAD])
            j = columns[position]
            if weights.size:
                for c in range(out.shape[1]):
                    out[i, c] += weights[position] * values[j, c]
            else:
                for c in range(out.shape[1]):
                    out[i, c] += values[j, c]


# The message-passing graph in the form that toggling reads: sorted compressed rows, weights, self-loops.

#: Parts in which rows are looked through at once: each takes 8 bytes for each node.
_MOST_PARTS = 4


@dataclass(frozen=True, eq=False)
class ToggleGraph:
    """Compressed sparse rows of a graph without its self-loops, which are kept apart.

    Row i of (`indptr`, `senders`) lists the in-neighbours of i in increasing order. Repeated arcs are merged
    and their number is the multiplicity: message passing over two equal arcs is message passing over one of
    weight 2.

    Parameters
    ----------
    num_nodes : int
    indptr : Tensor [N + 1], int64
    senders : Tensor [E], int64
    multiplicity : Tensor [E], int64, or None when every arc occurs once
    self_loops : Tensor [N], int64
        Multiplicity of the self-loop at each node.
    undirected : bool
    weight : Tensor [E], float, or None
        Weight of each arc, repeated ones summed; None where the graph has no weights and an arc counts as
        often as it occurs.
    loop_weight : Tensor [2, N], float, or None
        Weight of each node's self-loops: their sum, and that of the last one in the given order.
    """

    num_nodes: int
    indptr: Tensor
    senders: Tensor
    multiplicity: Tensor | None
    self_loops: Tensor
    undirected: bool
    weight: Tensor | None = None
    loop_weight: Tensor | None = None

    @classmethod
    def from_edge_index(
        cls, edge_index: Tensor, num_nodes: int, *, undirected: bool, edge_weight: Tensor | None = None
    ) -> ToggleGraph:
        """Compress an edge list [2, E], source row first, with weights [E] or without.

        Raises
        ------
        InputError
            If `undirected` and some edge stands in one direction only.
        """
        source, target = edge_index[0], edge_index[1]
        if undirected and edge_weight is None and edge_index.device.type == "cpu":
            graph = _already_rows(source, target, num_nodes)
            if graph is not None:
                return graph
        sort = _sort_compiled if edge_index.device.type == "cpu" else _sort_by_torch
        order, first, indptr = sort(source, target, num_nodes)
        is_loop = source == target
        counts = first.diff()
        graph = cls(
            num_nodes=num_nodes,
            indptr=indptr,
            senders=_taken(source, order if counts.numel() == order.numel() else order[first[:-1]]),
            multiplicity=None if counts.numel() == order.numel() else counts,
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

    def opposite(self) -> Tensor:
        """Position of each arc's opposite arc in `senders`, -1 where there is none, [E], int64."""
        if self.indptr.device.type == "cpu":
            return torch.from_numpy(opposite_arcs(self.indptr.numpy(), self.senders.numpy()))
        found, position = self.find(self.receivers, self.senders)
        return torch.where(found, position, -1)

    def find(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each arc source -> target exists, and its position in `senders` (clamped where not)."""
        if not self.senders.numel():
            nothing = torch.zeros_like(source)
            return nothing.bool(), nothing
        if self.indptr.device.type == "cpu":
            rows = (self.indptr.numpy(), self.senders.numpy())
            with numba_threads(torch.get_num_threads()):
                position = torch.from_numpy(
                    find_arcs(*rows, source.contiguous().numpy(), target.contiguous().numpy())
                )
            return position >= 0, position.clamp(min=0)
        wanted = target * self.num_nodes + source
        position = torch.searchsorted(self.keys, wanted).clamp(max=self.keys.numel() - 1)
        return self.keys[position] == wanted, position

    def arc_weights(self) -> Tensor | None:
        """What each arc counts for in a sum, [E]: weight or multiplicity; None where that is 1 for all."""
        return self.multiplicity if self.weight is None else self.weight

    def contains(self, edge_label_index: Tensor) -> Tensor:
        """Whether each pair [2, L] is an edge, [L], bool."""
        return self.find(edge_label_index[0], edge_label_index[1])[0]

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
            undirected=False,
            weight=None if self.weight is None else self.weight[order],
            loop_weight=self.loop_weight,
        )


def _already_rows(source: Tensor, target: Tensor, num_nodes: int) -> ToggleGraph | None:
    """The graph of an edge list that is one of sorted rows already: each once, in both directions, no loops.

    As PyG's ``coalesce`` and :class:`linkcal.data.Graph` leave it. Nothing has to be sorted then: read by
    senders or by receivers, the rows are the same. None for any other list.
    """
    rows, columns = source.contiguous().numpy(), target.contiguous().numpy()
    indptr = row_starts_if_sorted(rows, columns, num_nodes)
    if indptr.size != num_nodes + 1:
        return None
    # The copies that the graph keeps are read, and the workspace is made here, since NumPy's pages are large.
    indptr, senders = at_hand(indptr), np.array(columns)
    pointers = np.empty((min(torch.get_num_threads(), _MOST_PARTS), num_nodes), dtype=np.int64)
    with numba_threads(pointers.shape[0]):
        if not rows_are_symmetric(indptr, senders, pointers):
            return None
    return ToggleGraph(
        num_nodes=num_nodes,
        indptr=torch.from_numpy(indptr),
        senders=torch.from_numpy(senders),
        multiplicity=None,
        self_loops=source.new_zeros(num_nodes),
        undirected=True,
    )


def _taken(values: Tensor, index: Tensor) -> Tensor:
    if values.device.type != "cpu":
        return values[index]
    out = torch.from_numpy(np.empty(index.numel(), dtype=np.int64))
    return torch.index_select(values, 0, index, out=out)


def _sort_compiled(source: Tensor, target: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    order, first, indptr = sort_arcs(source.contiguous().numpy(), target.contiguous().numpy(), num_nodes)
    return torch.from_numpy(order), torch.from_numpy(first), torch.from_numpy(at_hand(indptr))


def _sort_by_torch(source: Tensor, target: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same as :func:`.graph_kernel.sort_arcs`, on any device."""
    arcs = torch.nonzero(source != target)[:, 0]
    keys, order = torch.sort(target[arcs] * num_nodes + source[arcs], stable=True)
    distinct, counts = torch.unique_consecutive(keys, return_counts=True)
    first, indptr = counts.new_zeros(counts.numel() + 1), counts.new_zeros(num_nodes + 1)
    first[1:] = torch.cumsum(counts, 0)
    if num_nodes:
        rows = torch.div(distinct, num_nodes, rounding_mode="floor")
        indptr[1:] = torch.cumsum(torch.bincount(rows, minlength=num_nodes), 0)
    return arcs[order], first, indptr


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
    # As PyG's add_remaining_self_loops writes it: of repeated loops the last one is left.
    out[1][nodes] = values
    return out


def _require_both_directions(graph: ToggleGraph) -> None:
    lonely = torch.nonzero(graph.opposite() < 0)
    if not lonely.numel():
        return
    source, target = int(graph.senders[lonely[0]]), int(graph.receivers[lonely[0]])
    raise InputError(
        f"edge_index must hold both directions of every edge when undirected=True, got ({source}, {target}) "
        f"without ({target}, {source}); pass undirected=False for a directed graph"
    )
