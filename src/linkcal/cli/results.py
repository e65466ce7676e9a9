"""The table of all calibrators on stdout."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from linkcal.cli.console import non_links_per_link

__all__ = ["print_results"]

_PERCENT = (
    "ece",
    "ece_top_label",
    "ece_floor",
    "ece_floor_q95",
    "auc",
    "hits@20",
    "hits@50",
    "acc",
    "true_error",
)


def print_results(metrics: dict[str, Any]) -> None:
    """Print one row per calibrator; percentages but for NLL (nats) and seconds."""
    rows: dict[str, dict[str, float]] = dict(metrics["results"])
    columns = list(next(iter(rows.values())))
    counts = metrics["counts"]
    table = Table(
        title=(
            # A name from a file's: what stands in brackets there is no markup.
            f"{metrics['model']} on {escape(metrics['dataset'])}, seed {metrics['seed']}, "
            f"fitted on {metrics['fit_on']}, protocol {metrics['protocol']}"
        ),
        caption=(
            f"{counts['test_positives']:,} test links, {counts['test_negatives']:,} non-links: "
            f"probabilities hold for {_ratio(metrics)}. In %, "
            "NLL in nats, Brier as it is. * ECE at or below floor q95, which a calibrated predictor "
            f"exceeds in 5 of 100 test sets. {_headline(metrics['headline'])}"
        ),
    )
    table.add_column("calibrator", no_wrap=True)
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for calibrator, row in rows.items():
        label = f"{calibrator} (selected)" if calibrator == metrics["selected"] else calibrator
        table.add_row(label, *(_cell(name, row) for name in columns))
    if "oracle" in metrics:
        table.add_section()
        oracle = {**metrics["oracle"], "true_error": 0.0}
        table.add_row(
            "true probability", *(_cell(name, oracle) if name in oracle else "" for name in columns)
        )
    # Wide enough for all columns wherever the output goes; a terminal narrower than that wraps cells.
    console = Console(width=None if Console().is_terminal else 170)
    console.print(table)


def _headline(columns: dict[str, str]) -> str:
    """Which column the protocol prints for whom, where that is not one for all."""
    if len(set(columns.values())) == 1:
        return ""
    pairs = ", ".join(f"{column.replace('_', ' ')} for {name}" for name, column in columns.items())
    return f"The protocol's one-column table mixes metrics: {pairs}."


def _ratio(metrics: dict[str, Any]) -> str:
    if "base_rate" not in metrics:
        return non_links_per_link(metrics["negatives_per_positive"], metrics.get("negatives"))
    return (
        f"a base rate of {metrics['base_rate']:.4g} ({metrics['base_rate_origin']}), where metrics weigh the "
        "non-links accordingly"
    )


def _cell(name: str, row: dict[str, float]) -> str:
    value = row[name]
    if value != value:
        return "n/a"
    text = f"{100 * value:.2f}" if name in _PERCENT else f"{value:.3f}"
    if name == "ece":
        text += "*" if value <= row["ece_floor_q95"] else " "
    return text
