"""A layer's update written step by step, in the form that compiled code evaluates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from linkcal.toggle.algebra import Elementwise, Step

__all__ = ["AddBias", "bias_step", "followed_by_step", "mlp_steps"]


class AddBias(nn.Module):
    """What is left of a linear map once its matrix was applied before the sum."""

    def __init__(self, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """Rows [n, k] plus the bias."""
        return x if self.bias is None else x + self.bias


def bias_step(bias: Tensor | None, weight: Tensor) -> tuple[Step, ...] | None:
    """The bias as an elementwise step on the rows that `weight` [k, c] made."""
    shift = weight.new_zeros(weight.size(0)) if bias is None else bias
    return (Elementwise(torch.ones_like(shift), shift.detach(), slope=1.0),)


def mlp_steps(mlp: nn.Module, first: Any) -> tuple[Step, ...] | None:
    """A GIN's MLP step by step, its first matrix left out; None where it cannot be written so."""
    steps = bias_step(first.bias, first.weight)
    modules: list[nn.Module]
    if isinstance(mlp, pyg.MLP):
        modules, last = [], len(mlp.lins) - 1
        for index, linear in enumerate(mlp.lins):
            modules.append(linear)
            if index < last or not mlp.plain_last:
                activation = [] if mlp.act is None else [mlp.act]
                norm = [mlp.norms[index]]
                modules += activation + norm if mlp.act_first else norm + activation
    else:
        modules = list(mlp) if isinstance(mlp, nn.Sequential) else [mlp]
    for module in modules[1:]:
        steps = followed_by_step(steps, module)
    return steps


def followed_by_step(before: tuple[Step, ...] | None, module: nn.Module) -> tuple[Step, ...] | None:
    """The steps with one more module; None where compiled code has no form for it."""
    if before is None or isinstance(module, nn.Identity | nn.Dropout):
        return before
    if isinstance(module, nn.Linear | pyg.Linear):
        bias = bias_step(module.bias, module.weight)
        assert bias is not None
        return (*before, module.weight.detach(), *bias)
    last = before[-1]
    assert isinstance(last, Elementwise)
    affine = _affine(module)
    if affine is not None:
        if last.slope == 1.0:
            scale, shift = affine
            return (*before[:-1], Elementwise(last.scale * scale, last.shift * scale + shift, 1.0))
        return (*before, Elementwise(*affine, 1.0))
    slope = 0.0 if isinstance(module, nn.ReLU) else getattr(module, "negative_slope", None)
    if not isinstance(module, nn.ReLU | nn.LeakyReLU) or slope is None or not 0.0 <= slope <= 1.0:
        return None
    if last.slope == 1.0:
        return (*before[:-1], replace(last, slope=float(slope)))
    return (*before, Elementwise(torch.ones_like(last.scale), torch.zeros_like(last.scale), float(slope)))


def _affine(module: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Scale and shift of a batch norm in evaluation mode; None for other modules."""
    norm = module.module if isinstance(module, pyg.BatchNorm) else module
    if not isinstance(norm, nn.BatchNorm1d) or norm.running_var is None or norm.running_mean is None:
        return None
    scale = (norm.running_var + norm.eps).rsqrt()
    if not norm.affine:
        return scale, -norm.running_mean * scale
    scale = scale * norm.weight.detach()
    return scale, norm.bias.detach() - norm.running_mean * scale
