"""The table of all calibrators by all metrics, as texts and marks ready to print."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from linkcal.metrics import METRICS

__all__ = ["Cell", "Column", "Row", "build_table", "format_value"]


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
    _metric("auc", "AUC", "%", 2, "chance that a link scores above a non-link"),
    _metric("hits@20", "Hits@20", "%", 1, "share of links above the 20th highest non-link"),
    _metric("hits@50", "Hits@50", "%", 1, "share of links above the 50th highest non-link"),
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
