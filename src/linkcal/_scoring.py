"""What a fitted predictor rests on: scored links, evidence, known pairs, base rates, a fingerprint."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor, nn

from linkcal._core.maths import bernoulli_nll
from linkcal._core.random import numpy_stream
from linkcal._core.validation import check_base_rate, check_edge_index, check_fraction, check_positive_int
from linkcal.calibrators import Calibrator
from linkcal.data import Graph, LinkPairs, LinkSplit, pair_keys, sample_negatives
from linkcal.data.graph import GRAPH_TENSORS
from linkcal.exceptions import InputError, ShortageError, UnsupportedModelError
from linkcal.features import (
    COLUMN_NAMES,
    FitOn,
    LinkScorer,
    LinkScores,
    calibration_links,
    calibration_part,
    score_links,
)
from linkcal.features._scores import scored_state
from linkcal.models._view import evaluation_view
from linkcal.models.adapter import encode_graph, unwrap_link_predictor
from linkcal.models.base import GraphModel, replaced_below

#: Pairs that a fit scores in both orders, to see whether the decoder has a direction.
_TURNED = 64


class FitLinks(NamedTuple):
    """Labelled scores that a fit reads: calibration links and, for some calibrators, others beside them."""

    scores: LinkScores
    validation: LinkScores | None = None  # validation links, where the calibration links are others
    base: LinkScores | None = None  # training links, leave-one-out, for ``fit_on="stacked"``


def score_fit_links(
    model: nn.Module, split: LinkSplit, fit_on: FitOn, *, symmetrise: bool, **options: Any
) -> FitLinks:
    """Score all links that a fit reads, no test links; refuse unequal (u, v) and (v, u) unless averaged."""
    options["symmetrise"] = symmetrise
    part = split.part(calibration_part(fit_on))
    scorer = LinkScorer(model, split.graph, **options)
    scores = scorer.score(part, target_link=scored_state(fit_on))
    _refuse_inherited_declaration(unwrap_link_predictor(model), scores.logit)
    if not (split.graph.ordered_pairs or symmetrise):
        _refuse_directed_decoder(scorer, part.edge_label_index, scores)
    on_val = calibration_part(fit_on) == "val"
    validation = None if on_val else score_links(model, split.graph, split.val, **options)
    base = calibration_links(model, split, "train-loo", **options) if fit_on == "stacked" else None
    return FitLinks(scores, validation, base)


def _refuse_inherited_declaration(model: nn.Module, logit: Tensor) -> None:
    """Refuse what looks like probabilities of a method that the declaring class did not write."""
    cls, methods = type(model), ("decode", "head")
    if not isinstance(model, GraphModel) or not logit.numel() or "decode_returns" in vars(model):
        return
    replaced = replaced_below(cls, "decode_returns", methods) or any(name in vars(model) for name in methods)
    if replaced and bool(((logit >= 0) & (logit <= 1)).all()):
        raise InputError(
            f"{cls.__name__} must declare decode_returns ('logits' or 'probabilities') beside its own decode "
            "or head, got none and values in [0, 1] only: add decode_returns = ... to the class"
        )


def _refuse_directed_decoder(scorer: LinkScorer, pairs: Tensor, scores: LinkScores) -> None:
    number = min(_TURNED, pairs.size(1))
    rows = torch.arange(number, device=pairs.device) * (pairs.size(1) - 1) // max(number - 1, 1)
    turned = scorer.score(pairs[:, rows].flip(0), target_link=scores.target_link).logit
    logit = scores.logit[rows]
    # Far beyond rounding in the model's dtype, far below what matters to a probability.
    allowed = torch.finfo(logit.dtype).eps ** 0.5 * (1.0 + logit.abs())
    difference = (turned - logit).abs()
    if bool((difference > allowed).any()):
        raise InputError(
            "model must score (u, v) and (v, u) of an undirected graph equally, got logits that differ by "
            f"{float(difference.max()):.2g}: give symmetrise=True to average both, or make the graph directed"
        )


def fit_calibrator(calibrator: Calibrator, links: FitLinks) -> Calibrator:
    """Clone of `calibrator` fitted on labelled scores."""
    kind = calibrator.link_features
    fresh = calibrator.clone_for(COLUMN_NAMES.get(kind))
    X, y = links.scores.to_arrays(kind)
    beside = (None if part is None else part.to_arrays(kind) for part in links[1:])
    return fresh.fit(X, y, **links_beside(fresh, *beside))


def calibrated_logits(calibrator: Calibrator, scores: LinkScores) -> NDArray[np.float64]:
    """Calibrated logits (L,) at the base rate of the calibration links."""
    if not len(scores):  # scikit-learn's checks refuse no rows
        return np.empty(0)
    return calibrator.decision_function(scores.to_matrix(calibrator.link_features))


def known_pair_keys(graph: Graph, *more: Tensor | None) -> NDArray[np.int64]:
    """Sorted keys (:func:`linkcal.data.pair_keys`) of the graph's pairs and of `more` known ones [2, K]."""
    parts = [graph.pairs, *(part.to(graph.edge_index) for part in more if part is not None)]
    keys = pair_keys(torch.cat(parts, dim=1), graph.num_nodes, directed=graph.directed)
    return np.unique(keys.cpu().numpy())


def encode_nodes(model: nn.Module, graph: Graph) -> Tensor:
    """Node embeddings z [N, d] on `graph`, in evaluation mode and without gradients."""
    if not hasattr(model, "encode"):
        name = type(unwrap_link_predictor(model)).__name__
        raise UnsupportedModelError(f"model must embed nodes (encode), got {name}: score pairs instead")
    with torch.no_grad():
        return encode_graph(evaluation_view(model), graph)


#: Share of links among the query pairs, or how to estimate it.
BaseRate = float | Literal["density"]


def graph_density(graph: Graph) -> float:
    """Share of all pairs that are edges, in (0, 1); the base rate ``"density"``."""
    density = graph.num_pairs / max(graph.num_possible_pairs, 1)
    return check_fraction(density, "density of the message-passing graph")


def resolved_base_rate(base_rate: BaseRate, graph: Graph, negatives: str | None) -> float:
    """Share of links that `base_rate` stands for; `negatives` is the kind of the calibration negatives."""
    rate = check_base_rate(base_rate, negatives or "uniform")
    return graph_density(graph) if isinstance(rate, str) else rate


def base_rate_origin(base_rate: BaseRate) -> str:
    """Where a base rate comes from, for people."""
    return "density of the message-passing graph" if base_rate == "density" else "given"


#: Null pairs drawn by default; the smallest conformal p-value is about one in as many.
NUM_NULL_PAIRS = 10_000


@dataclass(frozen=True, eq=False)
class Evidence:
    """Calibration links and null pairs. Scores follow from the model, the graph and the calibrator.

    Parameters
    ----------
    calibration : LinkPairs
        With their labels.
    null_pairs : Tensor [2, m], int64
        Of the kind of the split's negatives; none is a known edge or one of those negatives.
    """

    calibration: LinkPairs
    null_pairs: Tensor


def gather_evidence(
    split: LinkSplit,
    fit_on: str,
    *,
    num_null: int = NUM_NULL_PAIRS,
    seed: int | None = None,
    spare_test: bool = False,
) -> Evidence:
    """Calibration links and at most `num_null` null pairs, drawn from the stream ``"null pairs"``.

    `spare_test` leaves test pairs out; otherwise they are not read, a null pair can be a test link, and a
    selection is a little conservative.
    """
    num_null = check_positive_int(num_null, "num_null", minimum=0)
    calibration = split.part(calibration_part(fit_on))
    parts = [split.train, split.val] + ([split.test] if spare_test else [])
    # Degrees and common neighbours of all edges that may be read, as for the split's own negatives.
    links = [part.edge_label_index[:, part.edge_label == 1] for part in parts]
    known, kind = split.graph, split.negatives or "uniform"
    if kind != "heart":
        known = known.with_edges(torch.cat([known.pairs, *links], dim=1))
    seed = (split.seed or 0) if seed is None else seed
    taken = torch.cat([part.edge_label_index for part in parts], dim=1)
    rest: dict[str, Any] = {"kind": kind, "exclude": taken}
    rest["links"] = calibration.edge_label_index[:, calibration.edge_label == 1]
    try:
        null_pairs = sample_negatives(known, num_null, numpy_stream(seed, "null pairs"), **rest)
    except ShortageError as shortage:  # from the same stream, with which so many are available
        null_pairs = sample_negatives(known, shortage.available, numpy_stream(seed, "null pairs"), **rest)
    return Evidence(replace(calibration, positive_rate=None, negative_rate=None), null_pairs)


def updated_graph(
    model: nn.Module, graph: Graph, edge_index: Any, x: Any, node_type: Any, edge_weight: Any
) -> Graph:
    """Other edges, and perhaps other features and more nodes, in the place of a message-passing graph."""
    inner, n, edges = unwrap_link_predictor(model), graph.num_nodes, check_edge_index(edge_index, None)
    name, needed = type(inner).__name__, max(n, int(edges.max()) + 1 if edges.numel() else 0)
    # What a model's `prepare` computes from the edges (PEG's positions) is computed anew.
    positions = isinstance(inner, GraphModel) and inner.features_from_edges
    if graph.x is None and (x is not None or positions or needed > n):
        raise UnsupportedModelError(
            f"model must read node features to take new nodes, got {name} without: train one with features"
        )
    replaced = graph.attributes is not None
    if x is None and graph.features_from_edges and not replaced:
        raise InputError("x must be given where features follow from edges, got None: compute x from the new")
    if x is not None and replaced and not positions:
        raise InputError(f"x must be None where {name} replaced the features, got new ones: leave x out")
    if x is None:
        x = graph.attributes if positions else graph.x
    num_nodes = n if x is None else len(x)
    if num_nodes < needed:
        raise InputError(f"x must have {needed} rows, of the {n} nodes, then of new ones, got {num_nodes}")
    types = graph.node_type if node_type is None else node_type
    for part, given in (("node_type", types), ("edge_weight", edge_weight)):
        if (given is None) != (getattr(graph, part) is None):
            expected, came = ("given", "None") if given is None else ("None", "some")
            raise InputError(f"{part} must be {expected}, as the graph of the fit has it, got {came}")
    parts = {"x": x, "node_type": types, "edge_weight": edge_weight}
    new = Graph.from_edges(edges, num_nodes, directed=graph.directed, name=graph.name, **parts)
    new = new.to(graph.edge_index.device)
    if graph.node_type is not None and not torch.equal(new.node_type[:n], graph.node_type):  # type: ignore[index]
        raise InputError("node_type must keep the types of the fit's nodes, got others: fit on a new split")
    if graph.x is not None and new.x is not None:
        if not positions and new.x.size(1) != graph.x.size(1):
            raise InputError(f"x must have {graph.x.size(1)} columns, as at the fit, got {new.x.size(1)}")
        new = replace(new, x=new.x.to(graph.x.dtype))
    from_edges = graph.features_from_edges and not (positions and replaced)
    new = replace(new, attributes=None if positions else graph.attributes, features_from_edges=from_edges)
    return inner.prepare(new) if isinstance(inner, GraphModel) and positions else new


def graph_shift(calibrator: Calibrator, before: LinkScores, after: LinkScores) -> tuple[dict[str, Any], bool]:
    """Calibrated logits and NLL of labelled links on two graphs; whether the NLL surely rose."""
    y = before.to_arrays()[1].astype(np.float64)
    logits = [calibrated_logits(calibrator, scores) for scores in (before, after)]
    losses = [bernoulli_nll(z, y) for z in logits]
    shift = {
        "mean_logit_links": [float(z[y == 1].mean()) for z in logits],
        "mean_logit_negatives": [float(z[y == 0].mean()) for z in logits],
        "nll": [float(loss.mean()) for loss in losses],
    }
    rise = losses[1] - losses[0]
    return shift, bool(rise.mean() > 2.0 * rise.std() / len(y) ** 0.5)


class Fingerprint:
    """Hashes of a model's weights and of its message-passing graph; about half the cost of encoding it."""

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        self._in_memory, self.weights = _digest(_all_tensors(model)), _digest(plain_state(model))
        self.graph = _graph_digest(graph)

    def difference(self, model: nn.Module, graph: Graph) -> str | None:
        """What is no longer as it was: ``"weights of the model"``, ``"message-passing graph"`` or None."""
        if _digest(_all_tensors(model)) != self._in_memory:
            return "weights of the model"
        return None if _graph_digest(graph) == self.graph else "message-passing graph"


def plain_state(model: nn.Module) -> dict[str, Tensor]:
    """Weights of a model by name, on its device; those of ``torch.compile`` under the original's names."""
    state = unwrap_link_predictor(model).state_dict()
    return {name.replace("_orig_mod.", ""): part for name, part in state.items() if isinstance(part, Tensor)}


def _all_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, also those that no ``state_dict`` holds."""
    model = unwrap_link_predictor(model)
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _graph_digest(graph: Graph) -> str:
    tensors = {name: part for name in GRAPH_TENSORS if (part := getattr(graph, name)) is not None}
    return _digest(tensors, graph.num_nodes, graph.directed)


def _digest(tensors: dict[str, Tensor], *more: object) -> str:
    found = hashlib.sha256(repr(more).encode())
    for name, part in sorted(tensors.items()):
        found.update(f"{name} {part.dtype} {list(part.shape)}".encode())
        part = part.detach().cpu()
        strided = part.layout is torch.strided
        whole = part if strided else part.to_sparse_coo().coalesce()
        for values in (whole,) if strided else (whole.indices(), whole.values()):
            found.update(values.contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def links_beside(
    calibrator: Calibrator, validation: tuple[Any, Any] | None, base: tuple[Any, Any] | None
) -> dict[str, Any]:
    """Those of the links beside (X, y) that the calibrator's ``fit`` has parameters for, by parameter."""
    beside = {}
    for name, links in (("val", validation), ("base", base)):
        if links is not None and has_fit_parameter(calibrator, f"X_{name}"):
            beside[f"X_{name}"], beside[f"y_{name}"] = links
    return beside
