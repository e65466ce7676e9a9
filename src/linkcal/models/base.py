"""What a link predictor is: its interface, what it declares, and its checked outputs."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch_geometric.nn.inits import reset
from torch_geometric.nn.models import GAE, VGAE, InnerProductDecoder

from linkcal._core.validation import check_choice, check_fraction, check_positive_int
from linkcal.data import Graph, LinkSplit
from linkcal.exceptions import InputError, UnsupportedModelError

__all__ = [
    "TARGET_LINK_STATES",
    "DecodeReturns",
    "GraphModel",
    "LinkPredictor",
    "PairPredictor",
    "TargetLinkState",
    "auxiliary_loss_of",
    "check_link_predictor",
    "describe_value",
    "is_pyg_autoencoder",
    "link_embedding_of",
    "logits_of",
    "resolve_decode_returns",
]


# The two interfaces of linkcal's own models: encode nodes and join them, or embed each pair by itself.

#: State of a pair's target link in the graph that embeds the pair.
TargetLinkState = Literal["absent", "present"]
TARGET_LINK_STATES: tuple[str, ...] = get_args(TargetLinkState)


class GraphModel(nn.Module, ABC):
    """What all of linkcal's models share; use :class:`LinkPredictor` or :class:`PairPredictor`.

    Parameters
    ----------
    in_channels : int
        F, the number of node features; with `num_nodes`, the width of the learned node embedding.
    num_nodes : int, optional
        For a graph without features: ``encode`` then takes node ids [N] and looks up a learned embedding.

    Raises
    ------
    InputError
        If `in_channels` or `num_nodes` is no positive whole number.

    Notes
    -----
    A subclass stores each constructor argument under its own name, unchanged (scikit-learn's rule); then
    :attr:`config` and :meth:`reset_parameters` need not be written again.

    Examples
    --------
    >>> from linkcal.models import GCN, SEAL
    >>> issubclass(GCN, GraphModel), issubclass(SEAL, GraphModel)
    (True, True)
    >>> GCN(8, dropout=0.5).config["dropout"]
    0.5
    """

    #: What ``decode`` and ``forward`` return. Read, never guessed from values.
    decode_returns = "logits"

    #: Whether :meth:`prepare` computes inputs from the edges, which toggling a pair leaves as they were.
    features_from_edges = False

    def __init__(self, in_channels: int, *, num_nodes: int | None = None) -> None:
        super().__init__()
        self.in_channels = check_positive_int(in_channels, "in_channels")
        self.num_nodes = None if num_nodes is None else check_positive_int(num_nodes, "num_nodes")
        self.embedding = None if num_nodes is None else nn.Embedding(num_nodes, in_channels)

    def _set_layers(self, hidden_channels: int, out_channels: int, num_layers: int, dropout: float) -> None:
        """Check and keep the four arguments that every GNN has under the same names."""
        self.hidden_channels = check_positive_int(hidden_channels, "hidden_channels")
        self.out_channels = check_positive_int(out_channels, "out_channels")
        self.num_layers = check_positive_int(num_layers, "num_layers")
        self.dropout = check_fraction(dropout, "dropout", zero=True)

    @abstractmethod
    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L] of pairs [2, L] on the graph `edge_index`."""

    @classmethod
    def options_for(cls, split: LinkSplit, **options: Any) -> dict[str, Any]:  # noqa: ARG003
        """Constructor arguments that follow from the training data (and other arguments); mostly none."""
        return {}

    def prepare(self, graph: Graph) -> Graph:
        """Return the message-passing graph as this model reads it; call it once, before training.

        Most models read the graph as it is. PEG adds positional encodings; SEAL replaces many features by
        few. Split first: what is computed from the full graph knows its validation and test links.
        """
        return graph

    def reset_parameters(self) -> None:
        """Draw all weights anew from torch's global generator."""
        for child in self.children():
            reset(child)

    def _unprepared(self, name: str, expected: str, came: str) -> InputError:
        """Error of an input that `prepare` was to make: silently taking it would give wrong numbers."""
        return InputError(
            f"{name} must {expected}, got {came}: prepare the graph before training and scoring, "
            "split = replace(split, graph=model.prepare(split.graph))"
        )

    @property
    def config(self) -> dict[str, Any]:
        """Constructor arguments as JSON values; ``type(self)(**config)`` builds an equal model."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def node_features(self, x: Tensor) -> Tensor:
        """Features [N, F]: `x` itself, or the learned embedding's rows if `x` holds node ids [N]."""
        if self.embedding is None:
            if x.ndim != 2 or x.size(1) != self.in_channels:
                raise InputError(f"x must have shape [N, {self.in_channels}], got {list(x.shape)}")
            return self._of_weights_dtype(x)
        if x.ndim != 1 or x.dtype != torch.int64:
            raise InputError(
                f"x must hold int64 node ids [N] for a model with a learned node embedding, "
                f"got {x.dtype} {list(x.shape)}"
            )
        return self.embedding(x)  # type: ignore[no-any-return]

    def _of_weights_dtype(self, x: Tensor) -> Tensor:
        """Return features `x` if layers can multiply them; autocast does its own conversions."""
        weight = next(self.parameters(), None)
        wanted = x.dtype if weight is None else weight.dtype
        if x.dtype != wanted and not torch.is_autocast_enabled(x.device.type):
            raise InputError(f"x must have the dtype of the model's weights, {wanted}, got {x.dtype}")
        return x

    def auxiliary_loss(self) -> Tensor | None:
        """Term added to the training loss after ``encode`` in training mode (VGAE's KL), or None."""
        return None


class LinkPredictor(GraphModel):
    """Base of models that embed nodes; a model from elsewhere needs only ``encode`` and ``decode``.

    The route of a pair: ``z = encode(x, edge_index)`` [N, d], ``h = link_embedding(z, edge_label_index)``
    [L, d], ``logit = head(h)`` [L]; ``decode`` is the last two. ``h`` depends on `z` only through the rows of
    the pair's two endpoints.

    Parameters
    ----------
    in_channels, num_nodes
        As in :class:`GraphModel`.

    Examples
    --------
    >>> import torch
    >>> class Identity(LinkPredictor):
    ...     def encode(self, x, edge_index):
    ...         return self.node_features(x)
    >>> model = Identity(in_channels=2)
    >>> z = model.encode(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.empty(2, 0, dtype=torch.int64))
    >>> model.decode(z, torch.tensor([[0], [1]]))
    tensor([11.])
    >>> model.config
    {'in_channels': 2, 'num_nodes': None}
    """

    @abstractmethod
    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings z [N, d] from features [N, F] (or node ids [N]) and edges [2, E]."""

    def link_embedding(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Link embeddings h = z_u * z_v, [L, d]; the order of the endpoints does not matter."""
        # Not z[index]: its gradient is summed by several threads in any order, so that two runs with one
        # seed differ. An embedding look-up is the same, and its gradient is summed in a fixed order.
        return embedding(edge_label_index[0], z) * embedding(edge_label_index[1], z)

    def head(self, h: Tensor) -> Tensor:
        """Logits [L] of link embeddings [L, d]: their sum, the inner product of the endpoints."""
        return h.sum(dim=-1)

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L] of pairs [2, L]."""
        return self.head(self.link_embedding(z, edge_label_index))

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L] of pairs [2, L] on the graph `edge_index`."""
        return self.decode(self.encode(x, edge_index), edge_label_index)

    def product_form(self) -> tuple[Tensor, Tensor] | None:
        """Weights w [d] and bias b [] with ``logit_uv = sum_k w_k z_uk z_vk + b``; None if there are none.

        All pairs can then be scored by products of matrices. This base class answers for its own
        ``link_embedding``, ``head`` and ``decode``; a subclass that replaces one answers for itself.
        """
        own = type(self)
        if any(
            getattr(own, name) is not getattr(LinkPredictor, name)
            for name in ("link_embedding", "head", "decode")
        ):
            return None
        return torch.ones(1), torch.zeros(())


class PairPredictor(GraphModel):
    """Base of models that embed each pair by itself, from the graph around it (SEAL), not node by node.

    The route of a pair: ``h = embed_pairs(x, edge_index, pairs, target_link=...)`` [L, d], ``logit =
    head(h)`` [L]. Whether the pair is an edge of `edge_index` makes no difference: its target link is set to
    the state that `target_link` names, so that the asked link never is part of its own evidence unless it is
    meant to be. ``linkcal.toggle_edges`` reads both states from here.

    Parameters
    ----------
    in_channels, num_nodes
        As in :class:`GraphModel`.

    Examples
    --------
    >>> import torch
    >>> class Joined(PairPredictor):  # h: whether the target link is there
    ...     def embed_pairs(self, x, edge_index, edge_label_index, *, target_link="absent"):
    ...         return torch.full((edge_label_index.size(1), 1), float(target_link == "present"))
    ...     def head(self, h):
    ...         return h[:, 0]
    >>> pair = torch.tensor([[0], [1]])
    >>> Joined(2)(torch.eye(2), pair, pair)  # its target link is hidden
    tensor([0.])
    """

    @abstractmethod
    def embed_pairs(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_label_index: Tensor,
        *,
        target_link: TargetLinkState = "absent",
    ) -> Tensor:
        """Pair embeddings h [L, d], each with the target link in the named state, in the order asked."""

    @abstractmethod
    def head(self, h: Tensor) -> Tensor:
        """Logits [L] of pair embeddings [L, d]."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L] of pairs [2, L], each without its target link."""
        return self.head(self.embed_pairs(x, edge_index, edge_label_index))


# What a module from elsewhere must have, and what its ``decode`` is declared to return.
#
# Declared (argument or attribute ``decode_returns``) and never guessed from values: small logits lie in [0,
# 1] too.

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


# What any link predictor returns, checked: logits, link embeddings, the auxiliary loss.


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
