"""Whether each model runs on each data set from end to end: few epochs, one seed, a table of what came out.

A check, no measurement of quality: training stops long before it is done. Network calibrators, which take
minutes a cell and know nothing of graphs, are left out.

    python benchmarks/every_cell.py --out benchmarks/results/every_cell.json

writes the rows, and a table of them in Markdown beside them; cells that the file holds already are kept.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from _pages import write_page

from linkcal.data import load_dataset
from linkcal.exceptions import LinkcalWarning
from linkcal.models import MODELS
from linkcal.predictor import CalibratedLinkPredictor
from linkcal.workflow import RunConfig, run_experiment, write_outputs

DATASETS = ("cora", "citeseer", "bitcoin-alpha", "bitcoin-otc", "chameleon", "twitch-pt", "pubmed")
CALIBRATORS = ("uncalibrated", "temperature", "isotonic", "in-n-out-plus")
#: SEAL makes a subgraph for every pair and epoch.
EPOCHS = {"seal": 1}


def run_cell(dataset: str, model: str) -> dict[str, Any]:
    """Run, write the folder, read the artifact back and score some test links with it."""
    config = RunConfig(dataset, model, epochs=EPOCHS.get(model, 10), calibrators=CALIBRATORS)
    start = time.perf_counter(), time.process_time()
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        outcome = run_experiment(config, load_dataset(dataset))
        paths = write_outputs(outcome, folder)
        loaded = CalibratedLinkPredictor.load(paths["artifact"])
        held_out = outcome.artifact.held_out
        assert held_out is not None  # an outcome's artifact knows its test links
        probability = loaded.predict_proba(held_out[:, :100])
    if not bool(((probability >= 0) & (probability <= 1)).all()):
        raise ValueError(f"probabilities must be in [0, 1], got {probability.min()} to {probability.max()}")
    results = outcome.metrics["results"]
    return {
        "epochs": config.epochs,
        "toggle_method": outcome.toggle_method,
        "auc": results["uncalibrated"]["auc"],
        "ece": {name: row["ece"] for name, row in results.items()},
        "selected": outcome.metrics["selected"],
        "wall_seconds": time.perf_counter() - start[0],
        "cpu_seconds": time.process_time() - start[1],
    }


def table(rows: dict[str, Any]) -> str:
    """The rows as a Markdown page."""
    lines = [
        "# Every model on every data set, a few epochs",
        "",
        "`python benchmarks/every_cell.py`: run, outputs, artifact read back, held-out links scored. ",
        f"Seed 0; {EPOCHS['seal']} epoch for SEAL, 10 for the others. In %, on test links.",
        "",
        "| data set | model | AUC | ece uncalibrated | ece in-n-out-plus | toggled by | processor, s |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: |",
    ]
    for name, row in rows.items():
        dataset, model = name.split("/")
        if "error" in row:
            lines.append(f"| {dataset} | {model} | failed: {row['error']} | | | | |")
            continue
        lines.append(
            f"| {dataset} | {model} | {100 * row['auc']:.1f} | {100 * row['ece']['uncalibrated']:.1f} "
            f"| {100 * row['ece']['in-n-out-plus']:.1f} | {row['toggle_method']} | {row['cpu_seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    command.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    command.add_argument("--threads", type=int, default=1)
    command.add_argument("--out", type=Path)
    return command


def main() -> None:
    options = parser().parse_args()
    torch.set_num_threads(options.threads)
    rows = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    for dataset in options.datasets:
        for model in options.models:
            name = f"{dataset}/{model}"
            if name in rows and "error" not in rows[name]:
                continue
            try:
                rows[name] = run_cell(dataset, model)
            except Exception as error:  # a failed cell is a row, and the others still run
                traceback.print_exc()
                rows[name] = {"error": f"{type(error).__name__}: {error}"}
            print(name, rows[name], flush=True)
            if options.out is not None:
                write_page(options.out, json.dumps(rows, indent=2) + "\n")
                write_page(options.out.with_suffix(".md"), table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
