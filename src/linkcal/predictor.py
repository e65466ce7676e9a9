"""A link predictor with a calibrator: fit, predict, decide, save, load."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor, nn

from linkcal import _scoring, decisions
from linkcal._core.maths import FloatArray, sigmoid
from linkcal._core.random import numpy_stream
from linkcal._core.shown import Shown
from linkcal._core.validation import (
    check_binary_labels,
    check_choice,
    check_flag,
    check_fraction,
    check_positive_int,
    check_type,
    warn_of_few_links,
)
from linkcal._scoring import BaseRate, Evidence, Fingerprint, FitLinks
from linkcal.artifact import Artifact, check_fits, load_artifact, save_artifact
from linkcal.calibrators import Calibrator, base_rate_offset, calibrator_name
from linkcal.data import BipartiteIds, Graph, LinkPairs, LinkSplit, NodeIds, pair_keys
from linkcal.data.negatives import in_sorted
from linkcal.decisions._intervals import calibrated_interval, ranking_scores
from linkcal.decisions._thresholds import weights_at_base_rate
from linkcal.exceptions import InputError, LinkcalWarning, NotFittedError
from linkcal.features import COLUMN_NAMES, FitOn, LinkScorer, LinkScores, link_segments
from linkcal.features._scores import scored_state
from linkcal.metrics import CalibrationAlarm, PopulationTest, calibration_alarm, same_population
from linkcal.metrics.intervals import intervals_record
from linkcal.metrics.registry import evaluate_at_base_rate
from linkcal.models import DecodeReturns, as_link_predictor
from linkcal.models.adapter import unwrap_link_predictor, warn_of_missing_weights
from linkcal.report import Evaluation

__all__ = ["BaseRate", "CalibratedLinkPredictor", "SelectedLinks"]


@dataclass(frozen=True, eq=False, repr=False)
class SelectedLinks(Shown):
    """Which of L pairs to call links.

    Parameters
    ----------
    selected, known : Tensor [L], bool
        Known edges are not tested and not selected.
    p_value : Tensor [L], float64
        Conformal p-value; NaN for a known edge.
    num_null, num_tested : int
        Null scores behind the p-values, none of which is below ``1 / (num_null + 1)``; distinct pairs tested:
        k are selected if k p-values are at most ``k fdr / num_tested``.
    """

    selected: Tensor
    p_value: Tensor
    known: Tensor
    num_null: int
    num_tested: int

    def _shown(self) -> dict[str, Any]:
        counts = {"selected": int(self.selected.sum()), "known": int(self.known.sum())}
        return {"pairs": self.selected.numel(), **counts, "num_null": self.num_null}


class CalibratedLinkPredictor(nn.Module):
    """Calibrated probabilities from any trained link predictor.

    ``fit`` scores the calibration links, each without its target link, and fits a clone of the calibrator on
    them. Every later pair is scored on the same message-passing graph, again without its target link. Changed
    weights or another graph change the score distribution, so the calibration no longer holds: scoring and
    saving refuse both until ``fit`` is called again; ``update_graph`` changes the graph. Several threads may
    use a fitted predictor.

    Parameters
    ----------
    model : nn.Module
        Trained, with ``encode(x, edge_index)`` and ``decode(z, edge_label_index)``, else an
        ``UnsupportedModelError``; may be compiled.
    calibrator : Calibrator
        Unfitted; it is cloned, never changed.
    decode_returns : {"logits", "probabilities"}, optional
        What ``model.decode`` returns, which must be declared here or by the model's attribute of that name.
    symmetrise : bool
        In an undirected graph, average the logits of (u, v) and (v, u); else ``fit`` refuses unequal ones.
        Not used on a bipartite graph, whose pairs always have their source node first.

    Attributes
    ----------
    calibrator_, graph_ : Calibrator, Graph
        The fitted clone, and the message-passing graph.
    node_ids_ : NodeIds, BipartiteIds or None
        The user's names of the nodes, if they were loaded.
    held_out_ : Tensor [2, H] or None
        Known edges outside the message-passing graph: validation links; after loading a run also test links.
    evidence_ : Evidence or None
        Calibration links and null pairs, for ``select``, ``threshold_for`` and ``predict_interval``.
    info_ : dict
        ``fit_on``, ``negatives_per_positive`` and counts of the calibration links; records of ``refresh`` and
        ``update_graph``. Probabilities hold for
        that ratio of negatives to links, or for ``base_rate`` if it is there.

    Examples
    --------
    >>> from linkcal import CalibratedLinkPredictor, Platt
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import make_model
    >>> split = split_links(simulate_graph(300, num_edges=900, num_features=20, seed=0), seed=0)
    >>> clp = CalibratedLinkPredictor(make_model("gcn", 20), Platt()).fit(split)
    >>> clp.predict_proba(split.test.edge_label_index).shape == (len(split.test),)
    True
    """

    calibrator_: Calibrator
    graph_: Graph
    node_ids_: NodeIds | BipartiteIds | None
    held_out_: Tensor | None
    evidence_: Evidence | None
    info_: dict[str, Any]
    _fingerprint: Fingerprint

    def __init__(
        self,
        model: nn.Module,
        calibrator: Calibrator,
        *,
        decode_returns: DecodeReturns | None = None,
        symmetrise: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(calibrator, Calibrator):
            raise InputError(f"calibrator must be a Calibrator, got {type(calibrator).__name__}")
        # What torch.compile returns hides the layers that toggling knows.
        self.predictor = as_link_predictor(getattr(model, "_orig_mod", model), decode_returns)
        self.calibrator = calibrator
        self.decode_returns = decode_returns
        self.symmetrise = check_flag(symmetrise, "symmetrise")

    def __getattr__(self, name: str) -> Any:
        # Python calls this after a property's NotFittedError, which is an AttributeError.
        if name in ("base_rate", "calibration_rate"):
            self._require_fitted()
        return super().__getattr__(name)

    @property
    def model(self) -> nn.Module:
        """The model as it was given (of a compiled one the original)."""
        return unwrap_link_predictor(self.predictor)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the message-passing graph along with the weights (``to``, ``double``, ``cuda``, ...)."""
        graph = getattr(self, "graph_", None)
        unchanged = graph is not None and self._fingerprint.difference(self.predictor, graph) is None
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if graph is not None:
            self.graph_ = graph.moved(fn)
        if unchanged:
            self._fingerprint = Fingerprint(self.predictor, self.graph_)
        return self

    def fit(
        self,
        split: LinkSplit,
        *,
        fit_on: FitOn = "val",
        base_rate: BaseRate | None = None,
        num_null: int = _scoring.NUM_NULL_PAIRS,
    ) -> Self:
        """Fit the calibrator on links of `split`; test links are not read. A fit that raises changes nothing.

        Parameters
        ----------
        split : LinkSplit
            Its calibration links must have both classes.
        fit_on : {"val", "stacked", "train-loo", "train"}
            As in :func:`linkcal.features.calibration_links`.
        base_rate : float in (0, 1) or "density", optional
            Share of links among future query pairs, for calls that name none. Default: that of the
            calibration links.
        num_null : int
            Null pairs drawn for ``select``, at most; they are of the kind of the split's negatives.
        """
        check_type(split, LinkSplit, "split")
        stated: dict[str, Any] = {}
        if base_rate is not None:
            rate = _scoring.resolved_base_rate(base_rate, split.graph, split.negatives)
            stated = {"base_rate": rate, "base_rate_origin": _scoring.base_rate_origin(base_rate)}
        check_fits(self.model, split.graph, None)
        warn_of_missing_weights(self.predictor, split.graph)
        place = next(self.predictor.parameters(), split.graph.edge_index).device
        split = replace(split, **{part: getattr(split, part).to(place) for part in ("graph", "train", "val")})
        evidence = _scoring.gather_evidence(split, fit_on, num_null=num_null)
        positives, negatives = evidence.calibration.num_positives, evidence.calibration.num_negatives
        warn_of_few_links(positives, negatives, stacklevel=2)
        kind, averaged = self.calibrator.link_features, self.symmetrise and not split.graph.ordered_pairs
        links = _scoring.score_fit_links(self.predictor, split, fit_on, features=kind, symmetrise=averaged)
        # Nothing of the predictor changes until all that may be refused is done.
        self.calibrator_ = _scoring.fit_calibrator(self.calibrator, links)
        self.graph_, self.node_ids_, self.evidence_ = split.graph, None, evidence
        self.held_out_ = split.val.edge_label_index[:, split.val.edge_label == 1]
        self._fingerprint = Fingerprint(self.predictor, self.graph_)
        self.info_ = {
            "fit_on": fit_on, "calibration_positives": positives, "calibration_negatives": negatives,
            "negatives_per_positive": negatives / positives, "negatives": split.negatives, **stated,
        }  # fmt: skip
        return self

    def forward(self, edge_label_index: Tensor, *, base_rate: BaseRate | None = None) -> Tensor:
        """Calibrated logits [L] of pairs [2, L], float64; `base_rate` as in :meth:`predict_proba`."""
        return self.logit_of(self.scorer().score(self._placed(edge_label_index)), base_rate=base_rate)

    def predict_proba(
        self, edge_label_index: Tensor, *, base_rate: BaseRate | None = None, batch_size: int = 1 << 18
    ) -> Tensor:
        """Probability [L] in [0, 1] that each pair [2, L] is a link, in the dtype of the model's logits.

        A pair that is an edge is scored with that edge removed. Models in half precision give float32.

        Parameters
        ----------
        edge_label_index : Tensor [2, L], int
        base_rate : float in (0, 1) or "density", optional
            Share of links among the query pairs, by default the attribute ``base_rate``. The odds are
            multiplied by the ratio of the prior odds; the ranking stays the same.
        batch_size : int
            Pairs scored at once.
        """
        scorer, pairs = self.scorer(), self._placed(edge_label_index)
        size = check_positive_int(batch_size, "batch_size")
        parts = (pairs[:, first : first + size] for first in range(0, max(pairs.size(1), 1), size))
        return torch.cat([self.probability_of(scorer.score(part), base_rate=base_rate) for part in parts])

    def scorer(self, features: str | None = None) -> LinkScorer:
        """Scorer for pairs in chunks, with the calibrator's features; the model must not change meanwhile."""
        self._require_unchanged()
        features = self.calibrator_.link_features if features is None else features
        averaged = self.symmetrise and not self.graph_.ordered_pairs
        return LinkScorer(self.predictor, self.graph_, features=features, symmetrise=averaged)

    def score(self, edge_label_index: Tensor) -> LinkScores:
        """Logits, toggled embeddings and all link features of pairs [2, L] on the message-passing graph."""
        return self.scorer("structural").score(self._placed(edge_label_index))

    def logit_of(self, scores: LinkScores, *, base_rate: BaseRate | None = None) -> Tensor:
        """Calibrated logits [L], float64, of links that :meth:`score` scored."""
        self._require_fitted()
        logit = _scoring.calibrated_logits(self.calibrator_, scores) + self._offset(self._rate(base_rate))
        return torch.as_tensor(logit, device=scores.logit.device)

    def probability_of(self, scores: LinkScores, *, base_rate: BaseRate | None = None) -> Tensor:
        """Probability [L] of links that :meth:`score` scored, in the dtype of their logits."""
        self._require_fitted()
        if base_rate is not None or "base_rate" in self.info_:
            # From the logit: a probability near 1 has lost the digits that the shift brings back.
            return torch.sigmoid(self.logit_of(scores, base_rate=base_rate)).to(scores.logit.dtype)
        features = scores.features(self.calibrator_.link_features)
        return torch.as_tensor(self.calibrator_.calibrate(scores.logit, features))

    def known_edges(self, edge_label_index: Tensor) -> Tensor:
        """Whether each pair [2, L] is a message-passing edge or a held-out one, [L], bool."""
        pairs, parts = self._placed(edge_label_index), (self.graph_, self.held_out_)
        known = self._kept("_known_keys", parts, lambda: _scoring.known_pair_keys(*parts))
        return torch.from_numpy(in_sorted(known, self._keys(pairs))).to(pairs.device)

    def node_embeddings(self) -> Tensor:
        """Node embeddings z [N, d] on the message-passing graph; refused if the model embeds pairs."""
        self._require_unchanged()
        return _scoring.encode_nodes(self.predictor, self.graph_)

    @property
    def calibration_rate(self) -> float:
        """Share of links among the calibration links, or among those of the last ``refresh``."""
        self._require_fitted()
        return 1.0 / (1.0 + float(self.info_["negatives_per_positive"]))

    @property
    def base_rate(self) -> float:
        """Share of links for which a probability holds when a call names none."""
        self._require_fitted()
        stated = self.info_.get("base_rate")
        return self.calibration_rate if stated is None else float(stated)

    def resolve_base_rate(self, base_rate: BaseRate) -> float:
        """Share of links, in (0, 1), that `base_rate` stands for.

        ``"density"``: the share of all pairs that are message-passing edges. It is right for pairs drawn
        uniformly from a graph as dense, and an InputError unless the calibration negatives were uniform.
        """
        self._require_fitted()
        return _scoring.resolved_base_rate(base_rate, self.graph_, self.info_.get("negatives"))

    def select(
        self, edge_label_index: Tensor, *, fdr: float = 0.1, null_pairs: Tensor | None = None
    ) -> SelectedLinks:
        """Pairs to call links, so that on average at most a share `fdr` of them are none.

        The bound holds for any model and calibrator if the null pairs and the negatives among the query pairs
        are exchangeable; unknown links among the null pairs only make it more conservative. No p-value is
        below ``1 / (m + 1)``: with fewer than ``L / (fdr (m + 1))`` clear links among L pairs none can be
        selected.

        Parameters
        ----------
        edge_label_index : Tensor [2, L], int
            Query pairs. A repeated pair is tested once; known edges are not tested.
        fdr : float in (0, 1)
            Bound on the false discovery rate; see :func:`linkcal.decisions.select_links`.
        null_pairs : Tensor [2, m], int, optional
            Pairs without a link, drawn as the negatives among the query pairs were. Default: those of
            ``evidence_``, of the kind of the calibration negatives. Uniform null pairs score lower than, say,
            pairs at distance 2: for such query pairs the rate would be exceeded.
        """
        pairs = self._placed(edge_label_index)
        null = self._placed(self._evidence().null_pairs if null_pairs is None else null_pairs, "null_pairs")
        if not null.size(1):
            raise InputError("null_pairs must hold at least one pair, got none: fit with num_null above 0")
        known = self.known_edges(pairs)
        _, first, inverse = np.unique(self._keys(pairs[:, ~known]), return_index=True, return_inverse=True)
        scorer = self.scorer()
        tested, reference = (
            _scoring.calibrated_logits(self.calibrator_, scorer.score(part))
            for part in (pairs[:, ~known][:, torch.from_numpy(first).to(pairs.device)], null)
        )
        selected = torch.zeros_like(known)
        p_value = torch.full(known.shape, torch.nan, dtype=torch.float64, device=known.device)
        for whole, part in (
            (selected, decisions.select_links(tested, reference, fdr=fdr)),
            (p_value, decisions.conformal_p_values(tested, reference)),
        ):
            whole[~known] = torch.from_numpy(part[inverse]).to(whole)
        return SelectedLinks(selected, p_value, known, null.size(1), len(first))

    def threshold_for(
        self,
        links: LinkPairs | Tensor | None = None,
        *,
        precision: float | None = None,
        recall: float | None = None,
        base_rate: BaseRate | None = None,
        confidence: float = 0.95,
    ) -> decisions.LinkThreshold:
        """From which probability on to call pairs links, for a wanted precision or recall.

        :func:`linkcal.decisions.expected_threshold` and :func:`linkcal.decisions.certified_threshold` state
        what is guaranteed. An error names what can be reached if no threshold reaches the value. Compare
        ``predictor(pairs, base_rate=found.base_rate)`` with ``found.logit``: a rounded probability may fall
        on the other side of the threshold.

        Parameters
        ----------
        links : Tensor [2, L] or LinkPairs, optional
            A tensor: the pairs that will be decided about; the value is expected for them. Labelled links
            that nothing was fitted on: the value is tested on their labels and holds with probability
            `confidence`. Default: the calibration links, for which it is expected.
        precision, recall : float in (0, 1)
            One of the two. The smallest threshold with that precision, or the largest with that recall.
        base_rate : float in (0, 1) or "density", optional
            Share of links among the pairs that will be decided about, for which the threshold holds. Default:
            the one given to ``fit``, else that of the labelled `links`, else that of the calibration links.
        confidence : float in (0, 1)
            Used with labelled links only.
        """
        self._require_fitted()
        wanted = {"precision": precision, "recall": recall}
        if isinstance(links, LinkPairs):
            self._check_new(self._labelled(links))
            scores = self.scorer().score(links.to(self._device))
            y = _labels(scores)
            # At the labels' own share of links, from where the rule moves it on.
            share = float(np.clip(y.sum() / max(y.size, 1), 1e-12, 1.0 - 1e-12))
            stated = base_rate is not None or "base_rate" in self.info_
            return decisions.certified_threshold(
                _scoring.calibrated_logits(self.calibrator_, scores) + self._offset(share), y,
                base_rate=self._rate(base_rate) if stated else None, confidence=confidence, **wanted,
            )  # fmt: skip
        rate, weight = self._rate(base_rate), None
        if links is None:
            scores = self._calibration_scores()
            weight = weights_at_base_rate(_labels(scores), rate)
        else:
            scores = self.scorer().score(self._placed(links))
        z = _scoring.calibrated_logits(self.calibrator_, scores) + self._offset(rate)
        return replace(decisions.expected_threshold(z, sample_weight=weight, **wanted), base_rate=rate)

    def predict_interval(
        self, edge_label_index: Tensor, *, level: float = 0.9, base_rate: BaseRate | None = None
    ) -> Tensor:
        """Lower and upper end [L, 2], float64, of an interval around each pair's probability.

        Parameters
        ----------
        edge_label_index, base_rate
            As in :meth:`predict_proba`; both ends move with the base rate.
        level : float in (0, 1)
            Probability, over the draw of the calibration links, that one pair's interval holds the share of
            links among pairs of its score, as :class:`linkcal.decisions.IntervalCalibrator` states.
        """
        scores = self.scorer().score(self._placed(edge_label_index))
        return self.interval_of(scores, level=level, base_rate=base_rate)

    def interval_of(
        self, scores: LinkScores, *, level: float = 0.9, base_rate: BaseRate | None = None
    ) -> Tensor:
        """Interval [L, 2] of links that a scorer scored; see :meth:`predict_interval`."""
        self._require_fitted()
        level, shift = check_fraction(level, "level"), self._offset(self._rate(base_rate))
        reference, label = self._kept("_intervals", (self.calibrator_, self.graph_), self._interval_evidence)
        ends = np.empty((0, 2))
        if len(scores):  # scikit-learn's checks refuse no rows
            X = scores.to_matrix(self.calibrator_.link_features)
            ends = calibrated_interval(self.calibrator_, X, reference, label, level=level, shift=shift)
        return torch.from_numpy(ends).to(scores.logit.device)

    def refresh(self, links: LinkPairs | Tensor, labels: Any = None) -> Self:
        """Refit only the offset of the calibrated logit on newly labelled pairs of both classes.

        Probabilities then hold for the share of links among these pairs (``calibration_rate``); the ranking
        and ``select`` stay. ``info_["refresh"]`` has the offset and its ``standard_error``.

        Parameters
        ----------
        links, labels : LinkPairs, or Tensor [2, L] and array-like [L] of 0 and 1
        """
        self._require_fitted()
        links = self._labelled(links, labels)
        X, y = self.scorer().score(links.to(self._device)).to_arrays(self.calibrator_.link_features)
        calibrator, positives = self.calibrator_.refresh(X, y), int(y.sum())
        record = {"links": len(y), "positives": positives, "offset": calibrator.offset_}
        record["standard_error"] = calibrator.offset_standard_error_
        ratio = (len(y) - positives) / positives
        self.info_ = {**self.info_, "negatives_per_positive": ratio, "refresh": record}
        return self

    def check(
        self,
        links: LinkPairs | Tensor,
        labels: Any = None,
        *,
        base_rate: BaseRate | None = None,
        alpha: float = 0.05,
    ) -> CalibrationAlarm | PopulationTest:
        """Test that the calibration holds for new pairs: for their labels, or without labels for their kind.

        With labels, in the order in which they came, an anytime-valid test of the probabilities, overall and
        by :func:`linkcal.features.link_segments` of the calibration links. Without, a test that the logits
        and structural columns of the pairs are distributed as those of the calibration links, which finds
        the wrong kind of negatives; a predictor that was fitted on training links is refused, since the
        model knows these.

        Parameters
        ----------
        links, labels : LinkPairs, or Tensor [2, L] and array-like [L] of 0 and 1 or None
            LinkPairs have no order: they are shuffled, for one look. None that the calibrator was fitted on.
        base_rate : float in (0, 1) or "density", optional
            Share of links among the pairs; without labels, links or negatives of the calibration are left
            out until they have it.
        alpha : float in (0, 1)
            Probability of an alarm if the probabilities are exact, for labels over all times together. Those
            of a few hundred calibration links are not: long streams of labels then raise more alarms.

        Returns
        -------
        CalibrationAlarm or PopulationTest
            Of :mod:`linkcal.metrics`; ``alarm`` is the answer, ``str`` the sentence.
        """
        self._require_fitted()
        calibration, rng = self._evidence().calibration.to(self._device), numpy_stream(0, "check")
        scorer = self.scorer("structural")
        reference = scorer.score(calibration)
        if labels is not None or isinstance(links, LinkPairs):
            labelled = self._labelled(links, labels)
            self._check_new(labelled)
            if isinstance(links, LinkPairs):
                order = torch.from_numpy(rng.permutation(len(links)))  # parts of a split have links first
                labelled = LinkPairs(links.edge_label_index[:, order], links.edge_label[order])
            scores = scorer.score(labelled.to(self._device))
            p = torch.sigmoid(self.logit_of(scores, base_rate=base_rate))
            segments = link_segments(scores, like=reference)
            return calibration_alarm(_labels(scores), p, segments, alpha=alpha)
        if self.info_["fit_on"] in ("train", "train-loo"):
            raise InputError(
                f"labels must be given for a predictor fitted on {self.info_['fit_on']!r}, got none: new "
                "pairs cannot look like links that the model was trained on"
            )
        pairs = self._placed(links, "links")
        _, first = np.unique(self._keys(pairs), return_index=True)
        scores = scorer.score(pairs[:, torch.from_numpy(first).to(pairs.device)])
        X, y = reference.to_arrays("structural")
        share, rate = y.mean(), self._rate(base_rate)
        odds = rate / (1.0 - rate) * (1.0 - share) / share
        surplus = rng.permutation(np.flatnonzero(y == (odds < 1.0)))
        left_out = surplus[round(min(odds, 1.0 / odds) * len(surplus)) :]
        names = ("logit", *COLUMN_NAMES["structural"])
        kept = np.delete(X, left_out, axis=0)
        return same_population(kept, scores.to_matrix("structural"), names, alpha=alpha)

    def evaluate(
        self, links: LinkPairs | Tensor, labels: Any = None, *, base_rate: BaseRate | None = None
    ) -> Evaluation:
        """Metrics of labelled pairs, uncalibrated and calibrated, that the calibrator was not fitted on.

        Parameters
        ----------
        links, labels : LinkPairs, or Tensor [2, L] and array-like [L] of 0 and 1
            Such as ``split.test``.
        base_rate : float in (0, 1) or "density", optional
            Share of links to which probabilities are moved, and metrics of probabilities weighted; default:
            that of the fit, if it stated one.

        Returns
        -------
        Evaluation
            Prints as a table; ``write_report("report.html")`` writes the page.
        """
        self._require_fitted()
        labelled = self._labelled(links, labels)
        self._check_new(labelled)
        scores, name = self.scorer().score(labelled.to(self._device)), self.calibrator_.name or "calibrated"
        y, raw = _labels(scores), scores.logit.double().cpu().numpy()
        moved_to = self.info_.get("base_rate") if base_rate is None else self.resolve_base_rate(base_rate)
        weight = None if moved_to is None else weights_at_base_rate(y, moved_to)
        moved = raw + self._offset(self._rate(base_rate))
        z = {"uncalibrated": moved, name: self.logit_of(scores, base_rate=base_rate).cpu().numpy()}
        p = {each: sigmoid(value) for each, value in z.items()}
        p[name] = self.probability_of(scores, base_rate=base_rate).double().cpu().numpy()
        results = {each: evaluate_at_base_rate(y, p[each], z[each], weight) for each in p}
        known = {key: self.info_[key] for key in ("fit_on", "negatives_per_positive", "negatives")}
        if moved_to is not None:
            origin = self.info_.get("base_rate_origin", "given")
            origin = origin if base_rate is None else _scoring.base_rate_origin(base_rate)
            known |= {"base_rate": moved_to, "base_rate_origin": origin}
        counts = {"test_positives": int(y.sum()), "test_negatives": int((1 - y).sum())}
        about = {"dataset": self.graph_.name, "model": type(self.model).__name__, "selected": name}
        about |= {"toggle_method": scores.toggled.method}
        metrics = {**about, **known, "counts": counts, "results": results}
        return Evaluation(metrics | intervals_record(y, p, z, weight), (y, p, weight))

    def update_graph(
        self,
        edge_index: Tensor,
        x: Tensor | None = None,
        *,
        node_type: Any = None,
        edge_weight: Any = None,
        refit: bool = False,
    ) -> Self:
        """Take another message-passing graph: held-out links added, later edges, new nodes.

        Scores move with the graph, and the calibration with them: more edges mostly raise logits. The shift
        on the calibration links, each without its target link, is kept as ``info_["graph_update"]``: mean
        calibrated logit of links and of negatives, and NLL, each as ``[before, after]``. `refit` fits the
        calibrator again to their scores on the new graph; :meth:`refresh` moves its offset by new labels.
        docs/growth.md measures both. An update that raises changes nothing.

        Parameters
        ----------
        edge_index : Tensor [2, E'], int
            ALL edges of the new graph, in any form that :meth:`linkcal.data.Graph.from_edges` takes, such as
            ``torch.cat([clp.graph_.pairs, clp.held_out_, new], dim=1)``. Calibration negatives and null pairs
            that are edges now are left out of ``evidence_``.
        x : Tensor [N', F], optional
            Features of the N nodes in their order, then of new ones; default: as before. Needed where
            features were computed from edges. A model that learned an embedding of each node has no new ones.
        node_type, edge_weight : Tensor [N'] and [E']
            Needed for new nodes of a bipartite graph, and for a graph with weights.
        refit : bool
            Only after a fit on ``"val"`` or ``"train-loo"``. Ends what :meth:`refresh` did.

        Warns
        -----
        LinkcalWarning
            Without `refit`, if the NLL of the calibration links rose by more than two standard errors.
        """
        self._require_unchanged()
        evidence, fit_on = self._evidence(), self.info_["fit_on"]
        if check_flag(refit, "refit") and fit_on not in ("val", "train-loo"):
            raise InputError(
                f"refit must be False for a calibrator fitted on {fit_on!r}, whose training links "
                "are not kept, got True: call fit on a split with the new graph, or refresh with new labels"
            )
        graph = _scoring.updated_graph(self.predictor, self.graph_, edge_index, x, node_type, edge_weight)
        if self.node_ids_ is not None and graph.num_nodes > len(self.node_ids_):
            raise InputError(
                f"x must have {len(self.node_ids_)} rows where nodes have names (node_ids_), got "
                f"{graph.num_nodes}: set node_ids_ = None to number new nodes from {len(self.node_ids_)} on"
            )
        links, null_pairs = evidence.calibration.to(self._device), evidence.null_pairs.to(self._device)
        kept = torch.nonzero((links.edge_label == 1) | ~graph.has_pairs(links.edge_label_index)).flatten()
        links = LinkPairs(links.edge_label_index[:, kept], links.edge_label[kept])
        if not links.num_negatives:
            raise InputError("edge_index must leave a calibration negative, got all: fit on a new split")
        before, kind = self._calibration_scores().take(kept), self.calibrator_.link_features
        averaged = self.symmetrise and not graph.ordered_pairs
        scorer = LinkScorer(self.predictor, graph, features=kind, symmetrise=averaged)
        after = scorer.score(links, target_link=scored_state(fit_on))
        shift, harm = _scoring.graph_shift(self.calibrator_, before, after)
        refitted = _scoring.fit_calibrator(self.calibrator, FitLinks(after)) if refit else self.calibrator_
        gone = int((~graph.has_pairs(self.graph_.pairs)).sum())
        if gone:
            warnings.warn(
                f"{gone:,} of {self.graph_.num_pairs:,} message-passing edges are not among the new ones: "
                "edge_index must hold ALL edges, not only those that were added",
                LinkcalWarning,
                stacklevel=2,
            )
        # Nothing of the predictor changes until all that may be refused is done.
        record = {
            "edges": [self.graph_.num_pairs, graph.num_pairs],
            "nodes": [self.graph_.num_nodes, graph.num_nodes], **shift,
            "negatives_now_edges": len(evidence.calibration) - len(kept), "refit": refit,
        }  # fmt: skip
        info = {**self.info_, "graph_update": record}
        if refit:
            positives, negatives = links.num_positives, links.num_negatives
            info |= {"calibration_negatives": negatives, "negatives_per_positive": negatives / positives}
            info.pop("refresh", None)
        self.calibrator_, self.graph_, self.info_ = refitted, graph, info
        self.evidence_ = Evidence(links, null_pairs[:, ~graph.has_pairs(null_pairs)])
        if self.held_out_ is not None:
            held_out = self.held_out_.to(self._device)
            self.held_out_ = held_out[:, ~graph.has_pairs(held_out)]
        self._fingerprint = Fingerprint(self.predictor, graph)
        if harm and not refit:
            warnings.warn(
                "the calibration links score otherwise on the new graph: their NLL is "
                f"{shift['nll'][1]:.3f}, {shift['nll'][0]:.3f} before; pass refit=True, or call refresh with "
                "new labels",
                LinkcalWarning,
                stacklevel=2,
            )
        return self

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights, message-passing graph and calibrator to `folder`; see :mod:`linkcal.artifact`."""
        self._require_unchanged()
        name = calibrator_name(self.calibrator_)
        own = {"selected": name, "decode_returns": self.decode_returns, "symmetrise": self.symmetrise}
        info, known = {**self.info_, **own}, (self.node_ids_, self.held_out_, self.evidence_)
        save_artifact(Artifact(self.model, self.graph_, {name: self.calibrator_}, info, *known), folder)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], model: nn.Module | None = None, *, calibrator: str | None = None
    ) -> Self:
        """Read what :meth:`save`, ``linkcal run`` or ``linkcal fit`` wrote: fitted, in evaluation mode.

        `folder` and `model` are as in :func:`linkcal.artifact.load_artifact`; `calibrator` names one of
        several saved calibrators, by default the one that was selected.
        """
        artifact = load_artifact(folder, model)
        info = dict(artifact.info)
        selected, returns = info.pop("selected"), info.pop("decode_returns", None)
        name = str(selected) if calibrator is None else calibrator
        fitted = artifact.calibrators[check_choice(name, "calibrator", artifact.calibrators)]
        symmetrise = info.pop("symmetrise", False)
        loaded = cls(artifact.model, clone(fitted), decode_returns=returns, symmetrise=symmetrise)
        loaded.calibrator_, loaded.info_ = fitted, info
        loaded.graph_, loaded.node_ids_ = artifact.graph, artifact.node_ids
        loaded.held_out_, loaded.evidence_ = artifact.held_out, artifact.evidence
        loaded._fingerprint = Fingerprint(loaded.predictor, loaded.graph_)
        return loaded.eval()

    def _require_fitted(self) -> None:
        if not hasattr(self, "calibrator_"):
            raise NotFittedError(f"{type(self).__name__} must be fitted first, call fit")

    def _require_unchanged(self) -> None:
        self._require_fitted()
        changed = self._fingerprint.difference(self.predictor, self.graph_)
        if changed is not None:
            raise InputError(f"{changed} must be as when fitted, got changed values: call fit again")

    def _evidence(self) -> Evidence:
        if self.evidence_ is None:
            raise InputError("predictor must have evidence_, got an artifact without: fit and save it again")
        return self.evidence_

    @property
    def _device(self) -> torch.device:
        return self.graph_.edge_index.device

    def _placed(self, pairs: Tensor, name: str = "edge_label_index") -> Tensor:
        self._require_fitted()
        return self.graph_.check_pairs(pairs, name).to(self._device)

    def _rate(self, base_rate: BaseRate | None) -> float:
        return self.base_rate if base_rate is None else self.resolve_base_rate(base_rate)

    def _offset(self, rate: float) -> float:
        return base_rate_offset(self.calibration_rate, rate)

    def _kept(self, name: str, of: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` gives, made once for the same objects `of`."""
        kept = self.__dict__.get(f"{name}_cache")
        if kept is None or any(old is not new for old, new in zip(kept[0], of, strict=True)):
            kept = self.__dict__[f"{name}_cache"] = of, make()
        return kept[1]

    def _keys(self, pairs: Tensor) -> NDArray[np.int64]:
        """Keys (L,) of pairs [2, L], equal for equal pairs."""
        keys: Tensor = pair_keys(pairs, self.graph_.num_nodes, directed=self.graph_.directed)
        return keys.cpu().numpy()

    def _calibration_scores(self) -> LinkScores:
        """Scores of the calibration links, in the state in which the calibrator saw them."""
        links = self._evidence().calibration.to(self._device)
        return self.scorer().score(links, target_link=scored_state(self.info_["fit_on"]))

    def _interval_evidence(self) -> tuple[FloatArray, FloatArray]:
        """Scores and labels of the calibration links for intervals."""
        X, y = self._calibration_scores().to_arrays(self.calibrator_.link_features)
        return ranking_scores(self.calibrator_, X, y), y.astype(np.float64)

    def _labelled(self, links: LinkPairs | Tensor, labels: Any = None) -> LinkPairs:
        """Pairs with labels, from one argument or two; each once, since a copy is no further evidence."""
        if not isinstance(links, LinkPairs):
            if labels is None:
                raise InputError("labels must be given with a tensor of pairs, got None")
            pairs = self.graph_.check_pairs(links, "links")
            label = check_binary_labels(labels, pairs.size(1), "labels")
            links = LinkPairs(pairs, torch.as_tensor(label, dtype=torch.float32))
        elif labels is not None:
            raise InputError("labels must be left out with LinkPairs, which have their own, got both")
        repeats = len(links) - len(np.unique(self._keys(links.edge_label_index)))
        if repeats:
            way = "" if self.graph_.directed else ", in either direction"
            raise InputError(f"links must hold each pair once{way}, got {repeats} repeats: keep one of each")
        return links

    def _check_new(self, links: LinkPairs) -> None:
        """Refuse labelled links if the calibrator was fitted on most of them; a few repeat by chance."""
        if self.evidence_ is None:
            return
        used, new = (self._keys(part.edge_label_index) for part in (self.evidence_.calibration, links))
        known = int(np.isin(new, used).sum())
        if 2 * known > len(links):
            raise InputError(f"links must be new, got {known} of {len(links)} of the fit: give other ones")


def _labels(scores: LinkScores) -> FloatArray:
    return scores.to_arrays()[1].astype(np.float64)
