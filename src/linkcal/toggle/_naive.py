"""The reference: one forward pass of the whole graph for each toggled pair. Slow, obviously right."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def encode(model: nn.Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """Node embeddings [N, d]; ``encode`` gets `edge_weight` only where there are weights."""
    weights = {} if edge_weight is None else {"edge_weight": edge_weight}
    z: Tensor = model.encode(x, edge_index, **weights)  # type: ignore[operator]
    return z


def toggle_edge_index(
    edge_index: Tensor, source: int, target: int, *, insert: bool, undirected: bool
) -> Tensor:
    """New edge list [2, E'] with the edge inserted (last) or removed, in both directions if `undirected`."""
    if insert:
        arcs = [[source, target], [target, source]] if undirected else [[source, target]]
        return torch.cat([edge_index, edge_index.new_tensor(arcs).T], dim=1)
    return edge_index[:, _others(edge_index, source, target, undirected=undirected)]


def _others(edge_index: Tensor, source: int, target: int, *, undirected: bool) -> Tensor:
    """Which arcs are not the pair's own, [E], bool."""
    own = (edge_index[0] == source) & (edge_index[1] == target)
    if undirected:
        own |= (edge_index[0] == target) & (edge_index[1] == source)
    return ~own


def naive_endpoints(
    model: nn.Module,
    x: Tensor,
    edge_index: Tensor,
    pairs: Tensor,
    insert: Tensor,
    *,
    undirected: bool,
    edge_weight: Tensor | None = None,
    insert_weight: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Node embeddings [L, d] of both endpoints after each pair's edge is inserted, or removed."""
    sources, targets = [], []
    for (source, target), inserted in zip(pairs.T.tolist(), insert.tolist(), strict=True):
        toggled = toggle_edge_index(edge_index, source, target, insert=inserted, undirected=undirected)
        weight = edge_weight
        if weight is not None and inserted:
            added = weight.new_full((toggled.size(1) - weight.numel(),), insert_weight)
            weight = torch.cat([weight, added])
        elif weight is not None:
            weight = weight[_others(edge_index, source, target, undirected=undirected)]
        z = encode(model, x, toggled, weight)
        sources.append(z[source])
        targets.append(z[target])
    return torch.stack(sources), torch.stack(targets)
