"""What a fitted predictor's answers rest on: fitted calibrators, scores, base rates."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor, nn

from linkcal._core.validation import check_base_rate, check_edge_index, check_fraction
from linkcal.calibrators import Calibrator, base_rate_offset
from linkcal.calibrators.networks import links_beside
from linkcal.data import Graph, LinkSplit, pair_keys
from linkcal.exceptions import NotFittedError, UnsupportedModelError
from linkcal.features import FitOn, LinkScorer, LinkScores, calibration_links, calibration_part, score_links
from linkcal.models import unwrap_link_predictor
from linkcal.models._view import evaluation_view

__all__ = [
    "BaseRate",
    "FitLinks",
    "ScoringMethods",
    "base_rate_origin",
    "fit_calibrator",
    "graph_density",
    "resolved_base_rate",
    "score_fit_links",
]


# What a fitted predictor knows of pairs: scores, known edges, calibrated logits and their base rate.

FloatArray = NDArray[np.float64]

#: Share of links among the pairs asked about, or how to estimate it.
BaseRate = float | Literal["density"]


def graph_density(graph: Graph) -> float:
    """Share of all pairs that are edges, in (0, 1); what the base rate ``"density"`` stands for.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    float in (0, 1)

    Examples
    --------
    >>> graph_density(Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), 3).to("cpu"))  # 2 of 3 pairs
    0.6666666666666666
    """
    return check_fraction(
        graph.num_pairs / max(graph.num_possible_pairs, 1), "density of the message-passing graph"
    )


def resolved_base_rate(base_rate: BaseRate, graph: Graph, negatives: str | None) -> float:
    """Share of links that `base_rate` stands for; see :meth:`ScoringMethods.resolve_base_rate`.

    Parameters
    ----------
    base_rate : float in (0, 1) or "density"
    graph : Graph
        The message-passing graph.
    negatives : str, optional
        Kind of the calibration negatives; None where they are uniform.

    Returns
    -------
    float in (0, 1)

    Raises
    ------
    InputError
        If `base_rate` is another string or not in (0, 1), or is ``"density"`` with other negatives than
        uniform ones.

    Examples
    --------
    >>> resolved_base_rate(0.1, Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), 3), "two-hop")
    0.1
    """
    rate = check_base_rate(base_rate, negatives or "uniform")
    return graph_density(graph) if isinstance(rate, str) else rate


def base_rate_origin(base_rate: BaseRate) -> str:
    """Where an asked base rate comes from, for people.

    Parameters
    ----------
    base_rate : float or "density"

    Returns
    -------
    str

    Examples
    --------
    >>> base_rate_origin("density"), base_rate_origin(0.1)
    ('density of the message-passing graph', 'given')
    """
    return "density of the message-passing graph" if base_rate == "density" else "given"


class ScoringMethods:
    """Scores and calibrated logits of a fitted :class:`~linkcal.CalibratedLinkPredictor`.

    A mixin, so that the predictor's own file stays about fitting, predicting and saving.
    """

    predictor: nn.Module
    calibrator_: Calibrator
    graph_: Graph
    held_out_: Tensor | None
    info_: dict[str, Any]

    def scorer(self, features: str | None = None) -> LinkScorer:
        """Scorer of the message-passing graph, which it encodes once; for pairs that come in chunks.

        The model must not change while it is used.

        Parameters
        ----------
        features : {"none", "embedding", "difference", "structural"}, optional
            Link features that will be asked of the scores; others may not be made. By default those of the
            fitted calibrator, which is what probabilities, intervals and selections need.

        Returns
        -------
        linkcal.features.LinkScorer

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If `features` is unknown.
        """
        self._require_fitted()
        kind = self.calibrator_.link_features if features is None else features
        return LinkScorer(self.predictor, self.graph_, features=kind)

    def score(self, edge_label_index: Tensor) -> LinkScores:
        """Logits, toggled embeddings and all link features of pairs [2, L] on the message-passing graph."""
        self._require_fitted()
        return self.scorer("structural").score(self._placed(edge_label_index))

    def known_edges(self, edge_label_index: Tensor) -> Tensor:
        """Whether each pair [2, L] is an message-passing edge or a held-out one, [L], bool."""
        self._require_fitted()
        graph = self.graph_
        known = [graph.edge_index]
        if self.held_out_ is not None:
            known.append(self.held_out_.to(graph.edge_index.device))
        keys = pair_keys(torch.cat(known, dim=1), graph.num_nodes, directed=graph.directed)
        pairs = check_edge_index(edge_label_index, graph.num_nodes, "edge_label_index")
        asked = pair_keys(pairs.to(keys.device), graph.num_nodes, directed=graph.directed)
        return torch.isin(asked, keys)

    def node_embeddings(self) -> Tensor:
        """Node embeddings z [N, d] on the message-passing graph, in evaluation mode.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        UnsupportedModelError
            If the model embeds pairs, not nodes.
        """
        self._require_fitted()
        encode = getattr(evaluation_view(self.predictor), "encode", None)
        if encode is None:
            name = type(unwrap_link_predictor(self.predictor)).__name__
            raise UnsupportedModelError(f"model must embed nodes (encode), got {name}, which embeds pairs")
        with torch.no_grad():
            z: Tensor = encode(self.graph_.node_input, self.graph_.edge_index)
        return z

    def logit_of(self, scores: LinkScores, *, base_rate: BaseRate | None = None) -> Tensor:
        """Calibrated logits [L], float64, of links that :meth:`score` scored."""
        self._require_fitted()
        logit = self._calibrated(scores)
        rate = self.base_rate if base_rate is None else self.resolve_base_rate(base_rate)
        logit += base_rate_offset(self.calibration_rate, rate)
        return torch.as_tensor(logit, device=scores.logit.device)

    def probability_of(self, scores: LinkScores, *, base_rate: BaseRate | None = None) -> Tensor:
        """Probability [L] of links that :meth:`score` scored, in the dtype of their logits."""
        self._require_fitted()
        if base_rate is not None or "base_rate" in self.info_:
            # From the logit: a probability near 1 has lost the digits that the shift brings back.
            return torch.sigmoid(self.logit_of(scores, base_rate=base_rate)).to(scores.logit.dtype)
        features = scores.features(self.calibrator_.link_features)
        return torch.as_tensor(self.calibrator_.calibrate(scores.logit, features))

    @property
    def calibration_rate(self) -> float:
        """Share of links among the calibration links; probabilities hold for it unless told otherwise."""
        self._require_fitted()
        return 1.0 / (1.0 + float(self.info_["negatives_per_positive"]))

    def resolve_base_rate(self, base_rate: BaseRate) -> float:
        """Share of links that `base_rate` stands for.

        Parameters
        ----------
        base_rate : float in (0, 1) or "density"
            ``"density"`` estimates it as the share of all pairs that are edges of the message-passing graph:
            right for pairs drawn uniformly from a graph as dense as that one.

        Returns
        -------
        float in (0, 1)

        Raises
        ------
        InputError
            If `base_rate` is another string or not in (0, 1), or the density is asked for while the
            calibration negatives were not drawn uniformly: it is a share among all pairs, not among theirs.
        """
        self._require_fitted()
        return resolved_base_rate(base_rate, self.graph_, self.info_.get("negatives"))

    @property
    def base_rate(self) -> float:
        """Share of links for which a probability holds when a call names none."""
        self._require_fitted()
        stated = self.info_.get("base_rate")
        return self.calibration_rate if stated is None else float(stated)

    def _calibrated(self, scores: LinkScores) -> FloatArray:
        if not len(scores):  # scikit-learn's checks refuse no rows
            return np.empty(0)
        return self.calibrator_.decision_function(scores.to_matrix(self.calibrator_.link_features))

    def _placed(self, pairs: Tensor) -> Tensor:
        checked = check_edge_index(pairs, self.graph_.num_nodes, "edge_label_index")
        return checked.to(self.graph_.edge_index.device)

    def _require_fitted(self) -> None:
        if not hasattr(self, "calibrator_"):
            raise NotFittedError(f"{type(self).__name__} must be fitted first, call fit")


# Fitting a calibrator on scored links.


class FitLinks(NamedTuple):
    """Labelled scores that a fit reads.

    Parameters
    ----------
    scores : LinkScores
        The calibration links.
    validation : LinkScores, optional
        Validation links where the calibration links are others: some calibrators choose something on them.
    base : LinkScores, optional
        Training links, leave-one-out, under those of ``fit_on="stacked"``.
    """

    scores: LinkScores
    validation: LinkScores | None = None
    base: LinkScores | None = None


def score_fit_links(
    model: nn.Module, split: LinkSplit, fit_on: FitOn, *, features: str = "structural"
) -> FitLinks:
    """Score all links that a fit reads; test links are not among them.

    Parameters
    ----------
    model : nn.Module
    split : LinkSplit
    fit_on : {"val", "stacked", "train-loo", "train"}
        See :func:`linkcal.features.calibration_links`.
    features : {"structural", "none", "embedding", "difference"}, default="structural"
        What the fit will ask of the scores; see :func:`linkcal.features.score_links`.

    Returns
    -------
    FitLinks

    Raises
    ------
    InputError
        If `fit_on` or `features` is unknown.
    """
    scores = calibration_links(model, split, fit_on, features=features)
    on_val = calibration_part(fit_on) == "val"
    validation = None if on_val else score_links(model, split.graph, split.val, features=features)
    base = calibration_links(model, split, "train-loo", features=features) if fit_on == "stacked" else None
    return FitLinks(scores, validation, base)


def fit_calibrator(
    calibrator: Calibrator,
    scores: LinkScores,
    validation: LinkScores | None = None,
    base: LinkScores | None = None,
) -> Calibrator:
    """Fit a clone of `calibrator` on labelled scores.

    Parameters
    ----------
    calibrator : Calibrator
    scores : LinkScores
        With labels.
    validation : LinkScores, optional
        Labelled links for calibrators that choose something on validation data (``X_val`` of their ``fit``).
    base : LinkScores, optional
        Labelled links for calibrators that build on others (``X_base`` of their ``fit``).

    Returns
    -------
    Calibrator
    """
    fresh: Calibrator = clone(calibrator)
    kind = fresh.link_features
    X, y = scores.to_arrays(kind)
    beside = (None if links is None else links.to_arrays(kind) for links in (validation, base))
    return fresh.fit(X, y, **links_beside(fresh, *beside))
