"""A fitted folder as a function of tables of pairs, for engines that run it in many processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from linkcal._core.files import listed, one_line
from linkcal._core.threads import blas_threads, fork_safe_lock
from linkcal._core.validation import check_base_rate, check_choice, check_fraction
from linkcal._folder import read_calibrators
from linkcal.artifact import artifact_head
from linkcal.data import BipartiteIds, NodeIds
from linkcal.data.node_ids import parse_ids
from linkcal.exceptions import InputError
from linkcal.features import LinkScorer
from linkcal.predictor import BaseRate, CalibratedLinkPredictor

__all__ = ["ScoringFunction", "scoring_function"]


class LoadedFolder(NamedTuple):
    """What one process holds of a fitted folder."""

    predictor: CalibratedLinkPredictor
    node_ids: NodeIds | BipartiteIds
    scorer: LinkScorer


_lock = fork_safe_lock()


@lru_cache(maxsize=4)
def _load(folder: str, digest: str, calibrator: str | None) -> LoadedFolder:
    if artifact_head(folder)[1]["sha256"] != digest:
        raise InputError(f"{folder} must be as when the function was made, got another fit: make it again")
    predictor = CalibratedLinkPredictor.load(folder, calibrator=calibrator)
    ids = predictor.node_ids_ or NodeIds.range(predictor.graph_.num_nodes)
    return LoadedFolder(predictor, ids, predictor.scorer())


@dataclass(frozen=True)
class ScoringFunction:
    """What :func:`scoring_function` returns: a path and options, which pickle to a few hundred bytes.

    Parameters
    ----------
    folder, digest : str
        The artifact's absolute path, and the SHA-256 of its manifest: a folder that was fitted again since
        is refused.
    calibrator, base_rate, source, target, interval
        As in :func:`scoring_function`.
    """

    folder: str
    digest: str
    calibrator: str | None = None
    base_rate: BaseRate | None = None
    source: str = "source"
    target: str = "target"
    interval: float | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that a call adds."""
        ends = () if self.interval is None else ("p_low", "p_high")
        return ("logit", "probability", "in_graph", *ends)

    def load(self) -> LoadedFolder:
        """The folder's predictor, loaded once in each process (a process keeps the last four)."""
        with _lock:
            return _load(self.folder, self.digest, self.calibrator)

    def score_pairs(self, edge_label_index: Tensor) -> list[Tensor]:
        """The added columns, [L] each, of pairs [2, L] of node numbers."""
        predictor, _, scorer = self.load()
        scores = scorer.score(edge_label_index)
        with blas_threads(1):  # numbers do not depend on the cores of the machine that a batch came to
            probability = predictor.probability_of(scores, base_rate=self.base_rate)
            found = [scores.logit, probability, predictor.known_edges(edge_label_index)]
            if self.interval is not None:
                ends = predictor.interval_of(scores, level=self.interval, base_rate=self.base_rate)
                found += ends.unbind(dim=1)
        return found

    def __call__(self, table: Any) -> Any:
        """The table with the added columns; see :func:`scoring_function`."""
        is_arrow, is_frame = isinstance(table, pa.Table), isinstance(table, pd.DataFrame)
        if not (is_arrow or is_frame or isinstance(table, dict)):
            kinds = "a pyarrow.Table, a pandas.DataFrame or a dict of arrays"
            raise InputError(f"table must be {kinds}, got {type(table).__name__}")
        names: list[Any] = list(table.column_names if is_arrow else table)
        self._check_names(names)
        ends = [parse_ids(table[name]) for name in (self.source, self.target)]
        if len(ends[0]) != len(ends[1]):
            raise InputError(f"table must have columns of one length, got {len(ends[0])} and {len(ends[1])}")
        pairs = _known(self.load().node_ids, ends)
        found = {
            name: (values if name == "in_graph" else values.double()).cpu().numpy()
            for name, values in zip(self.columns, self.score_pairs(pairs), strict=True)
        }
        if is_frame:
            return table.assign(**found)
        if not is_arrow:
            return {**table, **found}
        arrays = [*table.columns, *map(pa.array, found.values())]
        return pa.Table.from_arrays(arrays, names=[*names, *found])

    def _check_names(self, names: Iterable[Any]) -> None:
        names = list(names)
        for name in (self.source, self.target):
            if names.count(name) != 1:
                raise InputError(f"table must have the column {name!r} once, got {listed(map(str, names))}")
        taken = [name for name in self.columns if name in names]
        if taken:
            raise InputError(f"table must not have the column {taken[0]!r} yet, got it: rename or drop it")


def _known(node_ids: NodeIds | BipartiteIds, ends: list[Any]) -> Tensor:
    """Node numbers [2, n] of two columns of ids; an unknown one is refused."""
    pairs = node_ids.lookup_pairs(*ends)
    unknown = np.argwhere(pairs.T < 0).tolist()
    if unknown:
        row, end = unknown[0]
        value = ends[end][row]
        raise InputError(
            f"pairs must name nodes of the graph ({len(node_ids)} nodes), got {len(unknown)} unknown ids, "
            f"the first {one_line(repr(value.as_py()))} in row {row} of the table{node_ids.hint(end, value)}"
        )
    return torch.from_numpy(pairs)


def scoring_function(
    folder: str | Path,
    *,
    calibrator: str | None = None,
    base_rate: BaseRate | None = None,
    source: str = "source",
    target: str = "target",
    interval: float | None = None,
) -> ScoringFunction:
    """Make a function that adds calibrated probabilities to tables of pairs, for Ray, Spark or threads.

    Only the path and the options are pickled: each process reads the folder at its first call. The folder
    must be found under the same path wherever the function runs.

    Parameters
    ----------
    folder : path
        Of ``linkcal run`` or ``linkcal fit``, or of ``save``, with one of linkcal's own models.
    calibrator : str, optional
        One of those in the folder; default: the selected one.
    base_rate : float in (0, 1) or "density", optional
        As in :meth:`~linkcal.CalibratedLinkPredictor.predict_proba`.
    source, target : str
        Columns of a table with the user's ids of both nodes.
    interval : float in (0, 1), optional
        Level of ``p_low`` and ``p_high``, as in
        :meth:`~linkcal.CalibratedLinkPredictor.predict_interval`.

    Returns
    -------
    ScoringFunction
        Maps a pyarrow.Table, a pandas.DataFrame or a dict of arrays (n,) to one of the same kind with the
        columns ``logit`` and ``probability``, float64, ``in_graph``, bool, and with `interval` ``p_low`` and
        ``p_high``, float64. A table with an unknown id, or a node paired with itself, raises an InputError.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from linkcal import CalibratedLinkPredictor, Platt, scoring_function
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import make_model
    >>> split = split_links(simulate_graph(300, num_edges=900, num_features=20, seed=0), seed=0)
    >>> folder = mkdtemp()
    >>> CalibratedLinkPredictor(make_model("gcn", 20), Platt()).fit(split).save(folder)
    >>> list(scoring_function(folder)({"source": [3, 5], "target": [4, 9]}))
    ['source', 'target', 'logit', 'probability', 'in_graph']
    """
    place, head = artifact_head(folder)
    if calibrator is not None:
        check_choice(calibrator, "calibrator", read_calibrators(place))
    rate: Any = base_rate
    if base_rate is not None:
        rate = check_base_rate(base_rate, head["info"].get("negatives") or "uniform")
    if interval is not None:
        check_fraction(interval, "interval")
    if source == target:
        raise InputError(f"target must be another column than source, got {source!r} for both")
    return ScoringFunction(str(place), head["sha256"], calibrator, rate, source, target, interval)
