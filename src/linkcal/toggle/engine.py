"""Everything about one model on one graph that is worked out once, however many blocks of pairs follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from linkcal.exceptions import UnsupportedModelError
from linkcal.models import link_embedding_of, unwrap_link_predictor
from linkcal.toggle.cache import forward_with_cache
from linkcal.toggle.delta import delta_endpoints
from linkcal.toggle.fused import FusedGCN, fused_applies
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.khop import (
    SubgraphExtractor,
    khop_endpoints,
    refuse_global,
    verify_khop,
)
from linkcal.toggle.naive import naive_endpoints
from linkcal.toggle.recognise import Recognised, Unrecognised, recognise, refuse_stateful
from linkcal.toggle.result import ToggledEmbeddings

__all__ = ["METHODS", "Method", "ToggleEngine"]

Method = Literal["auto", "naive", "fast", "delta", "khop"]
#: Values of the argument `method`.
METHODS: tuple[str, ...] = get_args(Method)

Endpoints = tuple[Tensor, Tensor]
#: Endpoint embeddings [L, d] of pairs [2, L] after the toggle; the second argument says which are inserted.
ToggleFunction = Callable[[Tensor, Tensor], Endpoints]


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
    max_batch_nodes : int
    sample : Tensor [2, L], int64
        Pairs from which those are taken on which ``"khop"`` is verified.

    Attributes
    ----------
    method : str
        What computes the toggled embeddings: ``"naive"``, ``"khop"``, ``"delta"`` or ``"kernel"``.

    Raises
    ------
    UnsupportedModelError
        If the model caches its graph, or the asked method is not exact for it.
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
        max_batch_nodes: int,
        sample: Tensor,
    ) -> None:
        refuse_stateful(predictor)
        self.predictor, self.x, self.edge_index = predictor, x, edge_index
        self.graph = ToggleGraph.from_edge_index(edge_index, x.size(0), undirected=undirected)
        with torch.no_grad(), evaluating(predictor):
            with counting_hops(predictor) as counted:
                self.z = self._encode(edge_index)
            self.num_hops = counted[0] if num_hops is None else num_hops
            self.max_batch_nodes = max_batch_nodes
            self.method, self._toggled = self._choose(method, sample)

    def toggle(self, pairs: Tensor) -> ToggledEmbeddings:
        """Both states of pairs [2, L]; the model's mode is restored before this returns."""
        in_graph = self.graph.contains(pairs)
        with torch.no_grad(), evaluating(self.predictor):
            untouched = (self.z[pairs[0]], self.z[pairs[1]])
            toggled = self._toggled(pairs, ~in_graph) if pairs.size(1) else untouched
            h_absent, logit_absent = _embed_and_score(self.predictor, _where(in_graph, toggled, untouched))
            h_present, logit_present = _embed_and_score(self.predictor, _where(in_graph, untouched, toggled))
        return ToggledEmbeddings(h_absent, h_present, logit_absent, logit_present, in_graph, self.method)

    def _encode(self, edge_index: Tensor) -> Tensor:
        z: Tensor = self.predictor.encode(self.x, edge_index)  # type: ignore[operator]
        return z

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
        return "naive", self._naive

    def _recognised(self, *, compiled: bool) -> tuple[str, ToggleFunction] | Unrecognised:
        known = recognise(unwrap_link_predictor(self.predictor))
        if not isinstance(known, Recognised):
            return known
        features = known.node_features(self.x)
        if features.dtype not in (torch.float32, torch.float64):
            return Unrecognised(f"its features are {features.dtype}, not float32 or float64")
        positions = None if known.positions is None else known.positions(self.x)
        z, caches = forward_with_cache(known.layers, self.graph, features, positions)
        if not _agree(z, self.z):
            return Unrecognised("its layers do not reproduce its encode(x)")
        if compiled and fused_applies(known.layers, self.graph, features):
            return "kernel", FusedGCN(caches, self.graph).endpoints
        return "delta", lambda pairs, insert: delta_endpoints(caches, self.graph, pairs, insert)

    def _by_subgraphs(self, sample: Tensor) -> ToggleFunction:
        refuse_global(self.predictor)
        if self.num_hops < 1:
            raise UnsupportedModelError(
                "num_hops must be given for a model without PyG MessagePassing layers, got None"
            )
        extractor = SubgraphExtractor(self.graph, self.num_hops, self.max_batch_nodes)
        if sample.size(1):
            verify_khop(self.predictor, self.x, self.z, extractor, sample, _tolerance(self.z))
        return lambda pairs, insert: khop_endpoints(self.predictor, self.x, extractor, pairs, insert)

    def _naive(self, pairs: Tensor, insert: Tensor) -> Endpoints:
        undirected = self.graph.undirected
        return naive_endpoints(self.predictor, self.x, self.edge_index, pairs, insert, undirected=undirected)


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


@contextmanager
def counting_hops(model: nn.Module) -> Iterator[list[int]]:
    """Count how often messages are passed in a block: layers used twice count twice, parallel ones too.

    An upper bound on the hops that the model sees, which is all that exactness needs.
    """
    count = [0]

    def hook(*_: Any) -> None:
        count[0] += 1

    passing = [module for module in model.modules() if isinstance(module, MessagePassing)]
    handles = [module.register_propagate_forward_pre_hook(hook) for module in passing]
    try:
        yield count
    finally:
        for handle in handles:
            handle.remove()


def _tolerance(z: Tensor) -> float:
    """Rounding error allowed between two ways to compute `z`."""
    scale = float(z.abs().max()) if z.numel() else 0.0
    return (1e-9 if z.dtype == torch.float64 else 1e-4) * max(scale, 1.0)


def _agree(ours: Tensor, theirs: Tensor) -> bool:
    """Whether two forward passes agree to rounding: forward hooks or patched methods would show here."""
    if ours.shape != theirs.shape:
        return False
    return not theirs.numel() or bool((ours - theirs).abs().max() <= _tolerance(theirs))


def _where(condition: Tensor, where_true: Endpoints, where_false: Endpoints) -> Endpoints:
    column = condition[:, None]
    return (
        torch.where(column, where_true[0], where_false[0]),
        torch.where(column, where_true[1], where_false[1]),
    )


def _embed_and_score(model: Any, endpoints: Endpoints) -> tuple[Tensor, Tensor]:
    """Link embeddings [L, d] and logits [L] of endpoint rows: pair i joins rows i and L + i."""
    number = torch.arange(endpoints[0].size(0), device=endpoints[0].device)
    rows = torch.cat(endpoints)
    index = torch.stack([number, number + number.numel()])
    return link_embedding_of(model, rows, index), model.decode(rows, index)
