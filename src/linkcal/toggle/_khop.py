"""The method for any message-passing module: the model itself, run on small subgraphs around the pairs.

After L rounds a node's embedding depends on its L-hop neighbourhood alone, so the pairs' neighbourhoods give
exactly what the whole graph gives, if the degrees in them are right. Two savings, pairs that share their rim
(:mod:`linkcal.toggle._subgraphs`) and messages left out, are not right for every model: the engine verifies.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing

from linkcal.exceptions import UnsupportedModelError
from linkcal.toggle._naive import encode
from linkcal.toggle._subgraphs import FAR, SubgraphBatch, Subgraphs

#: Modules that mix all nodes of the graph.
_GLOBAL = (
    pyg.GraphNorm, pyg.PairNorm, pyg.InstanceNorm, pyg.GraphSizeNorm, pyg.MeanSubtractionNorm,
    pyg.DiffGroupNorm, pyg.TopKPooling, pyg.SAGPooling, pyg.ASAPooling, pyg.MemPooling, nn.InstanceNorm1d,
)  # fmt: skip
#: What an ``encode`` that does not fit subgraphs raises.
_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def refuse_global(model: nn.Module) -> None:
    """Raise UnsupportedModelError if a module is known to mix all nodes."""
    for name, module in model.named_modules():
        if (
            isinstance(module, _GLOBAL)
            or (isinstance(module, nn.BatchNorm1d) and module.running_mean is None)
            or (isinstance(module, pyg.LayerNorm) and module.mode == "graph")
        ):
            raise UnsupportedModelError(
                f"model must not mix all nodes for method 'khop', got {type(module).__name__} at "
                f"{name or 'the top'!r}; use method='naive'"
            )


class Messages:
    """The rounds of message passing in one ``encode``: recorded on the whole graph, shortened on subgraphs.

    The c-th of L rounds (from 1) needs to reach only nodes within L - c hops of the endpoints: a hook drops
    the other arcs and what the round reads per arc. Parallel rounds count one after the other, which keeps
    too many arcs for some, never too few. `model` is an evaluation view that nobody else uses: the hooks
    stay.
    """

    def __init__(self, model: nn.Module) -> None:
        #: Modules in the order of their rounds, and the names of what they read per arc; None where unknown.
        self.rounds: list[tuple[nn.Module, frozenset[str] | None]] = []
        self.passed: list[nn.Module] = []
        self._num_nodes: int | None = None
        self._distance: Tensor | None = None
        for module in model.modules():
            if isinstance(module, MessagePassing):
                module.register_propagate_forward_pre_hook(self)

    def record(self, num_nodes: int) -> None:
        """Record the rounds of the next ``encode``, on the whole graph."""
        self.rounds, self.passed, self._num_nodes, self._distance = [], [], num_nodes, None

    def shorten(self, distance: Tensor | None) -> None:
        """Shorten the rounds of the next ``encode``, on nodes at distances [M]; None leaves them whole."""
        self.passed, self._num_nodes, self._distance = [], None, distance

    def fit(self) -> bool:
        """Whether the last ``encode`` passed the recorded rounds."""
        return self.passed == [module for module, _ in self.rounds]

    def __call__(self, module: MessagePassing, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The hook: arguments of a round without the arcs that do not count; None leaves them as they are."""
        edge_index, size, values = arguments
        self.passed.append(module)
        if self._num_nodes is not None:
            self.rounds.append((module, _per_arc(edge_index, values, self._num_nodes)))
        left = len(self.rounds) - len(self.passed)
        if self._distance is None or left < 0:
            return None
        expected, names = self.rounds[len(self.passed) - 1]
        if module is not expected or names is None or type(edge_index) is not Tensor:
            return None
        per_arc = {name: values[name] for name in names if values.get(name) is not None}
        if any(_num_rows(value) != edge_index.size(1) for value in per_arc.values()):
            return None
        receiver = edge_index[1 if module.flow == "source_to_target" else 0]
        # Distances are int8, and a larger number would wrap.
        kept = (self._distance[receiver] <= min(left, FAR)).nonzero().flatten()
        if not kept.numel():
            return None  # a layer that never had to do without any message may not be able to
        fewer = {name: value.index_select(0, kept) for name, value in per_arc.items()}
        return edge_index.index_select(1, kept), size, {**values, **fewer}


def _per_arc(edge_index: Any, values: dict[str, Any], num_nodes: int) -> frozenset[str] | None:
    """Names of a round's arguments that have a row per arc; None where that cannot be told."""
    if type(edge_index) is not Tensor or edge_index.dim() != 2 or edge_index.size(1) == num_nodes:
        return None
    number = edge_index.size(1)
    names = {name for name, value in values.items() if _num_rows(value) == number}
    nested = (value for value in values.values() if isinstance(value, tuple | list | dict))
    if "x" in names or any(_holds(value, number) for value in nested):
        return None
    return frozenset(names)


def _num_rows(value: Any) -> int:
    return value.size(0) if isinstance(value, Tensor) and value.dim() else -1


def _holds(value: Any, number: int) -> bool:
    """Whether a tensor with so many rows is inside."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return _num_rows(value) == number or any(_holds(part, number) for part in parts)


class KHop:
    """A model (an evaluation view) run on subgraphs; `counted`: as many hops as recorded rounds."""

    def __init__(
        self, model: nn.Module, x: Tensor, subgraphs: Subgraphs, messages: Messages, *, counted: bool
    ) -> None:
        self.model, self.x, self.subgraphs = model, x, subgraphs
        self.messages, self.counted = messages, counted

    def endpoints(self, pairs: Tensor, insert: Tensor, *, toggle: bool = True) -> tuple[Tensor, Tensor]:
        """Node embeddings [L, d] of both endpoints; UnsupportedModelError if ``encode`` does not fit."""
        sources, targets = [], []
        for batch in self.subgraphs.batches(pairs, insert, toggle=toggle):
            try:
                z = self._embedded(batch)
            except _ERRORS as error:
                if isinstance(error, UnsupportedModelError):
                    raise
                reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
                raise UnsupportedModelError(
                    "model.encode must run on subgraphs for method 'khop', "
                    f"got {type(error).__name__}: {reason[0]}"
                ) from error
            if z.size(0) != batch.nodes.numel():
                raise UnsupportedModelError(
                    f"model.encode must return one row per node of x, {batch.nodes.numel()}, "
                    f"got {z.size(0)}; method 'khop' runs it on subgraphs"
                )
            sources.append(z[batch.source])
            targets.append(z[batch.target])
        return torch.cat(sources), torch.cat(targets)

    def _embedded(self, batch: SubgraphBatch) -> Tensor:
        x = self.x.index_select(0, batch.nodes)
        if self.subgraphs.shared:
            self.messages.shorten(batch.distance)
            z = encode(self.model, x, batch.edge_index)
            if self.messages.fit():
                return z
        # Layers chosen by the data may pass other rounds here than on the whole graph.
        self.messages.shorten(None)
        z = encode(self.model, x, batch.edge_index)
        if self.counted and len(self.messages.passed) > self.subgraphs.num_hops:
            raise UnsupportedModelError(
                f"model.encode must pass messages {self.subgraphs.num_hops} times, as on the whole graph, "
                f"got {len(self.messages.passed)} times on a subgraph; pass num_hops or use method='naive'"
            )
        return z


def check_pairs_of_rims(subgraphs: Subgraphs, pairs: Tensor, number: int) -> Tensor:
    """At most `number` pairs with the largest rims on which sharing and leaving out show; perhaps none.

    They do not show on a pair without a rim, or on a directed graph without an arc that leaves the subgraph.
    """
    _, _, rims, away = subgraphs.sizes(pairs)
    if not subgraphs.graph.undirected:
        rims = rims * (away > 0)
    order = torch.from_numpy((-rims).argsort(kind="stable")[:number].copy()).to(pairs.device)
    return pairs[:, order[torch.from_numpy(rims).to(pairs.device)[order] > 0]]
