"""SEAL on test links over seeds, with its default preset: AUC and uncalibrated calibration error.

    python benchmarks/seal_quality.py --dataset cora --seeds 3 --out benchmarks/results/seal_quality.md

The preset was chosen by validation AUC on the same splits; the test links are read once, by the run itself.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from linkcal.data import load_dataset
from linkcal.exceptions import LinkcalWarning
from linkcal.experiments import RunConfig, run_experiment

CALIBRATORS = ("uncalibrated", "temperature", "platt", "isotonic", "bbq", "in-n-out-plus")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    graph = load_dataset(options.dataset)
    rows = []
    for seed in range(options.seeds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinkcalWarning)
            outcome = run_experiment(
                RunConfig(options.dataset, "seal", seed=seed, calibrators=CALIBRATORS), graph
            )
        rows.append(outcome)
        print(seed, outcome.training.best_val_auc, outcome.metrics["results"]["uncalibrated"], flush=True)
    text = table(options, rows)
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


def table(options: argparse.Namespace, rows: list[Any]) -> str:
    """A Markdown page: one row per seed, then means and standard deviations."""
    head = ["seed", "validation AUC", "best epoch", "AUC", "ece", "ece floor", *CALIBRATORS[1:]]
    lines = [
        f"# SEAL on {options.dataset}",
        "",
        f"`python benchmarks/seal_quality.py --dataset {options.dataset} --seeds {options.seeds}`, preset "
        "`default`, in %: test AUC and ece of the uncalibrated model, its noise floor, then the ece after "
        "each calibrator, fitted on validation links.",
        "",
        "| " + " | ".join(head) + " |",
        "| ---: " * len(head) + "|",
    ]
    values = []
    for seed, outcome in enumerate(rows):
        results = outcome.metrics["results"]
        own = results["uncalibrated"]
        eces = [results[name]["ece"] for name in CALIBRATORS[1:]]
        numbers = [outcome.training.best_val_auc, own["auc"], own["ece"], own["ece_floor"], *eces]
        values.append([100 * number for number in numbers])
        cells = [f"{number:.1f}" for number in values[-1]]
        lines.append(
            f"| {seed} | {cells[0]} | {outcome.training.best_epoch} | " + " | ".join(cells[1:]) + " |"
        )
    for name, row in (("mean", np.mean(values, axis=0)), ("sd", np.std(values, axis=0, ddof=1))):
        cells = [f"{number:.1f}" for number in row]
        lines.append(" | ".join([f"| {name}", cells[0], "", *cells[1:]]) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
