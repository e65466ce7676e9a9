"""Anyone's ``encode`` / ``decode`` module as a link predictor."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from linkcal.exceptions import UnsupportedModelError
from linkcal.models.base import (
    DecodeReturns,
    GraphModel,
    auxiliary_loss_of,
    check_link_predictor,
    describe_value,
    link_embedding_of,
    logits_of,
    resolve_decode_returns,
)

__all__ = ["AdaptedLinkPredictor", "as_link_predictor", "unwrap_link_predictor"]


class AdaptedLinkPredictor(nn.Module):
    """A module from elsewhere behind linkcal's interface: ``decode`` returns logits [L].

    Made by :func:`as_link_predictor`. The wrapped module is the attribute ``module`` and is not changed.

    Parameters
    ----------
    module : nn.Module
    module_returns : {"logits", "probabilities"}
        What the wrapped module's ``decode`` returns.

    Examples
    --------
    >>> import torch
    >>> class Halves(nn.Module):
    ...     def encode(self, x, edge_index):
    ...         return x
    ...     def decode(self, z, edge_label_index):
    ...         return torch.full((edge_label_index.size(1),), 0.5)
    >>> pair = torch.tensor([[0], [1]])
    >>> AdaptedLinkPredictor(Halves(), "probabilities")(torch.ones(3, 2), pair, pair)
    tensor([0.])
    """

    decode_returns = "logits"

    def __init__(self, module: nn.Module, module_returns: DecodeReturns) -> None:
        super().__init__()
        self.module = module
        self.module_returns = module_returns
        self._num_nodes = 0

    def encode(self, x: Tensor, edge_index: Tensor, **options: Any) -> Tensor:
        """Node embeddings z [N, d] of the wrapped module; `options` (``edge_weight=``) are handed on."""
        z = cast("Any", self.module).encode(x, edge_index, **options)
        if not isinstance(z, Tensor) or z.ndim != 2:
            raise UnsupportedModelError(
                f"{type(self.module).__name__}.encode must return a tensor of shape [N, d], "
                f"got {describe_value(z)}"
            )
        self._num_nodes = z.size(0)
        return z

    def link_embedding(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Link embeddings h [L, d], see :func:`link_embedding_of`."""
        return link_embedding_of(self.module, z, edge_label_index)

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L], see :func:`logits_of`."""
        return logits_of(self.module, z, edge_label_index, self.module_returns)

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L] of pairs [2, L] on the graph `edge_index`."""
        return self.decode(self.encode(x, edge_index), edge_label_index)

    def auxiliary_loss(self) -> Tensor | None:
        """See :func:`auxiliary_loss_of`."""
        return auxiliary_loss_of(self.module, self._num_nodes)


def as_link_predictor(model: nn.Module, decode_returns: DecodeReturns | None = None) -> nn.Module:
    """Return `model` behind linkcal's interface (``decode`` gives logits), checked.

    A :class:`LinkPredictor`, a :class:`PairPredictor` or an already adapted model comes back as it is.

    Parameters
    ----------
    model : nn.Module
        With ``encode(x, edge_index) -> z [N, d]`` and ``decode(z, edge_label_index) -> [L]``.
    decode_returns : {"logits", "probabilities"}, optional
        What ``model.decode`` returns; None reads the model's attribute ``decode_returns``.

    Returns
    -------
    LinkPredictor, PairPredictor or AdaptedLinkPredictor

    Raises
    ------
    UnsupportedModelError
        If a method is missing.
    InputError
        If nothing is declared, or a wrong thing (see :func:`resolve_decode_returns`).

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.nn import GAE
    >>> model = as_link_predictor(GAE(torch.nn.Identity()))
    >>> model.decode(2 * torch.ones(2, 1), torch.tensor([[0], [1]]))
    tensor([4.])
    """
    check_link_predictor(model)
    returns = resolve_decode_returns(model, decode_returns)
    if isinstance(model, (GraphModel, AdaptedLinkPredictor)):
        return model
    return AdaptedLinkPredictor(model, returns)


def unwrap_link_predictor(model: nn.Module) -> nn.Module:
    """Return the module that does the work: the adapted one, or `model` itself.

    Parameters
    ----------
    model : nn.Module

    Returns
    -------
    nn.Module

    Examples
    --------
    >>> from torch_geometric.nn import GAE
    >>> model = GAE(nn.Identity())
    >>> unwrap_link_predictor(as_link_predictor(model)) is model
    True
    """
    return model.module if isinstance(model, AdaptedLinkPredictor) else model
