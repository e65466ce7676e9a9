"""The public functions: link embeddings of every pair without and with the target link."""

from typing import Any

import torch
from torch import Tensor, nn

from linkcal._core.validation import (
    check_choice,
    check_edge_index,
    check_no_self_pairs,
    check_positive_float,
    check_positive_int,
)
from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models import DecodeReturns, PairPredictor, as_link_predictor
from linkcal.models.adapter import check_weights
from linkcal.toggle._engine import METHODS, Method, PairwiseToggle, ToggleEngine
from linkcal.toggle.result import ToggledEmbeddings

__all__ = ["BLOCK_SIZE", "METHODS", "toggle_edges", "toggle_engine", "toggle_in_blocks"]

#: Pairs toggled at once unless the caller says otherwise.
BLOCK_SIZE = 1 << 16


def toggle_edges(
    model: nn.Module,
    x: Tensor,
    edge_index: Tensor,
    edge_label_index: Tensor,
    *,
    undirected: bool = True,
    method: Method = "auto",
    decode_returns: DecodeReturns | None = None,
    num_hops: int | None = None,
    max_batch_nodes: int | None = None,
    block_size: int = BLOCK_SIZE,
    edge_weight: Tensor | None = None,
    insert_weight: float = 1.0,
) -> ToggledEmbeddings:
    """Link embeddings and logits of each pair with the target link absent and present, exactly.

    Use it for leave-one-out scores of training edges, or for the features of In-n-Out calibration. Each pair
    is toggled alone, in evaluation mode without gradients; the model's own mode and hooks are not touched,
    and several threads may toggle one model.

    Parameters
    ----------
    model : nn.Module
        With ``encode(x, edge_index)`` and ``decode(z, edge_label_index)``; the link embedding is its
        ``link_embedding(z, edge_label_index)`` if it has one, else ``z_u * z_v``. Both may read only the rows
        of the two endpoints. Or a :class:`~linkcal.models.PairPredictor` (SEAL), which embeds both states
        itself.
    x : Tensor [N, F], float, or [N], int64
        Input of ``encode``: features, or node ids for a learned embedding.
    edge_index : Tensor [2, E], int
        The message-passing graph, source row first; undirected graphs hold both directions.
    edge_label_index : Tensor [2, L], int64
        Pairs to toggle; repeats are allowed, self-pairs are not.
    undirected : bool
        Whether a pair is unordered and both directions of its edge are toggled together.
    method : {"auto", "naive", "fast", "delta", "khop"}
        ``"naive"``: one forward pass per pair. ``"fast"``: only what the edge changes, in a compiled kernel
        where there is one for the layers, else by ``"delta"``, the same in torch, for any depth and device.
        ``"khop"``: the model itself on the L-hop subgraphs, for any deterministic message passing.
        ``"auto"``: ``"fast"`` for encoders of known convolutions and functions of single nodes, else
        ``"khop"``, else ``"naive"``. All but ``"naive"`` are verified on a few toggled pairs against one
        forward pass each.
    decode_returns : {"logits", "probabilities"}, optional
        What ``model.decode`` returns, unless the model's attribute of that name declares it.
    num_hops, max_batch_nodes : int, optional
        For ``"khop"``: the hops that the model sees (default: the rounds of PyG's ``MessagePassing`` in one
        ``encode``; needed for a model that passes messages by other means), and the nodes of the subgraphs
        that run at once (a single pair may exceed it; default: by the graph's size, 16,384 to 262,144).
    block_size : int
        Pairs toggled at once; changes results only by the rounding of the model's own ``decode`` (and of
        PEG's function of the distances).
    edge_weight, insert_weight : Tensor [E] and float, >= 0, optional
        Weights for an ``encode`` with an argument `edge_weight` (not for ``"khop"``), and the weight of an
        inserted edge, in both directions if `undirected`.

    Returns
    -------
    ToggledEmbeddings
        On the device and in the dtype of the model's output (float32 for half precision).

    Raises
    ------
    InputError
        If an argument has the wrong shape, range or content, a pair joins a node to itself, or `undirected`
        is True and some edge stands in one direction only.
    UnsupportedModelError
        If the model lacks a method, caches its graph or is not deterministic in evaluation mode, or the
        requested method is not exact for the model.

    Notes
    -----
    ``h_uv = psi(z_u, z_v)`` on A- (target link absent) and ``h+_uv`` on A+ (present), arXiv 2403.04605,
    section 4. `docs/toggling.md` in the source repository derives the fast methods. Extra memory: a few
    arrays [N, k] per layer (k the widest) and [block_size, k]; from three layers on up to eight rows of k per
    thread and node of the largest neighbourhood; ``"delta"`` holds arcs in blocks of a million.

    Examples
    --------
    >>> from linkcal.models import GCN
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> toggled = toggle_edges(GCN(4), torch.eye(3, 4), path, torch.tensor([[0, 0], [1, 2]]))
    >>> toggled.absent.shape, toggled.in_graph.tolist(), toggled.method
    (torch.Size([2, 16]), [True, False], 'kernel')
    """
    options: dict[str, Any] = {"undirected": undirected, "method": method, "decode_returns": decode_returns}
    options |= {"num_hops": num_hops, "max_batch_nodes": max_batch_nodes}
    options |= {"edge_weight": edge_weight, "insert_weight": insert_weight}
    engine = toggle_engine(model, x, edge_index, **options)
    return toggle_in_blocks(engine, edge_label_index, block_size=block_size)


def toggle_engine(
    model: nn.Module,
    x: Tensor,
    edge_index: Tensor,
    *,
    undirected: bool = True,
    method: Method = "auto",
    decode_returns: DecodeReturns | None = None,
    edge_weight: Tensor | None = None,
    insert_weight: float = 1.0,
    **bounds: int | None,
) -> ToggleEngine | PairwiseToggle:
    """An object that toggles any pairs, call after call, from any thread: the work per graph, done once.

    Its method ``toggle`` takes checked pairs [2, L] (:func:`toggle_in_blocks` checks them). Arguments as in
    :func:`toggle_edges`; `bounds` are `num_hops` and `max_batch_nodes`.
    """
    check_choice(method, "method", METHODS)
    predictor = as_link_predictor(model, decode_returns)
    _check_x(x)
    edge_index = check_edge_index(edge_index, x.size(0))
    _check_weights(edge_weight, insert_weight, edge_index)
    check_weights(predictor, weighted=edge_weight is not None)
    for name, value in bounds.items():
        if value is not None:
            check_positive_int(value, name)
    if isinstance(predictor, PairPredictor):
        if method != "auto":
            raise UnsupportedModelError(
                f"method must be 'auto' for {type(predictor).__name__}, which embeds pairs with and without "
                f"their target link itself, got {method!r}"
            )
        return PairwiseToggle(predictor, x, edge_index, undirected=undirected)
    return ToggleEngine(
        predictor, x, edge_index, edge_weight, insert_weight, undirected=undirected, method=method, **bounds
    )


def toggle_in_blocks(
    engine: ToggleEngine | PairwiseToggle, pairs: Tensor, *, block_size: int = BLOCK_SIZE
) -> ToggledEmbeddings:
    """Toggle pairs [2, L] by a prepared engine and put the blocks together."""
    size = check_positive_int(block_size, "block_size")
    pairs = check_no_self_pairs(check_edge_index(pairs, engine.graph.num_nodes, "edge_label_index"))
    number, whole = pairs.size(1), None
    for start in range(0, max(number, 1), size):
        toggled = engine.toggle(pairs[:, start : start + size])
        if len(toggled) == number:
            return toggled
        if whole is None:
            whole = toggled.map(lambda part: part.new_empty(number, *part.shape[1:]))
        for place, part in zip(whole.tensors(), toggled.tensors(), strict=True):
            place[start : start + size] = part
    assert whole is not None  # there is always a block, if an empty one
    return whole


def _check_x(x: Tensor) -> None:
    if not isinstance(x, Tensor) or x.ndim not in (1, 2):
        came = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x must be a tensor of shape [N, F] or [N], got {came}")
    # A finite sum has finite terms alone; one that is not may have overflowed.
    if x.dtype.is_floating_point and not bool(x.sum().isfinite()) and not bool(torch.isfinite(x).all()):
        raise InputError(f"x must be finite, {int((~torch.isfinite(x)).sum())} values are not")


def _check_weights(edge_weight: Tensor | None, insert_weight: float, edge_index: Tensor) -> None:
    if edge_weight is None:
        if insert_weight != 1.0:
            raise InputError(f"insert_weight must be 1.0 without edge_weight, got {insert_weight!r}")
        return
    expected = [edge_index.size(1)]
    came = list(edge_weight.shape) if isinstance(edge_weight, Tensor) else type(edge_weight).__name__
    if came != expected:
        raise InputError(f"edge_weight must be a tensor of shape {expected}, got {came}")
    if not edge_weight.dtype.is_floating_point:
        raise InputError(f"edge_weight must hold floats, got {edge_weight.dtype}")
    wrong = ~(torch.isfinite(edge_weight) & (edge_weight >= 0))
    if bool(wrong.any()):
        raise InputError(f"edge_weight must be finite and >= 0, got {float(edge_weight[wrong][0])}")
    check_positive_float(insert_weight, "insert_weight", zero=True)
