"""Toggling by delta propagation: plain torch, any graph of recognised convolutions, any device.

For a block of pairs the method carries the rows (pair, node) whose value differs from the cached forward
pass, round by round. A layer of the algebra moves row (p, i) by what its changed senders send now minus what
they sent before:

    aggregate'_i = aggregate_i + sum_{j changed} q_ij xi_ij (b'_j m'_j - b_j m_j) + (the toggled arcs' terms)

Attention is computed anew at these rows, over all arcs into them. What stands between the rounds treats every
node alone, and runs on the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from linkcal.toggle._graph import ToggleGraph, find_sorted
from linkcal.toggle._layers import (
    Attention,
    LayerCache,
    arc_change,
    degree_after,
    layer_cache,
    messages,
    receiver_factor,
    sender_factor,
)
from linkcal.toggle._recognise import Encoder
from linkcal.toggle._trace import Node, Program

#: Rows (pair, node) and arcs of 32 channels that one block may hold; a single pair may exceed it.
MAX_BLOCK_ARCS = 1 << 20
#: Rounding of a sum that vanished, in units of its largest part's; by how much a function may enlarge it.
_THIN, _MOST_BLOWN = 1e3, 100.0


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

    def none(self) -> PairRows:
        """No rows."""
        return PairRows(self.key[:0], self.num_nodes)

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
    doubtful: list[Tensor]  # pairs whose values hang on rounding, see `blown_up`


@dataclass(frozen=True, eq=False)
class AttentionCache:
    """Values of one attention on the graph as given."""

    layer: Attention
    senders: Tensor  # [N, s]
    receivers: Tensor  # [N, t]
    loops: Tensor  # [N]: how often a node attends to itself
    pre: Tensor  # [N, heads * c]


#: What is kept of each round.
Caches = dict[Node, LayerCache | AttentionCache]


def encoder_caches(encoder: Encoder, graph: ToggleGraph) -> tuple[Tensor, Caches]:
    """Node embeddings z [N, d] and each round's cache."""
    caches: Caches = {}
    for node, layer, sources, _ in encoder.rounds:
        values = [program([caches[each].pre for each in program.given]) for program in sources]
        cached = _attention_cache if isinstance(layer, Attention) else layer_cache
        caches[node] = cached(layer, graph, *values)  # type: ignore[arg-type]
    return encoder.output([caches[each].pre for each in encoder.output.given]), caches


def _attention_cache(
    layer: Attention, graph: ToggleGraph, senders: Tensor, receivers: Tensor
) -> AttentionCache:
    number, nodes = graph.num_nodes, torch.arange(graph.num_nodes, device=senders.device)
    loops = torch.ones_like(graph.self_loops) if layer.self_loops else graph.self_loops
    looped = nodes[loops > 0]
    source, target = (torch.cat([part, looped]) for part in (graph.senders, graph.receivers))
    repeated = graph.multiplicity if graph.multiplicity is not None else torch.ones_like(graph.senders)
    weight = torch.cat([repeated, loops[looped]])
    pre = layer(senders, source, receivers, target, weight, number)
    return AttentionCache(layer, senders, receivers, loops, pre)


def delta_endpoints(
    encoder: Encoder,
    caches: Caches,
    graph: ToggleGraph,
    pairs: Tensor,
    insert: Tensor,
    insert_weight: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Node embeddings [L, d] of both endpoints of each pair after its edge is toggled.

    Those of the first are NaN where rounding decides (see `blown_up`).
    """
    # A pair lists at most so many arcs in any layer; twice, where both endpoints meet all rows.
    cost = 2 * (2 + arcs_per_node(graph, encoder.depth)[pairs].sum(dim=0))
    parts = [
        _toggle_block(encoder, caches, graph, pairs[:, block], insert[block], insert_weight)
        for block in split_by_cost(cost, MAX_BLOCK_ARCS * 32 // max(32, encoder.widest))
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
    encoder: Encoder, caches: Caches, graph: ToggleGraph, pairs: Tensor, insert: Tensor, insert_weight: float
) -> tuple[Tensor, Tensor]:
    pairs = pairs.contiguous()
    key = torch.arange(pairs.size(1), device=pairs.device) * graph.num_nodes + pairs
    source, target, source_key, target_key = pairs[0], pairs[1], key[0], key[1]
    if graph.undirected:
        source, target, insert = pairs.flatten(), pairs.flip(0).flatten(), insert.repeat(2)
        source_key, target_key = key.flatten(), key.flip(0).flatten()
    change, count = arc_change(graph, source, target, insert, insert_weight)
    endpoints = PairRows(torch.unique(key.flatten()), graph.num_nodes)
    block = _Block(graph, endpoints, source, target, source_key, target_key, change, count, [])
    seen = [endpoints]  # by the number of rounds that follow; grown only where it is needed
    changed: dict[Node, tuple[PairRows, Tensor]] = {}
    for node, _, sources, remaining in encoder.rounds:
        moved = [_union([endpoints.none(), *(changed[each][0] for each in part.given)]) for part in sources]
        rows = _rows(remaining, caches[node], block, moved, seen)
        parts = zip(sources, moved, strict=True)
        inputs = [(at, _values(program, caches, changed, at, block)) for program, at in parts]
        advance = _attend if isinstance(caches[node], AttentionCache) else _advance
        changed[node] = rows, advance(caches[node], block, *inputs, rows=rows)  # type: ignore[arg-type]
    out = _values(encoder.output, caches, changed, endpoints, block)
    assert out is not None
    first, second = (out[endpoints.find(each)[1]] for each in key)
    for pair in block.doubtful:
        first[pair] = torch.nan
    return first, second


def _union(parts: Sequence[PairRows]) -> PairRows:
    parts = [part for part in parts if part.key.numel()] or [parts[0]]
    if len(parts) == 1:
        return parts[0]
    return PairRows(torch.unique(torch.cat([part.key for part in parts])), parts[0].num_nodes)


def _values(
    program: Program,
    caches: Caches,
    changed: Mapping[Node, tuple[PairRows, Tensor]],
    at: PairRows,
    block: _Block,
) -> Tensor | None:
    """A function of rounds after the toggle, at rows [R]; None where no toggle changes it."""
    given = [_overwritten(caches[each].pre, at.node, at.key, changed[each]) for each in program.given]
    if not given:
        return None
    out = program(given, at.node)
    rows = blown_up(program, given, [caches[each].pre[at.node] for each in program.given], at.node, out)
    block.doubtful.append(at.pair[rows])
    return out


def blown_up(
    program: Program, given: Sequence[Tensor], before: Sequence[Tensor], node: Tensor, out: Tensor
) -> Tensor:
    """Rows of `out`, a function of rows [R, k] after a toggle, that hang on the rounding of a difference.

    What a toggle takes from a sum leaves the rounding of its parts where the rest is 0. A normalisation makes
    a vector of length 1 of it. So values that all but vanished are set to 0: `out` must move no more than
    ``_MOST_BLOWN`` times as much.
    """
    eps = _THIN * torch.finfo(out.dtype).eps
    limits = [
        eps * torch.maximum(old.abs(), new.abs()).amax(dim=1) for old, new in zip(before, given, strict=True)
    ]
    thin = [(new != 0) & (new.abs() < limit[:, None]) for new, limit in zip(given, limits, strict=True)]
    rows = torch.stack([each.any(dim=1) for each in thin]).any(dim=0).nonzero()[:, 0]
    if not rows.numel():
        return rows
    parts = [(new[rows], each[rows]) for new, each in zip(given, thin, strict=True)]
    moved = program([new.masked_fill(each, 0) for new, each in parts], node[rows]) - out[rows]
    change = torch.stack([(new * each).abs().amax(dim=1) for new, each in parts]).amax(dim=0)
    return rows[moved.abs().amax(dim=1) > _MOST_BLOWN * change]


def _rows(
    remaining: int,
    cache: LayerCache | AttentionCache,
    block: _Block,
    moved: Sequence[PairRows],
    seen: list[PairRows],
) -> PairRows:
    """Rows to recompute in one round: those that can change and that the endpoints' output can see."""
    graph, sends = block.graph, isinstance(cache, LayerCache) and cache.layer.kind == "gcn"
    if remaining == 0 or not (sends or any(rows.key.numel() for rows in moved)):
        return block.endpoints
    parts = [block.endpoints, *(rows.grown(graph.transposed) for rows in moved if rows.key.numel())]
    if sends:
        # The degree of a toggled arc's target moves what that node sends to all its receivers.
        parts.append(PairRows(torch.unique(block.target_key), graph.num_nodes).grown(graph.transposed))
    while len(seen) <= remaining:
        seen.append(seen[-1].grown(graph))
    return _union(parts).within(seen[remaining])


def _attend(
    cache: AttentionCache,
    block: _Block,
    senders: tuple[PairRows, Tensor | None],
    receivers: tuple[PairRows, Tensor | None],
    *,
    rows: PairRows,
) -> Tensor:
    """Output [R, heads * c] of an attention at `rows`, over all arcs into them."""
    graph, node, number = block.graph, rows.node, len(rows.key)
    row, position = _expand(graph.indptr, node)
    source = graph.senders[position]
    weight = torch.ones_like(source) if graph.multiplicity is None else graph.multiplicity[position]
    found, into = rows.find(block.target_key)
    removed, added = found & (block.change < 0), found & (block.change > 0)
    partner = torch.full((number,), -1, dtype=torch.int64, device=source.device)
    partner[into[removed]] = block.source[removed]
    kept = partner[row] != source
    loops = cache.loops[node]
    looped = (loops > 0).nonzero()[:, 0]
    row = torch.cat([row[kept], looped, into[added]])
    source = torch.cat([source[kept], node[looped], block.source[added]])
    weight = torch.cat([weight[kept], loops[looped], torch.ones_like(into[added])])
    table, (moved, after) = cache.senders, senders
    if after is not None:
        known, place = moved.find(rows.pair[row] * rows.num_nodes + source)
        table, source = torch.cat([table, after]), torch.where(known, place + len(table), source)
    received = _overwritten(cache.receivers, node, rows.key, receivers)
    return cache.layer(table, source, received, row, weight, number)


def _overwritten(old: Tensor, node: Tensor, key: Tensor, changed: tuple[PairRows, Tensor | None]) -> Tensor:
    """Cached values of nodes [R], and in their place those that changed."""
    values, (rows, after) = old[node], changed
    if after is not None:
        found, row = rows.find(key)
        values[found] = after[row[found]]
    return values


def _advance(
    cache: LayerCache, block: _Block, source: tuple[PairRows, Tensor | None], *, rows: PairRows
) -> Tensor:
    """Output [R, k] of a layer at `rows`, from the changed rows of what it reads."""
    layer = cache.layer
    senders, before, after = _sender_values(cache, block, *source)
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
    return receiver_factor(layer.kind, degree, aggregate.dtype)[:, None] * aggregate


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
        message[senders.find(changed.key)[1]] = messages(cache.layer, hidden)
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
    sent = sender_factor(cache.layer.kind, cache.degree[source], after.dtype)[:, None] * cache.message[source]
    known, sender = senders.find(block.source_key[found])
    sent[known] = after[sender[known]]
    factor = cache.factor_between(source, block.target[found])
    if factor is not None:
        sent = sent * factor[:, None]
    aggregate.index_add_(0, row[found], sent * block.change[found].to(sent.dtype)[:, None])


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
