"""What a module from elsewhere must have, and what its ``decode`` is declared to return.

Declared (argument or attribute ``decode_returns``) and never guessed from values: small logits lie in [0, 1]
too.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

from torch import nn
from torch_geometric.nn.models import GAE, InnerProductDecoder

from linkcal._validation import check_choice
from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models.base import PairPredictor

__all__ = ["DecodeReturns", "check_link_predictor", "is_pyg_autoencoder", "resolve_decode_returns"]

#: What a model's ``decode`` returns.
DecodeReturns = Literal["logits", "probabilities"]

_REQUIRED_METHODS = {
    "encode": "encode(x, edge_index)",
    "decode": "decode(z, edge_label_index)",
}


def check_link_predictor(model: Any) -> None:
    """Check that `model` is a module with ``encode`` and ``decode``, or a :class:`PairPredictor`.

    Parameters
    ----------
    model : object

    Raises
    ------
    UnsupportedModelError
        If it is not; the message names what is missing.

    Examples
    --------
    >>> from torch_geometric.nn import GAE
    >>> check_link_predictor(GAE(nn.Identity()))
    >>> check_link_predictor("gcn")
    Traceback (most recent call last):
    linkcal.exceptions.UnsupportedModelError: model must be a torch.nn.Module with encode and decode, got str
    """
    if not isinstance(model, nn.Module):
        raise UnsupportedModelError(
            f"model must be a torch.nn.Module with encode and decode, got {type(model).__name__}"
        )
    if isinstance(model, PairPredictor):
        return
    missing = [text for name, text in _REQUIRED_METHODS.items() if not callable(getattr(model, name, None))]
    if missing:
        raise UnsupportedModelError(
            f"model must have {' and '.join(_REQUIRED_METHODS.values())}, "
            f"got {type(model).__name__} without {' and '.join(missing)}"
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
    >>> import torch
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
    if is_pyg_autoencoder(model):
        declared["PyG's GAE.decode (its sigmoid is on by default)"] = "probabilities"
    if not declared:
        raise InputError(
            f"decode_returns must be declared as 'logits' or 'probabilities' for {type(model).__name__} "
            "(argument decode_returns, or an attribute of that name on the model), got None"
        )
    if len(set(declared.values())) > 1:
        said = ", ".join(f"{who} says {value!r}" for who, value in declared.items())
        raise InputError(
            f"decode_returns must not contradict what is known of {type(model).__name__}, got {said}"
        )
    return cast("DecodeReturns", next(iter(declared.values())))


def is_pyg_autoencoder(model: nn.Module) -> bool:
    """Whether ``decode`` is PyG's own, ending in its inner-product decoder with a sigmoid by default."""
    return (
        isinstance(model, GAE)
        and type(model).decode is GAE.decode
        and type(model.decoder).forward is InnerProductDecoder.forward
    )
