"""The most probable missing pairs of a whole graph, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.nn.models import GAE, InnerProductDecoder

from linkcal._validation import check_edge_index, check_positive_int
from linkcal.data import Graph, pair_keys
from linkcal.decisions import BaseRate
from linkcal.exceptions import NotFittedError, UnsupportedModelError
from linkcal.models import LinkPredictor, PairPredictor, unwrap_link_predictor
from linkcal.wrapper import CalibratedLinkPredictor

__all__ = ["RankedPairs", "most_probable_pairs", "top_products"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Rounding of a product of matrices against the sum over one pair, relative to the largest possible score.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class RankedPairs:
    """The most probable missing pairs, best first.

    Parameters
    ----------
    edge_label_index : Tensor [2, n], int64
        Smaller index first in an undirected graph.
    logit : Tensor [n]
        The model's uncalibrated scores, falling; equal ones by (u, v).
    probability : Tensor [n]
        Calibrated, for the share of links `base_rate`.
    negatives_per_positive : float
        Non-links per link for which the probabilities hold, ``(1 - base_rate) / base_rate``. Among ALL pairs
        links are far rarer than among the calibration links; ask for ``base_rate="density"``.
    candidates : str
        What was ranked: ``"all missing pairs"`` or ``"missing pairs at distance 2"``.
    base_rate : float
        Share of links for which the probabilities hold.
    """

    edge_label_index: Tensor
    logit: Tensor
    probability: Tensor
    negatives_per_positive: float
    candidates: str
    base_rate: float


def most_probable_pairs(
    predictor: CalibratedLinkPredictor,
    k: int,
    *,
    chunk_size: int = 1 << 18,
    exclude: Tensor | None = None,
    base_rate: BaseRate | None = None,
) -> RankedPairs:
    """Rank all pairs that are no edge of the message graph by the model's score and keep the best k.

    Parameters
    ----------
    predictor : CalibratedLinkPredictor
        Fitted, around a model whose logit is a (weighted) inner product of node embeddings, or a
        :class:`~linkcal.models.PairPredictor`.
    k : int
        Fewer come back if the graph has fewer missing pairs.
    chunk_size : int
        Pairs scored at once; the answer does not depend on it.
    exclude : Tensor [2, K], optional
        More known edges to leave out, for instance ``split.held_out_edges()``; the predictor's own
        `held_out_` are left out in any case.
    base_rate : float in (0, 1) or "density", optional
        Share of links among ALL missing pairs, as in ``predictor.predict_proba``. Without it the
        probabilities hold for ``predictor.base_rate`` and are far too high as shares among all pairs.

    Returns
    -------
    RankedPairs

    Raises
    ------
    NotFittedError
        If the predictor is not fitted.
    UnsupportedModelError
        If the decoder is neither kind.

    Notes
    -----
    The order is that of the uncalibrated logit: among pairs on which a calibrator gives equal probabilities
    it still tells better from worse. A calibrator that is not increasing in the logit (binning, or one that
    reads link features) may put the probabilities in another order.

    No N x N array is made: memory is that of the graph, of z in float64, and of a few arrays of `chunk_size`.
    For a PairPredictor, which needs a subgraph for each pair, only pairs with a common neighbour compete.

    Examples
    --------
    >>> from linkcal import CalibratedLinkPredictor, Platt
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import make_model
    >>> split = split_links(simulate_graph(200, num_edges=600, num_features=10, seed=0), seed=0)
    >>> clp = CalibratedLinkPredictor(make_model("gcn", 10), Platt()).fit(split)
    >>> ranked = most_probable_pairs(clp, 5)
    >>> ranked.edge_label_index.shape, bool(split.graph.has_pairs(ranked.edge_label_index).any())
    (torch.Size([2, 5]), False)
    """
    k = check_positive_int(k, "k")
    chunk_size = check_positive_int(chunk_size, "chunk_size")
    exclude = _known_edges(predictor, exclude)
    rate = predictor.base_rate if base_rate is None else predictor.resolve_base_rate(base_rate)
    stated = base_rate is None and "base_rate" not in predictor.info_
    ratio = float(predictor.info_["negatives_per_positive"]) if stated else (1.0 - rate) / rate
    if isinstance(predictor.predictor, PairPredictor):
        pairs = _top_two_hop_pairs(predictor, k, chunk_size, exclude)
        candidates = "missing pairs at distance 2"
    else:
        weight, bias = _product_form(predictor)
        pairs, _ = top_products(
            predictor.node_embeddings(),
            predictor.graph_,
            k,
            weight=weight,
            bias=bias,
            chunk_size=chunk_size,
            exclude=exclude,
        )
        candidates = "all missing pairs"
    scores = predictor.score(pairs)
    return RankedPairs(
        edge_label_index=pairs,
        logit=scores.logit,
        probability=predictor.probability_of(scores, base_rate=base_rate),
        negatives_per_positive=ratio,
        candidates=candidates,
        base_rate=rate,
    )


def top_products(
    z: Tensor,
    graph: Graph,
    k: int,
    *,
    weight: Tensor | None = None,
    bias: float = 0.0,
    chunk_size: int = 1 << 18,
    exclude: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Missing pairs with the largest ``sum_k w_k z_uk z_vk + b``, exactly, best first.

    Parameters
    ----------
    z : Tensor [N, d]
        Node embeddings.
    graph : Graph
        Its edges and self-pairs are left out.
    k : int
    weight : Tensor [d] or [1], optional
        Ones by default.
    bias : float
    chunk_size : int
        Scores held at once.
    exclude : Tensor [2, K], optional
        More pairs to leave out.

    Returns
    -------
    pairs : Tensor [2, n], int64
        n = k, or all missing pairs if they are fewer. Ties stand in the order of (u, v).
    score : Tensor [n], float64

    Notes
    -----
    A block of scores is a product of matrices, whose rounding depends on the shape of the block. So blocks
    only nominate: every pair within rounding of the k-th best is scored again by itself, in float64, and
    these scores alone decide. The list is therefore the same for every `chunk_size`.
    """
    left = z.detach().cpu().numpy().astype(np.float64)
    right = left if weight is None else left * weight.detach().cpu().numpy().astype(np.float64)
    taken = _taken_keys(graph, exclude)
    largest = float(np.linalg.norm(left, axis=1).max() * np.linalg.norm(right, axis=1).max())
    margin = _ROUNDING * max(1.0, largest)
    best = _Best(k, margin)
    for row, col in _tiles(graph.num_nodes, chunk_size):
        if not graph.directed and col.stop <= row.start + 1:
            continue
        scores = left[row] @ right[col].T
        _mask(scores, row, col, taken, graph)
        bound = max(best.bound, _kth_largest(scores, k) - margin)
        u, v = np.nonzero(scores >= bound)
        keys = (u + row.start) * graph.num_nodes + v + col.start
        best.offer(_scores_alone(left, right, keys, graph.num_nodes), keys)
    score, keys = best.answer()
    pairs = np.stack([keys // graph.num_nodes, keys % graph.num_nodes])
    return torch.from_numpy(pairs), torch.from_numpy(score + bias)


class _Best:
    """The k best of what was offered, and what lies within `margin` of the k-th."""

    def __init__(self, k: int, margin: float) -> None:
        self.k, self.margin = k, margin
        self.score: FloatArray = np.empty(0)
        self.key: IntArray = np.empty(0, dtype=np.int64)

    @property
    def bound(self) -> float:
        """Block scores below this cannot belong to the k best; -inf (masked) never passes."""
        lowest = np.finfo(np.float64).min
        return lowest if self.score.size < self.k else float(self.score[self.k - 1]) - self.margin

    def offer(self, score: FloatArray, key: IntArray) -> None:
        """Take candidates in; keeps k of them, ties by key."""
        score, key = np.concatenate([self.score, score]), np.concatenate([self.key, key])
        order = np.lexsort([key, -score])[: self.k]
        self.score, self.key = score[order], key[order]

    def answer(self) -> tuple[FloatArray, IntArray]:
        return self.score, self.key


def _tiles(num_nodes: int, chunk_size: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of rows and columns that cover all pairs, at most `chunk_size` pairs each."""
    width = min(num_nodes, chunk_size)
    height = max(1, chunk_size // width)
    for row in range(0, num_nodes, height):
        for col in range(0, num_nodes, width):
            yield (
                slice(row, min(row + height, num_nodes)),
                slice(col, min(col + width, num_nodes)),
            )


def _mask(scores: FloatArray, row: slice, col: slice, taken: IntArray, graph: Graph) -> None:
    """Put -inf where a block holds known edges, self-pairs, or the second copy of an unordered pair."""
    n = graph.num_nodes
    first, last = np.searchsorted(taken, [row.start * n, row.stop * n])
    u, v = np.divmod(taken[first:last], n)
    inside = (v >= col.start) & (v < col.stop)
    scores[u[inside] - row.start, v[inside] - col.start] = -np.inf
    u, v = np.arange(row.start, row.stop)[:, None], np.arange(col.start, col.stop)
    scores[(u == v) if graph.directed else (u >= v)] = -np.inf


def _kth_largest(scores: FloatArray, k: int) -> float:
    """The k-th largest finite score of a block; the smallest finite number if it has fewer than k."""
    lowest = float(np.finfo(np.float64).min)
    if scores.size < k:
        return lowest
    return max(lowest, float(np.partition(scores, scores.size - k, axis=None)[scores.size - k]))


def _scores_alone(left: FloatArray, right: FloatArray, keys: IntArray, num_nodes: int) -> FloatArray:
    """Each pair's score as a sum over its own row, which no other pair influences; (u, v) as (v, u)."""
    u, v = keys // num_nodes, keys % num_nodes
    return np.asarray((left[u] * right[v]).sum(axis=1))


def _known_edges(predictor: CalibratedLinkPredictor, exclude: Tensor | None) -> Tensor | None:
    if not hasattr(predictor, "graph_"):
        raise NotFittedError("predictor must be fitted first, call fit")
    known = [] if predictor.held_out_ is None else [predictor.held_out_.cpu()]
    if exclude is not None:
        known.append(check_edge_index(exclude, predictor.graph_.num_nodes, "exclude").cpu())
    return torch.cat(known, dim=1) if known else None


def _taken_keys(graph: Graph, exclude: Tensor | None) -> IntArray:
    edges = graph.edge_index
    if exclude is not None:
        edges = torch.cat([edges, exclude.to(edges)], dim=1)
    return np.unique(pair_keys(edges, graph.num_nodes, directed=graph.directed).cpu().numpy())


def _contains(sorted_keys: IntArray, keys: IntArray) -> NDArray[np.bool_]:
    if not sorted_keys.size:
        return np.zeros(keys.size, dtype=bool)
    place = np.minimum(np.searchsorted(sorted_keys, keys), sorted_keys.size - 1)
    return np.asarray(sorted_keys[place] == keys)


def _product_form(predictor: CalibratedLinkPredictor) -> tuple[Tensor, float]:
    model = unwrap_link_predictor(predictor.predictor)
    if isinstance(model, LinkPredictor):
        form = model.product_form()
        if form is not None:
            return form[0].detach(), float(form[1].detach())
    if isinstance(model, GAE) and isinstance(model.decoder, InnerProductDecoder):
        return torch.ones(1), 0.0
    raise UnsupportedModelError(
        "model must score a pair by a weighted inner product of its node embeddings (see "
        f"LinkPredictor.product_form) or embed pairs itself, got {type(model).__name__}"
    )


def _top_two_hop_pairs(
    predictor: CalibratedLinkPredictor, k: int, chunk_size: int, exclude: Tensor | None
) -> Tensor:
    """The k best pairs with a common neighbour and no edge, by the predictor's own logits."""
    graph = predictor.graph_
    taken = _taken_keys(graph, exclude)
    best = _Best(k, 0.0)
    for keys in _two_hop_keys(graph, chunk_size):
        free = keys[~_contains(taken, keys)]
        for start in range(0, free.size, chunk_size):
            part = free[start : start + chunk_size]
            pairs = torch.from_numpy(np.stack([part // graph.num_nodes, part % graph.num_nodes]))
            best.offer(predictor.score(pairs).logit.cpu().numpy().astype(np.float64), part)
    _, keys = best.answer()
    return torch.from_numpy(np.stack([keys // graph.num_nodes, keys % graph.num_nodes]))


def _two_hop_keys(graph: Graph, chunk_size: int) -> Iterator[IntArray]:
    """Keys of the pairs that share a neighbour (direction of edges ignored), some rows at a time."""
    n = graph.num_nodes
    row, col = graph.edge_index.cpu().numpy()
    ones = np.ones(2 * row.size, dtype=np.int8)
    adjacency = csr_matrix((ones, (np.concatenate([row, col]), np.concatenate([col, row]))), shape=(n, n))
    adjacency.data[:] = 1
    degree = np.diff(adjacency.indptr)
    # Pairs that a row of the square lists at most, and rows that stay within the chunk together.
    cost = np.cumsum(adjacency @ degree.astype(np.int64))
    start = 0
    while start < n:
        spent = cost[start - 1] if start else 0
        stop = max(int(np.searchsorted(cost, spent + chunk_size, side="right")), start + 1)
        square = (adjacency[start:stop].astype(bool) @ adjacency.astype(bool)).tocoo()
        u, v = square.row.astype(np.int64) + start, square.col.astype(np.int64)
        kept = u != v if graph.directed else u < v
        yield np.unique(u[kept] * n + v[kept])
        start = stop
