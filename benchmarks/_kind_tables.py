"""Markdown tables of the benchmark of the three kinds of non-links."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import t, wilcoxon

OURS = "in-n-out-plus"
_ABLATION = ("logit", "+ toggle", "+ structure", OURS)


def report(rows: pd.DataFrame, command: str) -> str:
    """All tables as Markdown text."""
    rows = rows.assign(
        cell=rows["dataset"] + "-" + rows["model"] + "-" + rows["seed"].astype(str),
        division=rows["dataset"] + "-" + rows["seed"].astype(str),
        excess=100 * (rows["ece"] - rows["ece_floor"]),
        inside=rows["ece"] <= rows["ece_floor_q95"],
    )
    main = rows[rows["table"] == "main"]
    parts = [
        "# Three kinds of non-links",
        f"`{command}`",
        f"{main['cell'].nunique()} cells ({', '.join(main['dataset'].unique())}; "
        f"{', '.join(main['model'].unique())}; seeds {', '.join(map(str, main['seed'].unique()))}), under "
        "each kind of non-links. ECE, floor, Brier, AUC and Hits@20 in percent, NLL in nats. +- is half the "
        f"95 % interval of a mean over the {main['division'].nunique()} divisions of links (data set and "
        "seed): models of one division share its links and are averaged first.",
        "## Calibrators",
        *(f"### {kind}\n\n{_means(main[main['kind'] == kind])}" for kind in main["kind"].unique()),
        "## Bars",
        _bars(rows),
        "## Excess by data set",
        _by_dataset(rows),
        "## Ablation over features (NLL)",
        _ablation(rows),
        "## Transfer",
        _transfer(rows),
    ]
    if "true_error" in rows and rows["true_error"].notna().any():
        parts += ["## Error to the true probability (simulated, uniform)", _true_error(rows)]
    return "\n\n".join(parts)


def interval(values: pd.Series, division: pd.Series) -> str:
    """Mean and half of its 95 % interval over divisions."""
    means = values.groupby(division.to_numpy()).mean()
    if len(means) < 2:
        return f"{means.mean():.2f}"
    half = t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means))
    return f"{means.mean():.2f} +- {half:.2f}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _header(names: list[str], text_columns: int = 1) -> list[str]:
    return [_line(names), "|" + " --- |" * text_columns + " ---: |" * (len(names) - text_columns)]


def _means(rows: pd.DataFrame) -> str:
    columns = ["ece", "ece_floor", "nll", "brier", "auc", "hits@20"]
    lines = _header(["calibrator", *columns])
    for name, row in rows.groupby("calibrator", sort=False)[columns].mean().iterrows():
        lines.append(
            _line([str(name), *(f"{row[c]:.3f}" if c == "nll" else f"{100 * row[c]:.2f}" for c in columns)])
        )
    return "\n".join(lines)


def _bars(rows: pd.DataFrame) -> str:
    lines = _header(
        [
            "non-links", "NLL best", "Brier best", "AUC kept", "Hits@20 kept", "ECE in 95 % band",
            "excess ECE", "divided anew: in band", "divided anew: excess",
        ]
    )  # fmt: skip
    for kind in rows["kind"].unique():
        main = rows[(rows["table"] == "main") & (rows["kind"] == kind)]
        wide = {
            m: main.pivot(index="cell", columns="calibrator", values=m)
            for m in ("nll", "brier", "auc", "hits@20")
        }
        others = [name for name in wide["nll"] if name != OURS]
        shares = [(wide[m][OURS] < wide[m][others].min(axis=1)).mean() for m in ("nll", "brier")]
        shares += [(wide[m][OURS] >= wide[m]["uncalibrated"]).mean() for m in ("auc", "hits@20")]
        ours = main[main["calibrator"] == OURS]
        anew = rows[(rows["table"] == "divided anew") & (rows["kind"] == kind)]
        lines.append(
            _line(
                [
                    kind,
                    *(f"{100 * share:.0f} %" for share in shares),
                    f"{100 * ours['inside'].mean():.0f} %",
                    interval(ours["excess"], ours["division"]),
                    f"{100 * anew['inside'].mean():.0f} %",
                    interval(anew["excess"], anew["division"]),
                ]
            )
        )
    return "\n".join(lines)


def _by_dataset(rows: pd.DataFrame) -> str:
    anew = rows[rows["table"] == "divided anew"]
    kinds = list(anew["kind"].unique())
    lines = _header(["data set", "calibration links", *kinds])
    links = anew.groupby("dataset")["links"].mean().sort_values()
    for dataset in links.index:
        part = anew[anew["dataset"] == dataset]
        values = [interval(g["excess"], g["division"]) for g in (part[part["kind"] == k] for k in kinds)]
        lines.append(_line([dataset, f"{links[dataset]:,.0f}", *values]))
    return "\n".join(["Excess ECE in points, links divided anew.", "", *lines])


def _ablation(rows: pd.DataFrame) -> str:
    part = rows[(rows["table"] == "ablation") | ((rows["table"] == "main") & (rows["calibrator"] == OURS))]
    nll = part.pivot_table(index=["dataset", "model", "seed"], columns=["kind", "calibrator"], values="nll")
    lines = _header(["non-links", "data set", "model", *_ABLATION[:-1], "all"], 3)
    for kind in rows["kind"].unique():
        for (dataset, model), row in nll[kind].groupby(["dataset", "model"], sort=False).mean().iterrows():
            lines.append(_line([kind, dataset, model, *(f"{row[name]:.3f}" for name in _ABLATION)]))
        lines.append(_line([kind, "mean", "", *(f"{nll[kind][name].mean():.3f}" for name in _ABLATION)]))
    notes = [_gain(nll[kind], kind, *pair) for kind in rows["kind"].unique() for pair in _PAIRS]
    return "\n".join([*lines, "", *notes])


_PAIRS = (("logit", "+ toggle"), ("logit", "+ structure"), ("+ structure", OURS), ("+ toggle", OURS))


def _gain(nll: pd.DataFrame, kind: str, first: str, second: str) -> str:
    gain = nll[first] - nll[second]
    division = gain.groupby(level=["dataset", "seed"]).mean()
    half = t.ppf(0.975, len(division) - 1) * division.std(ddof=1) / np.sqrt(len(division))
    name = "all" if second == OURS else second
    return (
        f"- {kind}: `{name}` lowers the NLL of `{first}` by {division.mean():.4f} +- {half:.4f}, in "
        f"{(gain > 0).sum()} of {len(gain)} cells (Wilcoxon over {len(division)} divisions: "
        f"p = {wilcoxon(division).pvalue:.1g})"
    )


def _transfer(rows: pd.DataFrame) -> str:
    tables = ("transfer 1:1", "transfer rare", "transfer shifted")
    kinds = list(rows["kind"].unique())
    lines = _header(
        ["calibrator", "fitted with", "measured with", "ECE, 1:1", "ECE, 1:10, as fitted",
         "ECE, 1:10, shifted", "NLL, 1:1", "NLL, 1:10, shifted"],
        3,
    )  # fmt: skip
    for name in (OURS, "platt"):
        part = rows[rows["calibrator"] == name]
        for kind in kinds:
            for test_kind in kinds:
                here = part[(part["kind"] == kind) & (part["test_kind"] == test_kind)]
                by = here.groupby("table")[["ece", "nll"]].mean()
                values = [f"{100 * by.loc[table, 'ece']:.1f}" for table in tables]
                values += [f"{by.loc[table, 'nll']:.3f}" for table in (tables[0], tables[2])]
                lines.append(_line([name, kind, test_kind, *values]))
    return "\n".join(lines)


def _true_error(rows: pd.DataFrame) -> str:
    part = rows[rows["true_error"].notna() & rows["table"].isin(["main", "ablation"])]
    wide = part.pivot_table(index=["model", "seed"], columns="calibrator", values="true_error", sort=False)
    ratio = wide[OURS] / wide["isotonic"]
    lines = _header(["calibrator", "mean abs. error to the true probability, points"])
    lines += [_line([str(name), f"{100 * value:.2f}"]) for name, value in wide.mean().items()]
    note = (
        f"{OURS} over isotonic: {ratio.min():.2f} to {ratio.max():.2f}, mean {ratio.mean():.2f} "
        f"({len(ratio)} cells)"
    )
    return "\n".join([*lines, "", note])
