"""Calibrated probabilities from anyone's scores of labelled pairs, without the model; a graph may help."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from linkcal import _folder
from linkcal._core.columns import STRUCTURE_COLUMNS
from linkcal._core.files import refusing, require_writable
from linkcal._core.maths import FloatArray, sigmoid
from linkcal._core.maths import logit as logit_of_probability
from linkcal._core.random import numpy_stream
from linkcal._core.tables import Columns, Table
from linkcal._core.threads import blas_threads
from linkcal._core.validation import (
    FEW_LINKS,
    chance_limits,
    check_choice,
    check_flag,
    check_fraction,
    check_positive_int,
)
from linkcal.calibrators import CALIBRATORS, Calibrator, base_rate_offset, make_calibrator
from linkcal.calibrators.base import collected_warnings, warn_caller
from linkcal.calibrators.registry import select_calibrator
from linkcal.decisions import LinkThreshold, certified_threshold, conformal_p_values, select_links
from linkcal.decisions._intervals import calibrated_interval, ranking_scores
from linkcal.decisions._thresholds import weights_at_base_rate
from linkcal.exceptions import BaseRateWarning, FewLinksWarning, InputError, LinkcalWarning, extra_needed
from linkcal.metrics import group_calibration
from linkcal.metrics.intervals import intervals_record
from linkcal.metrics.registry import evaluate_at_base_rate
from linkcal.metrics.value import WITH_MODEL, WITHOUT_MODEL, value_record

if TYPE_CHECKING:
    from linkcal.data import NamedGraph

__all__ = ["SCORE_CALIBRATORS", "CalibratedScores", "calibrate_scores"]

#: Calibrators that read a pair's score alone, in the order of tables.
SCORE_CALIBRATORS = tuple(name for name, cls in CALIBRATORS.items() if cls.link_features == "none")
#: Those that read a pair's place in the graph too.
GRAPH_CALIBRATORS = (WITH_MODEL, WITHOUT_MODEL)

_FORMAT, _VERSION, _EVIDENCE = "linkcal-scores", 2, "evidence.safetensors"
_GRAPH_FILES = {"graph.safetensors", "nodes.parquet", "target-nodes.parquet"}
_INFO = ("score", "column", "source", "target", "selected", "negatives_per_positive")


class _Labelled(NamedTuple):
    """X (n, 1 + k), the uncalibrated logit and columns of the graph, and labels (n,), 0 or 1, of pairs."""

    X: FloatArray
    label: FloatArray

    @property
    def logit(self) -> FloatArray:
        """Uncalibrated logits (n,)."""
        return self.X[:, 0]

    def counts(self) -> tuple[int, int]:
        """Links and negatives."""
        return int(self.label.sum()), int((1.0 - self.label).sum())


@dataclass(frozen=True, eq=False)
class CalibratedScores:
    """Calibrators fitted to scores of labelled pairs; :func:`calibrate_scores` and :meth:`load` make it.

    Probabilities hold for pairs scored by the same model and drawn like the labelled ones, at the
    calibration pairs' share of links unless a `base_rate` is given. Tables are as in
    :func:`calibrate_scores`, with scores in a column of the same name and meaning.

    Parameters
    ----------
    calibrators : dict of str to Calibrator
    info : dict
        JSON values: kind and column of the ``score``, ``selected`` calibrator, ``negatives_per_positive``.
    calibration, test : pair of arrays (n, 1 + k) and (n,)
        Logits, with columns of the graph if there is one, and labels that the calibrators were fitted on, and
        on which they were measured.
    metrics : dict
        The content of ``metrics.json``; empty after :meth:`load`.
    graph : NamedGraph, optional
        In which pairs are looked up.

    Examples
    --------
    >>> y = np.arange(800) % 4 == 0
    >>> pairs = {"source": range(800), "target": range(800, 1600), "probability": 0.3 + 0.5 * y, "label": y}
    >>> calibrate_scores(pairs, calibrators=["histogram"])
    CalibratedScores('histogram' of 1 calibrator(s), fitted on 400 pairs, measured on 400)
    """

    calibrators: dict[str, Calibrator]
    info: dict[str, Any]
    calibration: _Labelled
    test: _Labelled
    metrics: dict[str, Any] = field(default_factory=dict)
    graph: NamedGraph | None = None

    def __repr__(self) -> str:
        """Return the selected calibrator and what it rests on, in one line."""
        return (
            f"CalibratedScores({self.info['selected']!r} of {len(self.calibrators)} calibrator(s), fitted on "
            f"{len(self.calibration.label):,} pairs, measured on {len(self.test.label):,})"
        )

    @property
    def calibration_rate(self) -> float:
        """Share of links among the calibration pairs."""
        return 1.0 / (1.0 + float(self.info["negatives_per_positive"]))

    @property
    def base_rate(self) -> float:
        """Share of links for which a probability holds when a call names none."""
        return float(self.info.get("base_rate", self.calibration_rate))

    def apply(
        self,
        pairs: Table,
        *,
        column: str | None = None,
        base_rate: float | None = None,
        interval: float | None = None,
        calibrator: str | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Columns ``source``, ``target``, the score and ``probability`` of scored pairs, arrays (n,).

        `column` names the score if it is called otherwise here, `base_rate` is the share of links among these
        pairs, `calibrator` another one than the selected. With `interval`, the level of an interval as in
        :class:`linkcal.decisions.IntervalCalibrator`, there are also ``p_low`` and ``p_high``.
        """
        return self._applied(*self._read(pairs, column), base_rate, interval, calibrator)

    def _applied(
        self,
        ends: list[NDArray[Any]],
        name: str,
        score: FloatArray,
        X: FloatArray,
        base_rate: float | None,
        interval: float | None = None,
        calibrator: str | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Columns of :meth:`apply`, of what `_read` gives."""
        p, _ = self._calibrated(X, base_rate, calibrator)
        out = {"source": ends[0], "target": ends[1], name: score, "probability": p}
        if interval is not None:
            level, shift = check_fraction(interval, "interval"), self._offset(base_rate)
            span, chosen = np.empty((0, 2)), self._chosen(calibrator)
            if len(X):  # scikit-learn's checks refuse no rows
                known, y = _columns(chosen, self.calibration.X), self.calibration.label
                known = ranking_scores(chosen, known, y)
                span = calibrated_interval(chosen, _columns(chosen, X), known, y, level=level, shift=shift)
            out["p_low"], out["p_high"] = span.T
        return out

    def select(
        self, pairs: Table, *, fdr: float = 0.1, base_rate: float | None = None
    ) -> dict[str, NDArray[Any]]:
        """Pairs to call links, so that on average at most a share `fdr` of them are none.

        As :meth:`apply`, and ``p_value`` and ``selected`` by :func:`linkcal.decisions.select_links`. The null
        scores are those of the test pairs without a link: the bound holds if the negatives among `pairs` are
        like them. Known links should not be among `pairs`, and each pair only once.
        """
        read = self._read(pairs, None)
        z = self._calibrated(read[3], None, None)[1]
        null = self._calibrated(self.test.X[self.test.label == 0.0], None, None)[1]
        chosen = {"p_value": conformal_p_values(z, null), "selected": select_links(z, null, fdr=fdr)}
        return {**self._applied(*read, base_rate), **chosen}

    def threshold_for(
        self,
        *,
        precision: float | None = None,
        recall: float | None = None,
        base_rate: float | None = None,
        confidence: float = 0.95,
    ) -> LinkThreshold:
        """Probability of :meth:`apply` from which on to call pairs links, for a wanted precision or recall.

        It is tested on the labels of the test pairs, by :func:`linkcal.decisions.certified_threshold`.
        """
        rate = self.base_rate if base_rate is None else base_rate
        z = self._calibrated(self.test.X, float(self.test.label.mean()), None)[1]
        wanted = {"precision": precision, "recall": recall}
        return certified_threshold(z, self.test.label, base_rate=rate, confidence=confidence, **wanted)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write calibrators, labelled scores and the graph to a new folder or an artifact; no pickle."""
        halves = {"calibration": self.calibration, "test": self.test}
        arrays = {f"{name}_X": half.X for name, half in halves.items()}
        arrays |= {f"{name}_label": half.label for name, half in halves.items()}
        head: dict[str, Any] = {"info": self.info}
        if self.graph is not None:
            from linkcal import artifact

            head["graph"] = artifact.describe_graph(self.graph.graph)
        with _folder.signed_folder(folder, _FORMAT, _VERSION, **head) as staging:
            if self.graph is not None:
                artifact.write_graph(self.graph.graph, self.graph.node_ids, staging)
            _folder.write_calibrators(self.calibrators, staging)
            _folder.write_arrays(staging / _EVIDENCE, arrays)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save`, :meth:`write` or ``linkcal calibrate`` wrote, if it is unchanged."""
        files = {*_folder.CALIBRATOR_FILES, _EVIDENCE}
        source, head = _folder.read_manifest(folder, _FORMAT, _VERSION, {"info": _INFO}, files, _GRAPH_FILES)
        arrays = _folder.read_arrays(source / _EVIDENCE)
        with refusing(source / _EVIDENCE, "hold scores and labels"):
            calibration, test = (
                _Labelled(arrays[f"{half}_X"], arrays[f"{half}_label"]) for half in ("calibration", "test")
            )
        graph = None
        if "graph" in head:
            with extra_needed("a folder with a graph"):
                from linkcal import artifact
                from linkcal.data import NamedGraph
            found, _ = artifact.read_graph(source, head["graph"])
            with refusing(source, "hold parts that belong together"):
                ids = artifact.read_ids(source, head["files"])
                if ids is None:
                    raise InputError("a graph must have the ids of its nodes, got none")
                artifact.check_ids(found, ids)
            graph = NamedGraph(found, ids)
        return cls(_folder.read_calibrators(source), head["info"], calibration, test, graph=graph)

    def write(
        self, folder: str | os.PathLike[str], *, source: dict[str, Any] | None = None
    ) -> dict[str, Path]:
        """Write ``artifact/``, ``config.json``, ``report.html`` and ``metrics.json``.

        `source` (JSON values) says in ``config.json`` where the scores are from. Returns the paths by name.
        """
        from linkcal.report._page import write_results

        if not self.metrics:
            raise InputError("scores must have been measured to write a report, got a loaded artifact")
        require_writable(folder, "out")
        p = {name: self._calibrated(self.test.X, None, name)[0] for name in self.calibrators}
        packages = ("linkcal", "numpy", "scipy", "scikit-learn")
        config = {
            "input": source or {},
            "config": self.info,
            "calibrators": {name: each.get_params() for name, each in self.calibrators.items()},
            "environment": {name: version(name) for name in packages} | {"platform": platform.platform()},
        }
        heading, tested = f"Calibrated scores of {self.info['dataset']}", (self.test.label, p, self._weight())
        options: dict[str, Any] = {"heading": heading, "config": config}
        return write_results(folder, self.save, tested, metrics=self.metrics, **options)

    # What the methods above share.

    def _read(
        self, pairs: Table, column: str | None
    ) -> tuple[list[NDArray[Any]], str, FloatArray, FloatArray]:
        """Both ends, name and values of the score, and X (n, 1 + k)."""
        table, name = Columns(pairs, "pairs"), column or str(self.info["column"])
        table.require([self.info["source"], self.info["target"], name])
        ends = _ends(table, self.info["source"], self.info["target"], bool(self.info.get("bipartite")))
        score, logit = _scores(table, name, self.info["score"])
        return ends, name, score, _matrix(logit, self.graph, ends)[0]

    def _chosen(self, calibrator: str | None) -> Calibrator:
        name = str(self.info["selected"]) if calibrator is None else calibrator
        return self.calibrators[check_choice(name, "calibrator", self.calibrators)]

    def _offset(self, base_rate: float | None) -> float:
        rate = self.base_rate if base_rate is None else check_fraction(base_rate, "base_rate")
        same = rate == self.calibration_rate  # else rounding would leave a trace
        return 0.0 if same else base_rate_offset(self.calibration_rate, rate)

    def _calibrated(
        self, X: FloatArray, base_rate: float | None, calibrator: str | None
    ) -> tuple[FloatArray, FloatArray]:
        """Probabilities and calibrated logits (n,) at a base rate."""
        chosen, offset = self._chosen(calibrator), self._offset(base_rate)
        if not len(X):  # scikit-learn's checks refuse no rows
            return np.empty(0), np.empty(0)
        X = _columns(chosen, X)
        z = chosen.decision_function(X) + offset
        # Maps by bins give a probability exactly, and derive its logit.
        return (sigmoid(z) if offset else chosen.predict_proba(X)[:, 1]), z

    def _weight(self) -> FloatArray | None:
        """Weights of the test pairs, where results are for another base rate."""
        return weights_at_base_rate(self.test.label, self.base_rate) if "base_rate" in self.info else None


def calibrate_scores(
    scores: Table,
    *,
    logit: str | None = None,
    probability: str | None = None,
    label: str = "label",
    source: str = "source",
    target: str = "target",
    split: str | None = None,
    groups: Sequence[str] = (),
    directed: bool = False,
    bipartite: bool = False,
    base_rate: float | None = None,
    calibrators: Sequence[str] | None = None,
    seed: int = 0,
    graph: NamedGraph | None = None,
) -> CalibratedScores:
    """Fit calibrators to the scores of labelled pairs, and measure them on others.

    The pairs must be new to whatever scored them: a model scores its training pairs higher, and a calibrator
    fitted on those is overconfident.

    Parameters
    ----------
    scores : path or mapping of columns
        A .csv, .tsv (also .gz) or .parquet file, a DataFrame, or a dict of arrays; one row for each pair.
    logit, probability : str, optional
        Name of the column with the score, which declares what it is; by default the one column that is named
        ``logit`` or ``probability``.
    label, source, target : str
        Columns of 1 (link) and 0 (negative), and of node ids.
    split : str, optional
        Column with ``val`` (calibrators are fitted on these rows) or ``test``; by default ``split`` if there
        is one. Without, each class is halved at random.
    groups : sequence of str
        Columns whose values divide the test pairs into groups, each checked for its own calibration.
    directed : bool
        Whether (u, v) and (v, u) are different pairs. Else both orders of a pair count once.
    bipartite : bool
        Whether the columns name nodes of two types, such as users and items: an id in both is two nodes.
        True for a bipartite `graph`.
    base_rate : float in (0, 1), optional
        Share of links among the pairs to come, which metrics are weighted to; default: that of the
        calibration pairs.
    calibrators : sequence of str
        Out of ``SCORE_CALIBRATORS`` and, with `graph`, ``"in-n-out-plus"``, which reads a pair's place in
        the graph beside the score, and ``"structure-only"``, which reads that alone; by default all.
    seed : int
        Of the halves, and of the folds that select a calibrator.
    graph : NamedGraph, optional
        The graph that the model was trained on, without the labelled links; :func:`linkcal.data.read_edges`
        reads one. Needs ``linkcal[gnn]``.

    Returns
    -------
    CalibratedScores

    Examples
    --------
    >>> import numpy as np
    >>> s, u = np.random.default_rng(0).normal(size=(2, 2000))
    >>> pairs = {"source": np.arange(2000), "target": np.arange(2000) + 2000, "logit": 3 * s}
    >>> found = calibrate_scores(pairs | {"label": s + u > 0})
    >>> found.apply({"source": ["a", "a"], "target": ["b", "c"], "logit": [0, 3]})["probability"].round(1)
    array([0.5, 0.9])
    """
    table = Columns(scores, "scores")
    kind, column = _declared(table.names, logit, probability)
    split = "split" if split is None and "split" in table.names else split
    table.require([source, target, label, *groups, *([] if split is None else [split])])
    known = SCORE_CALIBRATORS + (() if graph is None else GRAPH_CALIBRATORS)
    calibrators = known if calibrators is None else calibrators
    if not calibrators:
        raise InputError(f"calibrators must name one of {', '.join(known)}, got none")
    fitted = {
        name: make_calibrator(check_choice(name, "calibrators", known)).clone_for(STRUCTURE_COLUMNS)
        for name in calibrators
    }
    if graph is not None and not hasattr(graph, "node_ids"):
        raise InputError(f"graph must be a NamedGraph (linkcal.data.read_edges), got {type(graph).__name__}")
    if graph is not None and graph.graph.directed != directed:
        raise InputError(f"directed must be as that of the graph, {graph.graph.directed}, got {directed}")
    if base_rate is not None:
        check_fraction(base_rate, "base_rate")

    y, (_, s) = table.numbers(label), _scores(table, column, kind)
    table.refuse(~np.isin(y, (0.0, 1.0)), label, "hold a label, 0 or 1,")
    bipartite = check_flag(bipartite, "bipartite") or (
        graph is not None and graph.graph.node_type is not None
    )
    ends = _ends(table, source, target, bipartite)
    kept = _distinct(ends, s, y, check_flag(directed, "directed") or bipartite)
    test = _test_rows(table, split, y, kept, check_positive_int(seed, "seed", minimum=0))
    parts = {"calibration": kept & ~test, "test": kept & test}
    X, in_graph = _matrix(s, graph, ends)
    _check_edges(in_graph, y, ends)
    halves = {name: _Labelled(X[rows], y[rows]) for name, rows in parts.items()}
    for name, half in halves.items():
        if 0 in half.counts():
            got = "{} links and {} negatives".format(*half.counts())
            raise InputError(f"{name} pairs must have both classes, got {got} in {table.place}")
    calibration, (links, negatives) = halves["calibration"], halves["calibration"].counts()
    notes = {}
    with blas_threads(1):
        for name, calibrator in fitted.items():
            with collected_warnings() as notes[name]:
                calibrator.fit(_columns(calibrator, calibration.X), calibration.label)
        fit_links = lambda each: (_columns(each, calibration.X), calibration.label)  # noqa: E731
        selected = select_calibrator(fitted, fit_links, seed=seed)
    for note in notes[selected]:  # those of the others are in metrics.json
        warn_caller(str(note), type(note))
    info = {
        "dataset": "scores" if table.path is None else table.path.name.split(".")[0],
        "score": kind, "column": column, "source": source, "target": target, "label": label, "split": split,
        "directed": directed, "bipartite": bipartite, "seed": seed, "selected": selected,
        "negatives_per_positive": negatives / links,
    }  # fmt: skip
    if base_rate is not None:
        info |= {"base_rate": base_rate, "base_rate_origin": "given"}
    found = CalibratedScores(fitted, info, calibration, halves["test"], graph=graph)
    found.metrics.update(_metrics(found, repeated_rows=len(y) - int(kept.sum())))
    found.metrics["warnings"] = {name: [str(note) for note in each] for name, each in notes.items()}
    by_group = {column: table.texts(column, "name a group")[parts["test"]].astype(str) for column in groups}
    found.metrics["groups"] = {name: _group_metrics(found, name, values) for name, values in by_group.items()}
    _warn_of_limits(found)
    return found


def _matrix(
    logit: FloatArray, graph: NamedGraph | None, ends: list[NDArray[Any]]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """X (n, 1 + k): the logit and, with a graph, columns of it; and which pairs are its edges (n,)."""
    if graph is None or not len(logit):
        return logit[:, None], np.zeros(len(logit), dtype=bool)
    from linkcal.features._named import named_columns

    columns, in_graph, unknown = named_columns(graph, *ends)
    if unknown is not None:
        warn_caller(unknown, LinkcalWarning)
    return np.column_stack((logit, columns)), in_graph


def _columns(calibrator: Calibrator, X: FloatArray) -> FloatArray:
    """The columns of X that a calibrator reads."""
    return X[:, :1] if calibrator.link_features == "none" else X


def _check_edges(in_graph: NDArray[np.bool_], y: FloatArray, ends: list[NDArray[Any]]) -> None:
    """Refuse negatives that are edges; warn of links that are."""
    wrong, known = np.flatnonzero(in_graph & (y == 0.0)), int((in_graph & (y == 1.0)).sum())
    if wrong.size:
        pair = f"{ends[0][wrong[0]]}, {ends[1][wrong[0]]} in row {wrong[0] + 1}"
        raise InputError(
            f"pairs labelled 0 must be no edges, got {wrong.size} that are, such as {pair}: give the edges "
            "that the model was trained on"
        )
    if known:
        text = (
            f"{known} of {int(y.sum())} labelled links are edges: each is left out of its own columns, but "
            "if the model was trained on them its scores are too high, and so are probabilities of new pairs"
        )
        warn_caller(text, LinkcalWarning)


def _declared(names: Sequence[str], logit: str | None, probability: str | None) -> tuple[str, str]:
    """Kind and column of the score."""
    given = {"logit": logit, "probability": probability}
    chosen = {kind: column for kind, column in given.items() if column is not None}
    chosen = chosen or {kind: kind for kind in given if kind in names}
    if len(chosen) != 1:
        raise InputError(
            "scores must have a column 'logit' or 'probability', or one of the options logit and probability "
            f"must name the column, got {'both' if chosen else ', '.join(map(repr, names))}"
        )
    return next(iter(chosen.items()))


def _scores(table: Columns, column: str, kind: str) -> tuple[FloatArray, FloatArray]:
    """Scores as given and as logits (n,); those that cannot be of the declared kind are refused."""
    score = table.numbers(column)
    table.refuse(~np.isfinite(score), column, "be finite")
    outside = (score < 0.0) | (score > 1.0)
    if kind == "probability":
        advice = "; if these are logits, declare them so"
        table.refuse(outside, column, "hold a probability in [0, 1]", advice)
        return score, logit_of_probability(score)
    if len(score) > 1 and not outside.any():
        warn_caller(
            f"all logits in column {column!r} lie in [0, 1]: if they are probabilities, declare them so",
            LinkcalWarning,
        )
    return score, score


def _ends(table: Columns, source: str, target: str, bipartite: bool) -> list[NDArray[Any]]:
    """Node ids of each pair, two arrays of texts (n,); different ones unless they are of two types."""
    ends = [table.texts(column, "hold a node id") for column in (source, target)]
    if not bipartite:
        advice = "; if the columns name nodes of two types, declare them bipartite"
        table.refuse(ends[0] == ends[1], source, f"hold another node than {target!r}", advice)
    return ends


def _distinct(ends: list[NDArray[Any]], s: FloatArray, y: FloatArray, directed: bool) -> NDArray[np.bool_]:
    """Whether a row is the first of its pair (n,); all rows of a pair must have one label and one score."""
    number: dict[str, int] = {}
    codes = np.array([[number.setdefault(node, len(number)) for node in column] for column in ends])
    low, high = codes if directed else np.sort(codes, axis=0)
    _, first, inverse = np.unique(low * len(number) + high, return_index=True, return_inverse=True)
    before = first[inverse]
    # Far beyond rounding in float32: the scores of (u, v) and (v, u) may be two sums.
    differs = {"label": y != y[before], "score": np.abs(s - s[before]) > 3e-4 * (1.0 + np.abs(s))}
    for what, rows in differs.items():
        if rows.any():
            row = int(np.flatnonzero(rows)[0])
            raise InputError(
                f"each pair must have one {what}, got {rows.sum()} rows with another one than an earlier row "
                f"of the pair, such as {ends[0][row]}, {ends[1][row]} in rows {before[row] + 1} and {row + 1}"
                + ("" if directed else "; if (u, v) and (v, u) are different pairs, declare them directed")
            )
    kept = np.asarray(before == np.arange(len(before)))
    if not kept.all():
        text = f"{(~kept).sum():,} rows repeat a pair with the same label and score: each pair counts once"
        warn_caller(text, LinkcalWarning)
    return kept


def _test_rows(
    table: Columns, split: str | None, y: FloatArray, kept: NDArray[np.bool_], seed: int
) -> NDArray[np.bool_]:
    """Rows (n,) to measure on: those of the column, or half of the kept rows of each class."""
    if split is not None:
        names = table.texts(split, "hold val or test")
        table.refuse([name not in ("val", "test") for name in names], split, "hold val or test")
        return np.asarray(names == "test")
    test, rng = np.zeros(len(y), dtype=bool), numpy_stream(seed, "split of scores")
    for value in (0.0, 1.0):
        rows = rng.permutation(np.flatnonzero(kept & (y == value)))
        test[rows[(len(rows) + 1) // 2 :]] = True
    return test


def _metrics(found: CalibratedScores, **counts: int) -> dict[str, Any]:
    """Content of ``metrics.json``."""
    info, (_, y), weight = found.info, found.test, found._weight()
    results, p, z = {}, {}, {}
    for name in found.calibrators:
        p[name], z[name] = found._calibrated(found.test.X, None, name)
        results[name] = evaluate_at_base_rate(y, p[name], z[name], weight)
    for half in ("calibration", "test"):
        counts[f"{half}_positives"], counts[f"{half}_negatives"] = getattr(found, half).counts()
    how = "a random half of each class" if info["split"] is None else f"val in column {info['split']!r}"
    kept = ("dataset", "seed", "negatives_per_positive", "base_rate", "base_rate_origin", "selected")
    return {
        **{name: info[name] for name in kept if name in info},
        **({} if found.graph is None else {"edges": found.graph.graph.num_pairs}),
        "model": "scores",
        "fit_on": f"{len(found.calibration.label):,} labelled pairs ({how})",
        "counts": counts,
        "results": results,
        **value_record(y, p, weight),
        **intervals_record(y, p, z, weight),
    }


def _group_metrics(found: CalibratedScores, name: str, values: NDArray[Any]) -> dict[str, Any]:
    """Calibration of the selected calibrator by group, at the calibration pairs' base rate."""
    p, _ = found._calibrated(found.test.X, found.calibration_rate, None)
    group = group_calibration(found.test.label, p, {name: values})
    keys = ("count", "observed", "expected", "z")
    columns = [getattr(group, key).tolist() for key in keys]
    segments = [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]
    return {
        "bound": group.bound,
        "p_value": group.p_value,
        "worst": group.segment[group.worst],
        "segments": dict(zip(group.segment, segments, strict=True)),
    }


def _warn_of_limits(found: CalibratedScores) -> None:
    """Warn where the labelled pairs cannot show what a reader may see in the numbers."""
    counts, (_, y) = found.calibration.counts() + found.test.counts(), found.test
    if min(counts) < FEW_LINKS:
        floor = 100 * found.metrics["results"][found.info["selected"]]["ece_floor_q95"]
        text = (
            "fitted on {} links and {} negatives, measured on {} and {}: with fewer than {} of a class, an "
            "ECE up to {:.1f} % is what calibrated probabilities show by chance, and a probability near the "
            "base rate is known to +- {:.0f} points at best (95 %)"
        )
        precision, _ = chance_limits(*found.calibration.counts())
        warn_caller(text.format(*counts, FEW_LINKS, floor, 100 * precision), FewLinksWarning)
    rate, share = found.calibration_rate, float(y.mean())
    if abs(share - rate) > 4.0 * np.sqrt(rate * (1.0 - rate) / len(y)):
        warn_caller(
            f"{100 * rate:.3g} % of the val pairs and {100 * share:.3g} % of the test pairs are links: "
            "probabilities are for the first share, and their ECE on the test pairs shows the difference",
            BaseRateWarning,
        )
