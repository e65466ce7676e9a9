"""Run ``encode`` once on recorders, and keep what it computes from the edges as a graph of operations.

A toggle changes edges alone. So ``encode`` gets the real `x`, and whatever it computes from `x`, weights and
buffers is a number like any other. `edge_index` is a recorder, and so is what a convolution makes of it: they
hold no values, and torch hands each operation on them to :meth:`Recorder.__torch_function__`. It accepts
functions that treat every node (dimension 0) alone, named one by one below, and refuses the rest: reductions
over nodes, branches on values, anything at all that reads the arcs. Nothing is patched, so that threads do
not see each other's recorders.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from linkcal.exceptions import UnsupportedModelError

#: Value by value, with broadcasting over other dimensions than the nodes'.
_NAMED = """
    abs add addcdiv addcmul celu clamp clamp_max clamp_min clone cos div divide elu eq erf exp expm1 ge gelu
    gt hardsigmoid hardswish hardtanh isnan le leaky_relu lerp log log1p logical_and logical_not logical_or
    logsigmoid lt masked_fill maximum minimum mish mul multiply nan_to_num ne neg pow reciprocal relu relu6
    rsqrt rsub selu sigmoid sign silu sin softplus softsign sqrt square sub subtract tanh threshold
    true_divide where __pow__ __radd__ __rdiv__ __rmul__ __rpow__ __rsub__ __rtruediv__
"""
_ELEMENTWISE = frozenset(_NAMED.split())
_IN_PLACE = frozenset(name + "_" for name in _ELEMENTWISE)
#: Along the dimensions that an argument names: its place.
_REDUCING = "softmax log_softmax softmin sum mean amax amin max min logsumexp glu unbind"
_ALONG = dict.fromkeys(_REDUCING.split(), 1)
_ALONG |= dict.fromkeys(["normalize", "norm", "chunk", "split"], 2)
#: Of the rows and of parameters that are the same for all.
_WITH_PARAMETERS = {
    "linear", "matmul", "mm", "__matmul__", "batch_norm", "layer_norm", "group_norm", "prelu", "embedding",
}  # fmt: skip
_JOINING = {"cat", "concat", "stack"}
_RESHAPING = {"reshape", "view", "flatten", "unflatten", "unsqueeze", "squeeze"}
_TURNING = {"transpose", "swapaxes", "permute"}
_COMPUTING = {
    *_ELEMENTWISE, *_IN_PLACE, *_ALONG, *_WITH_PARAMETERS, *_JOINING, *_RESHAPING, *_TURNING, "__getitem__",
}  # fmt: skip
_VIEWS = {*_RESHAPING, *_TURNING, "chunk", "split", "unbind", "__getitem__"}
#: The same values in the same memory, unless dtype or device change.
_KEEPING = {"contiguous", "detach", "to", "float", "double", "cpu"}
_DROPOUT = {"dropout", "alpha_dropout"}
#: What no toggle changes of rows, and but for sizes not of arcs either.
_SIZES = {"size", "shape", "numel", "nelement", "stride", "__len__"}
_FACTS = {
    *_SIZES, "dim", "ndim", "ndimension", "dtype", "device", "layout", "is_sparse", "is_cuda", "is_nested",
    "is_floating_point", "is_complex", "requires_grad",
}  # fmt: skip
#: What turns values into numbers.
_READING = {"item", "tolist", "numpy", "equal", "allclose", "__array__", "__bool__", "__float__", "__int__"}
#: What reads several nodes or numbers, unless it is called as above.
_MIXED = """
    sort argsort topk kthvalue median quantile cumsum cumprod roll flip var std var_mean std_mean argmax mode
    any all count_nonzero index_select gather prod cummax cummin logcumsumexp nanmean nansum unique T mT t dot
    einsum tensordot bmm addmm outer cov corrcoef cdist scaled_dot_product_attention conv1d argmin interpolate
"""
_MIXING = {*_COMPUTING, *_READING, *_MIXED.split()}
# Functions of torch.nn.functional alone: torch has others under the same names.
_FUNCTIONAL = {"batch_norm", "layer_norm", "group_norm", "normalize", *_DROPOUT}
_NAMES: dict[Any, str] = {
    function: name
    for name in {*_COMPUTING, *_KEEPING, *_DROPOUT, *_FACTS}
    for place in ((F,) if name in _FUNCTIONAL else (torch, Tensor, F))
    if callable(function := getattr(place, name, None))
}


class MixesNodesError(UnsupportedModelError):
    """The embeddings of a node follow from more than its surroundings."""


class ReadsEdgesError(UnsupportedModelError):
    """The encoder uses edges otherwise than by a convolution."""


@dataclass(frozen=True, eq=False)
class PerNode:
    """Values [N, ...] that no toggle changes; of some nodes, their rows."""

    values: Tensor


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of the graph, or, without `function`, a convolution."""

    number: int
    name: str
    function: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    meta: Any  # an empty tensor on the device "meta", of the result's shape [N, ...]
    convolution: Any = None

    def parts(self) -> Iterator[Any]:
        """Nodes, values per node and tensors among the arguments."""
        return leaves((self.arguments, self.options))


class Program:
    """A function of every node's rows: from the values of some nodes of the graph to those of another one."""

    def __init__(self, result: Node | PerNode, given: Sequence[Node] | None = None) -> None:
        self.result, self.given = result, []
        seen, waiting, steps = set(), [result], []
        while waiting:
            part = waiting.pop()
            if not isinstance(part, Node) or part in seen:
                continue
            seen.add(part)
            if part.function is None if given is None else part in given:
                self.given.append(part)
            elif part.function is None:
                raise UnsupportedModelError("its layers are not one chain")
            else:
                steps.append(part)
                waiting += part.parts()
        self.given.sort(key=lambda node: node.number)
        self.steps = sorted(steps, key=lambda node: node.number)

    def __call__(self, values: Sequence[Tensor], nodes: Tensor | None = None) -> Tensor:
        """The result [R, ...] from values [R, ...] of `given`, at `nodes` [R] or, without them, at all."""
        known: dict[Node, Any] = dict(zip(self.given, values, strict=True))

        def value(part: Any) -> Any:
            if isinstance(part, PerNode):
                return part.values if nodes is None else part.values[nodes]
            return known[part] if isinstance(part, Node) else part

        for step in self.steps:
            assert step.function is not None
            known[step] = step.function(*mapped(value, step.arguments), **mapped(value, step.options))
        out: Tensor = value(self.result)
        return out


class Count(int):
    """A number of arcs or nodes, which may be handed on: neither branches nor values may depend on it."""

    _trace: Trace
    _of: str

    @classmethod
    def of(cls, what: str, number: int, trace: Trace) -> Count:
        """How many arcs or nodes there are."""
        made = cls(number)
        made._of, made._trace = what, trace
        return made

    def _refuse(self, *_: object) -> Any:
        with self._trace.keeping_errors():
            raise MixesNodesError(f"its encode depends on the number of {self._of}")

    def __eq__(self, other: object) -> Any:
        return True if int(self) == other else self._refuse()

    def __ne__(self, other: object) -> Any:
        return not self == other

    def __bool__(self) -> Any:
        return True if self._of == "nodes" else self._refuse()

    __hash__ = int.__hash__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __pow__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse


class Recorder(Tensor):
    """Stands for a tensor that toggles change: the arcs, their weights or, with a node, rows [N, ...]."""

    _trace: Trace
    _node: Node | None
    _meta: Tensor  # of the same shape
    _family: list[None]  # as long as there are tensors that share its memory

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the operation, or raise UnsupportedModelError."""
        trace = next(part._trace for part in leaves((args, kwargs)) if isinstance(part, Recorder))
        with trace.keeping_errors():
            return trace.recorded(function, args, kwargs or {})


class Trace:
    """What one call of ``encode`` on a graph of N nodes does with recorders."""

    def __init__(self, num_nodes: int, device: torch.device) -> None:
        self.num_nodes, self.device = num_nodes, device
        self.refused: UnsupportedModelError | None = None
        self._number = 0
        self._versions: list[tuple[Tensor, int]] = []

    @contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """Whatever goes wrong in the block is a refusal, also where the model catches it."""
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            kept = error if isinstance(error, UnsupportedModelError) else UnsupportedModelError(reason)
            self.refused = self.refused or kept
            raise kept from error

    def stand_in(self, like: Tensor) -> Recorder:
        """A recorder that can be handed on and nothing else, for arcs or weights."""
        return self._recorder(torch.empty_like(like, device="meta"), None)

    def rows(self, shape: Sequence[int], dtype: torch.dtype, convolution: Any = None) -> Recorder:
        """Rows [N, *shape], of a convolution or the first ones."""
        meta = torch.empty(self.num_nodes, *shape, dtype=dtype, device="meta")
        return self._recorder(meta, self._node("rows", None, (), {}, meta, convolution))

    def constant(self, values: Tensor) -> PerNode:
        """Values [N, ...] that no toggle changes."""
        return self._per_node(self._kept(values))

    def _per_node(self, values: Tensor) -> PerNode:
        return PerNode(values)

    def finish(self) -> None:
        """Refuse a call that failed in secret, or that changed what it had been recorded with."""
        if self.refused is not None:
            raise self.refused
        if any(values._version != version for values, version in self._versions):
            raise UnsupportedModelError("its encode changes tensors in place")

    def _recorder(self, meta: Tensor, node: Node | None, family: list[None] | None = None) -> Recorder:
        recorder = Tensor._make_subclass(Recorder, meta)
        recorder._trace, recorder._node, recorder._meta = self, node, meta
        recorder._family = [] if family is None else family
        recorder._family.append(None)
        return recorder

    def _node(self, name: str, function: Any, args: Any, kwargs: Any, meta: Any, conv: Any = None) -> Node:
        self._number += 1
        return Node(self._number, name, function, args, kwargs, meta, conv)

    def _kept(self, values: Tensor) -> Tensor:
        if type(values) not in (Tensor, nn.Parameter) or values.layout != torch.strided:
            raise UnsupportedModelError(f"{type(values).__name__} takes part in its encode")
        if values.device != self.device and values.ndim:
            raise UnsupportedModelError(f"a tensor on {values.device} takes part in its encode")
        if not values.is_inference():
            self._versions.append((values, values._version))
        return values.detach()

    def recorded(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function returns: recorders, or facts that no toggle changes."""
        name, first = _name_of(function), args[0] if args else None
        arcs = any(isinstance(part, Recorder) and part._node is None for part in leaves((args, kwargs)))
        if name in _COMPUTING and function in _NAMES and not arcs and kwargs.get("out") is None:
            return self._computed(name, function, args, dict(kwargs))
        if isinstance(first, Recorder):
            if arcs and function in (Tensor.new_ones, Tensor.new_zeros):
                return self.stand_in(first)  # the mask of PyG's dropout_edge in evaluation mode
            if arcs and name in ("size", "shape"):
                shape = (*first._meta.shape[:-1], Count.of("edges", first._meta.size(-1), self))
                return shape[args[1]] if args[1:] else shape
            if name in _FACTS and not (arcs and name in _SIZES):
                fact = self.device if name == "device" else function(first._meta, *args[1:], **kwargs)
                return self._fact_of_rows(name, fact, [*args[1:], *kwargs.values()])
            if name in _DROPOUT and function in _NAMES and kwargs.get("training") is False and not arcs:
                return first
            if name in _KEEPING and function in _NAMES:
                empty = torch.empty(0, dtype=first._meta.dtype, device=self.device)
                out = function(empty, *args[1:], **kwargs)
                if (out.dtype, out.device) == (empty.dtype, empty.device):
                    return first
        if arcs and name not in _READING:
            raise ReadsEdgesError(f"its encode reads the edges itself ({name})")
        raise _refusal(name)

    def _fact_of_rows(self, name: str, fact: Any, arguments: list[Any]) -> Any:  # noqa: ARG002
        """What a function of :data:`_FACTS` returns for rows."""
        return fact

    def _computed(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inplace = name in _IN_PLACE or bool(kwargs.pop("inplace", False))
        if name in _IN_PLACE:
            name = name[:-1]
            function = getattr(Tensor, name, None) or getattr(F, name)
        counts = [part for part in leaves((args, kwargs)) if isinstance(part, Count)]
        if counts and name not in _RESHAPING:
            counts[0]._refuse()
        out = function(*mapped(_as_meta, args), **mapped(_as_meta, kwargs))
        whole, first = out if isinstance(out, Tensor) else out[0], args[0]
        if not _is_row_wise(name, args, kwargs, whole) or whole.ndim == 0 or whole.size(0) != self.num_nodes:
            raise _refusal(name)
        if name in _RESHAPING:
            shape, args, kwargs = tuple(whole.shape[1:]), args[:1], {}
            function = lambda rows: rows.reshape(rows.size(0), *shape)  # noqa: E731
        joined = -1 if name in _WITH_PARAMETERS else whole.ndim - (name == "stack")

        def kept(part: Any) -> Any:
            if isinstance(part, Recorder):
                return part._node
            if not isinstance(part, Tensor):
                return part
            values = self._kept(part)
            per_node = part.ndim == joined and part.size(0) == self.num_nodes
            return self._per_node(values) if per_node else values

        node = self._node(name, function, mapped(kept, args), mapped(kept, kwargs), out)
        if inplace:
            fits = isinstance(first, Recorder) and len(first._family) == 1
            if not fits or (out.shape, out.dtype) != (first._meta.shape, first._meta.dtype):
                raise UnsupportedModelError(f"its encode changes tensors in place ({name})")
            first._node = node
            return first
        family = first._family if name in _VIEWS and isinstance(first, Recorder) else None
        if isinstance(out, Tensor):
            return self._recorder(out, node, family)
        items = [
            self._recorder(each, self._node("item", operator.itemgetter(place), (node,), {}, each), family)
            for place, each in enumerate(out)
        ]
        return tuple(items) if type(out) in (tuple, list) else type(out)(items)


def _is_row_wise(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> bool:
    """Whether a call whose result is [N, ...] mixes no nodes."""
    first, others = args[0], list(leaves((args[1:], kwargs)))
    if name in _ELEMENTWISE or (name in ("max", "min") and isinstance([*args, None][1], Tensor)):
        return all(part._meta.ndim == out.ndim for part in (first, *others) if isinstance(part, Recorder))
    if name in _JOINING:
        dim = kwargs.get("dim", [*args, 0][1])
        return type(dim) is int and dim % out.ndim != 0
    if not isinstance(first, Recorder) or any(isinstance(part, Recorder) for part in others):
        return False
    rows = first._meta
    if name in _RESHAPING:
        return out.dtype == rows.dtype and out.numel() == rows.numel()
    if name in _TURNING:
        first_moves = (
            others[0] % rows.ndim if name == "permute" else any(dim % rows.ndim == 0 for dim in others)
        )
        return not first_moves
    if name == "embedding":
        given = inspect.signature(F.embedding).bind(*args, **kwargs).arguments
        return given.get("max_norm") is None
    if name == "__getitem__":
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        plain = all(part is None or part is Ellipsis or type(part) in (int, slice) for part in index)
        taken = sum(type(part) in (int, slice) for part in index)
        return plain and (index[0] == slice(None) or (index[0] is Ellipsis and taken < rows.ndim))
    if name in _ALONG:
        place = _ALONG[name]
        dims = kwargs.get("dim", args[place] if len(args) > place else 1 if name == "normalize" else None)
        dims = list(dims) if isinstance(dims, tuple | list) else [dims]
        return dims != [] and all(type(dim) is int and dim % rows.ndim != 0 for dim in dims)
    if name == "batch_norm":
        given = inspect.signature(F.batch_norm).bind(*args, **kwargs).arguments
        return given["running_mean"] is not None and given.get("training", False) is False
    if name == "layer_norm":
        return len([*args, *kwargs.values()][1]) < rows.ndim
    return rows.ndim > 1 and (name not in ("matmul", "mm", "__matmul__") or args[1].ndim <= 2)


def _name_of(function: Any) -> str:
    """Of an attribute or a function of torch; for the latter by the table alone."""
    name = getattr(function, "__name__", type(function).__name__)
    return str(function.__self__.__name__) if name == "__get__" else _NAMES.get(function, name)


def _refusal(name: str) -> UnsupportedModelError:
    kind = MixesNodesError if name in _MIXING - _JOINING else UnsupportedModelError
    return kind(f"the function {name}, as it is called, is not known to treat every node alone")


def _as_meta(part: Any) -> Any:
    if isinstance(part, Recorder):
        return part._meta
    return torch.empty_like(part, device="meta") if isinstance(part, Tensor) else part


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The structure with the function of every part that is not a tuple, list or dictionary."""
    if type(value) in (tuple, list):
        return type(value)(mapped(function, part) for part in value)
    if type(value) is dict:
        return {key: mapped(function, part) for key, part in value.items()}
    return function(value)


@cache
def replacing(cls: Any, forward: Any) -> Any:
    """A class of the same instances with this ``forward``; the former one is its base's."""
    return type(cls.__name__, (cls,), {"forward": forward})


def leaves(value: Any) -> Iterator[Any]:
    """The parts that :func:`mapped` maps."""
    if type(value) in (tuple, list):
        for part in value:
            yield from leaves(part)
    elif type(value) is dict:
        yield from leaves(list(value.values()))
    else:
        yield value
