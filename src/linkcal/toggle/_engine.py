"""One model on one graph: the method chosen, checked, and prepared once for all blocks of pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import torch
from numba import prange
from torch import Tensor, nn

from linkcal._core.compiled import compiled
from linkcal._core.threads import numba_threads
from linkcal.exceptions import UnsupportedModelError
from linkcal.models import LinkPredictor, link_embedding_of, unwrap_link_predictor
from linkcal.toggle._compiled import empty_rows
from linkcal.toggle._deep import CompiledToggle, DeepToggle, compiled_toggle
from linkcal.toggle._delta import delta_endpoints
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._khop import cheapest_way, khop_endpoints, refuse_global, spread, verify_khop
from linkcal.toggle._layers import LayerCache, forward_with_cache
from linkcal.toggle._naive import encode, naive_endpoints
from linkcal.toggle._recognise import (
    Recognised,
    Unrecognised,
    evaluating,
    recognise,
    refuse_stateful,
    watching_messages,
)
from linkcal.toggle._subgraphs import SubgraphExtractor, batch_nodes
from linkcal.toggle.result import ToggledEmbeddings

__all__ = ["METHODS", "Method", "ToggleEngine", "embed_and_score", "widened"]


# Link embeddings and logits of pairs of rows, by the model or, where it multiplies the rows, compiled.

Array = Any  # int64 arrays of indices, float arrays of one dtype


def embed_and_score(model: nn.Module, rows: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Link embeddings [L, d] and logits [L] of pairs [2, L] of `rows`, at least in float32."""
    h = _products(rows, index) if _multiplies(model, rows) else link_embedding_of(model, rows, index)
    known = isinstance(model, LinkPredictor) and type(model).decode is LinkPredictor.decode
    if known and "decode" not in vars(model):
        logit: Tensor = model.head(h)  # type: ignore[operator]  # as decode does, without embedding again
    else:
        logit = model.decode(rows, index)  # type: ignore[operator]
    return widened(h), widened(logit)


def widened(values: Tensor) -> Tensor:
    """Half precision as float32, which holds each of its values; anything else as it is.

    NumPy has no bfloat16, and a calibrated probability needs more digits than a half-precision score has.
    """
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def _multiplies(model: nn.Module, rows: Tensor) -> bool:
    """Whether the model's ``link_embedding`` is the product of two rows, and compiled code can take it."""
    return (
        isinstance(model, LinkPredictor)
        and type(model).link_embedding is LinkPredictor.link_embedding
        and "link_embedding" not in vars(model)
        and rows.device.type == "cpu"
        and rows.dtype in (torch.float32, torch.float64)
    )


def _products(rows: Tensor, index: Tensor) -> Tensor:
    out = empty_rows(index.size(1), rows.size(1), rows)
    with numba_threads(torch.get_num_threads()):
        _row_products(rows.detach().numpy(), index[0].numpy(), index[1].numpy(), out.numpy())
    return out


@compiled(parallel=True)
def _row_products(rows: Array, first: Array, second: Array, out: Array) -> None:
    """``out[i] = rows[first[i]] * rows[second[i]]``: one pass, where torch writes both factors down."""
    for item in prange(first.size):
        u, v = first[item], second[item]
        for c in range(rows.shape[1]):
            out[item, c] = rows[u, c] * rows[v, c]


# Everything about one model on one graph that is worked out once, however many blocks of pairs follow.

#: Bytes of one layer's messages above which a known encoder is not run as it is: PyG writes the message of
#: each arc down, twice, where sums over rows of neighbours need none. Below, a whole pass costs no more than
#: the check on subgraphs, and says more.
LARGE_MESSAGES = 1 << 22

#: Nodes of the subgraphs that stand for such a pass: layers that differ from the model's differ on every pair
#: whose nodes have several neighbours.
MOST_CHECKED = 1 << 10

Method = Literal["auto", "naive", "fast", "delta", "khop"]
#: Values of the argument `method`.
METHODS: tuple[str, ...] = get_args(Method)

#: Writes node embeddings [2 L, d] after the toggle into its third argument: those of the first nodes of pairs
#: [2, L], then those of the second ones. The second argument says which edges are inserted.
ToggleFunction = Callable[[Tensor, Tensor, Tensor], None]


class ToggleEngine:
    """A model and a graph, ready to toggle any pairs.

    Parameters
    ----------
    predictor : nn.Module
        Adapted: ``decode`` returns logits.
    x : Tensor [N, F] or [N]
    edge_index : Tensor [2, E], int64
    undirected : bool
    method : {"auto", "naive", "fast", "delta", "khop"}
    num_hops : int or None
        Message-passing layers for ``"khop"``; None counts them during a forward pass.
    max_batch_nodes : int or None
    sample : Tensor [2, L], int64
        Pairs from which those are taken on which ``"khop"`` is verified.
    edge_weight : Tensor [E], float, or None
        Handed to ``encode`` as its argument of that name.
    insert_weight : float
        Weight of inserted edges.

    Attributes
    ----------
    method : str
        What computes the toggled embeddings: ``"naive"``, ``"khop"``, ``"delta"`` or ``"kernel"``.

    Raises
    ------
    UnsupportedModelError
        If the model caches its graph or is not deterministic, or the asked method is not exact for it.
    InputError
        If `undirected` and some edge stands in one direction only.
    """

    def __init__(
        self,
        predictor: nn.Module,
        x: Tensor,
        edge_index: Tensor,
        *,
        undirected: bool,
        method: Method,
        num_hops: int | None,
        max_batch_nodes: int | None,
        sample: Tensor,
        edge_weight: Tensor | None = None,
        insert_weight: float = 1.0,
    ) -> None:
        refuse_stateful(predictor)
        self.predictor, self.x, self.edge_index = predictor, x, edge_index
        self.edge_weight, self.insert_weight = edge_weight, insert_weight
        self.graph = ToggleGraph.from_edge_index(
            edge_index, x.size(0), undirected=undirected, edge_weight=edge_weight
        )
        self.max_batch_nodes = batch_nodes(self.graph) if max_batch_nodes is None else max_batch_nodes
        self.z: Tensor  # [N, d], the graph as given
        self._table: Tensor
        with torch.no_grad(), evaluating(predictor):
            if method in ("auto", "fast", "delta") and self._known_and_large(method, sample):
                self._table = self.z
                return
            with watching_messages(predictor, x.size(0)) as watched:
                self.z = encode(predictor, x, edge_index, edge_weight)
            self.sent = watched.sent()
            self.num_hops = watched.count if num_hops is None else num_hops
            self._rounds = watched.rounds
            self.method, self._toggled = self._choose(method, sample)
            self._table = self.z

    def toggle(self, pairs: Tensor) -> ToggledEmbeddings:
        """Both states of pairs [2, L]; the model's mode is restored before this returns."""
        in_graph = self.graph.contains(pairs)
        number = self.z.size(0) + torch.arange(pairs.size(1), device=pairs.device)
        changed = torch.stack([number, number + pairs.size(1)])
        with torch.no_grad(), evaluating(self.predictor):
            table = self._table_for(pairs.size(1))
            if pairs.size(1):
                self._toggled(pairs, ~in_graph, table[self.z.size(0) :])
            (h_absent, logit_absent), (h_present, logit_present) = (
                embed_and_score(self.predictor, table, index)
                for index in (torch.where(in_graph, changed, pairs), torch.where(in_graph, pairs, changed))
            )
        return ToggledEmbeddings(h_absent, h_present, logit_absent, logit_present, in_graph, self.method)

    def _table_for(self, number: int) -> Tensor:
        """Rows [N + 2 L, d] that a block of L pairs is embedded from: z, then room for what is toggled.

        Kept from block to block, so that a state of a pair is two row numbers and no embedding is moved.
        """
        num_nodes = self.z.size(0)
        if self._table.size(0) < num_nodes + 2 * number:
            self._table = empty_rows(num_nodes + 2 * number, self.z.size(1), self.z)
            self._table[:num_nodes] = self.z
            self.z = self._table[:num_nodes]
        return self._table[: num_nodes + 2 * number]

    def _choose(self, method: Method, sample: Tensor) -> tuple[str, ToggleFunction]:
        """Name and function of the method that is exact for the model."""
        if method in ("auto", "fast", "delta"):
            known = self._recognised(compiled=method != "delta")
            if not isinstance(known, Unrecognised):
                return known
            if method != "auto":
                raise UnsupportedModelError(
                    f"method must be 'auto', 'khop' or 'naive' for this model, got {method!r}: {known.reason}"
                )
        if method in ("auto", "khop"):
            try:
                return "khop", self._by_subgraphs(sample)
            except UnsupportedModelError:
                if method == "khop":
                    raise
        return "naive", self._pair_by_pair()

    def _recognised(self, *, compiled: bool) -> tuple[str, ToggleFunction] | Unrecognised:
        known = recognise(unwrap_link_predictor(self.predictor), weighted=self.edge_weight is not None)
        if not isinstance(known, Recognised):
            return known
        features = known.node_features(self.x)
        if features.dtype not in (torch.float32, torch.float64):
            return Unrecognised(f"its features are {features.dtype}, not float32 or float64")
        positions = None if known.positions is None else known.positions(self.x)
        z, caches = forward_with_cache(known.layers, self.graph, features, positions, self.sent)
        if not _agree(z, self.z):
            return Unrecognised("its layers do not reproduce its encode(x)")
        return self._by_layers(caches, compiled_toggle(known.layers, features) if compiled else None)

    def _by_layers(
        self, caches: list[LayerCache], compiled: type[CompiledToggle] | type[DeepToggle] | None
    ) -> tuple[str, ToggleFunction]:
        if compiled is not None:
            return "kernel", compiled(caches, self.graph, self.insert_weight).endpoints
        return "delta", _joined(
            partial(delta_endpoints, caches, self.graph, insert_weight=self.insert_weight)
        )

    def _known_and_large(self, method: Method, sample: Tensor) -> bool:
        """Get ready without running ``encode`` on a large graph; False where that is not possible.

        The layers' own sums give z, and the model confirms them on the subgraphs around some pairs.
        """
        known = recognise(unwrap_link_predictor(self.predictor))
        if not isinstance(known, Recognised) or self.edge_weight is not None or not sample.size(1):
            return False
        features = known.node_features(self.x)
        if features.dtype not in (torch.float32, torch.float64):
            return False
        # The first layer's message of one node tells how wide they are.
        width = known.layers[0].message(features[:1]).size(1) * features.element_size()
        if self.graph.senders.numel() * width <= LARGE_MESSAGES:
            return False
        positions = None if known.positions is None else known.positions(self.x)
        self.z, caches = forward_with_cache(known.layers, self.graph, features, positions)
        self.num_hops = len(known.layers)
        # The check costs far less than the pass that it replaces: an eighth of its nodes at most, or a pair.
        most = min(self.max_batch_nodes, max(1, self.graph.num_nodes // 8), MOST_CHECKED)
        extractor = SubgraphExtractor(self.graph, self.num_hops, most)
        try:
            some = extractor.telling(spread(sample))
            verify_khop(self.predictor, self.x, self.z, extractor, some, _tolerance(self.z))
        except UnsupportedModelError:
            return False
        compiled = None if method == "delta" else compiled_toggle(known.layers, features)
        self.method, self._toggled = self._by_layers(caches, compiled)
        return True

    def _by_subgraphs(self, sample: Tensor) -> ToggleFunction:
        if self.edge_weight is not None:
            raise UnsupportedModelError(
                "edge_weight must be None for method 'khop', whose subgraphs carry no weights; "
                "use method='naive'"
            )
        refuse_global(self.predictor)
        if self.num_hops < 1:
            raise UnsupportedModelError(
                "num_hops must be given for a model without PyG MessagePassing layers, got None"
            )
        extractor, trimmer = cheapest_way(
            self.predictor,
            self.x,
            self.z,
            self.graph,
            self.num_hops,
            self.max_batch_nodes,
            sample,
            self._rounds,
            _tolerance(self.z),
        )
        return _joined(partial(khop_endpoints, self.predictor, self.x, extractor, trimmer=trimmer))

    def _pair_by_pair(self) -> ToggleFunction:
        again = encode(self.predictor, self.x, self.edge_index, self.edge_weight)
        finite = self.z.isfinite()
        if again.shape != self.z.shape or not _agree(again[finite], self.z[finite]):
            raise UnsupportedModelError(
                "model.encode must be deterministic in evaluation mode, got other embeddings from a second "
                "call: is dropout or sampling left on, or does the model keep a state?"
            )
        return _joined(
            partial(
                naive_endpoints,
                self.predictor,
                self.x,
                self.edge_index,
                undirected=self.graph.undirected,
                edge_weight=self.edge_weight,
                insert_weight=self.insert_weight,
            )
        )


def _tolerance(z: Tensor) -> float:
    """Rounding error allowed between two ways to compute `z`."""
    scale = float(z.abs().max()) if z.numel() else 0.0
    relative = 1e-9 if z.dtype == torch.float64 else max(1e-4, torch.finfo(z.dtype).eps)
    return relative * max(scale, 1.0)


def _agree(ours: Tensor, theirs: Tensor) -> bool:
    """Whether two forward passes agree to rounding: methods replaced in a class would show here."""
    if ours.shape != theirs.shape:
        return False
    return not theirs.numel() or bool((ours - theirs).abs().max() <= _tolerance(theirs))


def _joined(endpoints: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> ToggleFunction:
    """Write the two parts that `endpoints` gives, of first and of second nodes, one after the other."""

    def write(pairs: Tensor, insert: Tensor, out: Tensor) -> None:
        first, second = endpoints(pairs, insert)
        out[: first.size(0)], out[first.size(0) :] = first, second

    return write
