"""Markdown tables of the benchmark of the three kinds of negatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t, wilcoxon

OURS, STACKED = "in-n-out-plus", "in-n-out-plus stacked"

#: Bars of the mean excess ECE in points, by kind.
_EXCESS_BARS = {"uniform": 0.2, "degree": 0.4, "two-hop": 0.4}

_CELL = ["dataset", "model", "seed"]
_DIVISION = ["dataset", "seed"]


def report(rows: pd.DataFrame, command: str) -> str:
    """All tables as Markdown text."""
    rows = rows.assign(
        excess=100 * (rows["ece"] - rows["ece_floor"]), inside=rows["ece"] <= rows["ece_floor_q95"]
    )
    ours = rows[(rows["table"] == "ablation") & (rows["calibrator"] == "all")]
    main = pd.concat([rows[rows["table"] == "main"], ours.assign(calibrator=OURS)])
    cells = main[_CELL].drop_duplicates()
    divisions = len(cells[_DIVISION].drop_duplicates())
    parts = [
        "# Three kinds of negatives",
        f"`{command}`",
        f"{len(cells)} trained models ({', '.join(cells['dataset'].unique())}; "
        f"{', '.join(cells['model'].unique())}; seeds {', '.join(map(str, cells['seed'].unique()))}), each "
        "measured under every kind of negatives: calibrators fitted on the validation links, measured once "
        "on the test links, one negative per link, the links the same for all kinds. ECE, floor, Brier, AUC "
        "and Hits@20 in percent, excess (ECE less floor) in points, NLL in nats. Unless said otherwise, +- "
        f"is half the 95 % t interval of a mean over {divisions} divisions of links (data set and seed): "
        "models of one division share its links and are averaged first.",
        "## Bars",
        _bars(main),
        "## Calibrators",
        *(f"### {kind}\n\n{_means(main[main['kind'] == kind])}" for kind in main["kind"].unique()),
        "## Excess ECE by data set",
        _by_dataset(ours),
        "## Where the gain comes from",
        _gain_means(rows),
        *(f"### {kind}, by data set and model\n\n{_ablation(rows, kind)}" for kind in main["kind"].unique()),
        "## Transfer",
        _transfer(rows[rows["table"] == "transfer"]),
    ]
    return "\n\n".join(parts)


def interval(values: pd.Series[float], division: Sequence[Any]) -> tuple[float, float]:
    """Mean over divisions and half of its 95 % interval (NaN for a single division).

    `division`: one or several columns or index levels as long as `values`, which together name it.
    """
    means = values.groupby(list(division)).mean()
    if len(means) < 2:
        return float(means.mean()), float("nan")
    half = t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means))
    return float(means.mean()), float(half)


def table(head: list[str], lines: list[list[str]], text_columns: int = 1) -> str:
    """Markdown table with right-aligned numbers."""
    rule = "|" + " --- |" * text_columns + " ---: |" * (len(head) - text_columns)
    return "\n".join([_line(head), rule, *map(_line, lines)])


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _over_divisions(rows: pd.DataFrame, column: str) -> tuple[float, float]:
    return interval(rows[column], [rows[name] for name in _DIVISION])


def _bars(main: pd.DataFrame) -> str:
    lines = []
    for kind in main["kind"].unique():
        here = main[main["kind"] == kind]
        wide = {
            m: here.pivot_table(index=_CELL, columns="calibrator", values=m)
            for m in ("nll", "brier", "auc", "hits@20")
        }
        others = [name for name in wide["nll"] if name not in (OURS, STACKED)]
        for name in (OURS, STACKED):
            shares = [(wide[m][name] < wide[m][others].min(axis=1)).mean() for m in ("nll", "brier")]
            shares += [(wide[m][name] >= wide[m]["uncalibrated"]).mean() for m in ("auc", "hits@20")]
            ours = here[here["calibrator"] == name]
            mean, half = _over_divisions(ours, "excess")
            lines.append(
                [
                    kind,
                    name,
                    *(f"{100 * share:.1f} %" for share in shares),
                    f"{100 * ours['inside'].mean():.0f} %",
                    f"{mean:.2f} +- {half:.2f}",
                    f"{_EXCESS_BARS[kind]}",
                ]
            )
    head = [
        "negatives", "fit", "NLL best (bar 95 %)", "Brier best (bar 95 %)", "AUC kept (bar 95 %)",
        "Hits@20 kept (bar 95 %)", "ECE in 95 % band (bar 85 %)", "excess ECE", "its bar",
    ]  # fmt: skip
    note = (
        f"`{OURS}` and its stacked form (a fit to the training links, leave-one-out, is a further input) "
        "against all other calibrators of the next section, cell by cell. Best: lower than the lowest of the "
        "others. Kept: not below the uncalibrated model's."
    )
    return f"{note}\n\n{table(head, lines, 2)}"


def _means(rows: pd.DataFrame) -> str:
    columns = ["ece", "ece_floor", "excess", "nll", "brier", "auc", "hits@20"]
    scale = {"excess": 1.0, "nll": 1.0}
    cells = len(rows[_CELL].drop_duplicates())
    lines = []
    for name, part in rows.groupby("calibrator", sort=False):
        if len(part) < cells:
            name = f"{name} ({len(part)} cells)"
        mean = part[columns].mean()
        row = [f"{mean[c]:.3f}" if c == "nll" else f"{scale.get(c, 100.0) * mean[c]:.2f}" for c in columns]
        lines.append([str(name), *row, f"{100 * part['inside'].mean():.0f} %"])
    return table(["calibrator", *columns, "in band"], lines)


def _by_dataset(ours: pd.DataFrame) -> str:
    kinds = list(ours["kind"].unique())
    links = ours.groupby("dataset")["links"].mean().sort_values()
    lines = []
    for dataset in links.index:
        parts = [ours[(ours["dataset"] == dataset) & (ours["kind"] == kind)] for kind in kinds]
        values = [f"{p['excess'].mean():.2f} ({100 * p['inside'].mean():.0f} %)" for p in parts]
        lines.append([str(dataset), f"{links[dataset]:,.0f}", *values])
    return "In brackets: share of cells within the 95 % band.\n\n" + table(
        ["data set", "test links", *kinds], lines
    )


def _gain_means(rows: pd.DataFrame) -> str:
    """Mean falls of the NLL between feature sets, with tests over divisions."""
    gains = rows[rows["table"] == "gain"]
    lines = []
    for kind in gains["kind"].unique():
        for name in gains["calibrator"].unique():
            part = gains[(gains["kind"] == kind) & (gains["calibrator"] == name)]
            mean, half = _over_divisions(part, "gain")
            division = part.groupby(_DIVISION)["gain"].mean()
            lines.append(
                [
                    kind, name.replace(" > ", " to "), f"{mean:.4f} +- {half:.4f}",
                    f"{(part['gain'] > 0).sum()} of {len(part)}",
                    f"{(part['gain'] > 1.96 * part['gain_error']).sum()}",
                    f"{(part['gain'] < -1.96 * part['gain_error']).sum()}",
                    f"{wilcoxon(division).pvalue:.1g}",
                ]
            )  # fmt: skip
    head = ["negatives", "features", "NLL falls by", "cells", "sure", "surely worse", "Wilcoxon p"]
    note = (
        "`logit`: the logit alone; `toggle`: and the target link; `structure`: the logit, degrees and "
        "common neighbours; `attributes`: the logit and feature similarity (the Bitcoin "
        "graphs have none); `all`: everything. Sure: the 95 % interval over the cell's test links leaves out "
        "zero. Wilcoxon over divisions."
    )
    return f"{note}\n\n{table(head, lines, 2)}"


def _ablation(rows: pd.DataFrame, kind: str) -> str:
    """NLL by data set and model, and gains with 95 % intervals over the test links of all seeds."""
    here = rows[rows["kind"] == kind]
    nll = here[here["table"] == "ablation"].pivot_table(
        index=_CELL, columns="calibrator", values="nll", sort=False
    )
    gains = here[here["table"] == "gain"]
    pairs = ("logit > toggle", "logit > structure", "logit > attributes", "structure+attributes > all")
    lines = []
    means = nll.groupby(["dataset", "model"], sort=False).mean().reset_index()
    for row in means.to_dict(orient="records"):
        dataset, model = row["dataset"], row["model"]
        own = gains[(gains["dataset"] == dataset) & (gains["model"] == model)]
        shown = []
        for name in pairs:
            part = own[own["calibrator"] == name]
            half = 1.96 * np.sqrt((part["gain_error"] ** 2).sum()) / len(part)
            shown.append(f"{part['gain'].mean():.4f} +- {half:.4f}")
        lines.append([dataset, model, *(f"{row[name]:.3f}" for name in ("logit", "all")), *shown])
    head = ["data set", "model", "NLL, logit", "NLL, all", *(name.replace(" > ", " to ") for name in pairs)]
    return f"Means over seeds; +- over test links.\n\n{table(head, lines, 2)}"


def _transfer(rows: pd.DataFrame) -> str:
    kinds = list(rows["kind"].unique())
    percent = ("ece", "bias", "auc", "ece_rare", "ece_shifted")
    columns = ["ece", "bias", "nll", "auc", "ece_rare", "ece_shifted", "nll_rare", "nll_shifted"]
    lines = []
    for name in (OURS, "platt"):
        for test_kind in kinds:
            for kind in kinds:
                part = rows[
                    (rows["calibrator"] == name) & (rows["kind"] == kind) & (rows["test_kind"] == test_kind)
                ]
                mean = part[columns].mean()
                values = [f"{100 * mean[c]:.1f}" if c in percent else f"{mean[c]:.3f}" for c in columns]
                lines.append([name, test_kind, kind, *values])
    head = [
        "calibrator", "measured with", "fitted with", "ECE", "bias", "NLL", "AUC",
        "ECE 1:10, as fitted", "ECE 1:10, moved", "NLL 1:10, as fitted", "NLL 1:10, moved",
    ]  # fmt: skip
    note = (
        "Means over cells. Bias: mean probability less share of links. 1:10: negatives count tenfold, with "
        "probabilities as fitted at 1:1, or moved to the new base rate (`base_rate=1/11`)."
    )
    return f"{note}\n\n{table(head, lines, 3)}"
