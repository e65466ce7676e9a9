"""A run as one self-contained HTML page."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from linkcal._core.files import written_whole
from linkcal.exceptions import InputError
from linkcal.metrics import METRICS

__all__ = ["Cell", "Column", "Row", "build_table", "format_value", "write_report"]


# The table of all calibrators by all metrics, as texts and marks ready to print.


@dataclass(frozen=True)
class Column:
    """One metric: its key in the results, its heading, its unit, and whether higher or lower is better."""

    key: str
    label: str
    unit: str
    digits: int
    higher_is_better: bool | None
    help: str


@dataclass(frozen=True)
class Cell:
    """A printed value; `best` if no other row has a better one, `in_noise` for an ECE within its noise."""

    text: str
    best: bool = False
    in_noise: bool = False


@dataclass(frozen=True)
class Row:
    """One predictor's cells, in the order of the columns."""

    name: str
    cells: tuple[Cell, ...]


def _metric(key: str, label: str, unit: str, digits: int, text: str) -> Column:
    return Column(key, label, unit, digits, METRICS[key].higher_is_better, text)


_KNOWN = (
    _metric("ece", "ECE", "%", 2, "expected calibration error of the link probability, 15 equal-width bins"),
    Column("ece_floor", "ECE if calibrated", "%", 2, None, "mean ECE of labels drawn from the probabilities"),
    Column("ece_floor_q95", "95 % of them below", "%", 2, None, "95 % quantile of the same draws"),
    _metric("ece_top_label", "ECE top-label", "%", 2, "the same for the predicted class, link or not"),
    Column(
        "true_error",
        "True error",
        "%",
        2,
        False,
        "mean distance to the true probability, which is known for this simulated graph",
    ),
    _metric("nll", "NLL", "nats", 4, "negative log-likelihood, a proper score"),
    _metric("brier", "Brier", "", 4, "mean squared error of the probability, a proper score"),
    _metric("auc", "AUC", "%", 2, "chance that a link scores above a negative"),
    _metric("hits@20", "Hits@20", "%", 1, "share of links above the 20th highest negative"),
    _metric("hits@50", "Hits@50", "%", 1, "share of links above the 50th highest negative"),
    _metric("acc", "Accuracy", "%", 1, "share of right answers when p > 0.5 means link"),
    Column("seconds_fit", "Fit", "s", 2, None, "seconds to fit the calibrator"),
)


def format_value(value: Any, column: Column) -> str:
    """Text of a fraction or number in the column's unit; ``n/a`` for a value that does not exist."""
    if value is None or not math.isfinite(value):
        return "n/a"
    return f"{value * 100 if column.unit == '%' else value:.{column.digits}f}"


def _best_text(column: Column, values: list[Any]) -> str | None:
    """Text of the best value as printed; None if there is no direction or nothing to choose between."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    if column.higher_is_better is None or not known:
        return None
    # Compared as printed: a difference that the table does not show must not decide what it marks.
    if len({format_value(v, column) for v in known}) == 1:
        return None
    return format_value(max(known) if column.higher_is_better else min(known), column)


def build_table(results: Mapping[str, Mapping[str, Any]]) -> tuple[list[Column], list[Row]]:
    """Columns that occur in any result (unknown keys last, as plain numbers) and one row for each result."""
    present = {key for result in results.values() for key in result}
    columns = [column for column in _KNOWN if column.key in present]
    columns += [
        Column(key, key, "", 4, None, "")
        for key in sorted(present.difference(column.key for column in _KNOWN))
    ]
    best = {c.key: _best_text(c, [r.get(c.key) for r in results.values()]) for c in columns}
    return columns, [_row(name, result, columns, best) for name, result in results.items()]


def _row(name: str, result: Mapping[str, Any], columns: list[Column], best: Mapping[str, str | None]) -> Row:
    cells = []
    for column in columns:
        text = format_value(result.get(column.key), column)
        in_noise = column.key == "ece" and _is_within_noise(result)
        cells.append(Cell(text, best=text == best[column.key], in_noise=in_noise))
    return Row(name, tuple(cells))


def _is_within_noise(result: Mapping[str, Any]) -> bool:
    ece, noise = result.get("ece"), result.get("ece_floor_q95")
    return ece is not None and noise is not None and bool(ece <= noise)


# Write a run's results as one HTML file that needs nothing else: no network, no scripts, figures inside.

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

_ON_VAL = "the validation pairs. No validation or test edge is in the message-passing graph."

#: What the calibrators saw, by the run's ``fit_on``.
_FIT_ON = {
    "val": _ON_VAL,
    "stacked": (
        f"{_ON_VAL} in-n-out-plus builds on a fit to the training pairs, each training edge scored with "
        "itself removed from the message-passing graph."
    ),
    "train-loo": (
        "the training pairs, each training edge scored with itself removed from the message-passing graph."
    ),
    "train": (
        "the training pairs as the model saw them: each training edge is a message-passing edge while it is "
        "scored. The test edges are not, so the calibrators were fitted to easier scores than those they are "
        "tested on (the protocol of arXiv 2403.04605)."
    ),
}


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    figure_png: bytes | str | os.PathLike[str] | None = None,
) -> Path:
    """Write the report of one run.

    The page holds the table of all calibrators by all metrics, the reliability figure, what the calibrators
    were fitted on, the base rate that the probabilities are valid for, the noise floor, limits, and the
    configuration. Equal arguments give equal files.

    Parameters
    ----------
    path : path-like
        File to write; its folder must exist. Written whole or not at all.
    title : str
    metrics : dict
        The content of ``metrics.json``: ``results`` (name of a calibrator -> metric -> fraction, None or NaN
        where a metric does not exist) and, as far as known, `dataset`, `model`, `seed`, `fit_on`,
        `selected` (the calibrator that scores later pairs), `negatives` (the kind of negatives),
        `negatives_per_positive`, `base_rate` (if results are for an asked one) and `counts` (the keys of
        ``LinkSplit.counts()``).
    config : dict
        JSON values, printed as they are.
    figure_png : bytes or path-like, optional
        The reliability figure, a PNG file or its bytes.

    Returns
    -------
    Path
        `path`.

    Raises
    ------
    InputError
        If `metrics`, `config` or `figure_png` is not what it should be; nothing is written then.

    Examples
    --------
    >>> import tempfile
    >>> metrics = {"dataset": "toy", "results": {"uncalibrated": {"ece": 0.152, "nll": 0.61}}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(f"{folder}/report.html", title="Toy", metrics=metrics, config={}).read_text()
    >>> "15.20" in page, "http" in page.replace("http-equiv", "")
    (True, False)
    """
    results = _check_results(metrics)
    columns, rows = build_table(results)
    counts = metrics.get("counts") or {}
    page = _template().render(
        title=title,
        facts=_facts(metrics),
        n_test=_n_test(counts),
        fit_on=_FIT_ON.get(str(metrics.get("fit_on")), metrics.get("fit_on")),
        base_rate=_base_rate(metrics, counts),
        selected=metrics.get("selected"),
        other_kind=_other_kind(metrics),
        findings=_findings(results),
        columns=columns,
        rows=rows,
        has_missing=any(cell.text == "n/a" for row in rows for cell in row.cells),
        figure=None if figure_png is None else _inline_png(figure_png),
        counts=counts,
        config=_to_json(config, "config"),
    )
    with written_whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(path)


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("linkcal.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.jinja")


def _check_results(metrics: Any) -> Mapping[str, Mapping[str, Any]]:
    results = metrics.get("results") if isinstance(metrics, Mapping) else None
    if not isinstance(results, Mapping) or not results:
        raise InputError("metrics must hold 'results' with at least one calibrator, got none")
    for name, result in results.items():
        if not isinstance(result, Mapping):
            raise InputError(
                f"metrics['results'][{name!r}] must be a dict of numbers, got {type(result).__name__}"
            )
        for key, value in result.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                raise InputError(
                    f"metrics['results'][{name!r}][{key!r}] must be a number or None, got {value!r}"
                )
    return results


def _facts(metrics: Mapping[str, Any]) -> list[tuple[str, Any]]:
    labels = {
        "dataset": "Data set",
        "model": "Model",
        "seed": "Seed",
        "fit_on": "Fitted on",
        "selected": "Selected calibrator",
        "negatives": "Kind of negatives",
    }
    return [(label, metrics[key]) for key, label in labels.items() if metrics.get(key) is not None]


def _other_kind(metrics: Mapping[str, Any]) -> str | None:
    """The kind of the negatives where it is not uniform: such probabilities are not for all pairs."""
    kind = metrics.get("negatives")
    return None if kind in (None, "uniform") else str(kind)


def _n_test(counts: Mapping[str, Any]) -> int | None:
    if "test_positives" in counts and "test_negatives" in counts:
        return int(counts["test_positives"]) + int(counts["test_negatives"])
    return None


def _base_rate(metrics: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Share of links that the probabilities are valid for, and among all pairs where that is known."""
    negatives_per_positive, asked = metrics.get("negatives_per_positive"), metrics.get("base_rate")
    if negatives_per_positive is None:
        return None
    sampled = f"{negatives_per_positive:g}"
    if asked is not None:
        negatives_per_positive = (1.0 - asked) / asked
    all_pairs = None
    if "edges" in counts and "non_edges" in counts:
        edges, non_edges = int(counts["edges"]), int(counts["non_edges"])
        all_pairs = f"{100 * edges / (edges + non_edges):.2g}"
    return {
        "negatives": f"{negatives_per_positive:g}",
        "percent": f"{100 / (1 + negatives_per_positive):.3g}",
        "moved_from": None if asked is None else sampled,
        "all_pairs_percent": all_pairs,
    }


def _known(results: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, float]:
    """Values of a metric where it exists, by calibrator."""
    values = {name: result.get(key) for name, result in results.items()}
    return {name: float(v) for name, v in values.items() if v is not None and math.isfinite(v)}


def _findings(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Plain sentences about ECE and the proper score; only what the numbers carry."""
    findings = []
    ece, noise, nll = (_known(results, key) for key in ("ece", "ece_floor_q95", "nll"))
    if "uncalibrated" in ece and len(ece) > 1:
        best = min(ece, key=ece.__getitem__)
        findings.append(
            f"The ECE is {100 * ece['uncalibrated']:.1f} % uncalibrated; "
            + (
                "no calibrator has a lower one."
                if best == "uncalibrated"
                else f"the lowest is {100 * ece[best]:.1f} % ({best})."
            )
        )
    tested = [name for name in ece if name in noise]
    inside = [name for name in tested if ece[name] <= noise[name]]
    if inside:
        findings.append(
            f"Within the noise of perfect calibration: {', '.join(inside)}. "
            "With this many test pairs their ECEs do not show that they are miscalibrated."
        )
    elif tested:
        findings.append(
            "No ECE is within the noise of perfect calibration: all are measurably miscalibrated."
        )
    if len(nll) > 1:
        best = min(nll, key=nll.__getitem__)
        findings.append(f"The lowest negative log-likelihood, a proper score, is {nll[best]:.4f} ({best}).")
    return findings


def _inline_png(figure: bytes | str | os.PathLike[str]) -> str:
    data = figure if isinstance(figure, bytes) else Path(figure).read_bytes()
    if not data.startswith(_PNG_SIGNATURE):
        raise InputError("figure_png must be a PNG file or its bytes, got something else")
    return base64.b64encode(data).decode("ascii")


def _to_json(value: Any, name: str) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except TypeError as error:
        raise InputError(f"{name} must hold JSON values only, got: {error}") from error
