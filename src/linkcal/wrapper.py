"""A link predictor and a calibrator as one module: pairs in, probabilities out."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from sklearn.base import clone
from torch import Tensor, nn

from linkcal._validation import check_choice, check_positive_int
from linkcal.artifact import Artifact, load_artifact, save_artifact
from linkcal.calibrators import Calibrator, calibrator_name
from linkcal.data import Graph, LinkSplit, NodeIds
from linkcal.decisions import DecisionMethods
from linkcal.evidence import NUM_NULL_PAIRS, Evidence, gather_evidence
from linkcal.exceptions import InputError
from linkcal.features import FitOn
from linkcal.fitting import fit_calibrator, score_fit_links
from linkcal.models import DecodeReturns, as_link_predictor, unwrap_link_predictor
from linkcal.scoring import BaseRate, base_rate_origin, resolved_base_rate

__all__ = ["BaseRate", "CalibratedLinkPredictor", "fit_calibrator"]


class CalibratedLinkPredictor(DecisionMethods, nn.Module):
    """Calibrated probabilities from any trained link predictor.

    ``fit`` scores the calibration links, each without its own edge, and fits a clone of the calibrator on
    them. Afterwards every pair is scored on the message graph of the split it was fitted with, again without
    its own edge: another graph would shift the scores under the calibrator's feet.

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
        The message graph.
    node_ids_ : NodeIds or None
        The user's names of the nodes, if it was loaded from a folder that has them.
    held_out_ : Tensor [2, H] or None
        Known edges that are not in the message graph: the validation links, and in a folder of
        ``linkcal run`` or ``linkcal fit`` the test links too.
    evidence_ : Evidence or None
        Calibration links and pairs that nothing was fitted on, for ``select``, ``threshold_for`` and
        ``predict_interval``; None if it was loaded from a folder written before there was any.
    info_ : dict
        ``fit_on``, ``negatives_per_positive`` and counts of the calibration links. Probabilities are valid
        for the ratio of non-links to links named there, or for ``base_rate`` if that stands there.

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
        """Take the message graph along where the weights go (``to``, ``double``, ``cuda``, ...)."""
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
            Null pairs drawn for ``select``; see :func:`linkcal.evidence.gather_evidence`.

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

        A pair that is an edge of the message graph is scored with that edge removed.

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
        """Write model weights, message graph and calibrator to `folder`; see :mod:`linkcal.artifact`.

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
    """The split with message graph and calibration links on the predictor's device; test links stay."""
    weight = next(predictor.parameters(), None)
    if weight is None:
        return split
    place = weight.device
    return replace(split, graph=split.graph.to(place), train=split.train.to(place), val=split.val.to(place))
