"""What any link predictor returns, checked: logits, link embeddings, the auxiliary loss."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch_geometric.nn.models import VGAE

from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models.declared import DecodeReturns, is_pyg_autoencoder, resolve_decode_returns

__all__ = ["auxiliary_loss_of", "describe_value", "link_embedding_of", "logits_of"]


def logits_of(
    model: nn.Module,
    z: Tensor,
    edge_label_index: Tensor,
    decode_returns: DecodeReturns | None = None,
) -> Tensor:
    """Logits [L] of pairs, whatever the model's ``decode`` returns.

    Probabilities p become ``log(p / (1 - p))`` after clipping to ``[eps, 1 - eps]`` with the machine epsilon
    of their dtype (float32: logits within +-15.9; float64: within +-36), so they are always finite. PyG's
    inner-product autoencoders are asked for their true logits instead, which do not saturate.

    Parameters
    ----------
    model : nn.Module
        With ``decode(z, edge_label_index)``.
    z : Tensor [N, d]
        Node embeddings.
    edge_label_index : Tensor [2, L], int64
    decode_returns : {"logits", "probabilities"}, optional
        See :func:`resolve_decode_returns`.

    Returns
    -------
    Tensor [L]

    Raises
    ------
    InputError
        If declared probabilities lie outside [0, 1], or nothing is declared.
    UnsupportedModelError
        If ``decode`` does not return a float tensor of shape [L].

    Examples
    --------
    >>> class Halves(torch.nn.Module):
    ...     def encode(self, x, edge_index):
    ...         return x
    ...     def decode(self, z, edge_label_index):
    ...         return torch.full((edge_label_index.size(1),), 0.5)
    >>> logits_of(Halves(), torch.ones(3, 2), torch.tensor([[0], [1]]), "probabilities")
    tensor([0.])
    """
    returns = resolve_decode_returns(model, decode_returns)
    decode = cast("Any", model).decode
    if is_pyg_autoencoder(model):
        return _checked_scores(model, decode(z, edge_label_index, sigmoid=False), edge_label_index)
    scores = _checked_scores(model, decode(z, edge_label_index), edge_label_index)
    if returns == "logits":
        return scores
    outside = ~((scores >= 0) & (scores <= 1))  # also true for NaN
    if bool(outside.any()):
        raise InputError(
            f"{type(model).__name__}.decode is declared to return probabilities, which must be in [0, 1], "
            f"got {float(scores[outside][0].detach())!r}"
        )
    return torch.logit(scores, eps=torch.finfo(scores.dtype).eps)


def link_embedding_of(model: nn.Module, z: Tensor, edge_label_index: Tensor) -> Tensor:
    """Link embeddings h [L, d]: the model's own ``link_embedding``, else the pointwise product ``z_u * z_v``.

    Parameters
    ----------
    model : nn.Module
    z : Tensor [N, d]
    edge_label_index : Tensor [2, L], int64

    Returns
    -------
    Tensor [L, d]

    Raises
    ------
    UnsupportedModelError
        If the model's own ``link_embedding`` does not return a tensor of shape [L, d].

    Examples
    --------
    >>> z = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> link_embedding_of(nn.Identity(), z, torch.tensor([[0], [1]]))
    tensor([[3., 8.]])
    """
    own = getattr(model, "link_embedding", None)
    if own is None:
        return embedding(edge_label_index[0], z) * embedding(edge_label_index[1], z)
    h = own(z, edge_label_index)
    expected = edge_label_index.size(1)
    if not isinstance(h, Tensor) or h.ndim != 2 or h.size(0) != expected:
        raise UnsupportedModelError(
            f"{type(model).__name__}.link_embedding must return a tensor of shape [{expected}, d], "
            f"got {describe_value(h)}"
        )
    return h


def auxiliary_loss_of(model: nn.Module, num_nodes: int) -> Tensor | None:
    """Term that the model adds to the training loss after ``encode`` in training mode, or None.

    The model's own ``auxiliary_loss()``; for PyG's ``VGAE`` its KL divergence over the number of nodes
    (Kipf and Welling, arXiv 1611.07308).

    Parameters
    ----------
    model : nn.Module
    num_nodes : int
        N of the graph that was encoded.

    Returns
    -------
    Tensor of shape [] or None

    Examples
    --------
    >>> from linkcal.models import GCN, VGAE
    >>> auxiliary_loss_of(GCN(3), 3) is None
    True
    >>> model = VGAE(3)
    >>> _ = model.encode(torch.eye(3), torch.tensor([[0, 1], [1, 0]]))
    >>> bool(auxiliary_loss_of(model, 3) > 0)
    True
    """
    own = getattr(model, "auxiliary_loss", None)
    if own is not None:
        loss: Tensor | None = own()
        return loss
    if isinstance(model, VGAE):
        return torch.as_tensor(model.kl_loss()) / num_nodes
    return None


def _checked_scores(model: nn.Module, scores: Any, edge_label_index: Tensor) -> Tensor:
    expected = edge_label_index.size(1)
    if not isinstance(scores, Tensor) or scores.shape != (expected,) or not scores.dtype.is_floating_point:
        raise UnsupportedModelError(
            f"{type(model).__name__}.decode must return a float tensor of shape [{expected}], "
            f"got {describe_value(scores)}"
        )
    return scores


def describe_value(value: Any) -> str:
    """Type and shape of a value, for a message."""
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
