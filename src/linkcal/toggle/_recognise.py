"""Read a model's encoder as rounds of message passing, or say why that is not possible.

``encode`` runs once on recorders (:mod:`linkcal.toggle._trace`), in a view of the model whose known
convolutions record themselves. Known are those of the exact type, with plain linear maps inside: a subclass,
a hook, or a method replaced on the instance may compute anything. Compiled kernels run chains of rounds, each
of which reads the one before, and sums of chains; delta propagation runs any graph.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.modules import module as torch_module
from torch_geometric import nn as pyg
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    LGConv,
    MessagePassing,
    SAGEConv,
    TransformerConv,
)

from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models import PEG
from linkcal.models._view import evaluation_view
from linkcal.models.peg import PEGConv
from linkcal.toggle._layers import Attention, Elementwise, Kind, Layer, Step
from linkcal.toggle._trace import Node, PerNode, Program, Recorder, Trace, leaves, replacing

_AGGREGATIONS: dict[type, Kind] = {pyg.SumAggregation: "sum", pyg.MeanAggregation: "mean"}
#: A linear map of rows: a matrix [k, c], or None for the identity.
Matrix = Tensor | None


class Round(NamedTuple):
    """One convolution: what it reads, as a function of other rounds' values, which have the same nodes."""

    node: Node
    layer: Layer | Attention
    sources: tuple[Program, ...]  # of the senders; for attention of the receivers, too
    remaining: int  # rounds that may follow one after the other


class Chain(NamedTuple):
    """Layers, each of the one before; the first reads `features` [N, F]."""

    features: Tensor
    layers: tuple[Layer, ...]


class Encoder(NamedTuple):
    """Rounds in order, and the embeddings as a function of the values of some."""

    rounds: tuple[Round, ...]
    output: Program
    chain: Chain | None  # the whole encoder
    sums: list[list[Chain]] | None  # chains that add up to each of the values that `output` reads

    @property
    def depth(self) -> int:
        """Rounds one after the other."""
        return 1 + max(each.remaining for each in self.rounds)

    @property
    def widest(self) -> int:
        """Channels of the widest output of a round."""
        return max(int(each.node.meta.size(1)) for each in self.rounds)


def refuse_stateful(model: nn.Module) -> None:
    """Raise UnsupportedModelError if a layer caches its graph (``cached=True``): it would ignore a toggle."""
    for name, module in model.named_modules():
        if getattr(module, "cached", False) is True:
            raise UnsupportedModelError(
                f"model must not cache its graph, got {type(module).__name__}(cached=True) "
                f"at {name or 'the top'!r}: it would ignore toggled edges; build it with cached=False"
            )


def recognise(model: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Encoder:
    """The model's encoder on a graph; UnsupportedModelError with the reason why it is not known."""
    _require_plain(model)
    view: Any = evaluation_view(model)
    trace = _Trace(x.size(0), x.device)
    trace.arcs, weights = trace.stand_in(edge_index), {}
    if edge_weight is not None:
        trace.weights = weights["edge_weight"] = trace.stand_in(edge_weight)
    for module in view.modules():
        if isinstance(module, MessagePassing):
            module.__class__ = replacing(type(module), _record)  # type: ignore[arg-type]
    try:
        trace.constant(x)
        z = _encode_peg(view, x, trace.arcs) if type(view) is PEG else view.encode(x, trace.arcs, **weights)
        trace.finish()
        if not isinstance(z, Recorder) or z._node is None or z._meta.ndim != 2:
            raise UnsupportedModelError("its embeddings do not follow from known convolutions alone")
        return _encoder(z._node, chains=x.device.type == "cpu")
    except (InputError, UnsupportedModelError):
        raise
    except Exception as error:  # a user's code may raise anything
        reason = str(error).partition("\n")[0]
        raise UnsupportedModelError(
            f"its layers cannot be read ({type(error).__name__}: {reason})"
        ) from error


def _require_plain(model: nn.Module) -> None:
    """Refuse hooks that a forward pass runs, replaced methods, compiled and scripted modules."""
    state = vars(torch_module)
    hooked = any(state[name] for name in state if name.startswith("_global_forward"))
    for module in model.modules():
        own = vars(module)
        hooked |= any(own[name] for name in own if name.endswith(("forward_hooks", "forward_pre_hooks")))
        hooked |= any(callable(getattr(type(module), name, None)) for name in own)
        if own.get("_compiled_call_impl") is not None or isinstance(module, torch.jit.ScriptModule):
            raise UnsupportedModelError(f"{type(module).__name__} is compiled")
    if hooked:
        raise UnsupportedModelError("hooks or methods replaced on the instance may change what its layers do")


# --- Convolutions: each records itself, from its parameters ----------------------------------------------


class _Trace(Trace):
    arcs: Recorder
    weights: Recorder | None = None

    def source(self, x: Tensor) -> Node | PerNode:
        """What a convolution reads."""
        if isinstance(x, Recorder) and x._node is not None and x._meta.ndim == 2:
            return x._node
        if isinstance(x, Recorder) or x.ndim != 2 or x.size(0) != self.num_nodes:
            raise UnsupportedModelError("a layer does not read one row per node")
        return self.constant(x)

    def add(self, layer: Layer | Attention, width: int, *sources: Tensor) -> Recorder:
        """Rows [N, width] of a convolution."""
        if any(source.dtype not in (torch.float32, torch.float64) for source in sources):
            raise UnsupportedModelError(f"its features are {sources[0].dtype}, not float32 or float64")
        parts = tuple(self.source(source) for source in sources)
        return self.rows([width], sources[0].dtype, (layer, parts))

    def sums(self, kind: Kind, x: Tensor, linear: Any, bias: Tensor | None, **options: Any) -> Any:
        """What a layer with a closed form sends, and its bias."""
        if linear is not None and _linear(linear).bias is not None and linear.bias is not bias:
            raise UnsupportedModelError("a linear map has a bias where PyG's has none")
        weight = None if linear is None else linear.weight.detach()
        width = x.size(1) if weight is None else weight.size(0)
        out = self.add(Layer(kind, weight, **options), width, x)
        return out if bias is None else out + bias


def _record(conv: Any, *args: Any, **kwargs: Any) -> Any:
    """In the place of ``forward``: without recorders that of the class itself."""
    plain: Any = type(conv).__mro__[1]
    recorder = next((part for part in leaves((args, kwargs)) if isinstance(part, Recorder)), None)
    if recorder is None:
        return plain.forward(conv, *args, **kwargs)
    trace: Any = recorder._trace
    with trace.keeping_errors():
        if plain not in _KNOWN:
            raise UnsupportedModelError(f"the layer {plain.__name__} is not known")
        name, given = plain.__name__, inspect.signature(plain.forward).bind(conv, *args, **kwargs).arguments
        x, arcs, weight = given.pop("x"), given.pop("edge_index"), given.pop("edge_weight", None)
        given.pop("self")
        if arcs is not trace.arcs or any(part is not None for part in given.values()):
            raise UnsupportedModelError(
                f"the layer {name} reads other edges or more than its input and the edges"
            )
        if weight is not trace.weights:
            raise UnsupportedModelError(f"the layer {name} does not read edge weights, or other ones")
        if conv.flow != "source_to_target" or not isinstance(x, Tensor):
            raise UnsupportedModelError(f"the layer {name} does not pass messages from source to target")
        aggregation = _AGGREGATIONS.get(type(conv.aggr_module))
        if aggregation is None or (aggregation == "mean" and plain not in (SAGEConv, GraphConv)):
            raise UnsupportedModelError(f"the layer {name}(aggr={conv.aggr!r}) has no closed form")
        return _KNOWN[plain](trace, conv, x, aggregation)


def _gcn(trace: _Trace, conv: Any, x: Tensor, _: Kind) -> Any:
    # PyG's `improved=True` (weight 2) has no effect without edge weights.
    fill = 2.0 if conv.improved and trace.weights is not None else 1.0
    looped = conv.normalize and conv.add_self_loops
    kind: Kind = "gcn" if conv.normalize else "sum"
    return trace.sums(kind, x, conv.lin, conv.bias, self_loop_fill=fill if looped else None)


def _lg(trace: _Trace, conv: Any, x: Tensor, _: Kind) -> Any:
    return trace.sums("gcn" if conv.normalize else "sum", x, None, None)


def _sage(trace: _Trace, conv: Any, x: Tensor, kind: Kind) -> Tensor:
    sent = conv.lin(x).relu() if conv.project else x
    out: Tensor = trace.sums(kind, sent, conv.lin_l, conv.lin_l.bias)
    out = out + conv.lin_r(x) if conv.root_weight else out
    return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


def _graph_conv(trace: _Trace, conv: Any, x: Tensor, kind: Kind) -> Any:
    return trace.sums(kind, x, conv.lin_rel, conv.lin_rel.bias) + conv.lin_root(x)


def _gin(trace: _Trace, conv: Any, x: Tensor, kind: Kind) -> Any:
    eps = float(conv.eps)
    own = x if eps == 0.0 else (1.0 + eps) * x
    return conv.nn(trace.sums(kind, x, None, None) + own)


def _attention(
    trace: _Trace, conv: Any, sender: Tensor, receiver: Tensor, score: Any, scored: slice, first: int
) -> Tensor:
    """Heads side by side or averaged; the values begin in column `first` of `sender`."""
    if conv.lin_edge is not None:
        raise UnsupportedModelError(f"the layer {type(conv).__name__} reads edge features")
    width = conv.heads * conv.out_channels
    loops = getattr(conv, "add_self_loops", False)
    layer = Attention(conv.heads, scored, slice(first, first + width), score, self_loops=loops)
    out: Tensor = trace.add(layer, width, sender, receiver)
    return out if conv.concat else out.view(-1, conv.heads, conv.out_channels).mean(dim=1)


def _gat(trace: _Trace, conv: Any, x: Tensor, _: Kind) -> Any:
    sent = _linear(conv.lin)(x)
    heads, width, slope = sent.view(-1, conv.heads, conv.out_channels), sent.size(1), conv.negative_slope
    source, target = (heads * conv.att_src).sum(dim=-1), (heads * conv.att_dst).sum(dim=-1)

    def score(sender: Tensor, receiver: Tensor) -> Tensor:
        return F.leaky_relu(sender + receiver, slope)

    sender = torch.cat([sent, source], dim=1)
    out = _attention(trace, conv, sender, target, score, slice(width, None), 0)
    return _residual_and_bias(conv, x, out)


def _gat_v2(trace: _Trace, conv: Any, x: Tensor, _: Kind) -> Any:
    sent = _linear(conv.lin_l)(x)
    target = sent if conv.share_weights else _linear(conv.lin_r)(x)
    slope, shape = conv.negative_slope, (conv.heads, conv.out_channels)
    weights: Tensor = conv.att.detach()

    def score(sender: Tensor, receiver: Tensor) -> Tensor:
        joined = F.leaky_relu(sender + receiver, slope).view(-1, *shape)
        return (joined * weights).sum(dim=-1)

    out = _attention(trace, conv, sent, target, score, slice(None), 0)
    return _residual_and_bias(conv, x, out)


def _residual_and_bias(conv: Any, x: Tensor, out: Tensor) -> Any:
    out = out if conv.res is None else out + _linear(conv.res)(x)
    return out if conv.bias is None else out + conv.bias


def _transformer(trace: _Trace, conv: Any, x: Tensor, _: Kind) -> Any:
    key, query, value = (_linear(each)(x) for each in (conv.lin_key, conv.lin_query, conv.lin_value))
    width, shape = key.size(1), (conv.heads, conv.out_channels)

    def score(sender: Tensor, receiver: Tensor) -> Tensor:
        product = (sender * receiver).view(-1, *shape)
        return product.sum(dim=-1) / math.sqrt(shape[1])

    out = _attention(trace, conv, torch.cat([key, value], dim=1), query, score, slice(width), width)
    if not conv.root_weight:
        return out
    own = _linear(conv.lin_skip)(x)
    if conv.lin_beta is None:
        return out + own
    beta = _linear(conv.lin_beta)(torch.cat([out, own, out - own], dim=-1)).sigmoid()
    return beta * own + (1 - beta) * out


def _encode_peg(model: Any, x: Tensor, arcs: Any) -> Any:
    """PEG's ``encode``, whose coefficients are those of GCN times a function of the positions."""
    hidden, positions = model.features_and_positions(x)
    for number, conv in enumerate(model.convs, start=1):
        if type(conv) is not replacing(PEGConv, _record) or type(conv.aggr_module) is not pyg.SumAggregation:
            raise UnsupportedModelError("a layer is not PEG's own")
        options = {"self_loop_fill": 1.0, "arc_factor": conv.arc_factor, "positions": positions}
        hidden = arcs._trace.sums("gcn", hidden, conv.lin, conv.bias, **options)
        hidden = hidden.relu() if number < model.num_layers else hidden
    return hidden


def _linear(module: Any) -> Any:
    if type(module) not in (nn.Linear, pyg.Linear):
        raise UnsupportedModelError(f"{type(module).__name__} stands where a linear map is expected")
    return module


_KNOWN: dict[type, Callable[[_Trace, Any, Tensor, Kind], Tensor]] = {
    GCNConv: _gcn, SAGEConv: _sage, GraphConv: _graph_conv, GINConv: _gin, GATConv: _gat, GATv2Conv: _gat_v2,
    LGConv: _lg, TransformerConv: _transformer,
}  # fmt: skip


# --- From the graph of operations to rounds and chains ---------------------------------------------------


def _encoder(z: Node, *, chains: bool) -> Encoder:
    output, known = Program(z), {}
    waiting = list(output.given)
    while waiting:
        node = waiting.pop()
        if node not in known:
            known[node] = tuple(Program(source) for source in node.convolution[1])
            waiting += [each for program in known[node] for each in program.given]
    if not known:
        raise UnsupportedModelError("its encode has no known convolution")
    nodes = sorted(known, key=lambda node: node.number)
    remaining = dict.fromkeys(nodes, 0)
    for node in reversed(nodes):
        for each in (each for program in known[node] for each in program.given):
            remaining[each] = max(remaining[each], remaining[node] + 1)
    rounds = tuple(Round(node, node.convolution[0], known[node], remaining[node]) for node in nodes)
    stops = {source for node in nodes for source in node.convolution[1] if isinstance(source, Node)}
    chain = _chain(z, stops) if chains else None
    sums = [_summands(node, stops) for node in output.given] if chains else [None]
    return Encoder(rounds, output, chain, None if None in sums else sums)  # type: ignore[arg-type]


class _Sum:
    """A node [N, k] as matrices of others, a vector [k] and values [N, k] that do not change."""

    def __init__(self, node: Node, matrix: Matrix, stops: set[Node]) -> None:
        self.nodes: dict[Node, Matrix] = {}
        self.vector: Tensor | None = None
        self.per_node: Tensor | None = None
        self._add(node, matrix, stops - {node})

    def _add(self, part: Any, matrix: Matrix, stops: set[Node]) -> None:
        """Add a linear map of `part`, taken apart down to `stops` and what is not linear."""
        if isinstance(part, PerNode):
            values = part.values if matrix is None else F.linear(part.values, matrix)
            self.per_node = values if self.per_node is None else self.per_node + values
        elif isinstance(part, Tensor):
            values = part if matrix is None else F.linear(part, matrix)
            self.vector = values if self.vector is None else self.vector + values
        elif part not in stops and (terms := _linear_terms(part)) is not None:
            for inner, factor in terms:
                whole = factor if matrix is None else matrix if factor is None else matrix @ factor
                self._add(inner, whole, stops)
        elif part in self.nodes:
            self.nodes[part] = _matrix(self.nodes[part], part) + _matrix(matrix, part)
        else:
            self.nodes[part] = matrix


def _matrix(matrix: Matrix, node: Node) -> Tensor:
    return torch.eye(node.meta.size(1), dtype=node.meta.dtype) if matrix is None else matrix


def _linear_terms(node: Node) -> list[tuple[Any, Matrix]] | None:
    """Terms that add up to a node [N, k], each with its map; None where it is no such sum."""
    args, shape = node.arguments, node.meta.shape
    if node.name == "linear":
        weight, bias = _weight_and_bias(node)
        return [(args[0], weight), *([] if bias is None else [(bias, None)])]
    if node.name in ("cat", "concat") and len(shape) == 2:
        parts = [part.values if isinstance(part, PerNode) else part.meta for part in args[0]]
        columns = torch.eye(shape[1], dtype=node.meta.dtype).split([part.size(1) for part in parts], dim=1)
        return list(zip(args[0], columns, strict=True))
    if node.options or len(args) != 2 or any(isinstance(p, Node) and p.meta.shape != shape for p in args):
        return None
    if node.name in ("add", "__radd__") and all(
        isinstance(part, Node)
        or (isinstance(part, PerNode) and part.values.shape == shape)
        or (isinstance(part, Tensor) and part.shape == shape[1:])
        for part in args
    ):
        return [(part, None) for part in args]
    part, factor = args if isinstance(args[0], Node) else args[::-1]
    number = type(factor) in (int, float) or (isinstance(factor, Tensor) and factor.ndim == 0)
    if node.name in ("mul", "__rmul__") and isinstance(part, Node) and number:
        return [(part, _matrix(None, part) * factor)]
    return None


def _weight_and_bias(node: Node) -> tuple[Tensor, Tensor | None]:
    weight, bias = [*node.arguments, node.options.get("bias")][1:3]
    return weight, bias


def _chain(result: Node, stops: set[Node]) -> Chain | None:
    """The layers behind a node, the last one's update up to it; None if there are other ways to it."""
    top, steps = result, []
    while top.function is not None:
        inner = [part for part in top.parts() if isinstance(part, Node | PerNode)]
        if len(inner) != 1 or not isinstance(inner[0], Node) or not isinstance(inner[0].meta, Tensor):
            break
        steps.append(top)
        top = inner[0]
    steps.reverse()
    total = _Sum(top, None, stops)
    conv = next((node for node in total.nodes if node.function is None), None)
    if conv is None or total.nodes[conv] is not None or isinstance(conv.convolution[0], Attention):
        return None
    (layer, (source,)), given = conv.convolution, top
    if set(total.nodes) - {conv, source} or (isinstance(source, Node) and total.per_node is not None):
        return None
    root = _matrix(total.nodes[source], source) if source in total.nodes else None
    weight, vector, per_node = layer.weight, total.vector, total.per_node
    if weight is None and steps and steps[0].name == "linear":
        # The matrix moves before the sum, where it runs once per node, not once per pair.
        given = steps.pop(0)
        weight, bias = _weight_and_bias(given)
        root = None if root is None else weight @ root
        per_node = None if per_node is None else F.linear(per_node, weight)
        vector = bias if vector is None else F.linear(vector, weight, bias)
    program, read = Program(result, [given]), _read_steps(vector, steps, given.meta)

    def update(pre: Tensor) -> Tensor:
        return program([pre if vector is None else pre + vector])

    parts = {"weight": weight, "root_weight": root, "root": per_node}
    return _extended(source, stops, replace(layer, update=update, steps=read, **parts))


def _extended(source: Node | PerNode, stops: set[Node], layer: Layer) -> Chain | None:
    if isinstance(source, PerNode):
        return Chain(source.values, (layer,))
    before = _chain(source, stops)
    whole = replace(layer, weight=_matrix(layer.weight, source))
    return None if before is None else Chain(before.features, (*before.layers, whole))


def _summands(node: Node, stops: set[Node]) -> list[Chain] | None:
    """Chains whose outputs add up to a convolution's, which is linear in what it reads; None without any."""
    layer, (source, *_) = node.convolution
    if isinstance(layer, Attention):
        return None
    layer = replace(layer, steps=_read_steps(None, [], node.meta))
    if isinstance(source, PerNode):
        return [Chain(source.values, (layer,))]
    total = _Sum(source, layer.weight, stops)
    parts = total.nodes.items()
    chains = [_extended(part, stops, replace(layer, weight=_matrix(matrix, part))) for part, matrix in parts]
    rest = total.per_node
    if total.vector is not None:
        whole = total.vector.expand(source.meta.size(0), -1)
        rest = whole if rest is None else rest + whole
    if rest is not None:
        chains.append(Chain(rest, (replace(layer, weight=None),)))
    return None if None in chains else chains  # type: ignore[return-value]


# --- A chain's updates step by step, for compiled code ---------------------------------------------------


def _read_steps(vector: Tensor | None, nodes: list[Node], meta: Tensor) -> tuple[Step, ...] | None:
    """An elementwise step, and whatever follows; None where compiled code has no form for it."""
    one = torch.ones(meta.size(1), dtype=meta.dtype)
    shift = torch.zeros_like(one) if vector is None else vector
    steps: tuple[Step, ...] | None = (Elementwise(one, shift, 1.0),)
    for node in nodes:
        steps = None if steps is None else _followed_by(steps, node)
    return steps


def _followed_by(before: tuple[Step, ...], node: Node) -> tuple[Step, ...] | None:
    last = before[-1]
    assert isinstance(last, Elementwise)
    if node.name == "clone":
        return before
    if node.name == "linear":
        weight, bias = _weight_and_bias(node)
        shift = weight.new_zeros(weight.size(0)) if bias is None else bias
        return (*before, weight, Elementwise(torch.ones_like(shift), shift, 1.0))
    affine = _affine(node, last.shift)
    if affine is not None:
        scale, shift = affine
        if last.slope == 1.0:
            return (*before[:-1], Elementwise(last.scale * scale, last.shift * scale + shift, 1.0))
        return (*before, Elementwise(scale, shift, 1.0))
    slope = 0.0 if node.name == "relu" else None
    if node.name == "leaky_relu":
        slope = node.options.get("negative_slope", [*node.arguments, 0.01][1])
    if slope is None or not 0.0 <= slope <= 1.0:
        return None
    if last.slope == 1.0:
        return (*before[:-1], replace(last, slope=float(slope)))
    return (*before, Elementwise(torch.ones_like(last.scale), torch.zeros_like(last.shift), float(slope)))


def _affine(node: Node, like: Tensor) -> tuple[Tensor, Tensor] | None:
    """Scale and shift [k] of a batch norm, or of a sum or product with a number or a vector; else None."""
    one, args = torch.ones_like(like), node.arguments
    if node.name == "batch_norm":
        norm = inspect.signature(F.batch_norm).bind(*args, **node.options)
        norm.apply_defaults()
        _, mean, var, weight, bias, _, _, eps = norm.args
        scale = (var + eps).rsqrt()
        if weight is not None:
            scale = scale * weight
        return scale, -mean * scale if bias is None else bias - mean * scale
    if node.name not in ("add", "mul") or len(args) != 2 or node.options:
        return None
    other = args[1] if isinstance(args[0], Node) else args[0]
    if not isinstance(other, float | int) and getattr(other, "shape", None) not in (like.shape, ()):
        return None
    return (one, one * other) if node.name == "add" else (one * other, torch.zeros_like(like))
