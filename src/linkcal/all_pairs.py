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
from linkcal._products import Best, taken_keys, top_products
from linkcal._scoring import BaseRate
from linkcal.data import Graph
from linkcal.data.graph import neighbour_rows
from linkcal.data.negatives import in_sorted
from linkcal.exceptions import InputError, NotFittedError, UnsupportedModelError
from linkcal.features import LinkScorer, LinkScores
from linkcal.models import LinkPredictor, PairPredictor, unwrap_link_predictor
from linkcal.models.adapter import is_pyg_autoencoder
from linkcal.predictor import CalibratedLinkPredictor

__all__ = ["ALL_MISSING", "AT_DISTANCE_2", "RankedPairs", "most_probable_pairs", "top_two_hop_pairs"]


# The best pairs with a common neighbour, for models that score each pair by itself.

IntArray = NDArray[np.int64]


def top_two_hop_pairs(
    graph: Graph, score: Callable[[Tensor], Tensor], k: int, chunk_size: int, exclude: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Pairs [2, n] with a common neighbour and no edge whose `score` (pairs [2, L] to [L]) is largest.

    Parameters
    ----------
    graph : Graph
    score : callable
        Pairs [2, L] to scores [L]; called with at most `chunk_size` pairs.
    k : int
        n is k, or the number of such pairs if they are fewer.
    chunk_size : int
    exclude : Tensor [2, K], optional
        More known edges to leave out.

    Returns
    -------
    pairs : Tensor [2, n], int64
        Best first; equal scores stand in the order of (u, v).
    score : Tensor [n], float64
    """
    taken = taken_keys(graph, exclude)
    best = Best(k, 0.0)
    for keys in _two_hop_keys(graph, chunk_size):
        free = keys[~in_sorted(taken, keys)]
        for start in range(0, free.size, chunk_size):
            part = free[start : start + chunk_size]
            asked = torch.from_numpy(np.stack([part // graph.num_nodes, part % graph.num_nodes]))
            best.offer(check_finite(to_float64(score(asked)), "logits of the model"), part)
    scores, keys = best.answer()
    pairs = np.stack([keys // graph.num_nodes, keys % graph.num_nodes])
    return torch.from_numpy(pairs), torch.from_numpy(scores)


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


# The most probable missing pairs by a fitted predictor, with their probabilities.

#: What a ranking chooses from: every missing pair, or those with a common neighbour.
ALL_MISSING = "all missing pairs"
AT_DISTANCE_2 = "missing pairs at distance 2"


@dataclass(frozen=True)
class RankedPairs:
    """The most probable missing pairs, best first.

    Parameters
    ----------
    edge_label_index : Tensor [2, n], int64
        Smaller index first in an undirected graph.
    logit : Tensor [n], float64
        The model's uncalibrated scores, which the order is made of unless pairs were reranked: falling, equal
        ones by (u, v). For node embeddings the product form summed in float64, which differs from what the
        model computes in its own dtype by that dtype's rounding; for a PairPredictor what the model gave
        while pairs were ranked.
    probability : Tensor [n], float64
        These logits calibrated, for the share of links `base_rate`.
    negatives_per_positive : float
        Negatives per link for which the probabilities hold, ``(1 - base_rate) / base_rate``. Among ALL pairs
        links are far rarer than among the calibration links; ask for ``base_rate="density"``.
    candidates : str
        What was ranked: ``"all missing pairs"`` or ``"missing pairs at distance 2"``.
    base_rate : float
        Share of links for which the probabilities hold.
    reranked : int
        Of how many pairs that the model scores highest these are the most probable; 0 if they stand in the
        model's order.
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
    """Rank all pairs that are no edge of the message-passing graph by the model's score and keep the best k.

    Parameters
    ----------
    predictor : CalibratedLinkPredictor
        Fitted, around a model whose logit is a (weighted) inner product of node embeddings, or a
        :class:`~linkcal.models.PairPredictor`.
    k : int
        Fewer come back if the graph has fewer missing pairs.
    chunk_size : int
        Pairs scored at once; the answer does not depend on it (for a PairPredictor and with `rerank`, up to
        the rounding of the model's batches).
    exclude : Tensor [2, K], optional
        More known edges to leave out, for instance ``split.held_out_edges()``; the predictor's own
        `held_out_` are left out in any case.
    base_rate : float in (0, 1) or "density", optional
        Share of links among ALL missing pairs, as in ``predictor.predict_proba``. Without it the
        probabilities hold for ``predictor.base_rate`` and are far too high as shares among all pairs.
    rerank : int, optional
        Take so many best by the model's score, at least `k`, and of these the k most probable, by falling
        calibrated logit (equal ones stay in the model's order). For calibrators that read more than the
        score; see Notes.

    Returns
    -------
    RankedPairs

    Raises
    ------
    NotFittedError
        If the predictor is not fitted.
    UnsupportedModelError
        If the decoder is neither kind.
    InputError
        If `k`, `chunk_size` or `rerank` is no whole number of at least 1, `rerank` is below `k`, `exclude`
        names other nodes, or `base_rate` is not one.

    Notes
    -----
    The order is that of the uncalibrated `logit`: among pairs on which a calibrator gives equal probabilities
    it still tells better from worse. A calibrator that is not increasing in the logit (binning, or one that
    reads link features) may put the probabilities in another order, that of `rerank`. Which of the two orders
    finds more links depends on the graph, since so far up among all pairs there was next to no calibration
    link: see docs/decisions.md for measurements on seven graphs.

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
    wanted = k if rerank is None else check_positive_int(rerank, "rerank")
    if wanted < k:
        raise InputError(f"rerank must be at least k = {k}, got {wanted}")
    exclude = _known_edges(predictor, exclude)
    rate = predictor.base_rate if base_rate is None else predictor.resolve_base_rate(base_rate)
    scorer, device = predictor.scorer(), predictor.graph_.edge_index.device
    stated = base_rate is None and "base_rate" not in predictor.info_
    ratio = float(predictor.info_["negatives_per_positive"]) if stated else (1.0 - rate) / rate
    if isinstance(predictor.predictor, PairPredictor):
        pairs, logit = top_two_hop_pairs(
            predictor.graph_, lambda asked: scorer.score(asked.to(device)).logit, wanted, chunk_size, exclude
        )
        candidates = AT_DISTANCE_2
    else:
        weight, bias = _product_form(predictor)
        pairs, logit = top_products(
            predictor.node_embeddings(),
            predictor.graph_,
            wanted,
            weight=weight,
            bias=bias,
            chunk_size=chunk_size,
            exclude=exclude,
        )
        candidates = ALL_MISSING
    reranked, logit = 0, logit.to(device)
    if rerank is None:
        scores = _with_logit(scorer.score(pairs.to(device)), logit)
        probability = predictor.probability_of(scores, base_rate=base_rate)
    else:
        reranked = logit.numel()
        rows, probability = _most_probable_rows(predictor, scorer, pairs, logit, k, chunk_size, base_rate)
        pairs, logit = pairs[:, rows.cpu()], logit[rows]
    return RankedPairs(
        edge_label_index=pairs,
        logit=logit,
        probability=probability,
        negatives_per_positive=ratio,
        candidates=candidates,
        base_rate=rate,
        reranked=reranked,
    )


def _most_probable_rows(
    predictor: CalibratedLinkPredictor,
    scorer: LinkScorer,
    pairs: Tensor,
    logit: Tensor,
    k: int,
    chunk_size: int,
    base_rate: BaseRate | None,
) -> tuple[Tensor, Tensor]:
    """Rows of the k pairs with the largest calibrated logits, falling, equal ones as they stand; their p."""
    calibrated, probability = [], []
    for some, known in zip(pairs.split(chunk_size, dim=1), logit.split(chunk_size), strict=True):
        scores = _with_logit(scorer.score(some.to(logit.device)), known)
        calibrated.append(predictor.logit_of(scores))
        # Not made again for the k alone: what a model says rounds with its batches.
        probability.append(predictor.probability_of(scores, base_rate=base_rate))
    rows = torch.cat(calibrated).argsort(descending=True, stable=True)[:k]
    return rows, torch.cat(probability)[rows]


def _known_edges(predictor: CalibratedLinkPredictor, exclude: Tensor | None) -> Tensor | None:
    if not hasattr(predictor, "graph_"):
        raise NotFittedError("predictor must be fitted first, call fit")
    known = [] if predictor.held_out_ is None else [predictor.held_out_.cpu()]
    if exclude is not None:
        known.append(check_edge_index(exclude, predictor.graph_.num_nodes, "exclude").cpu())
    return torch.cat(known, dim=1) if known else None


def _with_logit(scores: LinkScores, logit: Tensor) -> LinkScores:
    """Scores of missing pairs with the logits [n], float64, by which they were ranked.

    What the target link would add stays what it was.
    """
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
