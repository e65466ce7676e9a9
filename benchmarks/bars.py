"""How in-n-out-plus stands against every other calibrator, training by training, from a sweep's records.

A training is a data set, a model and a training seed; calibration seeds are averaged inside it. "Best
other" is the best, on the test links and for each metric on its own, of all other calibrators fitted on the
same links: a stronger opponent than any single method. Run

    python benchmarks/bars.py --store STORE_OR_RECORDS --out FILE.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from _pages import write_page

from linkcal_lab.records import read_records

OURS, RAW = "in-n-out-plus", "uncalibrated"
TRAINING = ["dataset", "model", "train_seed"]
METRICS = ["ece", "ece_floor", "ece_floor_q95", "nll", "brier", "auc", "hits@20"]
#: Statement, column of shares or means, and the bar: at least a share, or at most a mean.
BARS = (
    ("NLL below the best other's", "nll_won", ">= 95 %"),
    ("Brier score below the best other's", "brier_won", ">= 95 %"),
    ("AUC not below the uncalibrated model's", "auc_kept", ">= 95 %"),
    ("Hits@20 not below the uncalibrated model's", "hits_kept", ">= 95 %"),
    ("ECE inside the 95 % noise band", "in_band", ">= 85 %"),
    ("mean excess ECE (ECE - noise floor), points", "excess", "<= 0.2"),
)


def trainings(records: pd.DataFrame, fit_on: str, others: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per training with what the bars ask.

    Stacked, the others are fitted on the same validation links without a base, which they cannot use; their
    records may be others than ours, of the same trainings made anew.
    """
    values = _means(records, fit_on)
    beside = values
    if fit_on == "stacked":
        beside = _means(records if others is None else others, "val")
    ours, raw = values.xs(OURS, level="calibrator"), beside.xs(RAW, level="calibrator")
    raw = raw.loc[ours.index]
    rest = beside[beside.index.get_level_values("calibrator") != OURS].groupby(level=TRAINING)
    best = rest[["nll", "brier"]].min().loc[ours.index]
    return pd.DataFrame(
        {
            "nll_won": ours["nll"] < best["nll"],
            "brier_won": ours["brier"] < best["brier"],
            "auc_kept": ours["auc"] >= raw["auc"],
            "hits_kept": ours["hits@20"] >= raw["hits@20"],
            "in_band": ours["ece"] <= ours["ece_floor_q95"],
            "excess": 100.0 * (ours["ece"] - ours["ece_floor"]),
            "nll_gain": best["nll"] - ours["nll"],
            "auc_gain": 100.0 * (ours["auc"] - raw["auc"]),
            "hits_gain": 100.0 * (ours["hits@20"] - raw["hits@20"]),
        }
    )


def _means(records: pd.DataFrame, fit_on: str) -> pd.DataFrame:
    chosen = records[
        (records["part"] == "test") & (records["fit_on"] == fit_on) & records["metric"].isin(METRICS)
    ]
    return chosen.pivot_table(
        index=[*TRAINING, "calibrator"], columns="metric", values="value", aggfunc="mean"
    )


def _shown(name: str, values: pd.Series) -> str:
    if name == "excess":
        error = values.std(ddof=1) / len(values) ** 0.5
        return f"{values.mean():.3f} ± {error:.3f}"
    return f"{100.0 * values.mean():.1f} % ({int(values.sum())} of {len(values)})"


def _met(name: str, values: pd.Series, bar: str) -> str:
    limit = float(bar.split()[1])
    met = values.mean() <= limit if name == "excess" else 100.0 * values.mean() >= limit
    return "yes" if met else "no"


def summary(rows: pd.DataFrame) -> list[str]:
    """The bars, over all trainings."""
    lines = ["| in-n-out-plus | bar | measured | met |", "| --- | --- | ---: | --- |"]
    for text, name, bar in BARS:
        lines.append(f"| {text} | {bar} | {_shown(name, rows[name])} | {_met(name, rows[name], bar)} |")
    return lines


def by_group(rows: pd.DataFrame, level: str) -> list[str]:
    """The same for each data set or model."""
    lines = [
        f"| {level} | trainings | NLL won | Brier won | AUC kept | Hits@20 kept | in band | excess ECE |"
        " NLL gain | AUC gain | Hits@20 gain |",
        "| --- " + "| ---: " * 10 + "|",
    ]
    for name, part in rows.groupby(level=level):
        shares = [
            f"{100.0 * part[c].mean():.0f} %"
            for c in ("nll_won", "brier_won", "auc_kept", "hits_kept", "in_band")
        ]
        means = [f"{part['excess'].mean():.2f}", f"{part['nll_gain'].mean():.4f}"]
        means += [f"{part['auc_gain'].mean():+.2f}", f"{part['hits_gain'].mean():+.1f}"]
        lines.append(f"| {name} | {len(part)} | " + " | ".join([*shares, *means]) + " |")
    return lines


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    command.add_argument("--store", type=Path, required=True, nargs="+", help="a sweep's stores or records")
    command.add_argument("--fit-on", default="val")
    command.add_argument("--others", type=Path, nargs="+", help="others' records, with --fit-on stacked")
    command.add_argument("--out", type=Path, required=True)
    return command


def main() -> None:
    """Write the tables."""
    arguments = parser().parse_args()
    others = None if arguments.others is None else read_records(*arguments.others)
    rows = trainings(read_records(*arguments.store), arguments.fit_on, others)
    lines = [
        f"# in-n-out-plus against the best of all others, fitted on {arguments.fit_on}",
        "",
        f"{len(rows)} trainings: a data set, a model and a training seed each; calibration seeds averaged.",
        "Best other: the best on the test links among all others, for each metric on its own. Gains:",
        "NLL in nats over the best other; AUC and Hits@20 in points over the uncalibrated model.",
        "",
        *summary(rows),
        "",
        *by_group(rows, "dataset"),
        "",
        *by_group(rows, "model"),
        "",
    ]
    write_page(arguments.out, "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
