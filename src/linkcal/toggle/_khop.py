"""The fallback for any message-passing module: the model itself on small subgraphs around the pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing

from linkcal._core.threads import kept_pages
from linkcal.exceptions import UnsupportedModelError
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._naive import encode
from linkcal.toggle._shared_rim import SharedRimExtractor
from linkcal.toggle._subgraphs import ARCS_PER_NODE, FAR, SubgraphBatch, SubgraphExtractor

__all__ = [
    "NUM_VERIFIED",
    "MessageTrimmer",
    "Round",
    "Way",
    "arc_arguments",
    "cheapest_way",
    "khop_endpoints",
    "refuse_global",
    "spread",
    "verify_khop",
]


# Messages that no asked embedding depends on, left out while a model runs on subgraphs.
#
# Of a subgraph's nodes only the endpoints' embeddings are asked for, so the c-th of L rounds of message
# passing (from 1) needs to reach the nodes within L - c hops alone. The arcs of a subgraph whose receivers
# are farther away are there for the degrees that a layer works out before it passes messages; they are most
# of the arcs. PyG hands every round to a hook before it runs: there they are dropped.
#
# Rounds are counted in the order in which they ran on the whole graph. Parallel ones count one after the
# other, so that the bound is too large for some, never too small: behind a round at depth d of D there are D
# - d more. What a round reads per arc beside its ends (weights, attention) is known by name from the whole
# graph, where it has as many rows as there are arcs. A model that this does not fit, because it passes
# messages by other means as well or looks at all arcs at once, fails the check of the fallback and runs
# untrimmed. So does one that passes other rounds on some subgraph than on the whole graph: that run is done
# again as it is.

#: The module that passed messages, and what :func:`arc_arguments` says of them.
Round = tuple[nn.Module, frozenset[str] | None]


def arc_arguments(edge_index: Any, values: dict[str, Any], num_nodes: int) -> frozenset[str] | None:
    """Names of the arguments of one round that have a row per arc; None where that cannot be told.

    It cannot where arcs are no plain index [2, E], or as many as there are nodes or rows of `x`.

    Examples
    --------
    >>> import torch
    >>> arcs = torch.tensor([[0, 1, 2], [1, 2, 0]])
    >>> sorted(arc_arguments(arcs, {"x": torch.ones(4, 2), "edge_weight": torch.ones(3)}, num_nodes=4))
    ['edge_weight']
    >>> arc_arguments(arcs, {"query": torch.ones(3, 2), "edge_weight": torch.ones(3)}, num_nodes=3) is None
    True
    """
    if type(edge_index) is not Tensor or edge_index.dim() != 2 or edge_index.size(0) != 2:
        return None
    number = edge_index.size(1)
    if number == num_nodes:
        return None
    names = {name for name, value in values.items() if isinstance(value, Tensor) and _rows(value) == number}
    others = (value for name, value in values.items() if name not in names)
    if "x" in names or any(
        isinstance(value, tuple | list | dict) and _mentions(value, number) for value in others
    ):
        return None
    return frozenset(names)


class MessageTrimmer:
    """Drops the messages of a model that do not count.

    Parameters
    ----------
    model : nn.Module
    rounds : sequence of Round
        In their order on the whole graph; one whose arguments cannot be told apart is left whole.

    Attributes
    ----------
    fits : bool
        Whether all runs so far passed these rounds. The first that does not may have lost messages that
        count: what it gave is void, and no later run is trimmed.
    """

    def __init__(self, model: nn.Module, rounds: Sequence[Round]) -> None:
        self._passing = [module for module in model.modules() if isinstance(module, MessagePassing)]
        self._rounds = list(rounds)
        self._distance: Tensor
        self._round = 0
        self.fits = True

    @contextmanager
    def trimming(self, distance: Tensor) -> Iterator[None]:
        """Trim one run of the model on nodes whose hops to the nearest endpoint are `distance` [M], int8."""
        self._distance, self._round = distance, 0
        handles = [module.register_propagate_forward_pre_hook(self) for module in self._passing]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        self.fits = self.fits and self._round == len(self._rounds)

    def __call__(self, module: MessagePassing, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Arguments of one round without the arcs that do not count; None leaves them as they are."""
        edge_index, size, values = arguments
        self._round += 1
        left = len(self._rounds) - self._round
        expected, names = self._rounds[self._round - 1] if left >= 0 else (None, None)
        self.fits = self.fits and module is expected
        if not self.fits or names is None or type(edge_index) is not Tensor:
            return None
        per_arc = {name: values[name] for name in names if values.get(name) is not None}
        if any(_rows(value) != edge_index.size(1) for value in per_arc.values()):
            return None
        receiver = edge_index[1 if module.flow == "source_to_target" else 0]
        # Distances are int8, and a larger number would wrap.
        kept = (self._distance[receiver] <= min(left, FAR)).nonzero().flatten()
        if not kept.numel():
            # The whole graph never had a layer do without any message, which not every layer can.
            return None
        fewer = {name: value.index_select(0, kept) for name, value in per_arc.items()}
        return edge_index.index_select(1, kept), size, {**values, **fewer}


def _rows(value: Any) -> int:
    return value.size(0) if isinstance(value, Tensor) and value.dim() else -1


def _mentions(value: Any, number: int) -> bool:
    """Whether a tensor with so many rows is inside."""
    if isinstance(value, Tensor):
        return _rows(value) == number
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return any(_mentions(part, number) for part in parts)


# The fallback for any message-passing module: the model itself, run on small subgraphs around the pairs.
#
# After L layers a node's embedding depends on its L-hop neighbourhood alone, so running the model on the
# disjoint union of the pairs' neighbourhoods gives exactly what a pass over the whole graph gives, as long as
# the degrees of all nodes in them are right (:mod:`.khop_kernel`). What the model computes over ALL nodes
# (GraphNorm, pooling) would not see the rest of the graph: known modules of that kind are refused, and before
# anything is toggled the untouched graph is run through the same extraction for some pairs and compared with
# ``encode``.

#: Pairs whose untouched embeddings are compared with ``encode`` before the method is trusted.
NUM_VERIFIED = 16

#: Modules that mix all nodes of the graph.
_GLOBAL = (
    pyg.GraphNorm, pyg.PairNorm, pyg.InstanceNorm, pyg.GraphSizeNorm, pyg.MeanSubtractionNorm,
    pyg.DiffGroupNorm, pyg.TopKPooling, pyg.SAGPooling, pyg.ASAPooling, pyg.MemPooling, nn.InstanceNorm1d,
)  # fmt: skip


def refuse_global(model: nn.Module) -> None:
    """Refuse a model with a module that is known to mix all nodes.

    Raises
    ------
    UnsupportedModelError
        Naming the module.
    """
    for name, module in model.named_modules():
        batch_norm = module if isinstance(module, nn.BatchNorm1d) else None
        mixes = (
            isinstance(module, _GLOBAL)
            or (batch_norm is not None and batch_norm.running_mean is None)
            or (isinstance(module, pyg.LayerNorm) and module.mode == "graph")
        )
        if mixes:
            raise UnsupportedModelError(
                f"model must not mix all nodes for method 'khop', got {type(module).__name__} at "
                f"{name or 'the top'!r}; use method='naive'"
            )


class _RowBuffer:
    """Rows of x gathered into memory that is kept: fresh pages for wide features cost more than the copy."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.memory = x.new_empty(0, *x.shape[1:])

    def gather(self, nodes: Tensor) -> Tensor:
        """``x[nodes]``, valid until the next call."""
        if nodes.numel() > self.memory.size(0):
            # An eighth more than asked: batches differ a little in size.
            self.memory = self.x.new_empty(nodes.numel() * 9 // 8, *self.x.shape[1:])
        rows = self.memory[: nodes.numel()]
        torch.index_select(self.x, 0, nodes, out=rows)
        return rows


def khop_endpoints(
    model: nn.Module,
    x: Tensor,
    extractor: SharedRimExtractor | SubgraphExtractor,
    pairs: Tensor,
    insert: Tensor,
    *,
    toggle: bool = True,
    trimmer: MessageTrimmer | None = None,
) -> tuple[Tensor, Tensor]:
    """Node embeddings of both endpoints of each pair after its edge is toggled.

    Parameters
    ----------
    model : nn.Module
        In evaluation mode, with ``encode(x, edge_index)``.
    x : Tensor [N, F] or [N]
        Rows (features or node ids) are gathered for each subgraph.
    extractor : SharedRimExtractor or SubgraphExtractor
    pairs : Tensor [2, L], int64
    insert : Tensor [L], bool
    toggle : bool
        False leaves every pair's edge as it is.
    trimmer : MessageTrimmer, optional
        Leaves out the messages that the endpoints do not depend on.

    Returns
    -------
    z_source, z_target : Tensor [L, d]

    Raises
    ------
    UnsupportedModelError
        If ``encode`` does not return one row per node of the subgraphs.
    """
    sources, targets = [], []
    rows = _RowBuffer(x)
    most_arcs = min(extractor.graph.senders.numel(), ARCS_PER_NODE * extractor.max_batch_nodes)
    with kept_pages(x.device, most_arcs):
        for batch in extractor.batches(pairs, insert, toggle=toggle):
            z = _embedded(model, rows.gather(batch.nodes), batch, trimmer)
            if z.size(0) != batch.nodes.numel():
                raise UnsupportedModelError(
                    f"model.encode must return one row per node of x, {batch.nodes.numel()}, "
                    f"got {z.size(0)}; method 'khop' runs it on subgraphs"
                )
            sources.append(z[batch.source])
            targets.append(z[batch.target])
    return torch.cat(sources), torch.cat(targets)


def _embedded(model: nn.Module, x: Tensor, batch: SubgraphBatch, trimmer: MessageTrimmer | None) -> Tensor:
    """``encode`` of a batch, without the messages that do not count where the trimmer fits the model."""
    if trimmer is not None and trimmer.fits:
        with trimmer.trimming(batch.distance):
            z = encode(model, x, batch.edge_index)
        if trimmer.fits:
            return z
    return encode(model, x, batch.edge_index)


def spread(pairs: Tensor, number: int = NUM_VERIFIED) -> Tensor:
    """At most so many of pairs [2, L], evenly spaced."""
    step = max(1, pairs.size(1) // number)
    return pairs[:, ::step][:, :number]


def verify_khop(
    model: nn.Module,
    x: Tensor,
    z: Tensor,
    extractor: SharedRimExtractor | SubgraphExtractor,
    pairs: Tensor,
    tolerance: float,
    *,
    trimmer: MessageTrimmer | None = None,
) -> None:
    """Check on pairs that the subgraphs of the untouched graph reproduce ``z = encode(x, edge_index)``.

    Raises
    ------
    UnsupportedModelError
        If they do not: the model sees more than `num_hops` hops, mixes all nodes, or draws at random. Also if
        there is no pair: where nothing is passed, nothing is shown.
    """
    if not pairs.size(1):
        raise UnsupportedModelError("pairs must have neighbours to check a model on, got none that has")
    nothing = torch.zeros(pairs.size(1), dtype=torch.bool, device=pairs.device)
    try:
        found = torch.cat(khop_endpoints(model, x, extractor, pairs, nothing, toggle=False, trimmer=trimmer))
    except UnsupportedModelError:
        raise
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise UnsupportedModelError(
            f"model.encode must run on subgraphs for method 'khop', got {type(error).__name__}: {reason[0]}"
        ) from error
    expected = torch.cat([z[pairs[0]], z[pairs[1]]])
    error_size = float((found - expected).abs().max()) if found.shape == expected.shape else float("inf")
    if not error_size <= tolerance:
        raise UnsupportedModelError(
            f"model.encode must depend on {extractor.num_hops} hops alone and be deterministic for "
            f"method 'khop', got embeddings that differ by {error_size:.1e} from those of the whole graph; "
            "pass a larger num_hops or use method='naive'"
        )


# Which way of running a model on subgraphs is the cheapest one that is right for it.
#
# What is shared between pairs or left out must not matter to the model. That shows on the untouched graph,
# and there only on pairs that have something to share and to leave out: where none of those looked at has,
# nothing is shared or left out.

#: What cuts subgraphs out, and what leaves messages out, if anything does.
Way = tuple[SharedRimExtractor | SubgraphExtractor, MessageTrimmer | None]


def cheapest_way(
    model: nn.Module,
    x: Tensor,
    z: Tensor,
    graph: ToggleGraph,
    num_hops: int,
    max_batch_nodes: int,
    sample: Tensor,
    rounds: list[Round],
    tolerance: float,
) -> Way:
    """The first of four ways that reproduces ``z = encode(x, edge_index)`` on pairs of `sample`.

    Parameters
    ----------
    model : nn.Module
        In evaluation mode.
    x : Tensor [N, F] or [N]
    z : Tensor [N, d]
    graph : ToggleGraph
    num_hops : int
    max_batch_nodes : int
    sample : Tensor [2, L], int64
        No pair leaves nothing to check: nothing is shared or left out then.
    rounds : list of Round
        What was seen of the model on the whole graph.
    tolerance : float
        Rounding error allowed.

    Raises
    ------
    UnsupportedModelError
        If no way does.
    """
    whole = SubgraphExtractor(graph, num_hops, max_batch_nodes)
    if not sample.size(1):
        return whole, None
    shared = SharedRimExtractor(graph, num_hops, max_batch_nodes)
    telling = shared.telling(spread(sample, 4 * NUM_VERIFIED), NUM_VERIFIED // 2)
    if telling.size(1):
        trimmer = MessageTrimmer(model, rounds)
        some = torch.cat([telling, spread(sample, NUM_VERIFIED // 2)], dim=1)
        one = telling[:, :1]
        # A rim node's arcs to the insides may be as many as it has in the graph; not both for one pair and
        # for two in a batch.
        crowded = SharedRimExtractor(graph, num_hops, max_batch_nodes, least_pairs=2)
        checks: list[tuple[SharedRimExtractor | SubgraphExtractor, Tensor]]
        ways: tuple[Way, ...] = ((shared, trimmer), (shared, None), (whole, trimmer))
        for extractor, leaving_out in ways:
            checks = [(extractor, some)]
            if extractor is shared:
                checks += [(crowded, one), (crowded, one.repeat(1, 2))]
            try:
                for checked, pairs in checks:
                    verify_khop(model, x, z, checked, pairs, tolerance, trimmer=leaving_out)
            except UnsupportedModelError:
                continue
            return extractor, leaving_out
    verify_khop(model, x, z, whole, spread(sample), tolerance)
    return whole, None
