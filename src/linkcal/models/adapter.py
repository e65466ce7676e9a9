"""Anyone's ``encode`` / ``decode`` module as a link predictor whose outputs are checked logits.

What ``decode`` returns is declared and never guessed from values: small logits lie in [0, 1] too.
"""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch_geometric.nn.models import GAE, VGAE, InnerProductDecoder

from linkcal._core.validation import check_choice
from linkcal.exceptions import InputError, LinkcalWarning, UnsupportedModelError
from linkcal.models._view import evaluation_view
from linkcal.models.base import GraphModel, PairPredictor, product_of_ends

if TYPE_CHECKING:
    from linkcal.data import Graph

#: What a model's ``decode`` returns.
DecodeReturns = Literal["logits", "probabilities"]

_METHODS = {"encode": "encode(x, edge_index)", "decode": "decode(z, edge_label_index)"}


class AdaptedLinkPredictor(nn.Module):
    """A module from elsewhere behind linkcal's interface, made by :func:`as_link_predictor`.

    Probabilities p become ``log(p / (1 - p))``, clipped to ``[eps, 1 - eps]`` with the machine epsilon of
    their dtype (float32: logits within +-15.9; float64: +-36). PyG's inner-product autoencoders give their
    true logits instead, which do not saturate.

    Parameters
    ----------
    module : nn.Module
        Kept unchanged as attribute `module`.
    module_returns : {"logits", "probabilities"}
        What its ``decode`` returns.

    Examples
    --------
    >>> AdaptedLinkPredictor(GAE(nn.Identity()), "probabilities").decode_returns
    'logits'
    """

    decode_returns = "logits"

    def __init__(self, module: nn.Module, module_returns: DecodeReturns) -> None:
        super().__init__()
        self.module = module
        self.module_returns = module_returns
        self._num_nodes = 0

    def encode(self, x: Tensor, edge_index: Tensor, **options: Any) -> Tensor:
        """Node embeddings z [N, d] of the wrapped module; `options` (``edge_weight=``) are passed to it."""
        z = cast("Any", self.module).encode(x, edge_index, **options)
        if not isinstance(z, Tensor) or z.ndim != 2 or z.size(0) != x.size(0):
            raise self._wrong_output("encode", f"tensor of shape [{x.size(0)}, d], a row per node", z)
        self._num_nodes = z.size(0)
        return z

    def link_embedding(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Link embeddings h [L, d]: the module's own, else the pointwise product ``z_u * z_v``."""
        return link_embedding_of(self.module, z, edge_label_index)

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L] of pairs [2, L]."""
        true_logits = {"sigmoid": False} if is_pyg_autoencoder(self.module) else {}
        scores = cast("Any", self.module).decode(z, edge_label_index, **true_logits)
        count = edge_label_index.size(1)
        if not isinstance(scores, Tensor) or scores.shape != (count,) or not scores.is_floating_point():
            raise self._wrong_output("decode", f"float tensor of shape [{count}]", scores)
        if true_logits or self.module_returns == "logits":
            return scores
        outside = ~((scores >= 0) & (scores <= 1))  # also true for NaN
        if bool(outside.any()):
            raise InputError(
                f"{type(self.module).__name__}.decode is declared to return probabilities, which must be in "
                f"[0, 1], got {float(scores[outside][0].detach())!r}"
            )
        return torch.logit(scores, eps=torch.finfo(scores.dtype).eps)

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L] of pairs [2, L] on the graph `edge_index`."""
        return self.decode(self.encode(x, edge_index), edge_label_index)

    def auxiliary_loss(self) -> Tensor | None:
        """The module's own; for PyG's ``VGAE`` its KL divergence over N (arXiv 1611.07308)."""
        if hasattr(self.module, "auxiliary_loss"):
            return cast("Tensor | None", cast("Any", self.module).auxiliary_loss())
        if isinstance(self.module, VGAE):
            return torch.as_tensor(self.module.kl_loss()) / self._num_nodes
        return None

    def _wrong_output(self, method: str, expected: str, came: object) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{type(self.module).__name__}.{method} must return a {expected}, got {_described(came)}"
        )


def as_link_predictor(model: nn.Module, decode_returns: DecodeReturns | None = None) -> nn.Module:
    """Return `model` behind linkcal's interface (``decode`` gives logits), checked.

    Linkcal's own and already adapted models are returned as they are.

    Parameters
    ----------
    model : nn.Module
        With ``encode(x, edge_index) -> z [N, d]`` and ``decode(z, edge_label_index) -> [L]``.
    decode_returns : {"logits", "probabilities"}, optional
        What ``model.decode`` returns; None reads the model's attribute ``decode_returns``. PyG's ``GAE`` and
        ``VGAE`` with their inner-product decoder need no declaration.

    Returns
    -------
    LinkPredictor, PairPredictor or AdaptedLinkPredictor

    Raises
    ------
    UnsupportedModelError, InputError
        If `model` lacks a method; if nothing is declared, or argument, attribute and class contradict each
        other.

    Examples
    --------
    >>> as_link_predictor(GAE(nn.Identity())).decode(2 * torch.ones(2, 1), torch.tensor([[0], [1]]))
    tensor([4.])
    """
    model = getattr(model, "_orig_mod", model)  # torch.compile wraps `forward` alone, not called here
    name = type(model).__name__
    if not isinstance(model, nn.Module):
        raise UnsupportedModelError(f"model must be a torch.nn.Module with encode and decode, got {name}")
    missing = [text for method, text in _METHODS.items() if not callable(getattr(model, method, None))]
    if missing and not isinstance(model, PairPredictor):
        raise UnsupportedModelError(
            f"model must have {' and '.join(_METHODS.values())}, got {name} without {' and '.join(missing)}"
        )
    returns = _declared_returns(model, decode_returns)
    if isinstance(model, PairPredictor) and returns != "logits":
        raise InputError(f"head of {name} must return logits, got decode_returns = {returns!r}")
    ready = isinstance(model, AdaptedLinkPredictor) or (isinstance(model, GraphModel) and returns == "logits")
    return model if ready else AdaptedLinkPredictor(model, returns)


def _declared_returns(model: nn.Module, argument: DecodeReturns | None) -> DecodeReturns:
    """What ``model.decode`` returns by the argument, the model's attribute and what is known of its class."""
    options = get_args(DecodeReturns)
    attribute, declared = getattr(model, "decode_returns", None), {}
    if argument is not None:
        declared["the argument"] = check_choice(argument, "decode_returns", options)
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
        claims = ", ".join(f"{source} says {value!r}" for source, value in declared.items())
        raise InputError(f"decode_returns of {type(model).__name__} must be one value, got {claims}")
    return cast("DecodeReturns", next(iter(declared.values())))


_WEIGHTS = ("edge_weight", "edge_attr")


def _encode_arguments(model: nn.Module) -> list[inspect.Parameter]:
    inner: Any = unwrap_link_predictor(model)
    return list(inspect.signature(inner.encode).parameters.values()) if hasattr(inner, "encode") else []


def check_weights(model: nn.Module, *, weighted: bool) -> None:
    """Refuse a model that would ignore the graph's weights, or that needs what the graph does not have."""
    takes, name = _encode_arguments(model), type(unwrap_link_predictor(model)).__name__
    if weighted and not any(each.name == "edge_weight" or each.kind is each.VAR_KEYWORD for each in takes):
        raise UnsupportedModelError(
            f"model.encode must take edge_weight to use it, {name}'s does not: leave out the graph's weights"
        )
    needed = [
        each.name
        for each in takes[2:]
        if each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        and not (weighted and each.name == "edge_weight")
    ]
    if needed:
        raise UnsupportedModelError(
            "model.encode must be callable as encode(x, edge_index), with edge_weight= where the graph has "
            f"weights (Graph.from_edges(edge_weight=...)), got {name}'s, which needs {', '.join(needed)}"
        )


def warn_of_missing_weights(model: nn.Module, graph: Graph) -> None:
    """Warn if a user's ``encode`` has an argument for weights and the graph holds none."""
    optional = [each.name for each in _encode_arguments(model) if each.name in _WEIGHTS]
    if graph.edge_weight is None and isinstance(model, AdaptedLinkPredictor) and optional:
        warnings.warn(
            f"{type(model.module).__name__}.encode takes {optional[0]}, which is left out: the graph has no "
            "weights; if the model was trained with some, give them as Graph.from_edges(edge_weight=...)",
            LinkcalWarning,
            stacklevel=3,
        )


def encode_graph(model: nn.Module, graph: Graph) -> Tensor:
    """Node embeddings z [N, d] of a graph; its weights are passed on, and refused by models without them."""
    check_weights(model, weighted=graph.edge_weight is not None)
    options = {} if graph.edge_weight is None else {"edge_weight": graph.edge_weight}
    z: Tensor = cast("Any", model).encode(graph.node_input, graph.edge_index, **options)
    return z


def require_weights_read(model: nn.Module, graph: Graph) -> None:
    """Refuse a model whose ``encode`` takes the weights of a graph and ignores them, as some of PyG's do."""
    check_weights(model, weighted=True)
    weight, view = graph.edge_weight, cast("Any", evaluation_view(model))
    if weight is None or weight.numel() == 0 or bool(weight.min() == weight.max()):
        return  # equal weights may cancel
    with torch.no_grad():
        z, of_ones = (
            view.encode(graph.node_input, graph.edge_index, edge_weight=each)
            for each in (weight, torch.ones_like(weight))
        )
    if torch.equal(z, of_ones):
        name = type(unwrap_link_predictor(model)).__name__
        raise UnsupportedModelError(
            f"model.encode must read edge_weight, got {name}'s, which ignores it: leave out the weights"
        )


def is_pyg_autoencoder(model: nn.Module) -> bool:
    """Whether ``decode`` is PyG's own, ending in its inner-product decoder with a sigmoid by default."""
    return (
        isinstance(model, GAE)
        and type(model).decode is GAE.decode
        and type(model.decoder).forward is InnerProductDecoder.forward
    )


def link_embedding_of(model: nn.Module, z: Tensor, edge_label_index: Tensor) -> Tensor:
    """Link embeddings h [L, d]: the model's own ``link_embedding``, checked, or else ``z_u * z_v``."""
    own = getattr(model, "link_embedding", None)
    if own is None:
        return product_of_ends(z, edge_label_index)
    h = own(z, edge_label_index)
    count = edge_label_index.size(1)
    if not isinstance(h, Tensor) or h.ndim != 2 or h.size(0) != count:
        raise UnsupportedModelError(
            f"{type(model).__name__}.link_embedding must return a tensor of shape [{count}, d], "
            f"got {_described(h)}"
        )
    return h


def unwrap_link_predictor(model: nn.Module) -> nn.Module:
    """Return the adapted module, or `model` itself."""
    return model.module if isinstance(model, AdaptedLinkPredictor) else model


def _described(value: object) -> str:
    """Type and shape of a value, for a message."""
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
