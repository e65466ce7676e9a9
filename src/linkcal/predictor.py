"""A link predictor with a calibrator: fit, predict, decide, save, load."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor, nn

from linkcal._core.validation import (
    check_binary_labels,
    check_choice,
    check_edge_index,
    check_fraction,
    check_positive_int,
)
from linkcal._scoring import (
    BaseRate,
    ScoringMethods,
    base_rate_origin,
    fit_calibrator,
    resolved_base_rate,
    score_fit_links,
)
from linkcal.artifact import NUM_NULL_PAIRS, Artifact, Evidence, gather_evidence, load_artifact, save_artifact
from linkcal.calibrators import Calibrator, base_rate_offset, calibrator_name
from linkcal.data import Graph, LinkPairs, LinkSplit, NodeIds, pair_keys
from linkcal.decisions import (
    LinkThreshold,
    certified_threshold,
    conformal_p_values,
    expected_threshold,
    select_links,
)
from linkcal.decisions.intervals import calibrated_interval, ranking_scores
from linkcal.exceptions import InputError
from linkcal.features import FitOn, LinkScores
from linkcal.models import DecodeReturns, as_link_predictor, unwrap_link_predictor

__all__ = [
    "BaseRate",
    "CalibratedLinkPredictor",
    "DecisionMethods",
    "EvidenceMethods",
    "IntervalMethods",
    "RefreshMethods",
    "SelectedLinks",
    "SelectionMethods",
    "ThresholdMethods",
    "fit_calibrator",
]


# What all decisions rest on: the scores of the evidence that ``fit`` left.

FloatArray = NDArray[np.float64]


class EvidenceMethods(ScoringMethods):
    """Base of the mixins in this package."""

    evidence_: Evidence | None

    def _evidence(self) -> Evidence:
        if self.evidence_ is None:
            raise InputError(
                "predictor must have calibration links and null pairs, got an artifact without evidence: "
                "fit and save it again, or give links or null pairs"
            )
        return self.evidence_

    def _score_evidence(self, links: LinkPairs) -> LinkScores:
        target_link: Literal["absent", "as-given"] = (
            "as-given" if self.info_["fit_on"] == "train" else "absent"
        )
        return self.scorer().score(self._on_graph(links), target_link=target_link)

    def _labelled(self, links: LinkPairs) -> tuple[FloatArray, FloatArray]:
        """Calibrated logits and labels of labelled links."""
        is_own = self.evidence_ is not None and links is self.evidence_.calibration
        placed = self._on_graph(links)
        scores = self._score_evidence(links) if is_own else self.scorer().score(placed)
        return self._calibrated(scores), links.edge_label.cpu().numpy().astype(np.float64)

    def _on_graph(self, links: LinkPairs) -> LinkPairs:
        """The links on the device of the message-passing graph."""
        return links.to(self.graph_.edge_index.device)


# Selection: which of many pairs to call links, at a bounded rate of false discoveries.


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
    num_tested : int
        Different pairs that took part; k of them are selected if k p-values are at most
        ``k fdr / num_tested``.

    Examples
    --------
    >>> p_value = torch.tensor([0.01, 0.9])
    >>> one = SelectedLinks(p_value <= 0.05, p_value, torch.zeros(2).bool(), num_null=99, num_tested=2)
    >>> one.selected.nonzero()[:, 0]
    tensor([0])
    """

    selected: Tensor
    p_value: Tensor
    known: Tensor
    num_null: int
    num_tested: int


class SelectionMethods(EvidenceMethods):
    """The method ``select``."""

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
            Pairs without a link, drawn as the negatives among the query pairs were. By default those of
            ``evidence_``, which are of the kind of the calibration negatives: by default uniform over all
            pairs that are no known edge, right if the asked negatives are uniform too. Whoever asks about
            pairs at distance 2, say, must calibrate with such negatives or give such null pairs: uniform ones
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
        negatives among the query pairs and the null pairs are exchangeable. Links that nobody knows of among
        the null pairs make it more careful. No p-value is below ``1 / (m + 1)``, so that among L query pairs
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
        return SelectedLinks(selected, p_value, known, null.size(1), len(first))


# Thresholds: from which probability on to call pairs links.


class ThresholdMethods(EvidenceMethods):
    """The method ``threshold_for``."""

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
            that base rate. By default the one given to ``fit``; without one that of labelled `links`, else
            that of the calibration links.
        confidence : float in (0, 1)
            Used with labelled links only.

        Returns
        -------
        LinkThreshold
            Compare ``predictor(pairs, base_rate=found.base_rate)`` with ``found.logit``: probabilities in the
            model's own dtype are rounded, so that with ``found.probability`` pairs at the threshold itself
            can fall on the other side.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If no threshold reaches the value: the message says what can be reached. If most of the
            labelled `links` are ones that the calibrator was fitted on: their labels prove nothing any more.

        Notes
        -----
        :func:`linkcal.calibrators.expected_threshold` and
        :func:`linkcal.calibrators.certified_threshold` state both rules.
        """
        self._require_fitted()
        rate = None if base_rate is None else self.resolve_base_rate(base_rate)
        if rate is None and "base_rate" in self.info_:
            rate = self.base_rate
        wanted = {"precision": precision, "recall": recall}
        if isinstance(links, LinkPairs):
            self._check_new(links)
            z, y = self._labelled(links)
            # At the labels' own share of links, from where the rule moves it on.
            share = float(np.clip(y.sum() / max(y.size, 1), 1e-12, 1.0 - 1e-12))
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

    def _check_new(self, links: LinkPairs) -> None:
        """Refuse labelled links that are those of the calibration, as far as these are known.

        Links drawn anew on a small graph repeat some of them by chance, which is no mistake.
        """
        if self.evidence_ is None:
            return
        used, asked = (
            pair_keys(part.edge_label_index.cpu(), self.graph_.num_nodes, directed=self.graph_.directed)
            for part in (self.evidence_.calibration, links)
        )
        known = int(torch.isin(asked, used).sum())
        if 2 * known > len(links):
            raise InputError(
                f"links must be new to the calibrator, got {known} of {len(links)} that it was fitted on"
            )


# Intervals: how well each pair's probability is known.


class IntervalMethods(EvidenceMethods):
    """The methods ``predict_interval`` and ``interval_of``."""

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
        rate = self.base_rate if base_rate is None else self.resolve_base_rate(base_rate)
        reference, label = self._interval_evidence()
        if not len(scores):  # scikit-learn's checks refuse no rows
            return torch.empty(0, 2, dtype=torch.float64)
        shift = base_rate_offset(self.calibration_rate, rate)
        X = scores.to_matrix(self.calibrator_.link_features)
        return torch.from_numpy(
            calibrated_interval(self.calibrator_, X, reference, label, level=level, shift=shift)
        )

    def _interval_evidence(self) -> tuple[FloatArray, FloatArray]:
        """Scores and labels of the calibration links for intervals; made once for each calibrator."""
        kept: tuple[Any, FloatArray, FloatArray] | None = self.__dict__.get("_interval_cache")
        if kept is None or kept[0] is not self.calibrator_:
            scores = self._score_evidence(self._evidence().calibration)
            X, y = scores.to_arrays(self.calibrator_.link_features)
            kept = (self.calibrator_, ranking_scores(self.calibrator_, X, y), y.astype(np.float64))
            self.__dict__["_interval_cache"] = kept
        return kept[1], kept[2]


# Refresh: a new base rate from a few new labels.


class RefreshMethods(EvidenceMethods):
    """The method ``refresh``."""

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
            If labels are missing, other than 0 and 1, of another number than the pairs, or of one class.

        Notes
        -----
        See :meth:`linkcal.calibrators.Calibrator.refresh`. The ranking, and with it ``select``, stays.
        """
        self._require_fitted()
        if not isinstance(links, LinkPairs):
            if labels is None:
                raise InputError("labels must be given with a tensor of pairs, got None")
            pairs = check_edge_index(links, self.graph_.num_nodes, "links")
            label = check_binary_labels(labels, pairs.size(1), "labels")
            links = LinkPairs(pairs, torch.as_tensor(label, dtype=torch.float32))
        elif labels is not None:
            raise InputError("labels must be left out with LinkPairs, which have their own, got both")
        X, y = self.scorer().score(self._on_graph(links)).to_arrays(self.calibrator_.link_features)
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


# All decisions of a fitted predictor in one mixin.


class DecisionMethods(SelectionMethods, ThresholdMethods, IntervalMethods, RefreshMethods):
    """Decisions, intervals and refresh of a fitted :class:`~linkcal.CalibratedLinkPredictor`.

    A mixin: it uses the predictor's scores and the evidence that ``fit`` left.

    Examples
    --------
    >>> from linkcal import CalibratedLinkPredictor, Platt
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import make_model
    >>> split = split_links(simulate_graph(200, num_edges=600, num_features=10, seed=0), seed=0)
    >>> clp = CalibratedLinkPredictor(make_model("gcn", 10), Platt()).fit(split)
    >>> pairs = split.test.edge_label_index
    >>> chosen = clp.select(pairs, fdr=0.2)
    >>> chosen.selected.shape == (pairs.size(1),), bool(chosen.known.any())
    (True, False)
    >>> clp.predict_interval(pairs, level=0.9).shape == (pairs.size(1), 2)
    True
    >>> refreshed = clp.refresh(split.test)
    >>> round(refreshed.calibration_rate, 2)
    0.5
    """


# A link predictor and a calibrator as one module: pairs in, probabilities out.


class CalibratedLinkPredictor(DecisionMethods, nn.Module):
    """Calibrated probabilities from any trained link predictor.

    ``fit`` scores the calibration links, each without its target link, and fits a clone of the calibrator on
    them. Afterwards every pair is scored on the message-passing graph of the split it was fitted with, again
    without its target link: another graph would shift the scores under the calibrator's feet.

    Parameters
    ----------
    model : nn.Module
        Trained, with ``encode(x, edge_index)`` and ``decode(z, edge_label_index)``.
    calibrator : Calibrator
        Unfitted; it is cloned, never changed.
    decode_returns : {"logits", "probabilities"}, optional
        What ``model.decode`` returns, unless the model's attribute of that name declares it.

    Attributes
    ----------
    calibrator_ : Calibrator
        The fitted clone.
    graph_ : Graph
        The message-passing graph.
    node_ids_ : NodeIds or None
        The user's names of the nodes, if it was loaded from a folder that has them.
    held_out_ : Tensor [2, H] or None
        Known edges that are not in the message-passing graph: the validation links, and in a folder of
        ``linkcal run`` or ``linkcal fit`` the test links too.
    evidence_ : Evidence or None
        Calibration links and pairs that nothing was fitted on, for ``select``, ``threshold_for`` and
        ``predict_interval``; None if it was loaded from a folder written before there was any.
    info_ : dict
        ``fit_on``, ``negatives_per_positive`` and counts of the calibration links. Probabilities are valid
        for the ratio of negatives to links named there, or for ``base_rate`` if that stands there.

    Raises
    ------
    UnsupportedModelError, InputError
        If the model lacks a method, or what it decodes to is not declared.

    Examples
    --------
    >>> from linkcal import CalibratedLinkPredictor, Platt
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import make_model, train_link_predictor, TrainingConfig
    >>> split = split_links(simulate_graph(300, num_edges=900, num_features=20, seed=0), seed=0)
    >>> model = make_model("gcn", 20)
    >>> _ = train_link_predictor(model, split, TrainingConfig(epochs=5))
    >>> clp = CalibratedLinkPredictor(model, Platt()).fit(split)
    >>> clp.predict_proba(split.test.edge_label_index).shape == (len(split.test),)
    True
    """

    calibrator_: Calibrator
    graph_: Graph
    node_ids_: NodeIds | None
    held_out_: Tensor | None
    evidence_: Evidence | None
    info_: dict[str, Any]

    def __init__(
        self, model: nn.Module, calibrator: Calibrator, *, decode_returns: DecodeReturns | None = None
    ) -> None:
        super().__init__()
        if not isinstance(calibrator, Calibrator):
            raise InputError(f"calibrator must be a Calibrator, got {type(calibrator).__name__}")
        self.predictor = as_link_predictor(model, decode_returns)
        self.calibrator = calibrator
        self.decode_returns = decode_returns

    def __getattr__(self, name: str) -> Any:
        # A property's NotFittedError is an AttributeError, after which Python asks here.
        if name in ("base_rate", "calibration_rate"):
            self._require_fitted()
        return super().__getattr__(name)

    @property
    def model(self) -> nn.Module:
        """The model as it was given."""
        return unwrap_link_predictor(self.predictor)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Take the message-passing graph along where the weights go (``to``, ``double``, ``cuda``, ...)."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if hasattr(self, "graph_"):
            graph = self.graph_
            x, attributes = (None if part is None else fn(part) for part in (graph.x, graph.attributes))
            self.graph_ = replace(graph, edge_index=fn(graph.edge_index), x=x, attributes=attributes)
        return self

    def fit(
        self,
        split: LinkSplit,
        *,
        fit_on: FitOn = "val",
        base_rate: BaseRate | None = None,
        num_null: int = NUM_NULL_PAIRS,
    ) -> Self:
        """Fit the calibrator on links of `split`; test links are not read.

        Parameters
        ----------
        split : LinkSplit
        fit_on : {"val", "stacked", "train-loo", "train"}
            See :func:`linkcal.features.calibration_links`.
        base_rate : float in (0, 1) or "density", optional
            Share of links among the pairs that will be asked about: all probabilities are given for it
            unless a call names another one. By default that of the calibration links.
        num_null : int
            Null pairs drawn for ``select``; see :func:`linkcal.artifact.gather_evidence`.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If `split` is no LinkSplit, its calibration links have only one class, or `base_rate` is not one
            that :meth:`resolve_base_rate` takes. A fit that raises changes nothing.
        """
        if not isinstance(split, LinkSplit):
            raise InputError(f"split must be a LinkSplit (see linkcal.data), got {type(split).__name__}")
        rate = None if base_rate is None else resolved_base_rate(base_rate, split.graph, split.negatives)
        split = _beside(self.predictor, split)
        evidence = gather_evidence(split, fit_on, num_null=num_null)
        links = score_fit_links(self.predictor, split, fit_on, features=self.calibrator.link_features)
        # Nothing of the predictor changes until all that may be refused is done.
        self.calibrator_, scores = fit_calibrator(self.calibrator, *links), links.scores
        self.graph_, self.node_ids_, self.evidence_ = split.graph, None, evidence
        self.held_out_ = split.val.edge_label_index[:, split.val.edge_label == 1]
        positives = int(scores.label.sum()) if scores.label is not None else 0
        self.info_ = {
            "fit_on": fit_on,
            "calibration_positives": positives,
            "calibration_negatives": len(scores) - positives,
            "negatives_per_positive": (len(scores) - positives) / positives,
            "negatives": split.negatives,
        }
        if base_rate is not None:
            self.info_ |= {"base_rate": rate, "base_rate_origin": base_rate_origin(base_rate)}
        return self

    def forward(self, edge_label_index: Tensor, *, base_rate: BaseRate | None = None) -> Tensor:
        """Calibrated logits [L] of pairs [2, L], float64; `base_rate` as in :meth:`predict_proba`."""
        return self.logit_of(self.scorer().score(self._placed(edge_label_index)), base_rate=base_rate)

    def predict_proba(
        self, edge_label_index: Tensor, *, base_rate: BaseRate | None = None, batch_size: int = 1 << 18
    ) -> Tensor:
        """Probability [L] in [0, 1] that each pair [2, L] is a link.

        A pair that is an edge of the message-passing graph is scored with that edge removed.

        Parameters
        ----------
        edge_label_index : Tensor [2, L], int
        base_rate : float in (0, 1) or "density", optional
            Share of links among the pairs that are asked about; see :meth:`resolve_base_rate`. Odds are
            multiplied by the ratio of the prior odds, which leaves the ranking as it is. Without it
            probabilities hold for the base rate given to ``fit``, else for the calibration links' share,
            ``calibration_rate``.
        batch_size : int
            Pairs scored at once.

        Returns
        -------
        Tensor [L], dtype of the model's logits (float32 for a model in half precision)

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If a pair is out of range or joins a node to itself, or `base_rate` is not in (0, 1).
        """
        self._require_fitted()
        pairs = self._placed(edge_label_index)
        size = check_positive_int(batch_size, "batch_size")
        scorer = self.scorer()
        parts = [
            self.probability_of(scorer.score(pairs[:, i : i + size]), base_rate=base_rate)
            for i in range(0, max(pairs.size(1), 1), size)
        ]
        return torch.cat(parts)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write model weights, message-passing graph and calibrator to `folder`; see :mod:`linkcal.artifact`.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        """
        self._require_fitted()
        name = calibrator_name(self.calibrator_)
        info = {**self.info_, "selected": name, "decode_returns": self.decode_returns}
        artifact = Artifact(
            self.model,
            self.graph_,
            {name: self.calibrator_},
            info,
            self.node_ids_,
            self.held_out_,
            self.evidence_,
        )
        save_artifact(artifact, folder)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], model: nn.Module | None = None, *, calibrator: str | None = None
    ) -> Self:
        """Read what :meth:`save`, ``linkcal run`` or ``linkcal fit`` wrote.

        Parameters
        ----------
        folder : path
        model : nn.Module, optional
            Needed for a model that is not one of linkcal's own: built as it was when saved; its weights are
            replaced by the saved ones.
        calibrator : str, optional
            Name of one of several saved calibrators; by default the one that was selected when they were
            fitted.

        Returns
        -------
        CalibratedLinkPredictor
            Fitted, in evaluation mode.

        Raises
        ------
        ArtifactError
            If a file is missing, truncated, altered or of another version.
        InputError
            If no calibrator has that name.
        """
        artifact = load_artifact(folder, model)
        name = artifact.info.get("selected") if calibrator is None else calibrator
        check_choice(str(name), "calibrator", artifact.calibrators)
        fitted = artifact.calibrators[str(name)]
        loaded = cls(artifact.model, clone(fitted), decode_returns=artifact.info.get("decode_returns"))
        loaded.calibrator_ = fitted
        loaded.graph_ = artifact.graph
        loaded.node_ids_ = artifact.node_ids
        loaded.held_out_ = artifact.held_out
        loaded.evidence_ = artifact.evidence
        loaded.info_ = {
            key: value for key, value in artifact.info.items() if key not in ("selected", "decode_returns")
        }
        return loaded.eval()


def _beside(predictor: nn.Module, split: LinkSplit) -> LinkSplit:
    """The split with graph and calibration links on the predictor's device; test links stay."""
    weight = next(predictor.parameters(), None)
    if weight is None:
        return split
    place = weight.device
    return replace(split, graph=split.graph.to(place), train=split.train.to(place), val=split.val.to(place))
