"""The public functions: link embeddings of every pair without and with the target link."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
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
from linkcal.models import DecodeReturns, PairPredictor, as_link_predictor, unwrap_link_predictor
from linkcal.toggle._engine import METHODS, Method, ToggleEngine, widened
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._recognise import evaluating
from linkcal.toggle.result import OutputArrays, ToggledEmbeddings

__all__ = [
    "BLOCK_SIZE",
    "METHODS",
    "Method",
    "PairwiseToggle",
    "check_pairs",
    "check_weights",
    "iter_toggled",
    "toggle_edges",
]


# Checks of what the public functions are given.


def check_pairs(x: Tensor, edge_label_index: Tensor) -> Tensor:
    """Checked pairs [2, L], int64, after the check of `x` that gives the number of nodes."""
    if not isinstance(x, Tensor) or x.ndim not in (1, 2):
        shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x must be a tensor of shape [N, F] or [N], got {shape}")
    # The sum is finite only if all values are, and costs a tenth of asking each.
    finite = not x.dtype.is_floating_point or bool(x.sum().isfinite())
    if not finite and not bool(torch.isfinite(x).all()):
        raise InputError(f"x must be finite, {int((~torch.isfinite(x)).sum())} values are not")
    return check_no_self_pairs(check_edge_index(edge_label_index, x.size(0), "edge_label_index"))


def check_weights(
    predictor: nn.Module, edge_weight: Tensor | None, insert_weight: float, edge_index: Tensor
) -> None:
    """Check `edge_weight` and `insert_weight`, and that the model's ``encode`` takes weights."""
    if edge_weight is None:
        if insert_weight != 1.0:
            raise InputError(f"insert_weight must be 1.0 without edge_weight, got {insert_weight!r}")
        return
    expected = [edge_index.size(1)]
    if not isinstance(edge_weight, Tensor) or list(edge_weight.shape) != expected:
        came = list(edge_weight.shape) if isinstance(edge_weight, Tensor) else type(edge_weight).__name__
        raise InputError(f"edge_weight must be a tensor of shape {expected}, got {came}")
    if not edge_weight.dtype.is_floating_point:
        raise InputError(f"edge_weight must hold floats, got {edge_weight.dtype}")
    wrong = ~(torch.isfinite(edge_weight) & (edge_weight >= 0))
    if bool(wrong.any()):
        raise InputError(f"edge_weight must be finite and >= 0, got {float(edge_weight[wrong][0])}")
    check_positive_float(insert_weight, "insert_weight", zero=True)
    takes: Any = None
    if not isinstance(predictor, PairPredictor):
        takes = inspect.signature(unwrap_link_predictor(predictor).encode).parameters  # type: ignore[arg-type]
    if takes is None or not any(p.name == "edge_weight" or p.kind is p.VAR_KEYWORD for p in takes.values()):
        name = type(unwrap_link_predictor(predictor)).__name__
        raise UnsupportedModelError(f"model.encode must take edge_weight to use it, {name}'s does not")


# Toggling for models that embed pairs by themselves: they are asked for both states.


class PairwiseToggle:
    """A :class:`~linkcal.models.PairPredictor` and a graph, ready to toggle any pairs.

    Parameters
    ----------
    predictor : PairPredictor
    x : Tensor [N, F] or [N]
    edge_index : Tensor [2, E], int64
    undirected : bool
    method : str
        Only ``"auto"``: there is one way, and it is exact by the model's definition.

    Raises
    ------
    UnsupportedModelError
        If another method is asked for.
    InputError
        If `undirected` and some edge stands in one direction only.
    """

    def __init__(
        self, predictor: PairPredictor, x: Tensor, edge_index: Tensor, *, undirected: bool, method: str
    ) -> None:
        if method != "auto":
            raise UnsupportedModelError(
                f"method must be 'auto' for {type(predictor).__name__}, which embeds pairs with and without "
                f"their target link itself, got {method!r}"
            )
        self.predictor, self.x, self.edge_index = predictor, x, edge_index
        self.graph = ToggleGraph.from_edge_index(edge_index, x.size(0), undirected=undirected)

    def toggle(self, pairs: Tensor) -> ToggledEmbeddings:
        """Both states of pairs [2, L]; the model's mode is restored before this returns."""
        with torch.no_grad(), evaluating(self.predictor):
            absent, present = (
                self.predictor.embed_pairs(self.x, self.edge_index, pairs, target_link=state)
                for state in ("absent", "present")
            )
            logit_absent, logit_present = self.predictor.head(absent), self.predictor.head(present)
        in_graph = self.graph.contains(pairs)
        return ToggledEmbeddings(
            absent=widened(absent),
            present=widened(present),
            logit_absent=widened(logit_absent),
            logit_present=widened(logit_present),
            in_graph=in_graph,
            method="pairwise",
        )


# The public functions: toggle every pair's target link, by whichever method is exact for the model.

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
    out: Mapping[str, Any] | None = None,
    edge_weight: Tensor | None = None,
    insert_weight: float = 1.0,
) -> ToggledEmbeddings:
    """Link embeddings and logits of each pair with the target link absent and present, exactly.

    Use it to ask what a link's target link does to its score: leave-one-out scores of training edges, or the
    features of In-n-Out calibration. Each pair is toggled alone, all other edges stay as given. The model
    runs in evaluation mode without gradients, and its mode is restored.

    Parameters
    ----------
    model : nn.Module
        With ``encode(x, edge_index)`` and ``decode(z, edge_label_index)``; the link embedding is its
        ``link_embedding(z, edge_label_index)`` if it has one, else the pointwise product ``z_u * z_v``.
        ``decode`` and ``link_embedding`` may read only the rows of the two endpoints. Or a
        :class:`~linkcal.models.PairPredictor` (SEAL), which is asked for both states itself.
    x : Tensor [N, F], float, or [N], int64
        What ``encode`` takes: features, or node ids for a learned embedding.
    edge_index : Tensor [2, E], int
        The message-passing graph, source row first; undirected graphs hold both directions.
    edge_label_index : Tensor [2, L], int
        Pairs to toggle; repeats are allowed, self-pairs are not.
    undirected : bool
        Whether a pair is unordered and both directions of its edge are toggled together.
    method : {"auto", "naive", "fast", "delta", "khop"}
        ``"naive"`` runs one forward pass per pair. ``"fast"`` propagates only what the toggled edge changes:
        in a compiled kernel where there is one for the model's layers, else by ``"delta"``, the same in torch
        operations, for any number of layers and on any device. ``"khop"`` runs the model itself on the L-hop
        subgraphs around the pairs, for any deterministic message passing. ``"auto"`` takes ``"fast"`` where
        the model's layers are known, else ``"khop"`` where it reproduces the model, else ``"naive"``.
    decode_returns : {"logits", "probabilities"}, optional
        What ``model.decode`` returns, unless the model's attribute of that name declares it.
    num_hops : int, optional
        For ``"khop"``: how many hops the model sees. By default the number of times that PyG
        ``MessagePassing`` modules pass messages in one ``encode``; needed for a model that passes messages
        by other means.
    max_batch_nodes : int, optional
        For ``"khop"``: nodes of the subgraphs that run at once (a single pair may exceed it). By default as
        many as the graph has, or as hold twice its arcs, within 16,384 and 262,144.
    block_size : int
        Pairs toggled at once. No result depends on it beyond the rounding of the model's own ``decode``
        (and, for PEG, of its function of the distances).
    out : mapping of str to array or Tensor, optional
        Arrays, memory maps or CPU tensors named ``absent`` and ``present`` [L, d], ``logit_absent`` and
        ``logit_present`` [L], ``in_graph`` [L] bool, to write into; all five. The result then holds views of
        them.
    edge_weight : Tensor [E], float, >= 0, optional
        Weights of the edges, for a model whose ``encode`` takes an argument of that name. Not for
        ``"khop"``.
    insert_weight : float, >= 0
        With `edge_weight`: the weight of an inserted edge, in both directions if `undirected`. A removed edge
        goes with whatever weight it has.

    Returns
    -------
    ToggledEmbeddings
        Tensors on the device and in the dtype of the model's output (float32 for one in half precision);
        ``.method`` tells what was used.

    Raises
    ------
    InputError
        If a tensor has the wrong shape, an index is out of range, a pair joins a node to itself,
        `undirected` is True and some edge stands in one direction only, or an array of `out` does not fit.
    UnsupportedModelError
        If the model lacks a method, caches its graph or is not deterministic in evaluation mode, or the asked
        method is not exact for the model.

    Notes
    -----
    ``h_uv = psi(z_u, z_v)`` on A- (target link absent) and ``h+_uv`` on A+ (present), arXiv 2403.04605,
    section 4. `docs/toggling.md` in the source repository derives the fast methods.

    Memory beyond the graph, the model and the result: a few arrays [N, k] of hidden values for each layer (k
    the widest one) and a few [block_size, k]; from three layers on up to eight rows of k per node of the
    largest neighbourhood and thread; for ``"delta"`` about 0.5 GB at k = 32 in float32 (arcs are held in
    blocks of a million); for ``"khop"`` what the model itself takes on `max_batch_nodes` nodes and 16 times
    as many arcs, and 24 bytes per node and thread.

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
    blocks = iter_toggled(
        model,
        x,
        edge_index,
        edge_label_index,
        undirected=undirected,
        method=method,
        decode_returns=decode_returns,
        num_hops=num_hops,
        max_batch_nodes=max_batch_nodes,
        block_size=block_size,
        edge_weight=edge_weight,
        insert_weight=insert_weight,
    )
    number = edge_label_index.shape[1] if hasattr(edge_label_index, "shape") else len(edge_label_index[0])
    return _collected(blocks, number, out)


def iter_toggled(
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
) -> Iterator[tuple[slice, ToggledEmbeddings]]:
    """Toggle pairs block by block, for results that do not fit into memory.

    The arguments are checked and the work per graph (a forward pass, what each node's neighbourhood adds up
    to) is done once, when this is called; the model, `x` and `edge_index` must not change while the blocks
    are read.

    Parameters
    ----------
    model, x, edge_index, edge_label_index, undirected, method, decode_returns, num_hops, max_batch_nodes
        As in :func:`toggle_edges`.
    block_size : int
        Pairs per block.
    edge_weight, insert_weight
        As in :func:`toggle_edges`.

    Yields
    ------
    rows : slice
        The columns of `edge_label_index` that the block answers, in order.
    toggled : ToggledEmbeddings
        Without pairs one empty block comes.

    Raises
    ------
    InputError, UnsupportedModelError
        As :func:`toggle_edges`.

    Examples
    --------
    >>> import torch
    >>> from linkcal.models import GCN
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> pairs = torch.tensor([[0, 0, 1], [1, 2, 2]])
    >>> model = GCN(in_channels=4, hidden_channels=8, out_channels=3)
    >>> for rows, toggled in iter_toggled(model, torch.eye(3, 4), path, pairs, block_size=2):
    ...     print(rows, toggled.in_graph.tolist())
    slice(0, 2, None) [True, False]
    slice(2, 3, None) [True]
    """
    size = check_positive_int(block_size, "block_size")
    engine, pairs = _engine_and_pairs(
        model,
        x,
        edge_index,
        edge_label_index,
        undirected=undirected,
        method=method,
        decode_returns=decode_returns,
        num_hops=num_hops,
        max_batch_nodes=max_batch_nodes,
        edge_weight=edge_weight,
        insert_weight=insert_weight,
    )
    return _blocks(engine, pairs, size)


def toggle_engine(
    model: nn.Module, x: Tensor, edge_index: Tensor, *, sample: Tensor, **options: Any
) -> ToggleEngine | PairwiseToggle:
    """The work per graph, done: toggles any number of pairs, call after call, by its method ``toggle``.

    `sample` [2, L] are pairs on which ``"khop"`` is verified; `options` as in :func:`toggle_edges`.
    """
    return _engine_and_pairs(model, x, edge_index, sample, **options)[0]


def _engine_and_pairs(
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
    edge_weight: Tensor | None = None,
    insert_weight: float = 1.0,
) -> tuple[ToggleEngine | PairwiseToggle, Tensor]:
    """The checks of everything, once (a look at wide features costs a tenth of a pass), then the engine."""
    check_choice(method, "method", METHODS)
    predictor = as_link_predictor(model, decode_returns)
    pairs = check_pairs(x, edge_label_index)
    edge_index = check_edge_index(edge_index, x.size(0))
    check_weights(predictor, edge_weight, insert_weight, edge_index)
    if isinstance(predictor, PairPredictor):
        return PairwiseToggle(predictor, x, edge_index, undirected=undirected, method=method), pairs
    engine = ToggleEngine(
        predictor,
        x,
        edge_index,
        undirected=undirected,
        method=method,
        num_hops=None if num_hops is None else check_positive_int(num_hops, "num_hops"),
        max_batch_nodes=(
            None if max_batch_nodes is None else check_positive_int(max_batch_nodes, "max_batch_nodes")
        ),
        sample=pairs,
        edge_weight=edge_weight,
        insert_weight=float(insert_weight),
    )
    return engine, pairs


def toggle_in_blocks(
    engine: ToggleEngine | PairwiseToggle,
    pairs: Tensor,
    *,
    block_size: int = BLOCK_SIZE,
    out: Mapping[str, Any] | None = None,
) -> ToggledEmbeddings:
    """Toggle checked pairs [2, L] by a prepared engine and put the blocks together."""
    return _collected(
        _blocks(engine, pairs, check_positive_int(block_size, "block_size")), pairs.size(1), out
    )


def _collected(
    blocks: Iterator[tuple[slice, ToggledEmbeddings]], number: int, out: Mapping[str, Any] | None
) -> ToggledEmbeddings:
    target = None if out is None else OutputArrays(out, number)
    for rows, toggled in blocks:
        if target is None:
            if len(toggled) == number:
                return toggled
            target = OutputArrays.like(toggled, number)
        target.write(rows, toggled)
    assert target is not None  # there is always a block, if an empty one
    return target.result(toggled.method)


def _blocks(
    engine: ToggleEngine | PairwiseToggle, pairs: Tensor, size: int
) -> Iterator[tuple[slice, ToggledEmbeddings]]:
    for start in range(0, max(pairs.size(1), 1), size):
        rows = slice(start, min(start + size, pairs.size(1)))
        yield rows, engine.toggle(pairs[:, rows])
