"""What delta propagation works on: blocks of pairs, their toggled arcs, and sets of rows (pair, node)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from linkcal.toggle.cache import LayerCache
from linkcal.toggle.graph import ToggleGraph

__all__ = [
    "Block",
    "PairRows",
    "arc_change",
    "arcs_per_node",
    "arcs_per_pair",
    "expand",
    "make_block",
    "rows_per_layer",
    "split_by_cost",
]


@dataclass(frozen=True, eq=False)
class PairRows:
    """A sorted set of (pair, node) rows."""

    key: Tensor  # [R] pair * N + node, increasing
    num_nodes: int

    @classmethod
    def of(cls, key: Tensor, num_nodes: int) -> PairRows:
        """The set of given keys, in any order and with repeats."""
        return cls(torch.unique(key), num_nodes)

    @property
    def pair(self) -> Tensor:
        """Pair of each row, [R]."""
        return torch.div(self.key, self.num_nodes, rounding_mode="floor")

    @property
    def node(self) -> Tensor:
        """Node of each row, [R]."""
        return self.key % self.num_nodes

    def find(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each key is in the set, and its row (clamped where not)."""
        if not self.key.numel():
            return torch.zeros_like(key, dtype=torch.bool), torch.zeros_like(key)
        row = torch.searchsorted(self.key, key).clamp(max=self.key.numel() - 1)
        return self.key[row] == key, row

    def within(self, other: PairRows) -> PairRows:
        """The rows that are in `other` too."""
        return PairRows(self.key[other.find(self.key)[0]], self.num_nodes)


@dataclass(frozen=True, eq=False)
class Block:
    """A block of P pairs and the A arcs that toggle.

    Arc a belongs to pair `pair`, runs `source` -> `target` and changes its weight by `change` and the number
    of arcs by `count`.
    """

    graph: ToggleGraph  # rows list senders
    receivers: ToggleGraph  # rows list receivers
    endpoints: PairRows
    pair: Tensor  # [A]
    source: Tensor  # [A]
    target: Tensor  # [A]
    change: Tensor  # [A], float64: weight inserted, minus the weight removed
    count: Tensor  # [A], float64: +1 inserted, -multiplicity removed

    @property
    def source_key(self) -> Tensor:
        """Row of each toggled arc's source, [A]."""
        return self.pair * self.graph.num_nodes + self.source

    @property
    def target_key(self) -> Tensor:
        """Row of each toggled arc's target, [A]."""
        return self.pair * self.graph.num_nodes + self.target


def make_block(
    graph: ToggleGraph, receivers: ToggleGraph, pairs: Tensor, insert: Tensor, insert_weight: float
) -> Block:
    """A block of pairs [2, P] with the arcs that toggle: both directions in an undirected graph."""
    number = torch.arange(pairs.size(1), device=pairs.device)
    source, target = pairs
    if graph.undirected:
        source, target = torch.cat([pairs[0], pairs[1]]), torch.cat([pairs[1], pairs[0]])
        number, insert = number.repeat(2), insert.repeat(2)
    base = torch.arange(pairs.size(1), device=pairs.device) * graph.num_nodes
    endpoints = PairRows.of(torch.cat([base + pairs[0], base + pairs[1]]), graph.num_nodes)
    change, count = arc_change(graph, source, target, insert, insert_weight)
    return Block(graph, receivers, endpoints, number, source, target, change, count)


def arc_change(
    graph: ToggleGraph, source: Tensor, target: Tensor, insert: Tensor, insert_weight: float
) -> tuple[Tensor, Tensor]:
    """Change of the weight and of the number of each toggled arc, [A], float64."""
    position = graph.find(source, target)[1]
    changes = []
    for values, inserted in ((graph.arc_weights(), insert_weight), (graph.multiplicity, 1.0)):
        present = torch.ones_like(position, dtype=torch.float64)
        if values is not None and values.numel():
            present = values[position].double()
        changes.append(torch.where(insert, inserted, -present))
    return changes[0], changes[1]


def rows_per_layer(block: Block, caches: Sequence[LayerCache]) -> list[PairRows]:
    """Rows to recompute at each layer: those that can change and that the endpoints' output can see."""
    seen = [block.endpoints]  # by the number of layers that follow; grown only where it is needed
    touched = block.endpoints
    out = []
    for index, cache in enumerate(caches[:-1]):
        if index == 0 and cache.layer.kind != "gcn":
            out.append(touched)  # endpoints alone, and every later layer sees those
            continue
        if index > 0:
            touched = _grow(touched, block.receivers)
        else:
            # The degree of a toggled arc's target moves what that node sends to all its receivers.
            targets = _grow(PairRows.of(block.target_key, touched.num_nodes), block.receivers)
            touched = PairRows.of(torch.cat([targets.key, touched.key]), touched.num_nodes)
        while len(seen) < len(caches) - index:
            seen.append(_grow(seen[-1], block.graph))
        touched = touched.within(seen[len(caches) - 1 - index])
        out.append(touched)
    return [*out, block.endpoints]


def _grow(rows: PairRows, graph: ToggleGraph) -> PairRows:
    """The rows and every node in their compressed row of `graph`."""
    owner, position = expand(graph.indptr, rows.node)
    key = rows.pair[owner] * rows.num_nodes + graph.senders[position]
    return PairRows.of(torch.cat([rows.key, key]), rows.num_nodes)


def expand(indptr: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """For each entry of the nodes' compressed rows: which node of the list owns it, and its position."""
    start = indptr[nodes]
    count = indptr[nodes + 1] - start
    owner = torch.repeat_interleave(torch.arange(nodes.numel(), device=nodes.device), count)
    first = torch.cumsum(count, 0) - count
    position = torch.arange(owner.numel(), device=nodes.device) + (start - first)[owner]
    return owner, position


def arcs_per_pair(graph: ToggleGraph, receivers: ToggleGraph, pairs: Tensor, depth: int) -> Tensor:
    """Upper bound on the arcs that one pair lists in any layer, [L], int64."""
    reach = arcs_per_node(graph, receivers, depth)
    return 2 + reach[pairs[0]] + reach[pairs[1]]


def arcs_per_node(graph: ToggleGraph, receivers: ToggleGraph, depth: int) -> Tensor:
    """Upper bound on the arcs that are listed around one node in any layer, [N], int64."""
    reach = torch.maximum(graph.indptr.diff(), receivers.indptr.diff())
    for _ in range(depth - 2):
        reach = reach + torch.zeros_like(reach).index_add_(0, graph.receivers, reach[graph.senders])
        # A pair cannot list more than all arcs, and unbounded the walks of a deep model overflow.
        reach = reach.clamp(max=graph.senders.numel())
    return reach


def split_by_cost(cost: Tensor, budget: int) -> list[slice]:
    """Consecutive blocks whose cost stays within the budget; each holds at least one pair."""
    total = torch.cumsum(cost, 0)
    blocks, start = [], 0
    while start < cost.numel():
        spent = int(total[start - 1]) if start else 0
        stop = int(torch.searchsorted(total, spent + budget, right=True))
        stop = max(stop, start + 1)
        blocks.append(slice(start, stop))
        start = stop
    return blocks
