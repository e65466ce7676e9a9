"""Link embeddings and logits of pairs of rows, by the model or, where it multiplies the rows, compiled."""

from __future__ import annotations

from typing import Any

import torch
from numba import njit, prange
from torch import Tensor, nn

from linkcal._threads import numba_threads
from linkcal.models import LinkPredictor, link_embedding_of
from linkcal.toggle.memory import empty_rows

__all__ = ["embed_and_score", "widened"]

Array = Any  # int64 arrays of indices, float arrays of one dtype


def embed_and_score(model: nn.Module, rows: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Link embeddings [L, d] and logits [L] of pairs [2, L] of `rows`, at least in float32."""
    h = _products(rows, index) if _multiplies(model, rows) else link_embedding_of(model, rows, index)
    known = isinstance(model, LinkPredictor) and type(model).decode is LinkPredictor.decode
    if known and "decode" not in vars(model):
        logit: Tensor = model.head(h)  # type: ignore[operator]  # as decode does, without embedding again
    else:
        logit = model.decode(rows, index)  # type: ignore[operator]
    return widened(h), widened(logit)


def widened(values: Tensor) -> Tensor:
    """Half precision as float32, which holds each of its values; anything else as it is.

    NumPy has no bfloat16, and a calibrated probability needs more digits than a half-precision score has.
    """
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def _multiplies(model: nn.Module, rows: Tensor) -> bool:
    """Whether the model's ``link_embedding`` is the product of two rows, and compiled code can take it."""
    return (
        isinstance(model, LinkPredictor)
        and type(model).link_embedding is LinkPredictor.link_embedding
        and "link_embedding" not in vars(model)
        and rows.device.type == "cpu"
        and rows.dtype in (torch.float32, torch.float64)
    )


def _products(rows: Tensor, index: Tensor) -> Tensor:
    out = empty_rows(index.size(1), rows.size(1), rows)
    with numba_threads(torch.get_num_threads()):
        _row_products(rows.detach().numpy(), index[0].numpy(), index[1].numpy(), out.numpy())
    return out


@njit(parallel=True, cache=True)
def _row_products(rows: Array, first: Array, second: Array, out: Array) -> None:
    """``out[i] = rows[first[i]] * rows[second[i]]``: one pass, where torch writes both factors down."""
    for item in prange(first.size):
        u, v = first[item], second[item]
        for c in range(rows.shape[1]):
            out[item, c] = rows[u, c] * rows[v, c]
