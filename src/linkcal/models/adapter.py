"""Anyone's ``encode`` / ``decode`` module as a link predictor: what it must have, and what its scores are.

Whether ``decode`` returns logits or probabilities is declared (argument or attribute ``decode_returns``) and
never guessed from values: small logits lie in [0, 1] too.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch_geometric.nn.models import GAE, VGAE, InnerProductDecoder

from linkcal._validation import check_choice
from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models.base import GraphModel, PairPredictor

__all__ = [
    "AdaptedLinkPredictor",
    "DecodeReturns",
    "as_link_predictor",
    "auxiliary_loss_of",
    "check_link_predictor",
    "link_embedding_of",
    "logits_of",
    "resolve_decode_returns",
    "unwrap_link_predictor",
]

#: What a model's ``decode`` returns.
DecodeReturns = Literal["logits", "probabilities"]

_REQUIRED_METHODS = {
    "encode": "encode(x, edge_index)",
    "decode": "decode(z, edge_label_index)",
}


def check_link_predictor(model: Any) -> None:
    """Check that `model` is a module with ``encode`` and ``decode``, or a :class:`PairPredictor`.

    Raises
    ------
    UnsupportedModelError
        If it is not; the message names what is missing.
    """
    if not isinstance(model, nn.Module):
        raise UnsupportedModelError(
            f"model must be a torch.nn.Module with encode and decode, got {_describe(model)}"
        )
    if isinstance(model, PairPredictor):
        return
    missing = [text for name, text in _REQUIRED_METHODS.items() if not callable(getattr(model, name, None))]
    if missing:
        raise UnsupportedModelError(
            f"model must have {' and '.join(_REQUIRED_METHODS.values())}, "
            f"{_describe(model)} lacks {' and '.join(missing)}"
        )


def resolve_decode_returns(model: nn.Module, decode_returns: DecodeReturns | None = None) -> DecodeReturns:
    """Tell what ``model.decode`` returns, as declared by the argument or the model's attribute.

    PyG's ``GAE`` and ``VGAE`` with their inner-product decoder are known to return probabilities and need no
    declaration.

    Parameters
    ----------
    model : nn.Module
    decode_returns : {"logits", "probabilities"}, optional
        None reads the model's attribute of that name.

    Returns
    -------
    {"logits", "probabilities"}

    Raises
    ------
    InputError
        If nothing is declared, the value is unknown, or argument, attribute and what is known of the class
        contradict each other.

    Examples
    --------
    >>> from torch_geometric.nn import GAE
    >>> resolve_decode_returns(GAE(torch.nn.Identity()))
    'probabilities'
    """
    options = get_args(DecodeReturns)
    declared: dict[str, str] = {}
    if decode_returns is not None:
        declared["the argument"] = check_choice(decode_returns, "decode_returns", options)
    attribute = getattr(model, "decode_returns", None)
    if attribute is not None:
        declared["the model's attribute"] = check_choice(attribute, "model.decode_returns", options)
    if _is_pyg_autoencoder(model):
        declared["PyG's GAE.decode (its sigmoid is on by default)"] = "probabilities"
    if not declared:
        raise InputError(
            f"decode_returns must be declared as 'logits' or 'probabilities' for {_describe(model)} "
            "(argument decode_returns, or an attribute of that name on the model), got None"
        )
    if len(set(declared.values())) > 1:
        said = ", ".join(f"{who} says {value!r}" for who, value in declared.items())
        raise InputError(f"decode_returns must not contradict what is known of {_describe(model)}: {said}")
    return cast("DecodeReturns", next(iter(declared.values())))


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
    if _is_pyg_autoencoder(model):
        return _checked_scores(model, decode(z, edge_label_index, sigmoid=False), edge_label_index)
    scores = _checked_scores(model, decode(z, edge_label_index), edge_label_index)
    if returns == "logits":
        return scores
    outside = ~((scores >= 0) & (scores <= 1))  # also true for NaN
    if bool(outside.any()):
        raise InputError(
            f"{_describe(model)}.decode is declared to return probabilities, which must be in [0, 1], "
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
    """
    own = getattr(model, "link_embedding", None)
    if own is None:
        return embedding(edge_label_index[0], z) * embedding(edge_label_index[1], z)
    h = own(z, edge_label_index)
    expected = edge_label_index.size(1)
    if not isinstance(h, Tensor) or h.ndim != 2 or h.size(0) != expected:
        raise UnsupportedModelError(
            f"{_describe(model)}.link_embedding must return a tensor of shape [{expected}, d], "
            f"got {_describe_value(h)}"
        )
    return h


def auxiliary_loss_of(model: nn.Module, num_nodes: int) -> Tensor | None:
    """Term that the model adds to the training loss after ``encode`` in training mode, or None.

    The model's own ``auxiliary_loss()``; for PyG's ``VGAE`` its KL divergence over the number of nodes
    (Kipf and Welling, arXiv 1611.07308).
    """
    own = getattr(model, "auxiliary_loss", None)
    if own is not None:
        loss: Tensor | None = own()
        return loss
    if isinstance(model, VGAE):
        return torch.as_tensor(model.kl_loss()) / num_nodes
    return None


class AdaptedLinkPredictor(nn.Module):
    """A module from elsewhere behind linkcal's interface: ``decode`` returns logits [L].

    Made by :func:`as_link_predictor`. The wrapped module is the attribute ``module`` and is not changed.

    Parameters
    ----------
    module : nn.Module
    module_returns : {"logits", "probabilities"}
        What the wrapped module's ``decode`` returns.
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
                f"{_describe(self.module)}.encode must return a tensor of shape [N, d], "
                f"got {_describe_value(z)}"
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
    """Return the module that does the work: the adapted one, or `model` itself."""
    return model.module if isinstance(model, AdaptedLinkPredictor) else model


def _is_pyg_autoencoder(model: nn.Module) -> bool:
    """Whether ``decode`` is PyG's own, ending in its inner-product decoder with a sigmoid by default."""
    return (
        isinstance(model, GAE)
        and type(model).decode is GAE.decode
        and type(model.decoder).forward is InnerProductDecoder.forward
    )


def _checked_scores(model: nn.Module, scores: Any, edge_label_index: Tensor) -> Tensor:
    expected = edge_label_index.size(1)
    if not isinstance(scores, Tensor) or scores.shape != (expected,) or not scores.dtype.is_floating_point:
        raise UnsupportedModelError(
            f"{_describe(model)}.decode must return a float tensor of shape [{expected}], "
            f"got {_describe_value(scores)}"
        )
    return scores


def _describe(model: Any) -> str:
    return type(model).__name__


def _describe_value(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
