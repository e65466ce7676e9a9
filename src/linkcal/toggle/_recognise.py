"""Read a model's encoder as layers of the toggle algebra, or say why that is not possible.

Only encoders whose ``forward`` is known line by line are recognised: linkcal's own, PyG's ``BasicGNN`` family
and ``GAE`` around one of these. A user's ``encode`` may do anything between its layers. Inner modules must
have the exact type: a subclass, a hook, or a method replaced on the instance may compute anything.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.modules import module as torch_module
from torch_geometric import nn as pyg
from torch_geometric.nn import GCNConv, GINConv, GraphConv, MessagePassing, SAGEConv
from torch_geometric.nn.models.basic_gnn import BasicGNN

from linkcal.exceptions import UnsupportedModelError
from linkcal.models import GCN, GIN, PEG, SAGE, VGAE, PEGConv
from linkcal.toggle._layers import Kind, Layer
from linkcal.toggle._steps import AddBias, bias_step, followed_by_step, mlp_steps

#: Modules that treat every row alone in evaluation mode.
_ROW_WISE = (
    nn.Identity, nn.Linear, nn.Dropout, nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU,
    nn.Tanh, nn.Sigmoid, nn.Softplus, nn.LayerNorm, nn.BatchNorm1d, pyg.BatchNorm, pyg.MLP, nn.Sequential,
    nn.ModuleList, pyg.Linear, pyg.LayerNorm, AddBias,
)  # fmt: skip
_RELU = (nn.ReLU(),)
_AGGREGATIONS: dict[type, Kind] = {pyg.SumAggregation: "sum", pyg.MeanAggregation: "mean"}


@dataclass(frozen=True)
class Recognised:
    """An encoder as layers; `node_features` and `positions` turn ``encode``'s `x` into [N, F] and [N, p]."""

    layers: tuple[Layer, ...]
    node_features: Callable[[Tensor], Tensor]
    positions: Callable[[Tensor], Tensor] | None = None


def refuse_stateful(model: nn.Module) -> None:
    """Raise UnsupportedModelError if a layer caches its graph (``cached=True``): it would ignore a toggle."""
    for name, module in model.named_modules():
        if getattr(module, "cached", False) is True:
            raise UnsupportedModelError(
                f"model must not cache its graph, got {type(module).__name__}(cached=True) "
                f"at {name or 'the top'!r}: it would ignore toggled edges; build it with cached=False"
            )


def recognise(model: nn.Module, *, weighted: bool = False) -> Recognised:
    """Layers of the model's encoder; UnsupportedModelError with the reason why they are not known."""
    _require_plain(model)
    try:
        return _with_weights(model) if weighted else _recognise(model)
    except UnsupportedModelError:  # a TypeError, too
        raise
    except (AttributeError, IndexError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise UnsupportedModelError(
            f"its layers cannot be read ({type(error).__name__}: {reason})"
        ) from error


def _require_plain(model: nn.Module) -> None:
    """Refuse hooks that a forward pass runs, global or of a module, and methods replaced on an instance."""
    state = vars(torch_module)
    hooked = any(state[name] for name in state if name.startswith("_global_forward"))
    for module in model.modules():
        own = vars(module)
        hooked |= any(own[name] for name in own if name.endswith(("forward_hooks", "forward_pre_hooks")))
        hooked |= any(callable(getattr(type(module), name, None)) for name in own)
    if hooked:
        raise UnsupportedModelError("hooks or methods replaced on the instance may change what its layers do")


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
    raise UnsupportedModelError(f"{kind.__name__}.encode is not known to linkcal")


def _with_weights(model: Any) -> Recognised:
    """Layers that read edge weights: those of PyG's autoencoders, whose ``encode`` passes them on."""
    known = _recognise(model)
    if not isinstance(model, pyg.GAE):
        raise UnsupportedModelError(f"{type(model).__name__}.encode takes no edge_weight")
    gnn: Any = model.encoder
    layers = list(known.layers)
    for index, conv in enumerate(gnn.convs):
        if not gnn.supports_edge_weight or type(conv) not in (GCNConv, GraphConv):
            raise UnsupportedModelError(f"{type(gnn).__name__} does not read edge weights")
        if isinstance(conv, GCNConv) and conv.improved and layers[index].self_loop_fill is not None:
            layers[index] = replace(layers[index], self_loop_fill=2.0)
    return replace(known, layers=tuple(layers))


def _recognise_peg(model: PEG) -> Recognised:
    layers: list[Layer] = []
    for conv in model.convs:
        if not isinstance(conv, PEGConv) or type(conv) is not PEGConv or _aggregation(conv) != "sum":
            raise UnsupportedModelError(f"the layer {type(conv).__name__} is not PEG's own")
        _require_row_wise(conv.phi)
        layer = replace(
            _linear_layer("gcn", conv.lin, conv.bias), self_loop_fill=1.0, arc_factor=conv.arc_factor
        )
        layers.append(_followed_by(layer, _RELU if len(layers) < len(model.convs) - 1 else ()))
    return Recognised(
        tuple(layers),
        lambda x: model.features_and_positions(x)[0],
        lambda x: model.features_and_positions(x)[1],
    )


def _basic_gnn_layers(gnn: Any) -> tuple[Layer, ...]:
    """Layers of PyG's BasicGNN: convolution, then norm and activation in either order."""
    if not isinstance(gnn, BasicGNN) or type(gnn).forward is not BasicGNN.forward:
        raise UnsupportedModelError(f"the encoder {type(gnn).__name__} is not one of PyG's BasicGNN models")
    if gnn.jk_mode not in (None, "last"):
        raise UnsupportedModelError(f"jumping knowledge {gnn.jk_mode!r} mixes the layers' outputs")
    if type(gnn.dropout) not in (nn.Dropout, nn.Identity):
        raise UnsupportedModelError(f"{type(gnn.dropout).__name__} stands where dropout is expected")
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


def _conv_layer(conv: Any) -> Layer:
    """The algebra's form of one PyG convolution, with nothing after it."""
    kind = type(conv)
    if not isinstance(conv, MessagePassing) or conv.flow != "source_to_target":
        raise UnsupportedModelError(f"the layer {kind.__name__} does not pass messages from source to target")
    aggregation = _aggregation(conv)
    if kind is GCNConv and aggregation == "sum":
        # PyG's `improved=True` (weight 2) has no effect without edge weights.
        fill = 1.0 if conv.normalize and conv.add_self_loops else None
        layer = _linear_layer("gcn" if conv.normalize else "sum", conv.lin, conv.bias)
        return replace(layer, self_loop_fill=fill)
    if kind is SAGEConv and aggregation is not None:
        layer = _linear_layer(aggregation, conv.lin_l, conv.lin_l.bias, biased=True)
        if conv.root_weight:
            layer = _with_root(layer, conv.lin_r)
        if conv.project:
            _require_linear(conv.lin, biased=True)
            message = _compose(lambda x: conv.lin(x).relu(), layer.message)
            layer = replace(layer, message=message, message_weight=None)
        if conv.normalize:
            update = _compose(layer.update, lambda x: F.normalize(x, p=2.0, dim=-1))
            layer = replace(layer, update=update, steps=None)
        return layer
    if kind is GraphConv and aggregation is not None:
        layer = _linear_layer(aggregation, conv.lin_rel, conv.lin_rel.bias, biased=True)
        return _with_root(layer, conv.lin_root)
    if kind is GINConv and aggregation == "sum":
        return _gin_layer(conv)
    raise UnsupportedModelError(f"the layer {kind.__name__}(aggr={conv.aggr!r}) has no closed form")


def _aggregation(conv: Any) -> Kind | None:
    """How a PyG layer sums up its messages, if in a known way."""
    return _AGGREGATIONS.get(type(conv.aggr_module))


def _linear_layer(kind: Kind, linear: Any, bias: Tensor | None, *, biased: bool = False) -> Layer:
    """A layer that sends ``x W`` and adds a bias to the sum."""
    _require_linear(linear, biased=biased)
    return Layer(
        kind=kind,
        message=lambda x: F.linear(x, linear.weight),
        update=AddBias(bias),
        message_weight=linear.weight,
        steps=bias_step(bias, linear.weight),
    )


def _with_root(layer: Layer, linear: Any) -> Layer:
    _require_linear(linear)
    return replace(layer, root=linear, root_weight=linear.weight)


def _gin_layer(conv: GINConv) -> Layer:
    """GIN with its MLP's first linear map moved before the sum, where it runs once per node, not per pair."""
    _require_row_wise(conv.nn)
    mlp = copy.deepcopy(conv.nn)
    if isinstance(mlp, pyg.MLP) and len(mlp.lins) > 0:
        first, mlp.lins[0] = mlp.lins[0], AddBias(mlp.lins[0].bias)
    elif isinstance(mlp, nn.Sequential) and isinstance(mlp[0], nn.Linear):
        first, mlp[0] = mlp[0], AddBias(mlp[0].bias)
    elif isinstance(mlp, nn.Linear):
        first, mlp = mlp, AddBias(mlp.bias)
    else:
        raise UnsupportedModelError(f"GINConv around {type(mlp).__name__} is not known to be row-wise")
    _require_linear(first, biased=True)
    factor = 1.0 + float(conv.eps)
    layer = _linear_layer("sum", first, None, biased=True)
    return replace(
        layer,
        update=mlp,
        root=lambda x: factor * layer.message(x),
        root_weight=factor * first.weight,
        steps=mlp_steps(mlp, first),
    )


def _compose(*maps: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def composed(x: Tensor) -> Tensor:
        for each in maps:
            x = each(x)
        return x

    return composed


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


def _require_linear(module: Any, *, biased: bool = False) -> None:
    if type(module) not in (nn.Linear, pyg.Linear):
        raise UnsupportedModelError(f"{type(module).__name__} stands where a linear map is expected")
    if not biased and module.bias is not None:
        raise UnsupportedModelError("a linear map has a bias where PyG's has none")


def _require_row_wise(module: Any) -> None:
    if not isinstance(module, nn.Module):
        name = getattr(module, "__name__", type(module).__name__)
        raise UnsupportedModelError(f"the function {name} is not known to treat every node alone")
    for part in module.modules():
        if type(part) not in _ROW_WISE:
            raise UnsupportedModelError(f"{type(part).__name__} is not known to treat every node alone")
        if isinstance(part, nn.BatchNorm1d) and part.running_mean is None:
            raise UnsupportedModelError("BatchNorm1d without running statistics mixes the nodes")
        if isinstance(part, pyg.LayerNorm) and part.mode != "node":
            raise UnsupportedModelError(f"LayerNorm(mode={part.mode!r}) mixes the nodes")
        if isinstance(part, pyg.MLP) and part.act is not None:
            _require_row_wise(part.act)  # a plain function is not among the modules
