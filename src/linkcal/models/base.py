"""The interface of linkcal's own models: embed nodes and join them, or embed each pair by itself."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch_geometric.nn.inits import reset

from linkcal._core.validation import check_fraction, check_positive_int
from linkcal.data.graph import Graph
from linkcal.data.split import LinkSplit
from linkcal.exceptions import InputError

#: State of a pair's target link in the graph that embeds the pair.
TargetLinkState = Literal["absent", "present"]


class GraphModel(nn.Module, ABC):
    """What all models share. A subclass stores each constructor argument under its own name, unchanged.

    Parameters
    ----------
    in_channels : int
        F, the number of node features; with `num_nodes`, the width of the learned node embedding.
    num_nodes : int, optional
        For a graph without features: `x` then holds node ids [N], rows of a learned embedding.

    Examples
    --------
    >>> from linkcal.models import GCN
    >>> GCN(8, dropout=0.5).config["dropout"]
    0.5
    """

    #: What ``decode`` and ``forward`` return. Read, never guessed from values.
    decode_returns = "logits"

    #: Whether :meth:`prepare` computes inputs from the edges, which toggling a pair does not change.
    features_from_edges = False

    def __init__(self, in_channels: int, *, num_nodes: int | None = None) -> None:
        super().__init__()
        self.in_channels = check_positive_int(in_channels, "in_channels")
        self.num_nodes = None if num_nodes is None else check_positive_int(num_nodes, "num_nodes")
        self.embedding = None if num_nodes is None else nn.Embedding(num_nodes, in_channels)

    def _set_layers(self, hidden_channels: int, out_channels: int, num_layers: int, dropout: float) -> None:
        """Check and keep the four arguments that every network has under the same names."""
        self.hidden_channels = check_positive_int(hidden_channels, "hidden_channels")
        self.out_channels = check_positive_int(out_channels, "out_channels")
        self.num_layers = check_positive_int(num_layers, "num_layers")
        self.dropout = check_fraction(dropout, "dropout", zero=True)

    @abstractmethod
    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L] of pairs [2, L] on the graph `edge_index`."""

    @classmethod
    def options_for(cls, split: LinkSplit, **options: Any) -> dict[str, Any]:  # noqa: ARG003
        """Constructor arguments that follow from the training data and other arguments; mostly none."""
        return {}

    def prepare(self, graph: Graph) -> Graph:
        """Return the message-passing graph as this model reads it; call it once, before training.

        PEG adds positional encodings, SEAL replaces many features by few, others change nothing. Split first:
        what is computed from the full graph contains its validation and test links.
        """
        return graph

    def reset_parameters(self) -> None:
        """Draw all weights anew from torch's global generator."""
        for child in self.children():
            reset(child)

    @property
    def config(self) -> dict[str, Any]:
        """Constructor arguments as JSON values; ``type(self)(**config)`` builds an equal model."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def node_features(self, x: Tensor) -> Tensor:
        """Features [N, F]: `x` itself, or the learned embedding's rows if `x` holds node ids [N]."""
        if self.embedding is None or self.num_nodes is None:
            if x.ndim != 2 or x.size(1) != self.in_channels:
                raise InputError(f"x must have shape [N, {self.in_channels}], got {list(x.shape)}")
            return self._of_weights_dtype(x)
        if x.ndim != 1 or x.dtype != torch.int64:
            raise InputError(
                f"x must hold int64 node ids [N] for a model with a learned node embedding, "
                f"got {x.dtype} {list(x.shape)}"
            )
        low, high = (int(end) for end in x.aminmax()) if x.numel() else (0, 0)
        if low < 0 or high >= self.num_nodes:
            raise InputError(
                f"x must hold node ids in [0, {self.num_nodes}), the model's num_nodes, got {low} to {high}: "
                "build the model with the num_nodes of this graph"
            )
        return self.embedding(x)  # type: ignore[no-any-return]

    def _of_weights_dtype(self, x: Tensor) -> Tensor:
        """Return features `x` if layers can multiply them; autocast does its own conversions."""
        weight = next(self.parameters(), None)
        wanted = x.dtype if weight is None else weight.dtype
        if x.dtype != wanted and not torch.is_autocast_enabled(x.device.type):
            raise InputError(f"x must have the dtype of the model's weights, {wanted}, got {x.dtype}")
        return x

    def _unprepared(self, name: str, expected: str, came: str) -> InputError:
        """Error of an input that `prepare` should have made; accepting it would give wrong numbers."""
        return InputError(
            f"{name} must {expected}, got {came}: prepare the graph before training and scoring, "
            "split = replace(split, graph=model.prepare(split.graph))"
        )

    def auxiliary_loss(self) -> Tensor | None:
        """Term added to the training loss after ``encode`` in training mode (VGAE's KL), or None."""
        return None


class LinkPredictor(GraphModel):
    """Base of models that embed nodes; a model from elsewhere needs only ``encode`` and ``decode``.

    ``z = encode(x, edge_index)`` [N, d], ``h = link_embedding(z, edge_label_index)`` [L, d] of the endpoints'
    rows, ``logit = head(h)`` [L]; ``decode`` is the last two.

    Examples
    --------
    >>> class Identity(LinkPredictor):
    ...     def encode(self, x, edge_index):
    ...         return self.node_features(x)
    >>> Identity(in_channels=2).decode(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0], [1]]))
    tensor([11.])
    """

    #: Of ``decode`` and ``head`` here; a subclass declares what its own return.
    decode_returns = "logits"

    @abstractmethod
    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node embeddings z [N, d] from features [N, F] (or node ids [N]) and edges [2, E]."""

    def link_embedding(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        """Link embeddings h = z_u * z_v, [L, d]; the order of the endpoints does not matter."""
        return product_of_ends(z, edge_label_index)

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

        With them matrix products score all pairs. A subclass that replaces ``link_embedding``, ``head`` or
        ``decode`` has none, unless it gives its own: it does not inherit a form of what it replaced.
        """
        return torch.ones(1), torch.zeros(())

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if replaced_below(cls, "product_form", ("link_embedding", "head", "decode")):
            cls.product_form = _no_product_form  # type: ignore[method-assign]


class PairPredictor(GraphModel):
    """Base of models that embed each pair by itself, from the graph around it (SEAL), not node by node.

    ``h = embed_pairs(x, edge_index, pairs, target_link=...)`` [L, d], ``logit = head(h)`` [L]. The target
    link is put into the state that `target_link` names, whether or not `edge_index` has it.

    Examples
    --------
    >>> from linkcal.models import SEAL
    >>> isinstance(SEAL(4), PairPredictor)
    True
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
        """Pair embeddings h [L, d] in order, each with the target link in the named state."""

    @abstractmethod
    def head(self, h: Tensor) -> Tensor:
        """Logits [L] of pair embeddings [L, d]."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits [L] of pairs [2, L], each without its target link."""
        return self.head(self.embed_pairs(x, edge_index, edge_label_index))


def replaced_below(cls: type, declared: str, methods: Iterable[str]) -> bool:
    """Whether a class gives one of `methods` anew without what it `declared` about them."""

    def place(name: str) -> int:
        order = cls.__mro__
        return next((i for i, base in enumerate(order) if name in vars(base)), len(order))

    return any(place(name) < place(declared) for name in methods)


def _no_product_form(self: LinkPredictor) -> None:
    """None: ``link_embedding``, ``head`` or ``decode`` was replaced without a form of its own."""


def product_of_ends(z: Tensor, edge_label_index: Tensor) -> Tensor:
    """``z_u * z_v`` of pairs [2, L], [L, d]."""
    # Not z[index]: the gradient of a look-up is summed in a fixed order, so runs with one seed are equal.
    return embedding(edge_label_index[0], z) * embedding(edge_label_index[1], z)
