"""Parts of DGCNN: propagation over many small graphs at once, and pooling of their nodes in sorted order."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from linkcal.models._subgraphs import SubgraphBatch

__all__ = ["normalised_adjacency", "propagate", "sort_pool"]


def sort_pool(x: Tensor, start: Tensor, k: int) -> Tensor:
    """Rows of the k nodes of each subgraph with the largest last channel, in falling order, [P, k, C].

    Parameters
    ----------
    x : Tensor [M, C]
    start : Tensor [P + 1], int64
        First row of each subgraph.
    k : int
        Smaller subgraphs are filled up with zeros; equal keys keep the order of the rows.
    """
    sizes = start.diff()
    owner = torch.repeat_interleave(torch.arange(sizes.numel(), device=x.device), sizes)
    order = torch.argsort(x[:, -1], descending=True, stable=True)
    order = order[torch.argsort(owner[order], stable=True)]
    rank = torch.arange(x.size(0), device=x.device) - start[owner]
    kept = rank < k
    pooled = x.new_zeros(sizes.numel() * k, x.size(1))
    pooled = pooled.index_copy(0, (owner * k + rank)[kept], x[order[kept]])
    return pooled.view(sizes.numel(), k, x.size(1))


def propagate(adjacency: Tensor, x: Tensor) -> Tensor:
    """``A x`` [M, C] for a symmetric sparse A [M, M] that needs no gradient."""
    propagated: Tensor = _Propagate.apply(adjacency, x)  # type: ignore[no-untyped-call]
    return propagated


class _Propagate(torch.autograd.Function):
    """``A x`` for a symmetric sparse A that needs no gradient; the gradient of x is then ``A grad``."""

    @staticmethod
    def forward(ctx: Any, adjacency: Tensor, x: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return adjacency @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.adjacency @ grad


def normalised_adjacency(batch: SubgraphBatch, dtype: torch.dtype) -> Tensor:
    """``D^-1/2 (A + I) D^-1/2`` of the batch, sparse [M, M] (Kipf and Welling, arXiv 1609.02907)."""
    degree = batch.indptr.diff()
    root = degree.to(dtype).rsqrt()
    values = torch.repeat_interleave(root, degree) * root[batch.neighbors]
    size = (degree.numel(), degree.numel())
    with warnings.catch_warnings():
        # torch announces on first use that compressed tensors are in beta; only their product is used here.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
        return torch.sparse_csr_tensor(
            batch.indptr, batch.neighbors, values, size=size, check_invariants=False
        )
