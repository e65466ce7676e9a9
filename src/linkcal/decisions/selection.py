"""What a fitted predictor does beyond a probability: select, find thresholds, give intervals, refresh."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from linkcal._math import sigmoid
from linkcal._validation import check_edge_index, check_fraction
from linkcal.calibrators import (
    Calibrator,
    LinkThreshold,
    certified_threshold,
    conformal_p_values,
    expected_threshold,
    monotone_interval,
    select_links,
)
from linkcal.calibrators.base_rate import base_rate_offset
from linkcal.calibrators.intervals import asked_scores, ranking_scores
from linkcal.data import Graph, LinkPairs, pair_keys
from linkcal.evidence import Evidence
from linkcal.exceptions import InputError, NotFittedError
from linkcal.features import LinkScorer, LinkScores

__all__ = ["BaseRate", "DecisionMethods", "SelectedLinks", "base_rate_origin", "graph_density"]

FloatArray = NDArray[np.float64]

#: Share of links among the pairs asked about, or how to estimate it.
BaseRate = float | Literal["density"]


def graph_density(graph: Graph) -> float:
    """Share of all pairs that are edges, in (0, 1); what the base rate ``"density"`` stands for."""
    return check_fraction(graph.num_pairs / max(graph.num_possible_pairs, 1), "density of the message graph")


def base_rate_origin(base_rate: BaseRate) -> str:
    """Where an asked base rate comes from, for people."""
    return "density of the message graph" if base_rate == "density" else "given"


@dataclass(frozen=True, eq=False)
class SelectedLinks:
    """Which of L pairs to call links.

    Parameters
    ----------
    selected : Tensor [L], bool
    p_value : Tensor [L], float64
        Conformal p-value; NaN for a known edge, about which there is nothing to find out.
    known : Tensor [L], bool
        Whether the pair is a known edge; such pairs take no part and are not selected.
    num_null : int
        Null scores that the p-values rest on; the smallest possible one is ``1 / (num_null + 1)``.
    """

    selected: Tensor
    p_value: Tensor
    known: Tensor
    num_null: int


class DecisionMethods(ABC):
    """Decisions, intervals and refresh of a fitted :class:`~linkcal.CalibratedLinkPredictor`.

    A mixin, so that the predictor's file stays about scoring: it uses the predictor's public methods and the
    evidence that ``fit`` left.
    """

    calibrator_: Calibrator
    graph_: Graph
    evidence_: Evidence | None
    info_: dict[str, Any]

    @abstractmethod
    def scorer(self) -> LinkScorer:
        """Scorer of the message graph."""

    @abstractmethod
    def known_edges(self, edge_label_index: Tensor) -> Tensor:
        """Whether pairs are known edges."""

    @abstractmethod
    def resolve_base_rate(self, base_rate: BaseRate) -> float:
        """Share of links that `base_rate` stands for."""

    @property
    @abstractmethod
    def calibration_rate(self) -> float:
        """Share of links for which the calibrator holds."""

    def select(
        self, edge_label_index: Tensor, *, fdr: float = 0.1, null_pairs: Tensor | None = None
    ) -> SelectedLinks:
        """Pairs to call links, so that on average at most a share `fdr` of them are none.

        Parameters
        ----------
        edge_label_index : Tensor [2, L], int
            Pairs asked about. A pair that stands there more than once is tested once; known edges take no
            part.
        fdr : float in (0, 1)
            Bound on the false discovery rate.
        null_pairs : Tensor [2, m], int, optional
            Pairs without a link, drawn as the non-links among the asked pairs were. By default those of
            ``evidence_``, which are of the kind of the calibration non-links: by default uniform over all
            pairs that are no known edge, right if the asked non-links are uniform too. Whoever asks about
            pairs at distance 2, say, must calibrate with such non-links or give such null pairs: uniform ones
            are easier, and the rate would be exceeded.

        Returns
        -------
        SelectedLinks

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If a pair is out of range, `fdr` is not in (0, 1), or there is no null pair.

        Notes
        -----
        Conformal p-values of the calibrated logits and Benjamini-Hochberg,
        :func:`linkcal.calibrators.select_links`. The bound holds whatever the model and calibrator, if the
        non-links among the asked pairs and the null pairs are exchangeable. Links that nobody knows of among
        the null pairs make it more careful. No p-value is below ``1 / (m + 1)``, so that among L asked pairs
        with fewer than ``L / (fdr (m + 1))`` clear links nothing can be selected.
        """
        self._require_fitted()
        pairs = check_edge_index(edge_label_index, self.graph_.num_nodes, "edge_label_index")
        if null_pairs is None:
            null_pairs = self._evidence().null_pairs
        null = check_edge_index(null_pairs, self.graph_.num_nodes, "null_pairs")
        if not null.size(1):
            raise InputError("null_pairs must hold at least one pair without a link, got none")
        known = self.known_edges(pairs).cpu()
        keys = pair_keys(pairs, self.graph_.num_nodes, directed=self.graph_.directed).cpu()[~known]
        _, first, inverse = np.unique(keys.numpy(), return_index=True, return_inverse=True)
        scorer = self.scorer()
        asked = self._calibrated(scorer.score(self._placed(pairs.cpu()[:, ~known][:, first])))
        reference = self._calibrated(scorer.score(self._placed(null)))
        chosen = select_links(asked, reference, fdr=fdr)[inverse]
        selected = torch.zeros(pairs.size(1), dtype=torch.bool)
        selected[~known] = torch.from_numpy(chosen)
        p_value = torch.full((pairs.size(1),), torch.nan, dtype=torch.float64)
        p_value[~known] = torch.from_numpy(conformal_p_values(asked, reference)[inverse])
        return SelectedLinks(selected, p_value, known, null.size(1))

    def threshold_for(
        self,
        links: LinkPairs | Tensor | None = None,
        *,
        precision: float | None = None,
        recall: float | None = None,
        base_rate: BaseRate | None = None,
        confidence: float = 0.95,
    ) -> LinkThreshold:
        """From which probability on to call pairs links, for a wanted precision or recall.

        Parameters
        ----------
        links : Tensor [2, L] or LinkPairs, optional
            A tensor: the pairs that will be decided about; the answer is the expected one for them.
            Labelled links that nothing was fitted on: the answer is tested on their labels and holds with
            probability `confidence`. By default the calibration links, and the answer is the expected one.
        precision, recall : float in (0, 1)
            One of the two. The smallest threshold with that precision, or the largest with that recall.
        base_rate : float in (0, 1) or "density", optional
            Share of links among the pairs that will be decided about; the threshold is on the probability at
            that base rate. By default that of the calibration (or of labelled `links`).
        confidence : float in (0, 1)
            Used with labelled links only.

        Returns
        -------
        LinkThreshold
            Compare ``predictor(pairs, base_rate=found.base_rate)`` with ``found.logit``, or probabilities
            with ``found.probability``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If no threshold reaches the value: the message says what can be reached.

        Notes
        -----
        :func:`linkcal.calibrators.expected_threshold` and
        :func:`linkcal.calibrators.certified_threshold` state both rules.
        """
        self._require_fitted()
        rate = None if base_rate is None else self.resolve_base_rate(base_rate)
        wanted = {"precision": precision, "recall": recall}
        if isinstance(links, LinkPairs):
            z, y = self._labelled(links)
            # At the labels' own share of links, from where the rule moves it on.
            share = float(np.clip(y.mean(), 1e-12, 1.0 - 1e-12))
            z = z + base_rate_offset(self.calibration_rate, share)
            return certified_threshold(z, y, base_rate=rate, confidence=confidence, **wanted)
        rate = self.base_rate if rate is None else rate
        weight = None
        if links is None:
            z, y = self._labelled(self._evidence().calibration)
            share = float(y.mean())
            weight = np.where(y == 1.0, rate / share, (1.0 - rate) / (1.0 - share))
        else:
            z = self._calibrated(self.scorer().score(self._placed(links)))
        z = z + base_rate_offset(self.calibration_rate, rate)
        found = expected_threshold(z, sample_weight=weight, **wanted)
        return LinkThreshold(found.probability, found.logit, found.precision, found.recall, rate)

    def predict_interval(
        self, edge_label_index: Tensor, *, level: float = 0.9, base_rate: BaseRate | None = None
    ) -> Tensor:
        """Lower and upper end [L, 2] of an interval for each pair's probability.

        Parameters
        ----------
        edge_label_index : Tensor [2, L], int
        level : float in (0, 1)
            Probability, over the draw of the calibration links, that the interval of one pair holds the share
            of links among pairs of its score.
        base_rate : float in (0, 1) or "density", optional
            As in ``predict_proba``; both ends move with it.

        Returns
        -------
        Tensor [L, 2], float64
            The pair's own probability lies between the ends.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If a pair is out of range, `level` is not in (0, 1), or the predictor was loaded from a folder
            that has no calibration links.

        Notes
        -----
        What is covered and what is assumed: :class:`linkcal.calibrators.IntervalCalibrator`. After a
        ``refresh`` half of the error pays for the interval of the offset (normal, by its standard error).
        """
        self._require_fitted()
        return self.interval_of(
            self.scorer().score(self._placed(edge_label_index)), level=level, base_rate=base_rate
        )

    def interval_of(
        self, scores: LinkScores, *, level: float = 0.9, base_rate: BaseRate | None = None
    ) -> Tensor:
        """Interval [L, 2] of links that a scorer scored; see :meth:`predict_interval`."""
        self._require_fitted()
        level = check_fraction(level, "level")
        if not len(scores):
            return torch.empty(0, 2, dtype=torch.float64)
        calibrator = self.calibrator_
        X = scores.to_matrix(calibrator.link_features)
        reference, label = self._interval_evidence()
        margin = 0.0
        if hasattr(calibrator, "offset_"):
            level = 1.0 - (1.0 - level) / 2.0
            margin = float(norm.isf((1.0 - level) / 2.0)) * calibrator.offset_standard_error_
        low, high = monotone_interval(reference, label, asked_scores(calibrator, X), level=level)
        rate = self.base_rate if base_rate is None else self.resolve_base_rate(base_rate)
        # From the calibration links' share to the calibrator's, which a refresh has moved, and on.
        shift = getattr(calibrator, "offset_", 0.0) + base_rate_offset(self.calibration_rate, rate)
        with np.errstate(divide="ignore"):
            ends = [np.log(end) - np.log1p(-end) + shift for end in (low, high)]
        p = sigmoid(calibrator.decision_function(X) + base_rate_offset(self.calibration_rate, rate))
        interval = np.column_stack(
            (np.minimum(sigmoid(ends[0] - margin), p), np.maximum(sigmoid(ends[1] + margin), p))
        )
        return torch.from_numpy(interval)

    def refresh(self, links: LinkPairs | Tensor, labels: Any = None) -> Self:
        """Refit only the offset of the calibrated logit on newly labelled pairs.

        Parameters
        ----------
        links : LinkPairs or Tensor [2, L]
        labels : array-like [L], values 0 and 1
            Not with LinkPairs, which have their own.

        Returns
        -------
        self
            ``info_["refresh"]`` holds ``links``, ``positives``, ``offset`` and its ``standard_error``;
            probabilities hold from now on for the share of links among these pairs (``calibration_rate``).
            It is saved with the predictor.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If labels are missing or of one class.

        Notes
        -----
        See :meth:`linkcal.calibrators.Calibrator.refresh`. The ranking, and with it ``select``, stays.
        """
        self._require_fitted()
        if not isinstance(links, LinkPairs):
            if labels is None:
                raise InputError("labels must be given with a tensor of pairs, got None")
            label = torch.as_tensor(np.asarray(labels), dtype=torch.float32)
            links = LinkPairs(check_edge_index(links, self.graph_.num_nodes, "links"), label)
        elif labels is not None:
            raise InputError("labels must be left out with LinkPairs, which have their own, got both")
        X, y = self.scorer().score(_on(links, self.graph_)).to_arrays(self.calibrator_.link_features)
        calibrator = self.calibrator_.refresh(X, y)
        positives = int(y.sum())
        self.info_ = {
            **self.info_,
            "negatives_per_positive": (len(y) - positives) / positives,
            "refresh": {
                "links": len(y),
                "positives": positives,
                "offset": calibrator.offset_,
                "standard_error": calibrator.offset_standard_error_,
            },
        }
        return self

    @property
    def base_rate(self) -> float:
        """Share of links for which a probability holds when a call names none."""
        stated = self.info_.get("base_rate")
        return self.calibration_rate if stated is None else float(stated)

    def _evidence(self) -> Evidence:
        if self.evidence_ is None:
            raise InputError(
                "predictor must have calibration links and null pairs, got an artifact without evidence: "
                "fit and save it again, or give links or null pairs"
            )
        return self.evidence_

    def _interval_evidence(self) -> tuple[FloatArray, FloatArray]:
        """Scores and labels of the calibration links for intervals; made once for each calibrator."""
        kept: tuple[Any, FloatArray, FloatArray] | None = self.__dict__.get("_interval_cache")
        if kept is None or kept[0] is not self.calibrator_:
            scores = self._score_evidence(self._evidence().calibration)
            X, y = scores.to_arrays(self.calibrator_.link_features)
            kept = (self.calibrator_, ranking_scores(self.calibrator_, X, y), y.astype(np.float64))
            self.__dict__["_interval_cache"] = kept
        return kept[1], kept[2]

    def _score_evidence(self, links: LinkPairs) -> LinkScores:
        own_edge: Literal["absent", "as-given"] = "as-given" if self.info_["fit_on"] == "train" else "absent"
        return self.scorer().score(_on(links, self.graph_), own_edge=own_edge)

    def _labelled(self, links: LinkPairs) -> tuple[FloatArray, FloatArray]:
        """Calibrated logits and labels of labelled links."""
        is_own = self.evidence_ is not None and links is self.evidence_.calibration
        placed = _on(links, self.graph_)
        scores = self._score_evidence(links) if is_own else self.scorer().score(placed)
        return self._calibrated(scores), links.edge_label.cpu().numpy().astype(np.float64)

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


def _on(links: LinkPairs, graph: Graph) -> LinkPairs:
    return links.to(graph.edge_index.device)
