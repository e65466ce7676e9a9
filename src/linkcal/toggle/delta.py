"""Toggling by delta propagation: plain torch, any number of recognised layers, any device.

For a block of pairs the method carries a sparse set of rows (pair, node) whose hidden value differs from the
cached forward pass. A layer moves row (p, i) by what its changed senders send now minus what they sent
before:

    aggregate'_i = aggregate_i + sum_{j changed} q_ij xi_ij (b'_j m'_j - b_j m_j) + (toggled arcs' own terms)

so the work per pair is the number of arcs inside its L-hop neighbourhood that can carry a change, not the
graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from linkcal.toggle.algebra import receiver_factor, sender_factor
from linkcal.toggle.cache import LayerCache
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.pair_rows import (
    Block,
    PairRows,
    arcs_per_pair,
    expand,
    make_block,
    rows_per_layer,
    split_by_cost,
)

__all__ = ["delta_endpoints"]

#: Rows (pair, node) and arcs that one block may hold; with k = 32 in float32 about 0.5 GB at the peak.
MAX_BLOCK_ARCS = 1 << 20


def delta_endpoints(
    caches: Sequence[LayerCache],
    graph: ToggleGraph,
    pairs: Tensor,
    insert: Tensor,
    *,
    insert_weight: float = 1.0,
    max_block_arcs: int = MAX_BLOCK_ARCS,
) -> tuple[Tensor, Tensor]:
    """Node embeddings of both endpoints of each pair after its edge is toggled.

    Parameters
    ----------
    caches : sequence of LayerCache
        From :func:`linkcal.toggle.cache.forward_with_cache` on the graph as given.
    graph : ToggleGraph
    pairs : Tensor [2, L], int64
    insert : Tensor [L], bool
    insert_weight : float
        Weight of inserted edges.
    max_block_arcs : int
        Bound on the arcs held at once; a single pair may exceed it.

    Returns
    -------
    z_source, z_target : Tensor [L, d]
    """
    receivers = graph.transposed()
    sources, targets = [], []
    for block in split_by_cost(arcs_per_pair(graph, receivers, pairs, len(caches)), max_block_arcs):
        toggled = make_block(graph, receivers, pairs[:, block], insert[block], insert_weight)
        z_source, z_target = _toggle_block(caches, toggled, pairs[:, block])
        sources.append(z_source)
        targets.append(z_target)
    return torch.cat(sources), torch.cat(targets)


def _toggle_block(caches: Sequence[LayerCache], block: Block, pairs: Tensor) -> tuple[Tensor, Tensor]:
    num_nodes = block.graph.num_nodes
    changed, hidden = PairRows(block.endpoints.key[:0], num_nodes), None
    for index, rows in enumerate(rows_per_layer(block, caches)):
        hidden = _advance(caches[index], block, changed, hidden, rows)
        changed = rows
    assert hidden is not None
    number = torch.arange(pairs.size(1), device=pairs.device) * num_nodes
    return hidden[changed.find(number + pairs[0])[1]], hidden[changed.find(number + pairs[1])[1]]


def _advance(
    cache: LayerCache, block: Block, changed: PairRows, hidden: Tensor | None, rows: PairRows
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
    degree = _toggled_degree(cache, block, rows)
    looped = cache.self_loop[node]
    if cache.loop_factor is not None:
        looped = looped * cache.loop_factor
    aggregate += looped[:, None] * sent
    pre = receiver_factor(layer.kind, degree, aggregate.dtype)[:, None] * aggregate
    if layer.root is not None:
        assert cache.root is not None
        root = cache.root[node]
        moved, row = changed.find(rows.key)
        if hidden is not None and bool(moved.any()):
            root[moved] = layer.root(hidden[row[moved]])
        pre = pre + root
    return layer.update(pre)


def _sender_values(
    cache: LayerCache, block: Block, changed: PairRows, hidden: Tensor | None
) -> tuple[PairRows, Tensor, Tensor]:
    """Senders whose value ``b m`` moves, with their values before and after, [S, k] each."""
    key = changed.key
    if cache.layer.kind == "gcn":
        key = torch.cat([key, block.target_key])
    senders = PairRows.of(key, block.graph.num_nodes)
    node = senders.node
    message = cache.message[node]
    before = sender_factor(cache.layer.kind, cache.degree[node], message.dtype)[:, None] * message
    if hidden is not None and hidden.size(0):
        message[senders.find(changed.key)[1]] = cache.layer.message(hidden)
    degree = _toggled_degree(cache, block, senders)
    return senders, before, sender_factor(cache.layer.kind, degree, message.dtype)[:, None] * message


def _toggled_degree(cache: LayerCache, block: Block, rows: PairRows) -> Tensor:
    """In-degree after the toggle at each row, [R], float64."""
    found, row = rows.find(block.target_key)
    change = (block.count if cache.layer.kind == "mean" else block.change)[found]
    degree = cache.degree[rows.node].index_add_(0, row[found], change)
    if cache.layer.kind == "mean":
        return degree
    # What is left when a node's only arc goes is its self-loop, without the rounding of a difference.
    row, target = row[found], block.target[found]
    alone = (change < 0) & (block.graph.indptr[target + 1] - block.graph.indptr[target] == 1)
    degree[row[alone]] = cache.self_loop[target[alone]].to(degree.dtype)
    return degree


def _add_moved(
    aggregate: Tensor, moved: Tensor, cache: LayerCache, block: Block, senders: PairRows, rows: PairRows
) -> None:
    """Add ``q_ij xi_ij moved_j`` over the arcs of the graph as given, from `senders` to `rows`, in place.

    The arcs are found in whichever way lists the fewest candidates: all that leave the senders (push), all
    that enter the rows (pull), or every sender of a pair with every row of it (join).
    """
    push = _listed(block.receivers.indptr, senders.node)
    pull = _listed(block.graph.indptr, rows.node)
    start = torch.searchsorted(senders.pair, torch.arange(int(rows.pair[-1]) + 2, device=moved.device))
    join = _listed(start, rows.pair)
    if join <= min(push, pull):
        row, sender = expand(start, rows.pair)
        found, position = block.graph.find(senders.node[sender], rows.node[row])
        weight = _taken(block.graph.arc_weights(), position[found])
    elif push < pull:
        sender, position = expand(block.receivers.indptr, senders.node)
        found, row = rows.find(senders.pair[sender] * rows.num_nodes + block.receivers.senders[position])
        weight = _taken(block.receivers.arc_weights(), position[found])
    else:
        row, position = expand(block.graph.indptr, rows.node)
        found, sender = senders.find(rows.pair[row] * rows.num_nodes + block.graph.senders[position])
        weight = _taken(block.graph.arc_weights(), position[found])
    contribution = moved[sender[found]]
    if weight is not None:
        contribution = contribution * weight.to(moved.dtype)[:, None]
    if cache.arc_factor is not None:
        place = block.graph.find(senders.node[sender[found]], rows.node[row[found]])[1]
        contribution = contribution * cache.arc_factor[place][:, None]
    aggregate.index_add_(0, row[found], contribution)


def _listed(indptr: Tensor, rows: Tensor) -> int:
    """Entries in the given compressed rows."""
    return int((indptr[rows + 1] - indptr[rows]).sum())


def _taken(values: Tensor | None, position: Tensor) -> Tensor | None:
    return None if values is None else values[position]


def _add_toggled_arcs(
    aggregate: Tensor, cache: LayerCache, block: Block, senders: PairRows, after: Tensor, rows: PairRows
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
