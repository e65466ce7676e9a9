"""The most probable missing pairs of a whole graph, in bounded memory."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import expit
from torch import Tensor

from linkcal._core.validation import check_finite, check_positive_int, check_type, to_float64
from linkcal._scoring import BaseRate, known_pair_keys
from linkcal.calibrators import StructuralCalibrator, base_rate_offset
from linkcal.data import Graph, pair_keys
from linkcal.data.negatives import in_sorted
from linkcal.exceptions import FewLinksWarning, InputError, LinkcalWarning, UnsupportedModelError
from linkcal.features import LinkScores
from linkcal.features._structure import neighbour_lists
from linkcal.models import LinkPredictor
from linkcal.models._view import evaluation_view
from linkcal.models.adapter import is_pyg_autoencoder, unwrap_link_predictor
from linkcal.predictor import CalibratedLinkPredictor

__all__ = ["RankedPairs", "most_probable_pairs"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Rounding of a product of matrices, relative to the largest possible score.
_ROUNDING = 1e-12
#: Rounding of adding the bias, relative to the bias.
_BIAS_ROUNDING = 1e-15
#: Pairs that are scored by themselves at once.
_PORTION = 1 << 14
#: Pairs on which a product form is compared with the model's own logits.
_NUM_VERIFIED = 1 << 10
#: Candidates of each source by default, at least.
_CANDIDATES = 10_000
#: Held-out links, and other pairs, among the candidates that a fit needs.
_FEWEST_LINKS = 20
#: Paths that are walked at most, which bounds the time on graphs with large hubs.
_MOST_PATHS = 1 << 32
#: The source of candidates that reads the model; and the others, each with the length of its paths in edges.
_SCORE = "score"
_PATHS = {"resource allocation": 2, "paths of length three": 3}


@dataclass(frozen=True)
class RankedPairs:
    """The most probable missing pairs, best first.

    Parameters
    ----------
    edge_label_index : Tensor [2, n], int64
        Smaller index first in an undirected graph, source node first in a bipartite one.
    logit : Tensor [n], float64
        The model's uncalibrated scores.
    probability : Tensor [n], float64
    negatives_per_positive, base_rate : float
        For which the probabilities hold. Among ALL pairs links are far rarer than among the calibration
        links: state a `base_rate`.
    sources : tuple of str
        What nominated candidates; ``("score",)`` alone: the order is the model's, among all missing pairs.
    num_candidates, num_held_out : int
        Pairs that were ordered, and held-out links among them that the order was fitted to.
    """

    edge_label_index: Tensor
    logit: Tensor
    probability: Tensor
    negatives_per_positive: float
    base_rate: float
    sources: tuple[str, ...]
    num_candidates: int
    num_held_out: int = 0


def most_probable_pairs(
    predictor: CalibratedLinkPredictor,
    k: int,
    *,
    candidates: int | None = None,
    chunk_size: int = 1 << 18,
    exclude: Tensor | None = None,
    base_rate: BaseRate | None = None,
) -> RankedPairs:
    """The k most probable pairs that are no known edge, with their probabilities.

    Parameters
    ----------
    predictor : CalibratedLinkPredictor
    k : int
        Fewer are returned if there are fewer candidates.
    candidates : int, optional
        Missing pairs that each source nominates, at least `k`; by default 10,000, or 2 k where that is more.
        Sources are the score (where the model's logit is a weighted inner product of node embeddings),
        resource allocation, and degree-normalised paths of length three.
    chunk_size : int
        Pairs scored at once; the result does not depend on it, up to rounding.
    exclude : Tensor [2, K], optional
        More pairs to leave out, in either order in an undirected graph; the predictor's ``held_out_`` are
        never listed, but fitted to, also where they are among these.
    base_rate : float in (0, 1) or "density", optional
        Share of links among ALL missing pairs; ``"density"`` supposes about as many missing links as edges.
        Without it the probabilities hold for ``predictor.base_rate`` and are far too high as shares among
        all pairs.

    Notes
    -----
    A calibrator that reads the logit alone keeps the model's order: then no paths are walked, and the k pairs
    are exactly those of the highest score among all missing pairs.

    Other calibrators order the candidates of all sources. Calibration links show next to nothing of the few
    most probable of millions of pairs. So a :class:`~linkcal.StructuralCalibrator` is fitted anew, on the
    candidates: V held-out links against M other missing pairs, T of which are links (the base rate states
    T / M). Where the odds of the fit are o, a share ``min(1, o T / V)`` of the others are links, if held-out
    links are a random sample of the links outside the graph (docs/decisions.md has the derivation). Without a
    base rate ``o M / V`` is taken for the likelihood ratio at ``predictor.base_rate``: a rough estimate.
    With fewer than 20 held-out links, or others, a FewLinksWarning is raised: order and probability are then
    the predictor's, as for other calibrators.

    Memory is that of the graph, of z in float64, of the candidates' columns, and of a few arrays of
    `chunk_size`; no N x N array is made.

    Examples
    --------
    >>> from linkcal import CalibratedLinkPredictor, StructuralCalibrator
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import make_model
    >>> split = split_links(simulate_graph(200, num_edges=600, num_features=10, seed=0), seed=0)
    >>> clp = CalibratedLinkPredictor(make_model("gcn", 10), StructuralCalibrator()).fit(split)
    >>> ranked = most_probable_pairs(clp, 5, base_rate="density")
    >>> ranked.edge_label_index.shape, bool(split.graph.has_pairs(ranked.edge_label_index).any())
    (torch.Size([2, 5]), False)
    >>> ranked.sources
    ('score', 'resource allocation', 'paths of length three')
    """
    check_type(predictor, CalibratedLinkPredictor, "predictor")
    k = check_positive_int(k, "k")
    chunk_size = check_positive_int(chunk_size, "chunk_size")
    number = max(_CANDIDATES, 2 * k) if candidates is None else check_positive_int(candidates, "candidates")
    if number < k:
        raise InputError(f"candidates must be at least k = {k}, got {number}")
    rate = predictor.base_rate if base_rate is None else predictor.resolve_base_rate(base_rate)
    at_calibration = base_rate is None and "base_rate" not in predictor.info_
    odds = float(predictor.info_["negatives_per_positive"]) if at_calibration else (1.0 - rate) / rate
    graph, form, calibrator = predictor.graph_, _product_form(predictor), predictor.calibrator_
    if exclude is not None:
        exclude = graph.check_pairs(exclude, "exclude")
    known = known_pair_keys(graph, exclude, predictor.held_out_)
    missing, device = graph.num_possible_pairs - known.size, graph.edge_index.device
    if form is not None and calibrator.link_features == "none":
        pairs, logit = _top_scores(predictor, form, k, known=known, chunk_size=chunk_size)
        scores = _with_logit(predictor.scorer().score(pairs.to(device)), logit.to(device))
        probability = predictor.probability_of(scores, base_rate=base_rate)
        return RankedPairs(pairs, logit.to(device), probability, odds, rate, (_SCORE,), missing)
    refit = calibrator.refitted if isinstance(calibrator, StructuralCalibrator) else None
    # Held-out links are candidates where something is fitted to them, excluded or not.
    edges = known_pair_keys(graph) if refit else known
    links = np.setdiff1d(known_pair_keys(graph, predictor.held_out_), edges)
    search: Any = {"known": np.setdiff1d(known, links), "chunk_size": chunk_size}
    nominated: dict[str, IntArray] = {}
    if form is not None:
        pairs, _ = _top_scores(predictor, form, number, **search)
        nominated[_SCORE] = pair_keys(pairs, graph.num_nodes, directed=graph.directed).numpy()
    for source, length in _PATHS.items():
        # Where the two nodes of a pair have different types, only paths of odd length join them.
        if graph.node_type is None or length % 2:
            nominated[source] = top_paths(graph, number, length, **search)
    keys = np.unique(np.concatenate(list(nominated.values())))
    pairs = graph.source_first(torch.from_numpy(np.stack(np.divmod(keys, graph.num_nodes))))
    label = in_sorted(links, keys)
    free, linked = np.flatnonzero(~label), int(label.sum())
    X, z = _scored(predictor, pairs, chunk_size, rate)
    shown, fitted_on = expit(z), 0
    if refit and min(linked, free.size) >= _FEWEST_LINKS:
        fitted_on = linked
        z = refit(X, label.astype(np.int64)).decision_function(X) + np.log(missing / links.size)
        z += base_rate_offset(0.5, rate) if at_calibration else np.log(rate)
        shown = expit(z) if at_calibration else np.exp(np.minimum(z, 0.0))
    elif refit and free.size:
        text = f"a fit to the candidates needs {_FEWEST_LINKS} held-out links and as many other pairs, got "
        text += f"{linked:,} and {free.size:,}: order and probabilities are the predictor's"
        warnings.warn(text, FewLinksWarning, stacklevel=2)
    # A map of the logit alone may tie what the model tells apart.
    by = X[:, 0] if calibrator.link_features == "none" else z
    order = free[np.argsort(-by[free], kind="stable")][:k]
    return RankedPairs(
        edge_label_index=pairs[:, order], logit=torch.as_tensor(X[order, 0], device=device),
        probability=torch.as_tensor(shown[order], device=device), negatives_per_positive=odds,
        base_rate=rate, sources=tuple(nominated), num_candidates=free.size, num_held_out=fitted_on,
    )  # fmt: skip


def _top_scores(
    predictor: CalibratedLinkPredictor, form: tuple[Tensor, float], k: int, **search: Any
) -> tuple[Tensor, Tensor]:
    """Pairs and scores of :func:`top_products` for a model of a product form."""
    z = predictor.node_embeddings()
    _verify_product_form(predictor, z, *form)
    return top_products(z, predictor.graph_, k, weight=form[0], bias=form[1], **search)


def _scored(
    predictor: CalibratedLinkPredictor, pairs: Tensor, chunk_size: int, rate: float
) -> tuple[FloatArray, FloatArray]:
    """What the calibrator reads of pairs, (n, 1 + k), and their calibrated logits (n,) at a base rate."""
    scorer, kind, X, z = predictor.scorer(), predictor.calibrator_.link_features, [], []
    for part in pairs.split(chunk_size, dim=1):
        scores = scorer.score(part.to(predictor.graph_.edge_index.device))
        X.append(check_finite(scores.to_matrix(kind), "logits of the model"))
        z.append(to_float64(predictor.logit_of(scores, base_rate=rate)))
    return np.concatenate(X), np.concatenate(z)


def top_paths(
    graph: Graph,
    k: int,
    length: int,
    *,
    known: IntArray,
    chunk_size: int = 1 << 18,
    weight: Callable[[FloatArray], FloatArray] = lambda paths: 1.0 / np.sqrt(paths),
) -> IntArray:
    """Keys of the k pairs without a `known` key that paths of a length join most, best first, ties by key.

    Of length 2: resource allocation, ``sum_w 1 / d_w``. Of length 3: ``sum_ab A_ab / sqrt(d_a d_b)``. As in
    :func:`linkcal.features.pair_structure`, without their target link, which only a pair against the
    direction of an edge has. `weight` is given ``d_w d_w`` or ``d_a d_b``, the paths over a node or an edge.
    Where more than ``_MOST_PATHS`` paths would have to be walked, those between the largest degrees, which
    count least, are left out, and a LinkcalWarning states the share.
    """
    n, rows = graph.num_nodes, graph.ends[0].cpu().numpy()
    starts, neighbours = neighbour_lists(graph)
    degree = np.diff(starts).astype(np.float64)
    adjacency = csr_matrix((np.ones(neighbours.size), neighbours, starts), shape=(n, n))
    # What lies between the ends of a path: a node, or an edge; and how many paths lead over it.
    nodes = np.arange(n)
    first, last = (nodes, nodes) if length == 2 else (np.repeat(nodes, np.diff(starts)), neighbours)
    paths = degree[first] * degree[last]
    walked = np.argsort(paths, kind="stable")
    total = np.cumsum(paths[walked])
    walked = walked[: np.searchsorted(total, _MOST_PATHS, side="right")]
    if walked.size < paths.size:
        text = f"walked {paths[walked].sum() / total[-1]:.1%} of {total[-1]:,.0f} paths of length {length}: "
        text += "those between the largest degrees, which count least, were left out"
        warnings.warn(text, LinkcalWarning, stacklevel=3)
    walked = walked[paths[walked] > 1]  # another path only leads back
    ends = first[walked], last[walked]
    between = csr_matrix((weight(paths[walked]), ends), shape=(n, n))
    # Over a target link lead the paths that come from, or go to, the other end.
    over = np.asarray(between.sum(axis=1)).ravel()
    tail, head = graph.edge_index.cpu().numpy()
    against = np.sort(_keys(head, tail, graph)) if length == 3 else known[:0]
    reached = adjacency @ np.bincount(ends[0], weights=degree[ends[1]], minlength=n)
    # Entries that rows of the product have at most, and rows that stay within the chunk together.
    cost = np.cumsum(np.minimum(reached[rows], n))
    best, start = Best(k, 0.0), 0
    while start < rows.size:
        spent = cost[start - 1] if start else 0.0
        stop = max(int(np.searchsorted(cost, spent + chunk_size, side="right")), start + 1)
        sums = (adjacency[rows[start:stop]] @ between @ adjacency).tocoo()
        u, v = rows[sums.row + start], sums.col.astype(np.int64)
        kept = (sums.data >= best.bound) & ((u != v) if graph.ordered_pairs else (u < v))
        keys = _keys(u[kept], v[kept], graph)
        free = ~in_sorted(known, keys)
        u, v, value, keys = u[kept][free], v[kept][free], sums.data[kept][free], keys[free]
        back = np.flatnonzero(in_sorted(against, keys))
        if back.size:
            u, v = u[back], v[back]
            value[back] -= over[u] + over[v] - np.asarray(between[u, v]).ravel()
            value[back] *= value[back] > 1e-9 * over[u]  # else rounding of 0
        there = value > 0.0
        best.offer(value[there], keys[there])
        start = stop
    return best.answer()[1]


def _with_logit(scores: LinkScores, logit: Tensor) -> LinkScores:
    """Scores with the logits [n], float64, by which pairs were ranked; the effect of target links stays."""
    toggled = scores.toggled
    logit = logit.to(toggled.logit_absent.device)
    added = toggled.logit_present.to(logit) - toggled.logit_absent.to(logit)
    return replace(scores, toggled=replace(toggled, logit_absent=logit, logit_present=logit + added))


def _product_form(predictor: CalibratedLinkPredictor) -> tuple[Tensor, float] | None:
    model = unwrap_link_predictor(predictor.predictor)
    if isinstance(model, LinkPredictor) and (form := model.product_form()) is not None:
        return form[0].detach(), float(form[1].detach())
    return (torch.ones(1), 0.0) if is_pyg_autoencoder(model) else None


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


class Best:
    """The k best of what was offered: largest scores first, equal ones by the smaller key."""

    def __init__(self, k: int, margin: float) -> None:
        self.k, self.margin = k, margin
        self._parts: list[tuple[FloatArray, IntArray]] = [(np.empty(0), np.empty(0, dtype=np.int64))]
        self._held = 0
        #: Score and key of the k-th best when last selected; what is no better takes no part.
        self._last: tuple[float, int] | None = None

    @property
    def bound(self) -> float:
        """Block scores below this cannot belong to the k best."""
        return -math.inf if self._last is None else self._last[0] - self.margin

    def offer(self, score: FloatArray, key: IntArray) -> None:
        """Take candidates in; the k best of all offers are kept, ties by key."""
        if self._last is not None:
            last_score, last_key = self._last
            better = (score > last_score) | ((score == last_score) & (key < last_key))
            score, key = score[better], key[better]
        self._parts.append((score, key))
        self._held += key.size
        # The first k give a bound at once; later ones wait until selecting is cheap per candidate.
        if self._held >= (self.k if self._last is None else 2 * self.k):
            self._select()

    def _select(self) -> None:
        score, key = self.answer()
        self._parts, self._held = [(score, key)], key.size
        self._last = float(score[-1]), int(key[-1])

    def answer(self) -> tuple[FloatArray, IntArray]:
        """Scores and keys of the k best, sorted; fewer if fewer were offered."""
        score, key = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.lexsort([key, -score])[: self.k]
        return score[order], key[order]


def top_products(
    z: Tensor,
    graph: Graph,
    k: int,
    *,
    weight: Tensor | None = None,
    bias: float = 0.0,
    chunk_size: int = 1 << 18,
    known: IntArray | None = None,
) -> tuple[Tensor, Tensor]:
    """Missing pairs with the largest ``sum_k w_k z_uk z_vk + b``, exactly, best first, ties by (u, v).

    Self-pairs and pairs with `known` keys, by default the edges of `graph`, are left out; `weight` is [d] or
    [1]. Returns pairs [2, n], n <= k, and scores [n], float64. The rounding of a matrix product depends on
    the block's shape. So blocks only nominate: every pair within rounding of the k-th best is scored again
    by itself in float64, and no `chunk_size` changes the list. Nodes are ordered by length: a block whose
    lengths multiply to less than the k-th best score so far is not computed (Cauchy and Schwarz).
    """
    n, left = graph.num_nodes, check_finite(to_float64(z), "z")
    right = left if weight is None else left * check_finite(to_float64(weight), "weight")
    check_finite(np.array(bias), "bias")
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1)
    largest = float(lengths[0].max() * lengths[1].max())
    if not math.isfinite(largest + abs(bias)):
        raise InputError("z must have inner products below 1.8e308, got longer ones: scale the embeddings")
    order = np.argsort(-lengths[0] * lengths[1], kind="stable")
    kind = None if graph.node_type is None else graph.node_type.cpu().numpy()[order]
    rows, cols = (order, order) if kind is None else (order[kind == 0], order[kind == 1])
    a, a_length, b, b_length = left[rows], lengths[0][rows], right[cols], lengths[1][cols]
    known = known_pair_keys(graph) if known is None else known
    margin = _ROUNDING * largest + _BIAS_ROUNDING * abs(bias)
    best = Best(k, margin)
    for row, col in _tiles(rows.size, cols.size, chunk_size):
        if not graph.ordered_pairs and col.stop <= row.start + 1:
            continue
        bound = best.bound - bias
        if a_length[row].max() * b_length[col].max() < bound - margin:
            continue
        i, j = np.nonzero(a[row] @ b[col].T >= bound)
        i, j = i + row.start, j + col.start
        if kind is None:  # no self-pair, and each unordered pair once
            apart = i != j if graph.directed else i < j
            i, j = i[apart], j[apart]
        keys = _keys(rows[i], cols[j], graph)
        keys = keys[~in_sorted(known, keys)]
        best.offer(_scores_alone(left, right, keys, n) + bias, keys)
    score, keys = best.answer()
    return graph.source_first(torch.from_numpy(np.stack(np.divmod(keys, n)))), torch.from_numpy(score)


def _tiles(num_rows: int, num_cols: int, chunk_size: int) -> Iterator[tuple[slice, slice]]:
    """Blocks that cover all pairs, as square as may be, of at most `chunk_size` pairs."""
    height = min(num_rows, max(1, math.isqrt(chunk_size)))
    width = min(num_cols, chunk_size // height)
    for row in range(0, num_rows, height):
        for col in range(0, num_cols, width):
            yield slice(row, min(row + height, num_rows)), slice(col, min(col + width, num_cols))


def _keys(u: IntArray, v: IntArray, graph: Graph) -> IntArray:
    """One number for each pair, the smaller node first in an undirected graph."""
    if not graph.directed:
        u, v = np.minimum(u, v), np.maximum(u, v)
    return u * graph.num_nodes + v


def _scores_alone(left: FloatArray, right: FloatArray, keys: IntArray, num_nodes: int) -> FloatArray:
    """Each pair's score as a sum over its own row, which no other pair influences; (u, v) as (v, u)."""
    score = np.empty(keys.size)
    for start in range(0, keys.size, _PORTION):
        u, v = np.divmod(keys[start : start + _PORTION], num_nodes)
        first, second = np.minimum(u, v), np.maximum(u, v)
        score[start : start + _PORTION] = (left[first] * right[second]).sum(axis=1)
    return score
