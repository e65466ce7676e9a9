"""Toggling by delta propagation: plain torch, any number of recognised layers, any device.

For a block of pairs the method carries the rows (pair, node) whose hidden value differs from the cached
forward pass. A layer moves row (p, i) by what its changed senders send now minus what they sent before:

    aggregate'_i = aggregate_i + sum_{j changed} q_ij xi_ij (b'_j m'_j - b_j m_j) + (the toggled arcs' terms)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from linkcal.toggle._graph import ToggleGraph, find_sorted
from linkcal.toggle._layers import LayerCache, arc_change, degree_after, receiver_factor, sender_factor

#: Rows (pair, node) and arcs that one block may hold; a single pair may exceed it.
MAX_BLOCK_ARCS = 1 << 20


@dataclass(frozen=True, eq=False)
class PairRows:
    """A sorted set of (pair, node) rows."""

    key: Tensor  # [R] pair * N + node, increasing
    num_nodes: int

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
        return find_sorted(self.key, key)

    def within(self, other: PairRows) -> PairRows:
        """The rows that are in `other` too."""
        return PairRows(self.key[other.find(self.key)[0]], self.num_nodes)

    def grown(self, graph: ToggleGraph) -> PairRows:
        """The rows and every node in their compressed row of `graph`."""
        owner, position = _expand(graph.indptr, self.node)
        key = self.pair[owner] * self.num_nodes + graph.senders[position]
        return PairRows(torch.unique(torch.cat([self.key, key])), self.num_nodes)


@dataclass(frozen=True, eq=False)
class _Block:
    """A block of pairs and the A arcs that toggle, both directions in an undirected graph."""

    graph: ToggleGraph
    endpoints: PairRows
    source: Tensor  # [A]
    target: Tensor  # [A]
    source_key: Tensor  # [A]: row of each arc's source
    target_key: Tensor  # [A]
    change: Tensor  # [A], float64: weight inserted, minus the weight removed
    count: Tensor  # [A], float64: +1 inserted, -multiplicity removed


def delta_endpoints(
    caches: Sequence[LayerCache],
    graph: ToggleGraph,
    pairs: Tensor,
    insert: Tensor,
    insert_weight: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Node embeddings [L, d] of both endpoints of each pair after its edge is toggled."""
    # A pair lists at most so many arcs in any layer; twice, where both endpoints meet all rows.
    cost = 2 * (2 + arcs_per_node(graph, len(caches))[pairs].sum(dim=0))
    parts = [
        _toggle_block(caches, graph, pairs[:, block], insert[block], insert_weight)
        for block in split_by_cost(cost, MAX_BLOCK_ARCS)
    ]
    return torch.cat([source for source, _ in parts]), torch.cat([target for _, target in parts])


def arcs_per_node(graph: ToggleGraph, depth: int) -> Tensor:
    """Upper bound on the arcs that are listed around one node in any layer, [N], int64."""
    reach = torch.maximum(graph.indptr.diff(), graph.transposed.indptr.diff())
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
        stop = max(int(torch.searchsorted(total, spent + budget, right=True)), start + 1)
        blocks.append(slice(start, stop))
        start = stop
    return blocks


def _toggle_block(
    caches: Sequence[LayerCache], graph: ToggleGraph, pairs: Tensor, insert: Tensor, insert_weight: float
) -> tuple[Tensor, Tensor]:
    pairs = pairs.contiguous()
    key = torch.arange(pairs.size(1), device=pairs.device) * graph.num_nodes + pairs
    source, target, source_key, target_key = pairs[0], pairs[1], key[0], key[1]
    if graph.undirected:
        source, target, insert = pairs.flatten(), pairs.flip(0).flatten(), insert.repeat(2)
        source_key, target_key = key.flatten(), key.flip(0).flatten()
    change, count = arc_change(graph, source, target, insert, insert_weight)
    endpoints = PairRows(torch.unique(key.flatten()), graph.num_nodes)
    block = _Block(graph, endpoints, source, target, source_key, target_key, change, count)
    changed, hidden = PairRows(endpoints.key[:0], graph.num_nodes), None
    for cache, rows in zip(caches, _rows_per_layer(block, caches), strict=True):
        hidden = _advance(cache, block, changed, hidden, rows)
        changed = rows
    assert hidden is not None
    return hidden[changed.find(key[0])[1]], hidden[changed.find(key[1])[1]]


def _rows_per_layer(block: _Block, caches: Sequence[LayerCache]) -> list[PairRows]:
    """Rows to recompute at each layer: those that can change and that the endpoints' output can see."""
    seen = [block.endpoints]  # by the number of layers that follow; grown only where it is needed
    touched = block.endpoints
    out = []
    for index, cache in enumerate(caches[:-1]):
        if index == 0 and cache.layer.kind != "gcn":
            out.append(touched)  # endpoints alone, and every later layer sees those
            continue
        if index > 0:
            touched = touched.grown(block.graph.transposed)
        else:
            # The degree of a toggled arc's target moves what that node sends to all its receivers.
            targets = PairRows(torch.unique(block.target_key), touched.num_nodes)
            targets = targets.grown(block.graph.transposed)
            touched = PairRows(torch.unique(torch.cat([targets.key, touched.key])), touched.num_nodes)
        while len(seen) < len(caches) - index:
            seen.append(seen[-1].grown(block.graph))
        touched = touched.within(seen[len(caches) - 1 - index])
        out.append(touched)
    return [*out, block.endpoints]


def _advance(
    cache: LayerCache, block: _Block, changed: PairRows, hidden: Tensor | None, rows: PairRows
) -> Tensor:
    """Output [R, c'] of one layer at `rows`, from the changed rows of the layer before."""
    layer = cache.layer
    senders, before, after = _sender_values(cache, block, changed, hidden)
    node = rows.node
    aggregate = cache.aggregate[node]
    if senders.key.numel():
        _add_moved(aggregate, after - before, cache, block, senders, rows)
    _add_toggled_arcs(aggregate, cache, block, senders, after, rows)
    sent = sender_factor(layer.kind, cache.degree[node], aggregate.dtype)[:, None] * cache.message[node]
    known, row = senders.find(rows.key)
    sent[known] = after[row[known]]
    aggregate += cache.loop[node][:, None] * sent
    degree = _toggled_degree(cache, block, rows)
    pre = receiver_factor(layer.kind, degree, aggregate.dtype)[:, None] * aggregate
    if cache.root is not None:
        root = cache.root[node]
        moved, row = changed.find(rows.key)
        if hidden is not None and layer.root_weight is not None:
            root[moved] = F.linear(hidden[row[moved]], layer.root_weight)
        pre = pre + root
    return layer.update(pre)


def _sender_values(
    cache: LayerCache, block: _Block, changed: PairRows, hidden: Tensor | None
) -> tuple[PairRows, Tensor, Tensor]:
    """Senders whose value ``b m`` moves, with their values before and after, [S, k] each."""
    key = changed.key
    if cache.layer.kind == "gcn":
        key = torch.cat([key, block.target_key])
    senders = PairRows(torch.unique(key), block.graph.num_nodes)
    node = senders.node
    message = cache.message[node]
    before = sender_factor(cache.layer.kind, cache.degree[node], message.dtype)[:, None] * message
    if hidden is not None and hidden.size(0):
        message[senders.find(changed.key)[1]] = F.linear(hidden, cache.layer.weight)
    degree = _toggled_degree(cache, block, senders)
    return senders, before, sender_factor(cache.layer.kind, degree, message.dtype)[:, None] * message


def _toggled_degree(cache: LayerCache, block: _Block, rows: PairRows) -> Tensor:
    """In-degree after the toggle at each row, [R], float64."""
    degree = cache.degree[rows.node]
    found, row = rows.find(block.target_key)
    degree[row[found]] = degree_after(cache, block.graph, block.target, block.change, block.count)[found]
    return degree


def _add_moved(
    aggregate: Tensor, moved: Tensor, cache: LayerCache, block: _Block, senders: PairRows, rows: PairRows
) -> None:
    """Add ``q_ij xi_ij moved_j`` over the arcs of the graph as given, from `senders` to `rows`, in place.

    Arcs are found by the way with fewer candidates: every sender of a pair with every row of it, or all arcs
    into the rows.
    """
    start = torch.searchsorted(senders.pair, torch.arange(int(rows.pair[-1]) + 2, device=moved.device))
    if _listed(start, rows.pair) <= _listed(block.graph.indptr, rows.node):
        row, sender = _expand(start, rows.pair)
        found, position = block.graph.find(senders.node[sender], rows.node[row])
    else:
        row, position = _expand(block.graph.indptr, rows.node)
        found, sender = senders.find(rows.pair[row] * rows.num_nodes + block.graph.senders[position])
    contribution = moved[sender[found]]
    if cache.arc_weight is not None:
        contribution = contribution * cache.arc_weight[position[found]][:, None]
    aggregate.index_add_(0, row[found], contribution)


def _add_toggled_arcs(
    aggregate: Tensor, cache: LayerCache, block: _Block, senders: PairRows, after: Tensor, rows: PairRows
) -> None:
    """Add each toggled arc's own term ``change * xi * b'_source m'_source`` at its target, in place."""
    found, row = rows.find(block.target_key)
    source = block.source[found]
    value = (
        sender_factor(cache.layer.kind, cache.degree[source], after.dtype)[:, None] * cache.message[source]
    )
    known, sender = senders.find(block.source_key[found])
    value[known] = after[sender[known]]
    factor = cache.factor_between(source, block.target[found])
    if factor is not None:
        value = value * factor[:, None]
    aggregate.index_add_(0, row[found], value * block.change[found].to(value.dtype)[:, None])


def _expand(indptr: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """For each entry of the nodes' compressed rows: which node of the list owns it, and its position."""
    start = indptr[nodes]
    count = indptr[nodes + 1] - start
    owner = torch.repeat_interleave(count)
    first = torch.cumsum(count, 0) - count
    return owner, torch.arange(owner.numel(), device=nodes.device) + (start - first)[owner]


def _listed(indptr: Tensor, rows: Tensor) -> int:
    """Entries in the given compressed rows."""
    return int((indptr[rows + 1] - indptr[rows]).sum())
