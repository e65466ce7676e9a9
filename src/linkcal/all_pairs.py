"""The most probable missing pairs of a whole graph, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from linkcal._core.validation import check_edge_index, check_finite, check_positive_int, to_float64
from linkcal._products import Best, top_products
from linkcal._scoring import BaseRate, known_pair_keys
from linkcal.data import Graph
from linkcal.data.graph import neighbour_rows
from linkcal.data.negatives import in_sorted
from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.features import LinkScores
from linkcal.models import LinkPredictor, PairPredictor, unwrap_link_predictor
from linkcal.models._view import evaluation_view
from linkcal.models.adapter import is_pyg_autoencoder
from linkcal.predictor import CalibratedLinkPredictor

__all__ = ["ALL_MISSING", "AT_DISTANCE_2", "RankedPairs", "most_probable_pairs"]

IntArray = NDArray[np.int64]


#: What a ranking chooses from: every missing pair, or those with a common neighbour.
ALL_MISSING = "all missing pairs"
AT_DISTANCE_2 = "missing pairs at distance 2"
#: Pairs on which a product form is compared with the model's own logits.
_NUM_VERIFIED = 1 << 10


@dataclass(frozen=True)
class RankedPairs:
    """The most probable missing pairs, best first.

    Parameters
    ----------
    edge_label_index : Tensor [2, n], int64
        Smaller index first in an undirected graph.
    logit : Tensor [n], float64
        Uncalibrated scores, falling unless reranked, ties by (u, v). Inner products are summed in float64, so
        they differ from the model's own logits by rounding.
    probability : Tensor [n], float64
    negatives_per_positive, base_rate : float
        For which the probabilities hold. Among ALL pairs links are far rarer than among the calibration
        links: use ``base_rate="density"``.
    candidates : str
        What was ranked: ``"all missing pairs"`` or ``"missing pairs at distance 2"``.
    reranked : int
        How many of the highest-scoring pairs were re-ordered by calibrated probability; 0 for none.
    """

    edge_label_index: Tensor
    logit: Tensor
    probability: Tensor
    negatives_per_positive: float
    candidates: str
    base_rate: float
    reranked: int = 0


def most_probable_pairs(
    predictor: CalibratedLinkPredictor,
    k: int,
    *,
    chunk_size: int = 1 << 18,
    exclude: Tensor | None = None,
    base_rate: BaseRate | None = None,
    rerank: int | None = None,
) -> RankedPairs:
    """The k highest-scoring pairs that are no edge of the message-passing graph, with their probabilities.

    Parameters
    ----------
    predictor : CalibratedLinkPredictor
        Fitted, around a model whose logit is a (weighted) inner product of node embeddings, or a
        :class:`~linkcal.models.PairPredictor`, which ranks only pairs with a common neighbour. Other decoders
        raise UnsupportedModelError.
    k : int
        Fewer are returned if the graph has fewer missing pairs.
    chunk_size : int
        Pairs scored at once; the result does not depend on it (for a PairPredictor and with `rerank`, up to
        rounding).
    exclude : Tensor [2, K], optional
        More known edges to leave out; the predictor's own `held_out_` always are.
    base_rate : float in (0, 1) or "density", optional
        Share of links among ALL missing pairs. Without it the probabilities hold for ``predictor.base_rate``
        and are far too high as shares among all pairs.
    rerank : int, optional
        Re-order so many highest-scoring pairs, at least `k`, by calibrated logit and keep the first k.

    Returns
    -------
    RankedPairs

    Notes
    -----
    Calibrators that are not increasing in the logit (binning, or those that read link features) may order
    pairs differently from the model: use `rerank`; docs/decisions.md compares both orders. Memory is that of
    the graph, of z in float64, and of a few arrays of `chunk_size`; no N x N array is made.

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
    wanted = k if rerank is None else check_positive_int(rerank, "rerank")
    if wanted < k:
        raise InputError(f"rerank must be at least k = {k}, got {wanted}")
    rate = predictor.base_rate if base_rate is None else predictor.resolve_base_rate(base_rate)
    at_calibration = base_rate is None and "base_rate" not in predictor.info_
    scorer, graph = predictor.scorer(), predictor.graph_
    device = graph.edge_index.device
    if exclude is not None:
        exclude = check_edge_index(exclude, graph.num_nodes, "exclude")
    known = known_pair_keys(graph, predictor.held_out_, exclude)
    two_hop = isinstance(predictor.predictor, PairPredictor)
    if two_hop:
        pairs, logit = _top_two_hop_pairs(
            graph, lambda part: scorer.score(part.to(device)).logit, wanted, chunk_size, known
        )
    else:
        weight, bias = _product_form(predictor)
        z = predictor.node_embeddings()
        _verify_product_form(predictor, z, weight, bias)
        pairs, logit = top_products(
            z, graph, wanted, weight=weight, bias=bias, chunk_size=chunk_size, known=known
        )
    logit = logit.to(device)
    calibrated, probability = [], []
    size = chunk_size if rerank is not None else max(logit.numel(), 1)
    for part, ranked in zip(pairs.split(size, dim=1), logit.split(size), strict=True):
        scores = _with_logit(scorer.score(part.to(device)), ranked)
        calibrated.append(ranked if rerank is None else predictor.logit_of(scores))
        # Not made again for the k alone: a model's logits round with its batches.
        probability.append(predictor.probability_of(scores, base_rate=base_rate))
    order = torch.cat(calibrated).argsort(descending=True, stable=True)[:k]
    return RankedPairs(
        edge_label_index=pairs[:, order.cpu()],
        logit=logit[order],
        probability=torch.cat(probability)[order],
        negatives_per_positive=(
            float(predictor.info_["negatives_per_positive"]) if at_calibration else (1.0 - rate) / rate
        ),
        candidates=AT_DISTANCE_2 if two_hop else ALL_MISSING,
        base_rate=rate,
        reranked=0 if rerank is None else logit.numel(),
    )


def _with_logit(scores: LinkScores, logit: Tensor) -> LinkScores:
    """Scores with the logits [n], float64, by which pairs were ranked; the effect of target links stays."""
    toggled = scores.toggled
    logit = logit.to(toggled.logit_absent.device)
    added = toggled.logit_present.to(logit) - toggled.logit_absent.to(logit)
    return replace(scores, toggled=replace(toggled, logit_absent=logit, logit_present=logit + added))


def _product_form(predictor: CalibratedLinkPredictor) -> tuple[Tensor, float]:
    model = unwrap_link_predictor(predictor.predictor)
    if isinstance(model, LinkPredictor):
        form = model.product_form()
        if form is not None:
            return form[0].detach(), float(form[1].detach())
    if is_pyg_autoencoder(model):
        return torch.ones(1), 0.0
    raise UnsupportedModelError(
        "model must score a pair by a weighted inner product of its node embeddings (see "
        f"LinkPredictor.product_form) or embed pairs itself, got {type(model).__name__}"
    )


def _verify_product_form(predictor: CalibratedLinkPredictor, z: Tensor, weight: Tensor, bias: float) -> None:
    """Compare the form with ``decode``, which a hook, a parametrisation or an instance may have changed."""
    model, n = evaluation_view(predictor.predictor), z.size(0)
    u = torch.arange(n, device=z.device).repeat(-(-_NUM_VERIFIED // n))[:_NUM_VERIFIED]
    v = (u * 31 + torch.arange(u.numel(), device=z.device) + 1) % n
    with torch.no_grad():
        decoded = model.decode(z, torch.stack([u, v])).double()  # type: ignore[operator]
    ends = z[u].double() * z[v].double() * weight.double().to(z.device)
    tolerance = 1e3 * torch.finfo(z.dtype).eps * (ends.abs().sum(dim=1) + abs(bias) + 1e-30)
    if bool(((ends.sum(dim=1) + bias - decoded).abs() > tolerance).any()):
        raise UnsupportedModelError(
            "model must decode a pair as its product_form says, got other logits from decode: override "
            f"product_form of {type(unwrap_link_predictor(predictor.predictor)).__name__} to return None"
        )


def _top_two_hop_pairs(
    graph: Graph, score: Callable[[Tensor], Tensor], k: int, chunk_size: int, known: IntArray
) -> tuple[Tensor, Tensor]:
    """Pairs [2, n] with a common neighbour, not `known`, with the largest `score` [n], ties by (u, v)."""
    best = Best(k, 0.0)
    for keys in _two_hop_keys(graph, chunk_size):
        free = keys[~in_sorted(known, keys)]
        for start in range(0, free.size, chunk_size):
            part = free[start : start + chunk_size]
            pairs = torch.from_numpy(np.stack([part // graph.num_nodes, part % graph.num_nodes]))
            best.offer(check_finite(to_float64(score(pairs)), "logits of the model"), part)
    return best.pairs(graph.num_nodes)


def _two_hop_keys(graph: Graph, chunk_size: int) -> Iterator[IntArray]:
    """Keys of the pairs that share a neighbour (direction of edges ignored), some rows at a time."""
    n = graph.num_nodes
    starts, neighbours = neighbour_rows(graph.edge_index, n)
    adjacency = csr_matrix((np.ones(neighbours.size, dtype=np.bool_), neighbours, starts), shape=(n, n))
    # Pairs that a row of the square lists at most, and rows that stay within the chunk together.
    cost = np.cumsum(adjacency @ np.diff(starts))
    start = 0
    while start < n:
        spent = cost[start - 1] if start else 0
        stop = max(int(np.searchsorted(cost, spent + chunk_size, side="right")), start + 1)
        square = (adjacency[start:stop] @ adjacency).tocoo()
        u, v = square.row.astype(np.int64) + start, square.col.astype(np.int64)
        kept = u != v if graph.directed else u < v
        yield np.unique(u[kept] * n + v[kept])
        start = stop
