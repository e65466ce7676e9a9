"""A fitted folder as a function of tables of pairs, for engines that run it in many processes."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

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

__all__ = ["scoring_function"]

_Loaded = tuple[CalibratedLinkPredictor, NodeIds | BipartiteIds, LinkScorer]
_lock = fork_safe_lock()


@lru_cache(maxsize=4)
def _load(folder: str, digest: str, calibrator: str | None) -> _Loaded:
    if artifact_head(folder)[1]["sha256"] != digest:
        raise InputError(f"{folder} must be as when the function was made, got another fit: make it again")
    predictor = CalibratedLinkPredictor.load(folder, calibrator=calibrator)
    ids = predictor.node_ids_ or NodeIds.range(predictor.graph_.num_nodes)
    return predictor, ids, predictor.scorer()


@dataclass(frozen=True)
class ScoringFunction:
    """What :func:`scoring_function` returns; `digest` is the SHA-256 of the artifact's manifest."""

    folder: str
    digest: str
    calibrator: str | None
    base_rate: BaseRate | None
    source: str
    target: str
    interval: float | None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the added columns."""
        return ("logit", "probability", "in_graph", "p_low", "p_high")[: 3 if self.interval is None else 5]

    def load(self) -> _Loaded:
        """Predictor, node ids and scorer, loaded once in each process, which keeps the last four."""
        with _lock:
            return _load(self.folder, self.digest, self.calibrator)

    def score_pairs(self, edge_label_index: Tensor) -> list[Tensor]:
        """The added columns, [L] each, of pairs [2, L] of node numbers."""
        predictor, _, scorer = self.load()
        scores = scorer.score(edge_label_index)
        with blas_threads(1):  # as many wherever the pairs are scored
            p = predictor.probability_of(scores, base_rate=self.base_rate)
            found = [scores.logit, p, predictor.known_edges(edge_label_index)]
            if self.interval is not None:
                ends = predictor.interval_of(scores, level=self.interval, base_rate=self.base_rate)
                found += ends.unbind(dim=1)
        return found

    def __call__(self, table: Any) -> Any:
        """The table with the added columns."""
        if not isinstance(table, pa.Table | pd.DataFrame | dict):
            kinds = "pyarrow.Table, pandas.DataFrame or dict of arrays"
            raise InputError(f"table must be a {kinds}, got {type(table).__name__}")
        names = [str(name) for name in (table.column_names if isinstance(table, pa.Table) else table)]
        for name, number in {self.source: 1, self.target: 1, **dict.fromkeys(self.columns, 0)}.items():
            if names.count(name) != number:
                raise InputError(f"table must have {number} columns {name!r}, got {listed(names)}")
        ends = [parse_ids(table[name]) for name in (self.source, self.target)]
        index = self.load()[1].lookup_pairs(*ends)
        unknown = np.argwhere(index.T < 0).tolist()
        if unknown:
            row, end = unknown[0]
            value, ids = ends[end][row], self.load()[1]
            raise InputError(
                f"pairs must name nodes of the graph ({len(ids)} nodes), got {len(unknown)} unknown ids, the "
                f"first {one_line(repr(value.as_py()))} in row {row} of the table{ids.hint(end, value)}"
            )
        found = [values.cpu().numpy() for values in self.score_pairs(torch.from_numpy(index))]
        added = {
            k: v.astype("?" if v.dtype == bool else "d") for k, v in zip(self.columns, found, strict=True)
        }
        if isinstance(table, dict):
            return {**table, **added}
        if isinstance(table, pd.DataFrame):
            return table.assign(**added)
        for name, values in added.items():
            table = table.append_column(name, pa.array(values))
        return table


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

    Its pickle is a path and options. Each process reads the folder, from that path, at its first call, and
    refuses one that was fitted again since.

    Parameters
    ----------
    folder : path
        Of ``linkcal run`` or ``linkcal fit``, or of ``save``, with one of linkcal's own models.
    calibrator, base_rate, interval
        As in :meth:`~linkcal.CalibratedLinkPredictor.load`,
        :meth:`~linkcal.CalibratedLinkPredictor.predict_proba`, and the level of
        :meth:`~linkcal.CalibratedLinkPredictor.predict_interval`.
    source, target : str
        Columns of a table with the user's ids of both nodes.

    Returns
    -------
    callable
        Maps a pyarrow.Table, a pandas.DataFrame or a dict of arrays (n,) to one of the same kind with the
        columns ``logit``, ``probability`` (and ``p_low``, ``p_high``), float64, and ``in_graph``, bool.

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
    return ScoringFunction(str(place), head["sha256"], calibrator, rate, source, target, interval)
