"""Read a model's encoder as layers of the toggle algebra, or say why that is not possible."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch_geometric import nn as pyg
from torch_geometric.nn import GCNConv, GINConv, GraphConv, MessagePassing, SAGEConv
from torch_geometric.nn.models.basic_gnn import BasicGNN

from linkcal.exceptions import UnsupportedModelError
from linkcal.models import GCN, GIN, PEG, SAGE, VGAE, PEGConv
from linkcal.toggle._khop import Round, arc_arguments
from linkcal.toggle._layers import AddBias, Layer, bias_step, followed_by_step, mlp_steps

__all__ = [
    "Recognised",
    "Unrecognised",
    "evaluating",
    "is_plain",
    "recognise",
    "refuse_stateful",
    "watching_messages",
]


# A model while it is toggled: evaluation mode, and what is seen of the messages that it passes.


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a block; every submodule's own mode is put back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


class _Watched:
    """What was seen of the messages in one ``encode`` of so many nodes."""

    def __init__(self, num_nodes: int) -> None:
        self.rounds: list[Round] = []
        self._num_nodes = num_nodes
        self._seen: dict[nn.Module, list[Any]] = {}

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.rounds.append((module, arc_arguments(arguments[0], arguments[-1], self._num_nodes)))
        self._seen.setdefault(module, []).append(arguments[-1].get("x"))

    @property
    def count(self) -> int:
        """Rounds of message passing."""
        return len(self.rounds)

    def sent(self) -> dict[nn.Module, Tensor]:
        """Rows that a module passed as messages, where it did so once and to all nodes alike."""
        return {
            module: seen[0]
            for module, seen in self._seen.items()
            if len(seen) == 1 and isinstance(seen[0], Tensor)
        }


@contextmanager
def watching_messages(model: nn.Module, num_nodes: int) -> Iterator[_Watched]:
    """Watch PyG's message passing in a block: how often it ran, and from which rows.

    Layers used twice count twice, parallel ones too: an upper bound on the hops that the model sees, which is
    all that exactness needs.
    """
    watched = _Watched(num_nodes)
    passing = [module for module in model.modules() if isinstance(module, MessagePassing)]
    handles = [module.register_propagate_forward_pre_hook(watched) for module in passing]
    try:
        yield watched
    finally:
        for handle in handles:
            handle.remove()


def is_plain(model: nn.Module) -> bool:
    """Whether no module has hooks that a forward pass runs, or a method replaced on the instance."""
    for module in model.modules():
        state = vars(module)
        hooked = any(state[name] for name in state if name.endswith(("forward_hooks", "forward_pre_hooks")))
        if hooked or any(callable(getattr(type(module), name, None)) for name in state):
            return False
    return True


# Read a model's encoder as layers of the toggle algebra, or say why that is not possible.
#
# Only encoders whose ``forward`` is known line by line are recognised: linkcal's own models, PyG's
# ``BasicGNN`` family, and PyG's ``GAE`` around one of these. A user's own ``encode`` may do anything between
# its layers (skip connections, normalisation over nodes), so looking at its submodules would be guessing. So
# may a hook, or a method replaced on the instance.


@dataclass(frozen=True)
class Recognised:
    """An encoder as layers.

    Parameters
    ----------
    layers : tuple of Layer
    node_features : callable
        Turns the `x` given to ``encode`` into features [N, F].
    positions : callable, optional
        Turns it into positions [N, p], for layers with an ``arc_factor``.
    """

    layers: tuple[Layer, ...]
    node_features: Callable[[Tensor], Tensor]
    positions: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Unrecognised:
    """Why an encoder has no exact kernel."""

    reason: str


def refuse_stateful(model: nn.Module) -> None:
    """Refuse a model with which toggling would silently do nothing.

    Raises
    ------
    UnsupportedModelError
        If a layer caches its normalised graph (``cached=True``): it would ignore every toggled edge.
    """
    for name, module in model.named_modules():
        if getattr(module, "cached", False) is True:
            raise UnsupportedModelError(
                f"model must not cache its graph, got {type(module).__name__}(cached=True) "
                f"at {name or 'the top'!r}: it would ignore toggled edges; build it with cached=False"
            )


def recognise(model: nn.Module, *, weighted: bool = False) -> Recognised | Unrecognised:
    """Layers of the model's encoder, with edge weights or without, or the reason why they are not known."""
    if not is_plain(model):
        return Unrecognised("hooks or methods replaced on the instance may change what its layers do")
    try:
        return _with_weights(model) if weighted else _recognise(model)
    except _NotKnownError as error:
        return Unrecognised(str(error))


class _NotKnownError(Exception):
    """Raised inside this module where a part of an encoder is not known."""


def _recognise(model: Any) -> Recognised:
    kind = type(model)
    if kind in (GCN, SAGE, GIN):
        return Recognised(_basic_gnn_layers(model.gnn), model.node_features)
    if kind is VGAE:
        convs = [*model.convs, model.conv_mu]
        last = len(convs) - 1
        layers = tuple(_followed_by(_conv_layer(c), _RELU if i < last else ()) for i, c in enumerate(convs))
        return Recognised(layers, model.node_features)
    if kind is PEG:
        return _recognise_peg(model)
    if isinstance(model, pyg.GAE) and kind.encode is pyg.GAE.encode:
        return Recognised(_basic_gnn_layers(model.encoder), lambda x: x)
    raise _NotKnownError(f"{kind.__name__}.encode is not known to linkcal")


def _with_weights(model: Any) -> Recognised:
    """Layers that read edge weights: those of PyG's autoencoders, whose ``encode`` hands them on."""
    known = _recognise(model)
    if not isinstance(model, pyg.GAE):
        raise _NotKnownError(f"{type(model).__name__}.encode takes no edge_weight")
    gnn: Any = model.encoder
    layers = list(known.layers)
    for index, conv in enumerate(gnn.convs):
        if not gnn.supports_edge_weight or type(conv) not in (GCNConv, GraphConv):
            raise _NotKnownError(f"{type(gnn).__name__} does not read edge weights")
        if isinstance(conv, GCNConv) and conv.improved and layers[index].self_loop_fill is not None:
            layers[index] = replace(layers[index], self_loop_fill=2.0)
    return replace(known, layers=tuple(layers))


def _recognise_peg(model: PEG) -> Recognised:
    if model.decoder != "product":
        raise _NotKnownError("PEG's encode appends the positions to z for its distance decoder")
    convs: list[PEGConv] = list(model.convs)  # type: ignore[arg-type]
    last = len(convs) - 1
    layers = []
    for index, conv in enumerate(convs):
        layer = Layer(
            kind="gcn",
            message=conv.lin,
            update=AddBias(conv.bias),
            self_loop_fill=1.0,
            message_weight=conv.lin.weight,
            steps=bias_step(conv.bias, conv.lin.weight),
            arc_factor=conv.arc_factor,
            conv=conv,
        )
        layers.append(_followed_by(layer, _RELU if index < last else ()))
    return Recognised(
        tuple(layers),
        lambda x: model.features_and_positions(x)[0],
        lambda x: model.features_and_positions(x)[1],
    )


def _basic_gnn_layers(gnn: Any) -> tuple[Layer, ...]:
    """Layers of PyG's BasicGNN: convolution, then norm and activation in either order."""
    if not isinstance(gnn, BasicGNN) or type(gnn).forward is not BasicGNN.forward:
        raise _NotKnownError(f"the encoder {type(gnn).__name__} is not one of PyG's BasicGNN models")
    if gnn.jk_mode not in (None, "last"):
        raise _NotKnownError(f"jumping knowledge {gnn.jk_mode!r} mixes the layers' outputs")
    layers: list[Layer] = []
    for index, (conv, norm) in enumerate(zip(gnn.convs, gnn.norms, strict=True)):
        layer = _conv_layer(conv)
        if index < gnn.num_layers - 1 or gnn.jk_mode is not None:
            activation = () if gnn.act is None else (gnn.act,)
            layer = _followed_by(layer, (*activation, norm) if gnn.act_first else (norm, *activation))
        layers.append(layer)
    if hasattr(gnn, "lin"):
        layers[-1] = _followed_by(layers[-1], (gnn.lin,))
    return tuple(layers)


def _conv_layer(conv: nn.Module) -> Layer:
    """The algebra's form of one PyG convolution, with nothing after it."""
    kind = type(conv)
    if not isinstance(conv, MessagePassing) or conv.flow != "source_to_target":
        raise _NotKnownError(f"the layer {kind.__name__} does not pass messages from source to target")
    if kind is GCNConv and conv.aggr in ("sum", "add"):
        return _gcn_layer(conv)
    if kind is SAGEConv and conv.aggr in ("mean", "sum", "add"):
        message: Callable[[Tensor], Tensor] = _weight_of(conv.lin_l)
        if conv.project:
            message = _compose(lambda x: conv.lin(x).relu(), message)
        layer = _additive(conv.lin_l.bias, conv.lin_l.weight)
        return replace(
            layer,
            kind="mean" if conv.aggr == "mean" else "sum",
            message=message,
            root=conv.lin_r if conv.root_weight else None,
            root_weight=conv.lin_r.weight if conv.root_weight else None,
            message_weight=None if conv.project else conv.lin_l.weight,
            update=_compose(layer.update, _normalised) if conv.normalize else layer.update,
            steps=None if conv.normalize else layer.steps,
        )
    if kind is GraphConv and conv.aggr in ("mean", "sum", "add"):
        return replace(
            _additive(conv.lin_rel.bias, conv.lin_rel.weight),
            kind="mean" if conv.aggr == "mean" else "sum",
            message=_weight_of(conv.lin_rel),
            root=conv.lin_root,
            root_weight=conv.lin_root.weight,
            message_weight=conv.lin_rel.weight,
        )
    if kind is GINConv and conv.aggr in ("sum", "add"):
        return _gin_layer(conv)
    raise _NotKnownError(f"the layer {kind.__name__}(aggr={conv.aggr!r}) has no closed form")


def _gcn_layer(conv: GCNConv) -> Layer:
    # PyG's `improved=True` (weight 2) has no effect without edge weights.
    fill = 1.0 if conv.normalize and conv.add_self_loops else None
    return replace(
        _additive(conv.bias, conv.lin.weight),
        kind="gcn" if conv.normalize else "sum",
        message=_weight_of(conv.lin),
        self_loop_fill=fill,
        message_weight=conv.lin.weight,
        conv=conv,
    )


def _gin_layer(conv: GINConv) -> Layer:
    """GIN with its MLP's first linear map moved before the sum, where it runs once per node, not per pair."""
    mlp = copy.deepcopy(conv.nn)
    if isinstance(mlp, pyg.MLP) and len(mlp.lins) > 0:
        first, mlp.lins[0] = mlp.lins[0], AddBias(mlp.lins[0].bias)
    elif isinstance(mlp, nn.Sequential) and isinstance(mlp[0], nn.Linear):
        first, mlp[0] = mlp[0], AddBias(mlp[0].bias)
    elif isinstance(mlp, nn.Linear):
        first, mlp = mlp, AddBias(mlp.bias)
    else:
        raise _NotKnownError(f"GINConv around {type(mlp).__name__} is not known to be row-wise")
    _require_row_wise(mlp)
    mlp.eval()
    message = _weight_of(first)
    factor = 1.0 + float(conv.eps)
    return Layer(
        kind="sum",
        message=message,
        update=mlp,
        root=lambda x: factor * message(x),
        message_weight=first.weight,
        root_weight=factor * first.weight,
        steps=mlp_steps(mlp, first),
    )


def _weight_of(linear: Any) -> Callable[[Tensor], Tensor]:
    """The linear map without its bias."""
    return lambda x: F.linear(x, linear.weight)


def _normalised(x: Tensor) -> Tensor:
    return F.normalize(x, p=2.0, dim=-1)


def _additive(bias: Tensor | None, weight: Tensor) -> Layer:
    """A layer whose update only adds a bias; kind and message are filled in by the caller."""
    return Layer(kind="sum", message=lambda x: x, update=AddBias(bias), steps=bias_step(bias, weight))


def _compose(*maps: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def composed(x: Tensor) -> Tensor:
        for each in maps:
            x = each(x)
        return x

    return composed


#: Modules that treat every row alone in evaluation mode.
_ROW_WISE = (
    nn.Identity, nn.Linear, nn.Dropout, nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU,
    nn.Tanh, nn.Sigmoid, nn.Softplus, nn.LayerNorm, nn.BatchNorm1d, pyg.BatchNorm, pyg.MLP, nn.Sequential,
    nn.ModuleList, pyg.Linear, pyg.LayerNorm, AddBias,
)  # fmt: skip
_RELU: tuple[nn.Module, ...] = (nn.ReLU(),)


def _require_row_wise(module: Any) -> None:
    if not isinstance(module, nn.Module):
        name = getattr(module, "__name__", type(module).__name__)
        raise _NotKnownError(f"the function {name} is not known to treat every node alone")
    for part in module.modules():
        if type(part) not in _ROW_WISE:
            raise _NotKnownError(f"{type(part).__name__} is not known to treat every node alone")
        if isinstance(part, nn.BatchNorm1d) and part.running_mean is None:
            raise _NotKnownError("BatchNorm1d without running statistics mixes the nodes")
        if isinstance(part, pyg.LayerNorm) and part.mode != "node":
            raise _NotKnownError(f"LayerNorm(mode={part.mode!r}) mixes the nodes")
        if isinstance(part, pyg.MLP) and part.act is not None:
            _require_row_wise(part.act)  # a plain function is not among the modules


def _followed_by(layer: Layer, modules: tuple[Any, ...]) -> Layer:
    """The layer with row-wise modules (norm, activation, linear map) appended to its update."""
    for module in modules:
        _require_row_wise(module)
        layer = replace(
            layer,
            update=_compose(layer.update, module),
            steps=followed_by_step(layer.steps, module),
        )
    return layer
