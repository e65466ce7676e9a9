"""How much `in-n-out-plus` gains over the other calibrators, and where the gain comes from.

    python benchmarks/structural.py --store STORE --seeds 3 --out benchmarks/results/structural.md

Every cell is one data set, model and seed with uniform negatives, one for each link. Calibrators are fitted
on the validation links and measured once on the test links; no setting is chosen here. STORE is that of a
sweep: trainings that it lacks are added to it. LINKCAL_DATA_ROOT names the raw data sets.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _cells import Cell, load_cell
from _pages import write_page

from linkcal.calibrators import CALIBRATORS, Calibrator, StructuralCalibrator, make_calibrator
from linkcal.exceptions import LinkcalWarning
from linkcal.metrics import evaluate_links

OURS = "in-n-out-plus"
SLOW = ("embedding-mlp", "in-n-out")
ABLATION: dict[str, str] = {
    "logit": "logit",
    "+ toggle": "toggle",
    "+ degrees and common neighbours": "structure",
    "+ feature similarity": "attributes",
    "all but toggle": "structure+attributes",
    "all": "all",
}


def main() -> None:
    options = parser().parse_args()
    cells = [
        load_cell(dataset, model, seed, options.store)
        for dataset in options.datasets
        for model in options.models
        for seed in range(options.seeds)
    ]
    names = [name for name in CALIBRATORS if options.networks or name not in SLOW]
    main_rows = pd.DataFrame(_measured(cells, {name: make_calibrator(name) for name in names}))
    ablation_rows = pd.DataFrame(
        _measured(
            cells,
            {label: StructuralCalibrator(features=value) for label, value in ABLATION.items()},
        )
    )
    text = "\n\n".join(
        [
            "# in-n-out-plus against the other calibrators",
            f"`python benchmarks/structural.py {_command(options)}`",
            f"{len(cells)} cells: {', '.join(options.datasets)} x {', '.join(options.models)} x "
            f"{options.seeds} seeds; one uniform negative per link; fitted on validation links, measured on "
            "test links. Means over cells in percent, NLL in nats.",
            _table(main_rows),
            "## Bars",
            _bars(main_rows) + ("\n" + _resampled(cells, options.resamples) if options.resamples else ""),
            "## Where the gain comes from",
            _table(ablation_rows),
            _ablation_note(ablation_rows),
            "## By data set and model (mean NLL over seeds)",
            _by_cell(main_rows, ablation_rows),
        ]
    )
    print(text)
    if options.out is not None:
        write_page(options.out, text + "\n")


def _measured(cells: Iterable[Cell], calibrators: dict[str, Calibrator]) -> list[dict[str, Any]]:
    rows = []
    for cell in cells:
        for name, calibrator in calibrators.items():
            X, y = cell.links_for(calibrator, "val")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LinkcalWarning)
                calibrator.fit(X, y)
            X_test, y_test = cell.links_for(calibrator, "test")
            p = calibrator.predict_proba(X_test)[:, 1]
            row = evaluate_links(y_test, p, calibrator.decision_function(X_test))
            rows.append(
                {
                    "cell": cell.name,
                    "dataset": cell.dataset,
                    "model": cell.model,
                    "calibrator": name,
                    **row,
                }
            )
        print(f"{cell.name} measured", file=sys.stderr)
    return rows


def _resampled(cells: list[Cell], repeats: int) -> str:
    """Excess ECE where the fitted probabilities are the truth: what label noise costs the right model."""
    excess, inside = [], []
    for cell in cells:
        rng = np.random.default_rng(cell.seed)
        (X, y), (X_test, _) = (cell.links_for(OURS, part) for part in ("val", "test"))
        first = StructuralCalibrator().fit(X, y)
        truth, truth_test = first.predict_proba(X)[:, 1], first.predict_proba(X_test)[:, 1]
        for _ in range(repeats):
            again = StructuralCalibrator().fit(X, (rng.random(len(truth)) < truth).astype(int))
            drawn = (rng.random(len(truth_test)) < truth_test).astype(int)
            row = evaluate_links(drawn, again.predict_proba(X_test))
            excess.append(100 * (row["ece"] - row["ece_floor"]))
            inside.append(row["ece"] <= row["ece_floor_q95"])
        print(f"{cell.name} resampled", file=sys.stderr)
    error = np.std(excess, ddof=1) / np.sqrt(len(excess))
    return (
        f"- for comparison, with labels drawn from the fitted probabilities ({repeats} draws a cell) and a "
        f"refit, so that the model's form is right: excess {np.mean(excess):.2f} (standard error "
        f"{error:.2f}), within the band {100 * np.mean(inside):.0f} %"
    )


def _table(rows: pd.DataFrame) -> str:
    columns = ["ece", "ece_floor", "nll", "brier", "auc", "hits@20", "acc"]
    means = rows.groupby("calibrator", sort=False)[columns].mean()
    lines = ["| calibrator | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for name, row in means.iterrows():
        cells = [f"{row[c]:.3f}" if c == "nll" else f"{100 * row[c]:.2f}" for c in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _bars(rows: pd.DataFrame) -> str:
    wide = {
        m: rows.pivot(index="cell", columns="calibrator", values=m)
        for m in ("nll", "brier", "auc", "hits@20")
    }
    ours = rows[rows["calibrator"] == OURS].set_index("cell").sort_index()
    others = [name for name in wide["nll"] if name != OURS]
    excess = 100 * (ours["ece"] - ours["ece_floor"])
    shares = {
        "NLL below the best of all others, cell by cell (bar 95 %)": ours["nll"]
        < wide["nll"][others].min(axis=1),
        "Brier below the best of all others (bar 95 %)": ours["brier"] < wide["brier"][others].min(axis=1),
        "AUC not below the uncalibrated model's (bar 95 %)": ours["auc"] >= wide["auc"]["uncalibrated"],
        "Hits@20 not below the uncalibrated model's (bar 95 %)": ours["hits@20"]
        >= wide["hits@20"]["uncalibrated"],
        "ECE within the 95 % noise band (bar 85 %)": ours["ece"] <= ours["ece_floor_q95"],
    }
    lines = [
        f"- {name}: {100 * met.mean():.0f} % ({met.sum()} of {len(met)})" for name, met in shares.items()
    ]
    lines.append(
        f"- mean excess ECE over the noise floor (bar 0.2 points): {excess.mean():.2f} "
        f"(standard error {excess.std(ddof=1) / np.sqrt(len(excess)):.2f})"
    )
    return "\n".join(lines)


def _ablation_note(rows: pd.DataFrame) -> str:
    nll = rows.pivot(index="cell", columns="calibrator", values="nll")
    lines = []
    for first, second in (
        ("logit", "+ toggle"),
        ("logit", "+ degrees and common neighbours"),
        ("logit", "+ feature similarity"),
        ("all but toggle", "all"),
    ):
        gain = nll[first] - nll[second]
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        lines.append(
            f"- NLL of `{first}` less that of `{second}`: {gain.mean():.4f} +- {error:.4f} (standard error), "
            f"positive in {(gain > 0).sum()} of {len(gain)} cells"
        )
    return "\n".join(lines)


def _by_cell(main_rows: pd.DataFrame, ablation_rows: pd.DataFrame) -> str:
    others = main_rows[main_rows["calibrator"] != OURS]
    keys = ["dataset", "model"]
    best = others.groupby([*keys, "cell"])["nll"].min().groupby(keys).mean()
    parts = ablation_rows.pivot_table(index=keys, columns="calibrator", values="nll")[list(ABLATION)]
    lines = [
        "| data set | model | best other | " + " | ".join(ABLATION) + " |",
        "| --- | --- |" + " ---: |" * (1 + len(ABLATION)),
    ]
    for row in parts.reset_index().to_dict(orient="records"):
        dataset, model = row["dataset"], row["model"]
        values = " | ".join(f"{v:.3f}" for v in (best[dataset, model], *(row[name] for name in ABLATION)))
        lines.append(f"| {dataset} | {model} | {values} |")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--datasets", nargs="+", default=["cora", "citeseer", "bitcoin-alpha"])
    command.add_argument("--models", nargs="+", default=["gcn", "vgae", "sage"])
    command.add_argument("--seeds", type=int, default=2)
    command.add_argument("--store", type=Path, required=True, help="store of a sweep")
    command.add_argument("--networks", action="store_true", help="also the two slow network calibrators")
    command.add_argument("--resamples", type=int, default=0, help="draws that tell the cost of label noise")
    command.add_argument("--out", type=Path, help="Markdown file")
    return command


def _command(options: argparse.Namespace) -> str:
    parts = [f"--datasets {' '.join(options.datasets)}", f"--models {' '.join(options.models)}"]
    parts += [f"--seeds {options.seeds}", f"--resamples {options.resamples}", "--store STORE"]
    return " ".join(parts + (["--networks"] if options.networks else []))


if __name__ == "__main__":
    main()
