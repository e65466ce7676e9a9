"""The method for any message-passing module: the model itself, run on small subgraphs around the pairs.

After L rounds a node's embedding depends on its L-hop neighbourhood alone. So the subgraph of a pair (u, v)
holds every node within L hops of u or v and every arc into these nodes. Of the rim, the nodes at distance L,
only input and number of arcs matter; arcs from outside come from dummy nodes, the j-th outside neighbour of a
node being dummy j. There are two forms, and the engine verifies which is right for a model:

- whole: every pair has its own copy of all its nodes, hops ignore direction, and arcs that leave the set end
  in dummies, so that out-degrees are right too;
- shared: rim nodes, which a toggle does not change, and the arcs into them stand in a batch once for all
  pairs. Several times as fast, but out-degrees are wrong, and hops follow arcs backwards only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads
from linkcal.data.graph import neighbour_rows
from linkcal.exceptions import UnsupportedModelError
from linkcal.models._view import evaluation_view
from linkcal.toggle._graph import ToggleGraph, search_around
from linkcal.toggle._naive import encode
from linkcal.toggle._trace import (
    Count,
    MixesNodesError,
    PerNode,
    ReadsEdgesError,
    Recorder,
    Trace,
    leaves,
    mapped,
    replacing,
)

Array = Any  # NumPy arrays
IntArray = NDArray[np.int64]

#: Bounds on the nodes in one batch where the caller sets none.
_FEW, _MANY = 1 << 14, 1 << 18
#: Arcs of a batch may be this many times its nodes: an arc carries two indices and one message.
ARCS_PER_NODE = 16
#: Rows of what becomes of each pair's edge, bool [2, P].
REMOVED, INSERTED = 0, 1
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


class _Outside(Trace):
    """What ``encode`` does outside its message passing, of rows that are recorders from the first on."""

    arcs: Recorder

    def _per_node(self, values: Tensor) -> PerNode:
        if bool((values == values[:1]).all()):
            return PerNode(values)
        raise MixesNodesError("its encode gives nodes values by their number")

    def _fact_of_rows(self, name: str, fact: Any, arguments: list[Any]) -> Any:
        if name in ("size", "shape"):
            if isinstance(fact, tuple):
                return (Count.of("nodes", fact[0], self), *fact[1:])
            return Count.of("nodes", fact, self) if arguments[0] == 0 else fact
        if name == "__len__":
            raise UnsupportedModelError("its encode takes len() of rows")
        return Count.of("nodes", fact, self) if name in ("numel", "nelement") else fact

    def passed(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Rows of the shape that a layer returns for two nodes and their edge."""

        def given(part: Any) -> Any:
            if isinstance(part, Recorder) and part._node is None:
                if part is not self.arcs:
                    raise ReadsEdgesError("a layer reads other arcs than edge_index")
                return torch.tensor([[0, 1], [1, 0]], device=self.device)
            if isinstance(part, Recorder):
                return torch.zeros(2, *part._meta.shape[1:], dtype=part._meta.dtype, device=self.device)
            if isinstance(part, Tensor) and part.ndim and part.size(0) == self.num_nodes:
                self._per_node(part)
                return part[:2]
            return 2 if isinstance(part, Count) else part

        plain: Any = type(layer).__mro__[1]
        out = plain.forward(layer, *mapped(given, args), **mapped(given, kwargs))
        if not isinstance(out, Tensor) or out.ndim == 0 or out.size(0) != 2:
            raise UnsupportedModelError("a layer does not return one row per node")
        return self.rows(out.shape[1:], out.dtype)


def _passed_over(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """In the place of ``forward`` of message passing."""
    recorder = next((part for part in leaves((args, kwargs)) if isinstance(part, Recorder)), None)
    if recorder is None:
        return type(layer).__mro__[1].forward(layer, *args, **kwargs)  # type: ignore[attr-defined]
    with recorder._trace.keeping_errors():
        return recorder._trace.passed(layer, args, kwargs)  # type: ignore[attr-defined]


def left_unread(model: nn.Module, x: Tensor, edge_index: Tensor) -> UnsupportedModelError | None:
    """Why ``encode`` cannot be read outside its message passing; None where it treats every node alone.

    Raises MixesNodesError where nodes meet there, or have values by their number: subgraphs have neither all
    nodes nor their numbers.
    """
    trace = _Outside(x.size(0), x.device)
    trace.arcs = trace.stand_in(edge_index)
    view: Any = evaluation_view(model)
    for module in view.modules():
        if isinstance(module, MessagePassing):
            module.__class__ = replacing(type(module), _passed_over)  # type: ignore[arg-type]
    try:
        z = view.encode(trace.rows(x.shape[1:], x.dtype), trace.arcs)
        trace.finish()
        if not isinstance(z, Recorder) or z._node is None:
            raise UnsupportedModelError("its embeddings do not follow from known functions alone")
    except Exception as error:  # a user's code may raise anything, and catch what stopped it
        known = error if isinstance(error, UnsupportedModelError) else UnsupportedModelError(str(error))
        reason = trace.refused or known
        if isinstance(reason, MixesNodesError):
            raise reason from error
        return reason
    return None


class Rounds:
    """Counts how often PyG's ``MessagePassing`` modules of an evaluation view pass messages; its hooks stay.

    Parallel rounds count one after the other, which makes subgraphs larger than needed, never too small.
    """

    def __init__(self, model: nn.Module) -> None:
        self.passed = 0
        for module in model.modules():
            if isinstance(module, MessagePassing):
                module.register_propagate_forward_pre_hook(self)

    def __call__(self, *_: Any) -> None:
        """The hook."""
        self.passed += 1


class KHop:
    """A model (an evaluation view) run on subgraphs; with `rounds`, it may pass no more than the hops."""

    def __init__(
        self, model: nn.Module, x: Tensor, subgraphs: Subgraphs, rounds: Rounds | None = None
    ) -> None:
        self.model, self.x, self.subgraphs, self.rounds = model, x, subgraphs, rounds

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
                    f"got {type(error).__name__}: {reason[0]}; use method='naive'"
                ) from error
            if z.size(0) != batch.nodes.numel():
                raise UnsupportedModelError(
                    f"model.encode must return one row per node of x, {batch.nodes.numel()}, "
                    f"got {z.size(0)} on a subgraph; use method='naive'"
                )
            sources.append(z[batch.source])
            targets.append(z[batch.target])
        return torch.cat(sources), torch.cat(targets)

    def _embedded(self, batch: SubgraphBatch) -> Tensor:
        before, hops = 0 if self.rounds is None else self.rounds.passed, self.subgraphs.num_hops
        z = encode(self.model, self.x.index_select(0, batch.nodes), batch.edge_index)
        # Layers chosen by the data may pass other rounds here than on the whole graph.
        if self.rounds is not None and self.rounds.passed - before > hops:
            raise UnsupportedModelError(
                f"model.encode must pass messages {hops} times, as on the whole graph, got "
                f"{self.rounds.passed - before} times on a subgraph; pass num_hops or use method='naive'"
            )
        return z


def check_pairs_of_rims(subgraphs: Subgraphs, pairs: Tensor, number: int) -> Tensor:
    """At most `number` pairs with the largest rims on which sharing shows; perhaps none.

    It does not show on a pair without a rim, or on a directed graph without an arc that leaves the subgraph.
    """
    _, _, rims, away = subgraphs.sizes(pairs)
    if not subgraphs.graph.undirected:
        rims = rims * (away > 0)
    order = torch.from_numpy((-rims).argsort(kind="stable")[:number].copy()).to(pairs.device)
    return pairs[:, order[torch.from_numpy(rims).to(pairs.device)[order] > 0]]


def batch_nodes(graph: ToggleGraph) -> int:
    """Bound on the nodes of a batch where the caller gives none: the larger, the more pairs share a rim."""
    by_arcs = 2 * graph.senders.numel() // ARCS_PER_NODE
    return min(max(graph.num_nodes, by_arcs, _FEW), _MANY)


class SubgraphBatch(NamedTuple):
    """Disjoint subgraphs of P consecutive pairs: dummies, then the rim, then each pair's own nodes."""

    num_dummies: int
    nodes: Tensor  # [M], int64: the graph's node behind each subgraph node
    edge_index: Tensor  # [2, A], int64
    source: Tensor  # [P], int64: subgraph nodes of the first endpoints
    target: Tensor  # [P], int64


class _Rows(NamedTuple):
    """Compressed rows of a graph; counts are multiplicities."""

    starts: IntArray  # [N + 1]: the rows that a search follows
    neighbours: IntArray
    indptr: IntArray  # [N + 1]
    senders: IntArray  # [E]
    in_count: IntArray  # [E]
    out_indptr: IntArray  # [N + 1]
    receivers: IntArray  # [E]
    out_count: IntArray  # [E]
    loops: IntArray  # [N]
    arcs_into: IntArray  # [N], with loops


class Subgraphs:
    """Subgraphs within L = `num_hops` of pairs of one graph, with a shared rim or whole.

    `max_batch_nodes` bounds the nodes of a batch (and, times 16, its arcs), dummies left out; one pair may
    exceed it, and `least_pairs` share a batch whatever their sizes.
    """

    def __init__(
        self, graph: ToggleGraph, num_hops: int, max_batch_nodes: int, *, shared: bool, least_pairs: int = 1
    ) -> None:
        self.graph, self.num_hops, self.shared = graph, num_hops, shared
        self.max_batch_nodes, self.least_pairs = max_batch_nodes, least_pairs
        loops = graph.self_loops.cpu().numpy()
        into, away = _compressed_rows(graph), _compressed_rows(graph.transposed)
        around = into[:2]
        if not (shared or graph.undirected):
            around = neighbour_rows(torch.stack([graph.senders, graph.receivers]), graph.num_nodes)
        arcs_into = graph.in_degree(weighted=False).cpu().numpy() + loops
        self._rows = _Rows(*around, *into, *away, loops, arcs_into)
        # One row per thread: local numbers (-1: outside), and the nodes in their order.
        self._slots, self._balls = np.full(
            (2, max(1, torch.get_num_threads()), graph.num_nodes), -1, dtype=np.int64
        )
        # Of each node: the batch whose rim it was last in, and its place there; of each place, its node.
        self._rim_batch, self._rim_place, self._rim = np.full((3, graph.num_nodes), -1, dtype=np.int64)
        self._batch = 0

    def batches(self, pairs: Tensor, insert: Tensor, *, toggle: bool = True) -> Iterator[SubgraphBatch]:
        """Subgraphs with each pair's target link inserted or removed, or as given if not `toggle`."""
        ends = np.ascontiguousarray(pairs.cpu().numpy())
        toggled = torch.stack([~insert, insert]).cpu().numpy() & toggle
        added = 2 if self.graph.undirected else 1
        extra = added * toggled[INSERTED] - toggled[REMOVED] * _own_arcs(self.graph, pairs)
        sizes, upto = np.empty_like(ends), np.empty(self.num_hops + 1, dtype=np.int64)
        bounds = self.least_pairs, self.max_batch_nodes, ARCS_PER_NODE * self.max_batch_nodes
        start = 0
        while start < extra.size:
            self._batch += 1
            stop, rim_size, dummies = _plan_batch(
                start, ends, extra, self.shared, self._rows, self._slots[0], self._balls[0], upto, bounds,
                sizes, self._batch, self._rim_batch, self._rim_place, self._rim,
            )  # fmt: skip
            part = slice(start, stop)
            changes = toggled[:, part]
            yield self._extract(ends[:, part], changes, sizes[:, part], self._rim[:rim_size], dummies)
            start = stop

    def sizes(self, pairs: Tensor) -> IntArray:
        """Of each pair: own nodes, arcs into them, rim nodes, and out-neighbours left outside, [4, P]."""
        out = np.empty((4, pairs.size(1)), dtype=np.int64)
        rows, slot, ball = self._rows, self._slots[0], self._balls[0]
        upto = np.empty(self.num_hops + 1, dtype=np.int64)
        for pair, ends in enumerate(pairs.T.tolist()):
            search_around(*ends, rows.starts, rows.neighbours, slot, ball, upto)
            own = ball[: upto[-2 if self.shared else -1]]
            away = [rows.receivers[rows.out_indptr[end] : rows.out_indptr[end + 1]] for end in ends]
            outside = (slot[np.concatenate(away)] < 0).sum()
            out[:, pair] = own.size, rows.arcs_into[own].sum(), upto[-1] - own.size, outside
            slot[ball[: upto[-1]]] = -1
        return out

    def _extract(
        self, ends: IntArray, toggled: Array, sizes: IntArray, rim: IntArray, dummies: int
    ) -> SubgraphBatch:
        node_start = dummies + rim.size + np.cumsum(sizes[0]) - sizes[0]
        arc_start = np.cumsum(sizes[1]) - sizes[1]
        # Dummies stand for the first source: any input that the model accepts will do.
        nodes = np.full(dummies + rim.size + sizes[0].sum(), ends[0, 0])
        nodes[dummies : dummies + rim.size] = rim
        arcs = np.empty((2, sizes[1].sum()), dtype=np.int64)
        with numba_threads(self._slots.shape[0]):
            _fill(
                ends, toggled, self.graph.undirected, self.num_hops, self.shared, self._rows, self._slots,
                self._balls, node_start, arc_start, dummies, self._rim_place, nodes, arcs,
            )  # fmt: skip
        edge_index = np.concatenate([arcs, self._arcs_into_rim(rim, dummies)], axis=1)
        parts = (nodes, edge_index, node_start, node_start + 1)
        device = self.graph.indptr.device
        return SubgraphBatch(dummies, *(torch.from_numpy(part).to(device) for part in parts))

    def _arcs_into_rim(self, rim: IntArray, dummies: int) -> IntArray:
        """Arcs into the rim, [2, A]: from dummy j for the j-th in-neighbour, and self-loops."""
        rows = self._rows
        length = rows.indptr[rim + 1] - rows.indptr[rim]
        place = np.repeat(np.arange(rim.size), length)
        dummy = np.arange(place.size) - np.repeat(np.cumsum(length) - length, length)
        count = rows.in_count[rows.indptr[rim][place] + dummy]
        arcs = np.repeat([dummy, dummies + place], count, axis=1)
        own = np.repeat(dummies + np.arange(rim.size), rows.loops[rim])
        return np.concatenate([arcs, [own, own]], axis=1)


def _compressed_rows(graph: ToggleGraph) -> tuple[IntArray, IntArray, IntArray]:
    """Row starts [N + 1], in-neighbours [E] and their multiplicities [E], for compiled code."""
    multiplicity = torch.ones_like(graph.senders) if graph.multiplicity is None else graph.multiplicity
    return graph.indptr.cpu().numpy(), graph.senders.cpu().numpy(), multiplicity.cpu().numpy()


def _own_arcs(graph: ToggleGraph, pairs: Tensor) -> IntArray:
    """How many arcs of the graph a toggle of each pair removes, [L]."""
    number = torch.zeros(pairs.size(1), dtype=torch.int64, device=pairs.device)
    for source, target in (pairs, pairs.flip(0))[: 2 if graph.undirected else 1]:
        found, position = graph.find(source, target)
        repeated = graph.multiplicity
        number += found if repeated is None else torch.where(found, repeated[position], 0)
    own: IntArray = number.cpu().numpy()
    return own


@compiled()
def _plan_batch(
    start: int, ends: Array, extra: Array, shared: bool, rows: _Rows, slot: Array, ball: Array, upto: Array,
    bounds: tuple[int, int, int], sizes: Array, batch: int, rim_batch: Array, rim_place: Array, rim: Array,
) -> tuple[int, int, int]:  # fmt: skip
    """Add pairs from `start` on while the batch stays within its bounds, and collect their rim.

    Writes each pair's own nodes and arcs into them after the toggle to `sizes`; returns where the batch
    stops, the rim's size, and the number of dummies.
    """
    (starts, neighbours, indptr, senders, _, out_indptr, receivers, out_count, _, arcs_into) = rows
    least_pairs, most_nodes, most_arcs = bounds
    nodes, arcs, rim_size, dummies = 0, 0, 0, 0
    for pair in range(start, ends.shape[1]):
        search_around(ends[0, pair], ends[1, pair], starts, neighbours, slot, ball, upto)
        inside, size = upto[-2] if shared else upto[-1], upto[-1]
        own_arcs, most_outside = extra[pair], 0
        for node in ball[:inside]:
            own_arcs += arcs_into[node]
            if not shared:
                away, come = 0, 0
                for sender in senders[indptr[node] : indptr[node + 1]]:
                    come += slot[sender] < 0
                for position in range(out_indptr[node], out_indptr[node + 1]):
                    if slot[receivers[position]] < 0:
                        own_arcs += out_count[position]
                        away += 1
                most_outside = max(most_outside, come, away)
        for node in ball[:size]:
            slot[node] = -1
        new_nodes, new_arcs = inside, own_arcs
        for node in ball[inside:size]:
            if rim_batch[node] != batch:
                new_nodes += 1
                new_arcs += arcs_into[node]
        if pair >= start + least_pairs and (nodes + new_nodes > most_nodes or arcs + new_arcs > most_arcs):
            return pair, rim_size, dummies
        nodes += new_nodes
        arcs += new_arcs
        dummies = max(dummies, most_outside)
        sizes[0, pair], sizes[1, pair] = inside, own_arcs
        for node in ball[inside:size]:
            if rim_batch[node] != batch:
                rim_batch[node], rim_place[node], rim[rim_size] = batch, rim_size, node
                rim_size += 1
                dummies = max(dummies, indptr[node + 1] - indptr[node])
    return ends.shape[1], rim_size, dummies


@compiled(parallel=True)
def _fill(
    ends: Array, toggled: Array, undirected: bool, hops: int, shared: bool, rows: _Rows, slots: Array,
    balls: Array, node_start: Array, arc_start: Array, dummies: int, rim_place: Array, nodes: Array,
    arcs: Array,
) -> None:  # fmt: skip
    """Write the own nodes of each pair and all arcs into them, each pair toggled."""
    threads = slots.shape[0]
    for thread in prange(threads):
        slot, ball, upto = slots[thread], balls[thread], np.empty(hops + 1, np.int64)
        for pair in range(thread, ends.shape[1], threads):
            u, v = ends[0, pair], ends[1, pair]
            search_around(u, v, rows.starts, rows.neighbours, slot, ball, upto)
            inside = upto[-2] if shared else upto[-1]
            first, column = node_start[pair], arc_start[pair]
            nodes[first : first + inside] = ball[:inside]
            for item in range(inside):
                column = _write_arcs(
                    item, u, v, toggled[REMOVED, pair], undirected, shared, inside, rows, slot, ball, first,
                    dummies, rim_place, arcs, column,
                )  # fmt: skip
            if toggled[INSERTED, pair]:
                arcs[0, column], arcs[1, column] = first, first + 1
                if undirected:
                    arcs[0, column + 1], arcs[1, column + 1] = first + 1, first
            for node in ball[: upto[-1]]:
                slot[node] = -1


@compiled()
def _write_arcs(
    item: int, u: int, v: int, removed: bool, undirected: bool, shared: bool, inside: int, rows: _Rows,
    slot: Array, ball: Array, first: int, dummies: int, rim_place: Array, arcs: Array, column: int,
) -> int:  # fmt: skip
    """Arcs into one own node and, in whole subgraphs, from it to the outside; returns the next column."""
    (_, _, indptr, senders, in_count, out_indptr, receivers, out_count, loops, _) = rows
    node, dummy = ball[item], 0
    for position in range(indptr[node], indptr[node + 1]):
        other = senders[position]
        own = (other == u and node == v) or (undirected and other == v and node == u)
        if own and removed:
            continue
        if 0 <= slot[other] < inside:
            sender = first + slot[other]
        elif shared:
            sender = dummies + rim_place[other]
        else:
            sender = dummy
            dummy += 1
        for _ in range(in_count[position]):
            arcs[0, column], arcs[1, column] = sender, first + item
            column += 1
    dummy = 0
    for position in range(out_indptr[node], out_indptr[node + 1]):
        if not shared and slot[receivers[position]] < 0:
            for _ in range(out_count[position]):
                arcs[0, column], arcs[1, column] = first + item, dummy
                column += 1
            dummy += 1
    for _ in range(loops[node]):
        arcs[0, column], arcs[1, column] = first + item, first + item
        column += 1
    return column
