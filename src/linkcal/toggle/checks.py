"""Checks of what the public functions are given."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from linkcal._validation import check_edge_index, check_no_self_pairs, check_positive_float
from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models import PairPredictor, unwrap_link_predictor

__all__ = ["check_pairs", "check_weights"]


def check_pairs(x: Tensor, edge_label_index: Tensor) -> Tensor:
    """Checked pairs [2, L], int64, after the check of `x` that gives the number of nodes."""
    if not isinstance(x, Tensor) or x.ndim not in (1, 2):
        shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x must be a tensor of shape [N, F] or [N], got {shape}")
    # The sum is finite only if all values are, and costs a tenth of asking each.
    finite = not x.dtype.is_floating_point or bool(x.sum().isfinite())
    if not finite and not bool(torch.isfinite(x).all()):
        raise InputError(f"x must be finite, {int((~torch.isfinite(x)).sum())} values are not")
    return check_no_self_pairs(check_edge_index(edge_label_index, x.size(0), "edge_label_index"))


def check_weights(
    predictor: nn.Module, edge_weight: Tensor | None, insert_weight: float, edge_index: Tensor
) -> None:
    """Check `edge_weight` and `insert_weight`, and that the model's ``encode`` takes weights."""
    if edge_weight is None:
        if insert_weight != 1.0:
            raise InputError(f"insert_weight must be 1.0 without edge_weight, got {insert_weight!r}")
        return
    expected = [edge_index.size(1)]
    if not isinstance(edge_weight, Tensor) or list(edge_weight.shape) != expected:
        came = list(edge_weight.shape) if isinstance(edge_weight, Tensor) else type(edge_weight).__name__
        raise InputError(f"edge_weight must be a tensor of shape {expected}, got {came}")
    if not edge_weight.dtype.is_floating_point:
        raise InputError(f"edge_weight must hold floats, got {edge_weight.dtype}")
    wrong = ~(torch.isfinite(edge_weight) & (edge_weight >= 0))
    if bool(wrong.any()):
        raise InputError(f"edge_weight must be finite and >= 0, got {float(edge_weight[wrong][0])}")
    check_positive_float(insert_weight, "insert_weight", zero=True)
    takes: Any = None
    if not isinstance(predictor, PairPredictor):
        takes = inspect.signature(unwrap_link_predictor(predictor).encode).parameters  # type: ignore[arg-type]
    if takes is None or not any(p.name == "edge_weight" or p.kind is p.VAR_KEYWORD for p in takes.values()):
        name = type(unwrap_link_predictor(predictor)).__name__
        raise UnsupportedModelError(f"model.encode must take edge_weight to use it, {name}'s does not")
