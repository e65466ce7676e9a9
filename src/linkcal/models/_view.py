"""A model in evaluation mode that its owner, and other threads, never see change."""

from __future__ import annotations

import copy

from torch import Tensor, nn


def evaluation_view(model: nn.Module) -> nn.Module:
    """Copy in evaluation mode that shares every tensor: the mode and hooks of `model` are seen by others."""
    shared = {
        id(value): value
        for module in model.modules()
        for values in (module._parameters, module._buffers, vars(module))
        for value in values.values()
        if isinstance(value, Tensor)
    }
    return copy.deepcopy(model, shared).eval()
