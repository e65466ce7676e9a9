"""One model on one graph: the method chosen, verified, and prepared once for all blocks of pairs."""

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from linkcal._core.threads import fork_safe_lock
from linkcal.exceptions import SlowToggleWarning, UnsupportedModelError
from linkcal.models import PairPredictor
from linkcal.models._view import evaluation_view
from linkcal.models.adapter import link_embedding_of, unwrap_link_predictor
from linkcal.toggle._deep import SummedToggle, compiled_toggle
from linkcal.toggle._delta import delta_endpoints, encoder_caches
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._khop import (
    ARCS_PER_NODE,
    KHop,
    Rounds,
    Subgraphs,
    batch_nodes,
    check_pairs_of_rims,
    left_unread,
    refuse_global,
)
from linkcal.toggle._layers import forward_with_cache
from linkcal.toggle._naive import encode, naive_endpoints
from linkcal.toggle._recognise import recognise, refuse_stateful
from linkcal.toggle._trace import MixesNodesError, ReadsEdgesError
from linkcal.toggle.result import ToggledEmbeddings

Method = Literal["auto", "naive", "fast", "delta", "khop"]
#: Values of the argument `method`.
METHODS: tuple[str, ...] = get_args(Method)

#: From the edges to insert [L] of pairs [2, L] to node embeddings after the toggle of first and second nodes.
Endpoints = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

#: Bytes of one layer's messages above which a known encoder is verified on subgraphs, not on the whole graph.
LARGE_MESSAGES = 1 << 20
#: Nodes of these subgraphs.
MOST_CHECKED = 1 << 10
#: Toggled pairs on which a method is compared with one pass over the whole graph each.
NUM_VERIFIED = 5
#: Seconds of whole passes that ``"auto"`` announces.
LONG = 60.0
#: Edges whose subgraphs are verified in batches of their own.
_ALONE = 3


class ToggleEngine:
    """A model and a graph, ready to toggle any pairs. Threads may share one.

    It works on an evaluation view of `predictor`, whose ``decode`` returns logits. Model, `x`, `edge_index`
    and `edge_weight` must not change meanwhile. `method` becomes ``"naive"``, ``"khop"``, ``"delta"`` or
    ``"kernel"``; the arguments and errors are those of :func:`linkcal.toggle_edges`.
    """

    method: str

    def __init__(
        self,
        predictor: nn.Module,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None,
        insert_weight: float,
        *,
        undirected: bool,
        method: Method,
        num_hops: int | None = None,
        max_batch_nodes: int | None = None,
    ) -> None:
        refuse_stateful(predictor)
        self.model = evaluation_view(predictor)
        self.x, self.edge_index = x, edge_index
        self.edge_weight, self.insert_weight = edge_weight, float(insert_weight)
        self.graph = ToggleGraph.from_edge_index(
            edge_index, x.size(0), undirected=undirected, edge_weight=edge_weight
        )
        self._max_nodes = batch_nodes(self.graph) if max_batch_nodes is None else max_batch_nodes
        self._encoded: Tensor | None = None
        self._reference: tuple[Tensor, Tensor] | None = None
        self._lock = fork_safe_lock()
        with torch.no_grad():
            self._endpoints, self.z = self._choose(method, num_hops)
        # Rows [N + 2 L, d] kept from block to block: z, then room for what is toggled.
        self._table = self.z

    def toggle(self, pairs: Tensor) -> ToggledEmbeddings:
        """Both states of pairs [2, L]."""
        in_graph, first, second = self.graph.contains(pairs), self.z.size(0), self.z.size(0) + pairs.size(1)
        number = first + torch.arange(pairs.size(1), device=pairs.device)
        changed = torch.stack([number, number + pairs.size(1)])
        with self._lock, torch.no_grad():
            if self._table.size(0) < first + changed.numel():
                self._table = torch.cat([self.z, self.z.new_empty(changed.numel(), self.z.size(1))])
            table = self._table[: first + changed.numel()]
            if pairs.size(1):
                table[first:second], table[second:] = self._endpoints(pairs, ~in_graph)
            (h_absent, logit_absent), (h_present, logit_present) = (
                embed_and_score(self.model, table, index)
                for index in (torch.where(in_graph, changed, pairs), torch.where(in_graph, pairs, changed))
            )
        return ToggledEmbeddings(h_absent, h_present, logit_absent, logit_present, in_graph, self.method)

    def _choose(self, method: Method, num_hops: int | None) -> tuple[Endpoints, Tensor]:
        """The method that is exact for the model, and z [N, d] on the graph as given."""
        if method in ("auto", "fast", "delta"):
            try:
                return self._by_layers(compiled=method != "delta")
            except UnsupportedModelError as error:
                if method != "auto":
                    raise UnsupportedModelError(
                        f"method must be 'auto', 'khop' or 'naive' for this model, got {method!r}: {error}"
                    ) from error
        if method in ("auto", "khop"):
            try:
                return self._by_subgraphs(num_hops, chosen=method == "khop"), self._whole()
            except UnsupportedModelError:
                if method == "khop":
                    raise
        self.method, z, start = "naive", self._whole(), time.perf_counter()
        self._require_the_same_again()
        self._pass_seconds = time.perf_counter() - start if method == "auto" else 0.0
        return self._pair_by_pair, z

    def _by_layers(self, *, compiled: bool) -> tuple[Endpoints, Tensor]:
        """Kernel or delta propagation, for an encoder whose convolutions are known."""
        known = recognise(unwrap_link_predictor(self.model), self.x, self.edge_index, self.edge_weight)
        kernel = compiled_toggle(known.chain.layers) if known.chain is not None and compiled else None
        endpoints: Endpoints
        self.method = "delta"
        if known.chain is not None and kernel is not None:
            z, caches = forward_with_cache(known.chain.layers, self.graph, known.chain.features)
            endpoints, self.method = kernel(caches, self.graph, self.insert_weight).endpoints, "kernel"
        else:
            z, rounds = encoder_caches(known, self.graph)
            endpoints = partial(delta_endpoints, known, rounds, self.graph, insert_weight=self.insert_weight)
            if compiled and SummedToggle.applies(known):
                endpoints = SummedToggle(known, self.graph, self.insert_weight).endpoints
                self.method = "kernel"
        endpoints = partial(self._where_rounding_decides, endpoints)
        width = known.widest * z.element_size()
        if self.edge_weight is None and self.graph.senders.numel() * width > LARGE_MESSAGES:
            # The check costs far less than the pass that it replaces: an eighth of its nodes, or a pair.
            most = min(self._max_nodes, max(1, self.graph.num_nodes // 8), MOST_CHECKED)
            subgraphs = Subgraphs(self.graph, known.depth, most, shared=False)
            pairs = _within(subgraphs, check_pairs(self.graph, around=(0.0, 0.25, 0.5, 0.75, 1.0)))
            if pairs.size(1):
                khop = KHop(self.model, self.x, subgraphs)
                insert = ~self.graph.contains(pairs)
                # An encoder with weights of its own for each node runs on the whole graph alone.
                with suppress(UnsupportedModelError):
                    as_given = khop.endpoints(pairs, insert, toggle=False)
                    _require_equal((z[pairs[0]], z[pairs[1]]), as_given, z)
                    _require_equal(endpoints(pairs, insert), khop.endpoints(pairs, insert), z)
                    return endpoints, z
        _require_equal((z,), (self._whole(),), z)
        self._verify(endpoints)
        return endpoints, self._whole()

    def _where_rounding_decides(
        self, endpoints: Endpoints, pairs: Tensor, insert: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What a method finds, and one pass each for the pairs that it leaves open with NaN."""
        first, second = endpoints(pairs, insert)
        left = (first.isnan() | second.isnan()).any(dim=1)
        if left.any():
            first[left], second[left] = self._naive(pairs[:, left], insert[left])
        return first, second

    def _by_subgraphs(self, num_hops: int | None, *, chosen: bool) -> Endpoints:
        """The model itself on subgraphs, with all savings if they are right for it, else without."""
        if self.edge_weight is not None:
            raise UnsupportedModelError(
                "edge_weight must be None for method 'khop', whose subgraphs carry no weights; "
                "use method='naive'"
            )
        refuse_global(self.model)
        try:
            unread = left_unread(self.model, self.x, self.edge_index)
        except MixesNodesError as error:
            raise UnsupportedModelError(
                f"model must not mix nodes outside message passing for method 'khop', but {error}; "
                "use method='naive'"
            ) from error
        if isinstance(unread, ReadsEdgesError) and not (chosen or self.graph.undirected):
            # What it makes of directed edges may follow both directions, which subgraphs do not.
            raise unread
        # What could not be read has to show where half of the graph is missing.
        most = self.x.size(0) - 1 if unread is None else self.x.size(0) // 2
        # Made here, not before layers are recognised: hooks count there.
        rounds = Rounds(self.model)
        self._encoded = encode(self.model, self.x, self.edge_index)
        hops = rounds.passed if num_hops is None else num_hops
        if hops < 1:
            raise UnsupportedModelError(
                "num_hops must be given where no PyG module passes messages, got None"
            )
        self.method = "khop"
        arcs = torch.stack([self.graph.senders, self.graph.receivers])
        some = torch.cat([check_pairs(self.graph), arcs[:, :: max(1, arcs.size(1) // 64)]], dim=1)

        def build(*, shared: bool, least_pairs: int = 1) -> KHop:
            subgraphs = Subgraphs(self.graph, hops, self._max_nodes, shared=shared, least_pairs=least_pairs)
            return KHop(self.model, self.x, subgraphs, rounds if num_hops is None else None)

        shared = build(shared=True)
        some = check_pairs_of_rims(shared.subgraphs, some, NUM_VERIFIED)
        if some.size(1):
            # A rim node may by chance send as many messages as in the graph; not for one pair and for two.
            crowded = build(shared=True, least_pairs=2)
            checks = ((shared, some), (shared, some[:, :1]), (crowded, some[:, :1].repeat(1, 2)))
            try:
                for khop, pairs in checks:
                    self._require_as_given(khop, pairs)
                self._require_alone(shared, arcs, most)
                self._verify(shared.endpoints, hops)
            except UnsupportedModelError:
                some = some[:, :0]
        if some.size(1):
            return shared.endpoints
        whole = build(shared=False)
        if self.graph.senders.numel():
            self._require_as_given(whole, check_pairs(self.graph))
        self._require_alone(whole, arcs, most)
        self._verify(whole.endpoints, hops)
        return whole.endpoints

    def _require_as_given(self, khop: KHop, pairs: Tensor) -> None:
        """Compare subgraphs of the graph as given with ``encode``."""
        z, nothing = self._whole(), torch.zeros_like(pairs[0], dtype=torch.bool)
        found = khop.endpoints(pairs, nothing, toggle=False)
        _require_equal(found, (z[pairs[0]], z[pairs[1]]), z, khop.subgraphs.num_hops)

    def _require_alone(self, khop: KHop, arcs: Tensor, most: int) -> None:
        """Verify edges near hubs and far from them in a batch each: a hub may hide what differs without.

        One subgraph must have at most `most` nodes: models that mix nodes pass where none is left out.
        """
        near = torch.bincount(arcs.flatten(), minlength=self.x.size(0))
        for _ in range(khop.subgraphs.num_hops):
            near = near.scatter_reduce(0, arcs.flatten(), near[arcs.flip(0).flatten()], "amax")
        order = near[arcs].amax(dim=0).argsort(stable=True)
        chosen = arcs[:, order[torch.linspace(0, arcs.size(1) - 1, min(_ALONE, arcs.size(1))).long()]]
        for pair in chosen.T:
            self._require_as_given(khop, pair[:, None])
        own, _, rim, _ = khop.subgraphs.sizes(chosen)
        if chosen.numel() and (own + rim).min() > most:
            raise UnsupportedModelError(
                f"subgraphs must have at most {most} of the graph's nodes for method 'khop', got "
                f"{(own + rim).min()}: a model that mixes nodes would pass; use method='naive'"
            )

    def _pair_by_pair(self, pairs: Tensor, insert: Tensor) -> tuple[Tensor, Tensor]:
        if (seconds := self._pass_seconds * pairs.size(1)) > LONG:
            self._pass_seconds, name = 0.0, type(unwrap_link_predictor(self.model)).__name__
            warnings.warn(
                f"{name} has no exact method but 'naive', one pass over the graph for each pair: "
                f"{pairs.size(1):,} pairs take about {seconds / 60:,.0f} minutes. Fewer pairs, or an encoder "
                "whose nodes read their neighbours alone, take less",
                SlowToggleWarning,
                stacklevel=5,
            )
        found = self._naive(pairs, insert)
        self._require_the_same_again()
        return found

    def _require_the_same_again(self) -> None:
        again = encode(self.model, self.x, self.edge_index, self.edge_weight)
        z = self._whole()
        finite = z.isfinite()
        try:
            _require_equal((again[finite] if again.shape == z.shape else again,), (z[finite],), z[finite])
        except UnsupportedModelError as error:
            raise UnsupportedModelError(
                "model.encode must be deterministic in evaluation mode, got other embeddings from a second "
                "call: is dropout or sampling left on, or does the model keep a state?"
            ) from error

    def _naive(self, pairs: Tensor, insert: Tensor) -> tuple[Tensor, Tensor]:
        weights: dict[str, Any] = {"edge_weight": self.edge_weight, "insert_weight": self.insert_weight}
        weights["undirected"] = self.graph.undirected
        return naive_endpoints(self.model, self.x, self.edge_index, pairs, insert, **weights)

    def _whole(self) -> Tensor:
        """``encode`` of the graph as given, run once."""
        if self._encoded is None:
            self._encoded = encode(self.model, self.x, self.edge_index, self.edge_weight)
        return self._encoded

    def _verify(self, endpoints: Endpoints, num_hops: int | None = None) -> None:
        """Compare a method on toggled pairs with one pass over the whole graph each."""
        pairs = check_pairs(self.graph)
        if not pairs.size(1):
            return
        insert = ~self.graph.contains(pairs)
        if self._reference is None:
            self._reference = self._naive(pairs, insert)
        _require_equal(endpoints(pairs, insert), self._reference, self._whole(), num_hops)


class PairwiseToggle:
    """A :class:`~linkcal.models.PairPredictor`, which embeds both states itself, and a graph."""

    def __init__(self, predictor: PairPredictor, x: Tensor, edge_index: Tensor, *, undirected: bool) -> None:
        self.model, self.x, self.edge_index = evaluation_view(predictor), x, edge_index
        self.graph = ToggleGraph.from_edge_index(edge_index, x.size(0), undirected=undirected)
        self._lock = fork_safe_lock()

    def toggle(self, pairs: Tensor) -> ToggledEmbeddings:
        """Both states of pairs [2, L]."""
        model = self.model
        assert isinstance(model, PairPredictor)
        with self._lock, torch.no_grad():
            absent = model.embed_pairs(self.x, self.edge_index, pairs, target_link="absent")
            present = model.embed_pairs(self.x, self.edge_index, pairs, target_link="present")
            both = model.head(absent), model.head(present)
        return ToggledEmbeddings(absent, present, *both, self.graph.contains(pairs), "pairwise").map(widened)


def embed_and_score(model: nn.Module, rows: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Link embeddings [L, d] and logits [L] of pairs [2, L] of `rows`, at least in float32."""
    logit: Tensor = model.decode(rows, index)  # type: ignore[operator]
    return widened(link_embedding_of(model, rows, index)), widened(logit)


def widened(values: Tensor) -> Tensor:
    """Half precision as float32 (NumPy has no bfloat16, probabilities need more digits); else as it is."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def _require_equal(
    ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], z: Tensor, num_hops: int | None = None
) -> None:
    """Refuse embeddings that differ by more than rounding from the model's own."""
    a, b, error = torch.cat(ours), torch.cat(theirs), float("inf")
    if a.shape == b.shape:
        scale = max([1.0, *(float(values.abs().max()) for values in (b, z) if values.numel())])
        relative = 1e-9 if z.dtype == torch.float64 else max(1e-4, torch.finfo(z.dtype).eps)
        error = float((a - b).abs().max()) if a.numel() else 0.0
        if error <= relative * scale:
            return
    if num_hops is None:
        raise UnsupportedModelError(f"its layers do not reproduce its encode, they differ by {error:.1e}")
    raise UnsupportedModelError(
        f"model.encode must depend on {num_hops} hops alone and be deterministic for method 'khop', got "
        f"embeddings that differ by {error:.1e} from those of the whole graph; pass a larger num_hops or use "
        "method='naive'"
    )


def check_pairs(graph: ToggleGraph, around: tuple[float, ...] = (1.0,)) -> Tensor:
    """Pairs [2, P] on which methods are verified, of every kind that the graph has.

    Around the nodes at these quantiles of the degree (1.0: a hub): an edge and a non-edge of the node, and
    of two of its neighbours with each other; and the edge of a node with few neighbours.
    """
    num_nodes, degree = graph.num_nodes, graph.in_degree(weighted=False)
    if num_nodes < 2:
        return graph.indptr.new_empty(2, 0)
    by_degree = degree.argsort(stable=True)
    linked = by_degree[degree[by_degree] > 0]
    nodes = [linked[int(q * (len(linked) - 1))] for q in around] if len(linked) else [by_degree[0]]
    chosen: list[tuple[int, int]] = []
    for node in nodes:
        near = graph.senders[graph.indptr[node] : graph.indptr[node + 1]]
        apart = torch.ones(num_nodes, dtype=torch.bool, device=near.device)
        apart[near], apart[node] = False, False
        candidates = [torch.stack([p[:1], node.expand(1)[: len(p)]]) for p in (near, apart.nonzero()[:, 0])]
        corners = torch.combinations(near[:32]).T.reshape(2, -1)
        joined = graph.contains(corners)
        candidates += [corners[:, joined][:, :1], corners[:, ~joined][:, :1]]
        chosen += [(int(u), int(v)) for u, v in torch.cat(candidates, dim=1).T]
    if len(linked):
        chosen.append((int(graph.senders[graph.indptr[linked[0]]]), int(linked[0])))
    return torch.tensor(list(dict.fromkeys(chosen)), device=degree.device).T


def _within(subgraphs: Subgraphs, pairs: Tensor) -> Tensor:
    """The pairs with the largest subgraphs that fit into one batch; the smallest one if none does."""
    nodes, arcs, _, _ = torch.from_numpy(subgraphs.sizes(pairs)).to(pairs.device)
    pairs, cost = pairs[:, arcs > 0], torch.maximum(nodes, -(-arcs // ARCS_PER_NODE))[arcs > 0]
    order = cost.argsort(descending=True, stable=True)
    order = order[cost[order] <= subgraphs.max_batch_nodes]
    order = order[cost[order].cumsum(0) <= subgraphs.max_batch_nodes]
    return pairs[:, order] if order.numel() else pairs[:, cost.argsort(stable=True)[:1]]
