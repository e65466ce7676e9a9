"""The reference: one forward pass of the whole graph for each toggled pair. Slow, obviously right."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["naive_endpoints", "toggle_edge_index"]


def toggle_edge_index(
    edge_index: Tensor, source: int, target: int, *, insert: bool, undirected: bool
) -> Tensor:
    """Edge list [2, E'] with the edge (source, target) inserted or removed; a new tensor.

    In an undirected graph both directions are toggled.
    """
    if insert:
        arcs = [[source, target], [target, source]] if undirected else [[source, target]]
        return torch.cat([edge_index, edge_index.new_tensor(arcs).T], dim=1)
    own = (edge_index[0] == source) & (edge_index[1] == target)
    if undirected:
        own |= (edge_index[0] == target) & (edge_index[1] == source)
    return edge_index[:, ~own]


def naive_endpoints(
    model: nn.Module, x: Tensor, edge_index: Tensor, pairs: Tensor, insert: Tensor, *, undirected: bool
) -> tuple[Tensor, Tensor]:
    """Node embeddings of both endpoints of each pair after its edge is toggled.

    Parameters
    ----------
    model : nn.Module
        In evaluation mode, with ``encode(x, edge_index)``.
    x : Tensor
        What ``encode`` takes: features [N, F] or node ids [N].
    edge_index : Tensor [2, E]
    pairs : Tensor [2, L], int64
    insert : Tensor [L], bool
        Whether the edge is inserted (True) or removed (False).
    undirected : bool

    Returns
    -------
    z_source, z_target : Tensor [L, d]
    """
    sources, targets = [], []
    for (source, target), inserted in zip(pairs.T.tolist(), insert.tolist(), strict=True):
        toggled = toggle_edge_index(edge_index, source, target, insert=inserted, undirected=undirected)
        z = model.encode(x, toggled)  # type: ignore[operator]
        sources.append(z[source])
        targets.append(z[target])
    return torch.stack(sources), torch.stack(targets)
