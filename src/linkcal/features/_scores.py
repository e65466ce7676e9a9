"""Scored links: the record, the scorer, which links to fit on, segments to measure calibration in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from linkcal._core.columns import STRUCTURAL_COLUMNS, STRUCTURE_COLUMNS
from linkcal._core.maths import FloatArray
from linkcal._core.threads import fork_safe_lock
from linkcal._core.validation import check_choice, check_flag, check_no_self_pairs, check_type, to_float64
from linkcal.data import Graph, LinkPairs, LinkSplit
from linkcal.exceptions import InputError
from linkcal.features._attributes import attribute_similarity
from linkcal.features._structure import pair_structure, structural_features, structure_features
from linkcal.models.adapter import require_weights_read
from linkcal.toggle import ToggledEmbeddings
from linkcal.toggle.api import toggle_engine, toggle_in_blocks

#: State of a pair's target link when its logit is computed: ``"absent"`` removes it first (leave-one-out for
#: edges of the graph), ``"as-given"`` scores on the graph as it is.
TargetLink = Literal["absent", "as-given"]


@dataclass(frozen=True, eq=False)
class LinkScores:
    """Logits, toggled embeddings and labels of L links; converts to the arrays that calibrators read.

    Parameters
    ----------
    toggled, target_link : ToggledEmbeddings, {"absent", "as-given"}
        The second says which of the first's logits is the one to calibrate.
    label : Tensor [L], optional
        1 for a link, 0 for a negative.
    structure, attributes : Tensor [L, 6], float64, and [L, 2], float32, optional
        Of :func:`linkcal.features.pair_structure` and :func:`linkcal.features.attribute_similarity`.

    Examples
    --------
    >>> from linkcal.data import simulate_graph
    >>> from linkcal.models import make_model
    >>> graph = simulate_graph(50, num_edges=100, num_features=5, seed=0)
    >>> scores = score_links(make_model("gcn", 5, out_channels=4), graph, graph.pairs[:, :10])
    >>> scores.to_matrix("difference").shape  # the logit and h - h+
    (10, 5)
    """

    toggled: ToggledEmbeddings
    target_link: TargetLink = "absent"
    label: Tensor | None = None
    structure: Tensor | None = None
    attributes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.toggled)

    @property
    def logit(self) -> Tensor:
        """Uncalibrated logits [L]."""
        toggled = self.toggled
        if self.target_link == "absent":
            return toggled.logit_absent
        return torch.where(toggled.in_graph, toggled.logit_present, toggled.logit_absent)

    def features(self, kind: str) -> Tensor:
        """Link features [L, k] of a kind in ``FEATURE_KINDS``; InputError if what it needs is missing."""
        return FEATURE_KINDS[check_choice(kind, "kind", FEATURE_KINDS)](self)

    def take(self, rows: Any) -> LinkScores:
        """The links at the given positions, [n], int."""
        index = torch.as_tensor(rows, device=self.logit.device)
        rest = (self.label, self.structure, self.attributes)
        chosen = (None if part is None else part[index] for part in rest)
        return LinkScores(self.toggled.take(index), self.target_link, *chosen)

    def to_matrix(self, kind: str = "none") -> FloatArray:
        """X (L, 1 + k), float64: the logit in column 0, then the features of `kind`."""
        features = self.features(kind)
        return to_float64(torch.cat([self.logit[:, None].to(features), features], dim=1))

    def to_arrays(self, kind: str = "none") -> tuple[FloatArray, NDArray[np.int64]]:
        """X (L, 1 + k) as in :meth:`to_matrix` and labels y (L,), int64; InputError without labels."""
        if self.label is None:
            raise InputError("label must be given to make (X, y), got None")
        return self.to_matrix(kind), self.label.detach().cpu().numpy().astype(np.int64)


def _around(scores: LinkScores) -> tuple[Tensor, Tensor]:
    if scores.structure is None or scores.attributes is None:
        missing = "structure" if scores.structure is None else "attributes"
        raise InputError(f"{missing} must be given to make structural features, got None; see score_links")
    return scores.structure, scores.attributes


#: Link features by name: what a calibrator may read beside the logit (its ``link_features``).
FEATURE_KINDS: dict[str, Callable[[LinkScores], Tensor]] = {
    "none": lambda scores: scores.toggled.absent[:, :0],
    # The paper's ablation: temperature from the link embedding alone.
    "embedding": lambda scores: scores.toggled.absent,
    # gamma = h - h+ of the paper; its norm is the distance form, which calibrators derive themselves.
    "difference": lambda scores: scores.toggled.absent - scores.toggled.present,
    "structural": lambda scores: structural_features(scores.toggled, *_around(scores)),
    # What is known without a model.
    "structure": lambda scores: structure_features(*_around(scores)),
}

#: Names of the columns of :meth:`LinkScores.features`, for the kinds whose columns have one each.
COLUMN_NAMES: dict[str, tuple[str, ...]] = {"structural": STRUCTURAL_COLUMNS, "structure": STRUCTURE_COLUMNS}


def score_links(
    model: nn.Module,
    graph: Graph,
    pairs: LinkPairs | Tensor,
    *,
    target_link: TargetLink = "absent",
    features: str = "structural",
    **options: Any,
) -> LinkScores:
    """Score links on `graph`: logits, toggled embeddings and their place in the graph; evaluation mode.

    Parameters
    ----------
    model : nn.Module
        Anything with ``encode(x, edge_index)`` and ``decode(z, edge_label_index)``.
    graph, pairs : Graph, and LinkPairs or Tensor [2, L]
        The message-passing graph, and pairs of two different nodes each. With edge weights, target links are
        removed with their own and inserted with the median weight.
    target_link : {"absent", "as-given"}
        Remove a target link that is an edge first (leave-one-out), or score on the graph as it is.
    features : {"structural", "structure", "none", "embedding", "difference"}
        Link features that will be read; `structure` and `attributes` are made for the first two.
    **options
        ``symmetrise=True`` averages the logits and embeddings of (u, v) and (v, u). Others are passed to
        :func:`linkcal.toggle_edges` (`method`, `decode_returns`, ...).

    Examples
    --------
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import make_model
    >>> split = split_links(simulate_graph(100, num_edges=300, num_features=5, seed=0), seed=0)
    >>> X, y = score_links(make_model("gcn", 5), split.graph, split.val).to_arrays()
    >>> X.shape == (len(split.val), 1), y.tolist() == split.val.edge_label.tolist()
    (True, True)
    """
    return LinkScorer(model, graph, features=features, **options).score(pairs, target_link=target_link)


class LinkScorer:
    """Scores links of one model on one graph, which it encodes once; for pairs that come in chunks.

    Neither the model nor the graph may change between calls. Threads that share it score one after another.

    Parameters
    ----------
    model, graph, features, symmetrise, **toggle_options
        As in :func:`score_links`.
    """

    def __init__(
        self,
        model: nn.Module,
        graph: Graph,
        *,
        features: str = "structural",
        symmetrise: bool = False,
        **toggle_options: Any,
    ) -> None:
        self._graph, self._symmetrise = graph, check_flag(symmetrise, "symmetrise")
        self._structural = check_choice(features, "features", FEATURE_KINDS) in COLUMN_NAMES
        if graph.edge_weight is not None:
            # The edge of a pair without one is inserted with a usual weight.
            require_weights_read(model, graph)
            inserted = float(graph.edge_weight.median())
            toggle_options = {"edge_weight": graph.edge_weight, "insert_weight": inserted, **toggle_options}
        self._engine = toggle_engine(
            model, graph.node_input, graph.edge_index, undirected=not graph.directed, **toggle_options
        )
        self._lock = fork_safe_lock()  # the engine writes into a workspace of its own

    def score(self, pairs: LinkPairs | Tensor, *, target_link: TargetLink = "absent") -> LinkScores:
        """Score links; see :func:`score_links`."""
        check_choice(target_link, "target_link", ("absent", "as-given"))
        label = pairs.edge_label if isinstance(pairs, LinkPairs) else None
        query = pairs.edge_label_index if isinstance(pairs, LinkPairs) else pairs
        index = check_no_self_pairs(self._graph.check_pairs(query))
        with self._lock:
            near: tuple[Tensor, ...] = ()
            if self._structural:
                near = pair_structure(self._graph, index), attribute_similarity(self._graph, index)
            toggled = toggle_in_blocks(self._engine, index)
            if self._symmetrise and self._graph.node_type is None:
                turned = toggle_in_blocks(self._engine, index.flip(0))
                names = [each.name for each in fields(turned) if each.name not in ("in_graph", "method")]
                mean = {name: (getattr(toggled, name) + getattr(turned, name)) / 2 for name in names}
                toggled = replace(toggled, **mean)
            return LinkScores(toggled, target_link, label, *near)


#: Links that a calibrator is fitted on, and the state of their target link; see :func:`calibration_links`.
FitOn = Literal["val", "stacked", "train-loo", "train"]
FIT_ON: tuple[str, ...] = get_args(FitOn)


def calibration_part(fit_on: str) -> Literal["val", "train"]:
    """Part of the split, ``"val"`` or ``"train"``, that holds the calibration links of a `fit_on`."""
    return "val" if check_choice(fit_on, "fit_on", FIT_ON) in ("val", "stacked") else "train"


def scored_state(fit_on: str) -> TargetLink:
    """State of the target links of the calibration links of a `fit_on`."""
    return "as-given" if fit_on == "train" else "absent"


def calibration_links(
    model: nn.Module, split: LinkSplit, fit_on: FitOn = "val", **options: Any
) -> LinkScores:
    """Score the links that a calibrator is to be fitted on, on the split's message-passing graph.

    Parameters
    ----------
    model : nn.Module
    split : LinkSplit
    fit_on : {"val", "stacked", "train-loo", "train"}
        ``"val"``, ``"stacked"``: validation links, no edges of the message-passing graph (with ``"stacked"``
        some calibrators read training links too). ``"train-loo"``: training links, each scored with its
        target link removed (leave-one-out). ``"train"``: training links on the graph as given, so that the
        model sees the edge it scores (the protocol of arXiv 2403.04605).
    **options
        As in :func:`linkcal.features.score_links`.
    """
    check_type(split, LinkSplit, "split")
    part = split.part(calibration_part(fit_on))
    return score_links(model, split.graph, part, target_link=scored_state(fit_on), **options)


# Quantile bins of degrees and of similarity; common neighbours are 0, 1, or more.
_DEGREES, _SIMILARITIES = 5, 3
# Smaller products of all three are put together: no deviation of so few links is one.
_FEWEST = 20


def link_segments(scores: LinkScores, like: LinkScores | None = None) -> dict[str, NDArray[np.str_]]:
    """Segments of scored links, for :func:`linkcal.metrics.group_calibration`.

    Parameters
    ----------
    scores : LinkScores
        Of L links, with structure and attributes.
    like : LinkScores, optional
        Links whose quantiles and counts make the segments, by default `scores`. With others the segment of a
        link depends on that link alone.

    Returns
    -------
    dict of str to ndarray (L,) of str
        ``degrees``: quintiles of the geometric mean of the degrees (each plus 1); ``common``: no, one or more
        common neighbours; ``similarity``: terciles of the feature similarity, if it varies; and their
        products, those of under 20 links as ``"few"``. Without target links.

    Examples
    --------
    >>> from linkcal.data import simulate_graph
    >>> from linkcal.models import make_model
    >>> graph = simulate_graph(200, num_edges=600, num_features=5, seed=0)
    >>> segments = link_segments(score_links(make_model("gcn", 5), graph, graph.pairs[:, :300]))
    >>> sorted(segments)
    ['all three', 'common', 'degrees', 'similarity']
    """
    like = scores if like is None else like
    reference = _quantities(like)
    parts = _parts(_quantities(scores), reference)
    count = Counter(_together(_parts(reference, reference)))
    products = [each if count[each] >= _FEWEST else "few" for each in _together(parts)]
    return parts | {"all three" if len(parts) == 3 else "both": np.array(products, dtype=np.str_)}


def _quantities(scores: LinkScores) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Geometric mean of the degrees, common neighbours and feature similarity of links."""
    column = dict(zip(STRUCTURE_COLUMNS, scores.features("structure").cpu().double().numpy().T, strict=True))
    common = np.rint(np.expm1(column["log_common_neighbours"]))
    return np.exp(column["log_degree_sum"] / 2.0), common, column["attribute_cosine"]


def _parts(
    links: tuple[FloatArray, FloatArray, FloatArray], reference: tuple[FloatArray, FloatArray, FloatArray]
) -> dict[str, NDArray[np.str_]]:
    (degree, common, similarity), (degrees, _, similarities) = links, reference
    parts = {"degrees": _binned(degree, degrees, _DEGREES)}
    parts["common"] = np.select([common == 0, common == 1], ["0", "1"], "2 or more")
    if np.ptp(similarities) > 0.0:
        parts["similarity"] = _binned(similarity, similarities, _SIMILARITIES)
    return parts


def _together(parts: dict[str, NDArray[np.str_]]) -> list[str]:
    return [", ".join(row) for row in zip(*parts.values(), strict=True)]


def _binned(values: FloatArray, reference: FloatArray, count: int) -> NDArray[np.str_]:
    """Names of quantile bins of `reference`, by their ends."""
    edges = np.unique(np.quantile(reference, np.linspace(0.0, 1.0, count + 1), method="inverted_cdf"))
    names = np.array([f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)])
    if not len(names):
        return np.full(len(values), f"{edges[0]:.3g}")
    return names[np.searchsorted(edges[1:-1], values)]
