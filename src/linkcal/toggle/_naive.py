"""The reference: one forward pass of the whole graph for each toggled pair. Slow, obviously right."""

from typing import Any

import torch
from torch import Tensor, nn


def encode(model: nn.Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """Node embeddings [N, d]; ``encode`` gets `edge_weight` only where there are weights."""
    weights = {} if edge_weight is None else {"edge_weight": edge_weight}
    z: Tensor = model.encode(x, edge_index, **weights)  # type: ignore[operator]
    return z


def toggle_edge_index(
    edge_index: Tensor,
    source: int,
    target: int,
    *,
    insert: bool,
    undirected: bool,
    edge_weight: Tensor | None = None,
    insert_weight: float = 1.0,
) -> tuple[Tensor, Tensor | None]:
    """New edge list [2, E'] and weights, the edge inserted (last) or removed, both ways if `undirected`."""
    if insert:
        arcs = [[source, target], [target, source]] if undirected else [[source, target]]
        if edge_weight is not None:
            edge_weight = torch.cat([edge_weight, edge_weight.new_full((len(arcs),), insert_weight)])
        return torch.cat([edge_index, edge_index.new_tensor(arcs).T], dim=1), edge_weight
    own = (edge_index[0] == source) & (edge_index[1] == target)
    if undirected:
        own |= (edge_index[0] == target) & (edge_index[1] == source)
    return edge_index[:, ~own], None if edge_weight is None else edge_weight[~own]


def naive_endpoints(
    model: nn.Module, x: Tensor, edge_index: Tensor, pairs: Tensor, insert: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """Node embeddings [L, d] of both endpoints after :func:`toggle_edge_index`, with its `options`."""
    sources, targets = [], []
    for (source, target), inserted in zip(pairs.T.tolist(), insert.tolist(), strict=True):
        z = encode(model, x, *toggle_edge_index(edge_index, source, target, insert=inserted, **options))
        sources.append(z[source])
        targets.append(z[target])
    return torch.stack(sources), torch.stack(targets)
