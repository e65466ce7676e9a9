"""The stacked form of in-n-out-plus beside the plain one, training by training, from a sweep's records.

    linkcal sweep ... --fit-on stacked,val --calibrators in-n-out-plus --store STORE
    python benchmarks/stacked.py --store STORE_OR_RECORDS --out FILE.md

Both are fitted on the same validation links of the same trainings; the stacked one has a fit to the training
links, leave-one-out, as a further input. Calibration seeds are averaged inside a training.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from _pages import write_page

from linkcal_lab.records import read_records

NAME = "in-n-out-plus"
TRAINING = ["dataset", "model", "train_seed"]
#: Metric, factor, digits, and whether less is better.
METRICS = (
    ("nll", 1.0, 4, True),
    ("brier", 100.0, 2, True),
    ("auc", 100.0, 2, False),
    ("hits@20", 100.0, 1, False),
    ("excess", 100.0, 2, True),
)


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    command.add_argument("--store", type=Path, required=True, nargs="+", help="a sweep's stores or records")
    command.add_argument("--out", type=Path, required=True)
    return command


def main() -> None:
    options = parser().parse_args()
    stacked, plain = _trainings(read_records(*options.store))
    lines = [
        "# Stacked in-n-out-plus beside the plain one",
        "",
        f"{len(stacked)} trainings (data set, model, training seed), fitted on validation links, measured "
        "on test links; stacked: a fit to all training links, leave-one-out, is a further input. NLL in "
        "nats, the others in percent or points; excess: ECE less its noise floor. +- is a standard error "
        "over trainings.",
        "",
        "| metric | plain | stacked | stacked - plain | stacked better |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, factor, digits, less in METRICS:
        change = factor * (stacked[name] - plain[name])
        error = change.std(ddof=1) / len(change) ** 0.5
        better = int(((change < 0) if less else (change > 0)).sum())
        means = [f"{factor * part[name].mean():.{digits}f}" for part in (plain, stacked)]
        lines.append(
            f"| {name} | {means[0]} | {means[1]} | {change.mean():+.{digits}f} +- {error:.{digits}f} "
            f"| {better} of {len(change)} |"
        )
    inside = [f"{100 * (part['ece'] <= part['ece_floor_q95']).mean():.0f} %" for part in (plain, stacked)]
    lines += [f"| ECE in the 95 % band | {inside[0]} | {inside[1]} |  |  |", ""]
    for level in ("dataset", "model"):
        lines += [f"| {level} | {' | '.join(name for name, *_ in METRICS)} |", "| --- " + "| ---: " * 5 + "|"]
        for key in stacked.index.get_level_values(level).unique():
            changes = [
                f"{factor * (stacked[name] - plain[name]).xs(key, level=level).mean():+.{digits}f}"
                for name, factor, digits, _ in METRICS
            ]
            lines.append(f"| {key} | {' | '.join(changes)} |")
        lines.append("")
    write_page(options.out, "\n".join(lines))
    print("\n".join(lines))


def _trainings(records: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Means over calibration seeds of the stacked and the plain fits, of trainings that have both."""
    chosen = records[(records["part"] == "test") & (records["calibrator"] == NAME)]
    parts = []
    for fit_on in ("stacked", "val"):
        values = chosen[chosen["fit_on"] == fit_on].pivot_table(
            index=TRAINING, columns="metric", values="value", aggfunc="mean"
        )
        parts.append(values.assign(excess=values["ece"] - values["ece_floor"]))
    both = parts[0].index.intersection(parts[1].index)
    return parts[0].loc[both], parts[1].loc[both]


if __name__ == "__main__":
    main()
