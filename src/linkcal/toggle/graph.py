"""The message graph in the form that toggling reads: sorted compressed rows, weights, self-loops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from linkcal._threads import numba_threads
from linkcal.exceptions import InputError
from linkcal.toggle.graph_kernel import (
    find_arcs,
    opposite_arcs,
    row_starts_if_sorted,
    rows_are_symmetric,
    sort_arcs,
)
from linkcal.toggle.memory import at_hand

__all__ = ["ToggleGraph"]

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
