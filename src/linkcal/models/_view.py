"""A model in evaluation mode that its owner, and other threads, never see change."""

from __future__ import annotations

import copy

from torch import Tensor, nn


def evaluation_view(model: nn.Module) -> nn.Module:
    """Copy of the module tree in evaluation mode that shares every tensor with `model`.

    The mode and hooks of the model itself are seen by its other users; the copy follows changes of the
    weights.
    """
    shared = {
        id(value): value
        for module in model.modules()
        for values in (module._parameters, module._buffers, vars(module))
        for value in values.values()
        if isinstance(value, Tensor)
    }
    return copy.deepcopy(model, shared).eval()
