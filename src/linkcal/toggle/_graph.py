"""The message-passing graph as toggling reads it: sorted rows of in-neighbours, weights, self-loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
        source, target = edge_index[0].long(), edge_index[1].long()
        is_loop = source == target
        key, order = (target * num_nodes + source)[~is_loop].sort(stable=True)
        order = (~is_loop).nonzero()[:, 0][order]
        key, counts = key.unique_consecutive(return_counts=True)
        receivers = torch.div(key, num_nodes, rounding_mode="floor")
        weight = None if edge_weight is None else edge_weight[order]
        if weight is not None and counts.numel() < weight.numel():
            rows = torch.repeat_interleave(counts)
            weight = weight.new_zeros(counts.numel()).index_add_(0, rows, weight)
        graph = cls(
            num_nodes=num_nodes, indptr=_row_starts(receivers, num_nodes),
            senders=key - receivers * num_nodes,
            multiplicity=None if counts.numel() == order.numel() else counts,
            self_loops=torch.bincount(source[is_loop], minlength=num_nodes), undirected=undirected,
            weight=weight,
            loop_weight=None if edge_weight is None else _loops(source, is_loop, edge_weight, num_nodes),
        )  # fmt: skip
        if undirected:
            _require_both_directions(graph)
        return graph

    @cached_property
    def receivers(self) -> Tensor:
        """The row of each entry of `senders`, [E], int64."""
        return torch.repeat_interleave(self.indptr.diff())

    @cached_property
    def keys(self) -> Tensor:
        """``receiver * N + sender``, [E], int64, increasing."""
        return self.receivers * self.num_nodes + self.senders

    def find(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each arc source -> target exists, and its position in `senders` (clamped where not)."""
        return find_sorted(self.keys, target * self.num_nodes + source)

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
        values = values.double() if values.is_floating_point() else values
        return values.new_zeros(self.num_nodes).index_add_(0, self.receivers, values)

    @cached_property
    def transposed(self) -> ToggleGraph:
        """The graph with every arc reversed, without weights: row i lists the out-neighbours of i."""
        # With repeated edges the two directions may differ.
        if self.undirected and self.multiplicity is None:
            return self
        # The arcs are sorted by receiver, so a stable sort by sender sorts the reversed ones.
        senders, order = self.senders.sort(stable=True)
        return replace(
            self, indptr=_row_starts(senders, self.num_nodes), senders=self.receivers[order],
            multiplicity=None if self.multiplicity is None else self.multiplicity[order], weight=None,
            loop_weight=None,
        )  # fmt: skip

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


def find_sorted(values: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each wanted number is among the increasing `values`, and its position (clamped where not)."""
    if not values.numel():
        return torch.zeros_like(wanted, dtype=torch.bool), torch.zeros_like(wanted)
    position = torch.searchsorted(values, wanted).clamp(max=values.numel() - 1)
    return values[position] == wanted, position


def _row_starts(sorted_rows: Tensor, num_nodes: int) -> Tensor:
    return torch.searchsorted(sorted_rows, torch.arange(num_nodes + 1, device=sorted_rows.device))


def _loops(source: Tensor, is_loop: Tensor, edge_weight: Tensor, num_nodes: int) -> Tensor:
    nodes, values = source[is_loop], edge_weight[is_loop]
    out = edge_weight.new_zeros(2, num_nodes)
    out[0].index_add_(0, nodes, values)
    # PyG's add_remaining_self_loops keeps the last of repeated loops.
    out[1][nodes] = values
    return out


def _require_both_directions(graph: ToggleGraph) -> None:
    senders, order = graph.senders.sort(stable=True)
    if torch.equal(senders, graph.receivers) and torch.equal(graph.receivers[order], graph.senders):
        return
    single = int((~graph.find(graph.receivers, graph.senders)[0]).nonzero()[0])
    source, target = int(graph.senders[single]), int(graph.receivers[single])
    raise InputError(
        f"edge_index must hold both directions of every edge when undirected=True, got ({source}, {target}) "
        f"without ({target}, {source}); pass undirected=False for a directed graph"
    )


@compiled()
def search_around(u: int, v: int, starts: Any, neighbours: Any, slot: Any, ball: Any, upto: Any) -> None:
    """List the nodes around u and v by distance; ``upto[r]`` of them are within r steps.

    ``slot`` [N], all -1 before, holds their places in ``ball`` afterwards; the caller clears it.
    """
    ball[0], ball[1] = u, v
    slot[u], slot[v] = 0, 1
    upto[0] = 2
    first, count = 0, 2
    for radius in range(1, upto.size):
        last = count
        for place in range(first, last):
            node = ball[place]
            for position in range(starts[node], starts[node + 1]):
                other = neighbours[position]
                if slot[other] < 0:
                    slot[other] = count
                    ball[count] = other
                    count += 1
        first = last
        upto[radius] = count
