"""The public function: toggle every pair's own edge, by whichever method is exact for the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from linkcal._validation import check_choice, check_edge_index
from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models import (
    DecodeReturns,
    as_link_predictor,
    link_embedding_of,
    unwrap_link_predictor,
)
from linkcal.toggle.cache import forward_with_cache
from linkcal.toggle.delta import delta_endpoints
from linkcal.toggle.fused import fused_applies, fused_endpoints
from linkcal.toggle.graph import ToggleGraph
from linkcal.toggle.naive import naive_endpoints
from linkcal.toggle.recognise import Recognised, Unrecognised, recognise, refuse_stateful
from linkcal.toggle.result import ToggledEmbeddings

__all__ = ["METHODS", "Method", "toggle_edges"]

Method = Literal["auto", "naive", "fast", "delta"]
#: Values of the argument `method`.
METHODS: tuple[str, ...] = get_args(Method)

Endpoints = tuple[Tensor, Tensor]


def toggle_edges(
    model: nn.Module,
    x: Tensor,
    edge_index: Tensor,
    edge_label_index: Tensor,
    *,
    undirected: bool = True,
    method: Method = "auto",
    decode_returns: DecodeReturns | None = None,
) -> ToggledEmbeddings:
    """Link embeddings and logits of each pair with the pair's own edge absent and present, exactly.

    Use it to ask what a link's own edge does to its score: leave-one-out scores of training edges, or the
    features of In-n-Out calibration. Each pair is toggled alone, all other edges stay as given. The model
    runs in evaluation mode without gradients, and its mode is restored.

    Parameters
    ----------
    model : nn.Module
        With ``encode(x, edge_index)`` and ``decode(z, edge_label_index)``; the link embedding is its
        ``link_embedding(z, edge_label_index)`` if it has one, else the pointwise product ``z_u * z_v``.
        ``decode`` and ``link_embedding`` may read only the rows of the two endpoints.
    x : Tensor [N, F], float, or [N], int64
        What ``encode`` takes: features, or node ids for a learned embedding.
    edge_index : Tensor [2, E], int
        The message graph, source row first; undirected graphs hold both directions.
    edge_label_index : Tensor [2, L], int
        Pairs to toggle; repeats are allowed, self-pairs are not.
    undirected : bool
        Whether a pair is unordered and both directions of its edge are toggled together.
    method : {"auto", "naive", "fast", "delta"}
        ``"naive"`` runs one forward pass per pair. ``"fast"`` propagates only what the toggled edge changes:
        in a compiled kernel where there is one for the model's layers, else by ``"delta"``, the same in torch
        operations, for any number of layers and on any device. ``"auto"`` takes ``"fast"`` where the model's
        layers are known, else ``"naive"``.
    decode_returns : {"logits", "probabilities"}, optional
        What ``model.decode`` returns, unless the model's attribute of that name declares it.

    Returns
    -------
    ToggledEmbeddings
        Tensors on the device and in the dtype of the model's output; ``.method`` tells what was used.

    Raises
    ------
    InputError
        If a tensor has the wrong shape, an index is out of range, a pair joins a node to itself, or
        `undirected` is True and some edge stands in one direction only.
    UnsupportedModelError
        If the model lacks a method or caches its graph, or `method` is ``"fast"`` or ``"delta"`` and the
        model's layers are not known.

    Notes
    -----
    ``h_uv = psi(z_u, z_v)`` on A- (own edge absent) and ``h+_uv`` on A+ (present), arXiv 2403.04605,
    section 4. `docs/toggling.md` in the source repository derives the fast methods.

    Examples
    --------
    >>> import torch
    >>> from linkcal.models import GCN
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> model = GCN(in_channels=4, hidden_channels=8, out_channels=3)
    >>> toggled = toggle_edges(model, torch.eye(3, 4), path, torch.tensor([[0, 0], [1, 2]]))
    >>> toggled.absent.shape, toggled.in_graph.tolist(), toggled.method
    (torch.Size([2, 3]), [True, False], 'kernel')
    """
    check_choice(method, "method", METHODS)
    predictor = as_link_predictor(model, decode_returns)
    edge_index, pairs = _check_graph(x, edge_index, edge_label_index)
    refuse_stateful(predictor)
    graph = ToggleGraph.from_edge_index(edge_index, x.size(0), undirected=undirected)
    in_graph = graph.contains(pairs)
    with torch.no_grad(), evaluating(predictor):
        z = predictor.encode(x, edge_index)  # type: ignore[operator]
        untouched = (z[pairs[0]], z[pairs[1]])
        if not pairs.size(1):
            toggled, used = untouched, "none"
        else:
            toggled, used = _toggled(predictor, x, edge_index, graph, pairs, ~in_graph, z, method)
        absent = _choose(in_graph, toggled, untouched)
        present = _choose(in_graph, untouched, toggled)
        h_absent, logit_absent = _embed_and_score(predictor, absent)
        h_present, logit_present = _embed_and_score(predictor, present)
    return ToggledEmbeddings(h_absent, h_present, logit_absent, logit_present, in_graph, used)


def _toggled(
    model: nn.Module,
    x: Tensor,
    edge_index: Tensor,
    graph: ToggleGraph,
    pairs: Tensor,
    insert: Tensor,
    z: Tensor,
    method: Method,
) -> tuple[Endpoints, str]:
    """Endpoint embeddings after each pair's toggle, and the name of what computed them."""
    if method != "naive":
        known = recognise(unwrap_link_predictor(model))
        if isinstance(known, Recognised):
            features = known.node_features(x)
            z_known, caches = forward_with_cache(known.layers, graph, features)
            known = (
                known if _agrees(z_known, z) else Unrecognised("its layers do not reproduce its encode(x)")
            )
        if isinstance(known, Recognised):
            if method != "delta" and fused_applies(known.layers, graph, features):
                return fused_endpoints(caches, graph, pairs, insert), "kernel"
            return delta_endpoints(caches, graph, pairs, insert), "delta"
        if method != "auto":
            raise UnsupportedModelError(
                f"method must be 'auto' or 'naive' for this model, got {method!r}: {known.reason}"
            )
    endpoints = naive_endpoints(model, x, edge_index, pairs, insert, undirected=graph.undirected)
    return endpoints, "naive"


def _agrees(ours: Tensor, theirs: Tensor) -> bool:
    """Whether two forward passes agree to rounding: forward hooks or patched methods would show here."""
    if ours.shape != theirs.shape:
        return False
    tolerance = 1e-9 if theirs.dtype == torch.float64 else 1e-4
    scale = float(theirs.abs().max()) if theirs.numel() else 0.0
    return bool((ours - theirs).abs().max() <= tolerance * max(scale, 1.0)) if theirs.numel() else True


def _choose(condition: Tensor, where_true: Endpoints, where_false: Endpoints) -> Endpoints:
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


def _check_graph(x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> tuple[Tensor, Tensor]:
    if not isinstance(x, Tensor) or x.ndim not in (1, 2):
        shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x must be a tensor of shape [N, F] or [N], got {shape}")
    edge_index = check_edge_index(edge_index, x.size(0))
    pairs = check_edge_index(edge_label_index, x.size(0), "edge_label_index")
    loops = pairs[0] == pairs[1]
    if bool(loops.any()):
        node = int(pairs[0][loops][0])
        raise InputError(f"edge_label_index must join two different nodes, got ({node}, {node})")
    return edge_index, pairs


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
