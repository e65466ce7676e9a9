"""Read a model's encoder as layers of the toggle algebra, or say why that is not possible.

Only encoders whose ``forward`` is known line by line are recognised: linkcal's own, PyG's ``BasicGNN`` family
and ``GAE`` around one of these. A user's ``encode`` may do anything between its layers. Inner modules must
have the exact type: a subclass, a hook, or a method replaced on the instance may compute anything.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch_geometric import nn as pyg
from torch_geometric.nn import GCNConv, GINConv, GraphConv, MessagePassing, SAGEConv
from torch_geometric.nn.models.basic_gnn import BasicGNN

from linkcal.exceptions import UnsupportedModelError
from linkcal.models import GCN, GIN, PEG, SAGE, VGAE, PEGConv
from linkcal.toggle._layers import AddBias, Kind, Layer, RowMap, bias_step, followed_by_step, mlp_steps

#: Modules that treat every row alone in evaluation mode.
_ROW_WISE = (
    nn.Identity, nn.Linear, nn.Dropout, nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU,
    nn.Tanh, nn.Sigmoid, nn.Softplus, nn.LayerNorm, nn.BatchNorm1d, pyg.BatchNorm, pyg.MLP, nn.Sequential,
    nn.ModuleList, pyg.Linear, pyg.LayerNorm, AddBias,
)  # fmt: skip
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
        name, reason = type(error).__name__, str(error).partition("\n")[0]
        raise UnsupportedModelError(f"its layers cannot be read ({name}: {reason})") from error


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
        return Recognised(_relu_between([*model.convs, model.conv_mu]), model.node_features)
    if kind is PEG:
        if any(type(conv) is not PEGConv for conv in model.convs):
            raise UnsupportedModelError("a layer is not PEG's own")
        both = model.features_and_positions
        return Recognised(_relu_between(model.convs), lambda x: both(x)[0], lambda x: both(x)[1])
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


def _relu_between(convs: Sequence[Any]) -> tuple[Layer, ...]:
    layers = [_conv_layer(conv) for conv in convs]
    return (*(_followed_by(layer, (nn.ReLU(),)) for layer in layers[:-1]), layers[-1])


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
    aggregation = _AGGREGATIONS.get(type(conv.aggr_module))
    if kind is GCNConv and aggregation == "sum":
        # PyG's `improved=True` (weight 2) has no effect without edge weights.
        fill = 1.0 if conv.normalize and conv.add_self_loops else None
        layer = _linear_layer("gcn" if conv.normalize else "sum", conv.lin, conv.bias)
        return replace(layer, self_loop_fill=fill)
    if kind is SAGEConv and aggregation is not None and not (conv.project or conv.normalize):
        root = conv.lin_r if conv.root_weight else None
        return _linear_layer(aggregation, conv.lin_l, conv.lin_l.bias, root)
    if kind is GraphConv and aggregation is not None:
        return _linear_layer(aggregation, conv.lin_rel, conv.lin_rel.bias, conv.lin_root)
    if kind is GINConv and aggregation == "sum":
        return _gin_layer(conv)
    if kind is PEGConv and aggregation == "sum":
        _require_row_wise(conv.phi)
        layer = _linear_layer("gcn", conv.lin, conv.bias)
        return replace(layer, self_loop_fill=1.0, arc_factor=conv.arc_factor)
    raise UnsupportedModelError(f"the layer {kind.__name__}(aggr={conv.aggr!r}) has no closed form")


def _linear_layer(kind: Kind, linear: Any, bias: Tensor | None, root: Any = None) -> Layer:
    """A layer that sends ``x W`` and adds a bias, and the node's own linear map, to the sum."""
    _require_linear(linear, bias)
    if root is not None:
        _require_linear(root)
    return Layer(
        kind,
        linear.weight,
        AddBias(bias),
        bias_step(bias, linear.weight),
        root_weight=None if root is None else root.weight,
    )


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
    layer = _linear_layer("sum", first, first.bias)
    root_weight = (1.0 + float(conv.eps)) * first.weight
    return replace(layer, update=mlp, root_weight=root_weight, steps=mlp_steps(mlp, first))


def _followed_by(layer: Layer, modules: tuple[Any, ...]) -> Layer:
    """The layer with row-wise modules (norm, activation, linear map) appended to its update."""
    for module in modules:
        _require_row_wise(module)
        update = partial(_one_after_the_other, layer.update, module)
        layer = replace(layer, update=update, steps=followed_by_step(layer.steps, module))
    return layer


def _one_after_the_other(first: RowMap, second: RowMap, x: Tensor) -> Tensor:
    return second(first(x))


def _require_linear(module: Any, bias: Tensor | None = None) -> None:
    """Refuse what is not a linear map without a bias, or with `bias`."""
    if type(module) not in (nn.Linear, pyg.Linear):
        raise UnsupportedModelError(f"{type(module).__name__} stands where a linear map is expected")
    if module.bias is not None and module.bias is not bias:
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
