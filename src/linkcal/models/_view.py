"""A model in evaluation mode that its owner, and other threads, never see change."""

from __future__ import annotations

import copy

from torch import Tensor, nn

__all__ = ["evaluation_view"]


def evaluation_view(model: nn.Module) -> nn.Module:
    """The same model in evaluation mode, as modules of its own that share every tensor.

    Switching the mode of the model itself, or hanging hooks on it, would be seen by everybody who uses it at
    the same time. The view is a copy of the module tree; parameters, buffers and other tensors are the
    originals, so that it costs no memory and follows later changes of the weights.

    Parameters
    ----------
    model : nn.Module

    Returns
    -------
    nn.Module
        Of the same class, in evaluation mode.
    """
    shared: dict[int, object] = {}
    for module in model.modules():
        for value in (
            *module.parameters(recurse=False),
            *module.buffers(recurse=False),
            *vars(module).values(),
        ):
            if isinstance(value, Tensor):
                shared[id(value)] = value
    return copy.deepcopy(model, shared).eval()
