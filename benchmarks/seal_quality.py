"""SEAL on test links over seeds, with its default preset: AUC and uncalibrated calibration error.

    python benchmarks/seal_quality.py --dataset cora --seeds 3 --out benchmarks/results/seal_quality.json

writes the rows, and a table of them in Markdown beside them; seeds that the file holds already are kept. The
preset was chosen by validation AUC on the splits of the first two seeds (docs/large-graphs.md).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _pages import write_page

from linkcal.data import Graph, load_dataset
from linkcal.exceptions import LinkcalWarning
from linkcal.models import MODELS
from linkcal.workflow import RunConfig, run_experiment

CALIBRATORS = ("uncalibrated", "temperature", "platt", "isotonic", "bbq", "in-n-out-plus")
#: What is asked of the mean over seeds on Cora.
BARS = {"cora": (0.90, 0.06)}


def run_seed(dataset: str, seed: int, graph: Graph) -> dict[str, Any]:
    """Train, calibrate and measure once."""
    start = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        outcome = run_experiment(RunConfig(dataset, "seal", seed=seed, calibrators=CALIBRATORS), graph)
    return {
        "val_auc": outcome.trained.result.best_val_auc,
        "best_epoch": outcome.trained.result.best_epoch,
        "epochs_run": outcome.trained.result.epochs_run,
        "results": outcome.metrics["results"],
        "wall_seconds": time.perf_counter() - start[0],
        "cpu_seconds": time.process_time() - start[1],
    }


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown page: one row per seed, then means and standard deviations."""
    dataset, seeds = result["dataset"], result["seeds"]
    head = [
        "seed",
        "validation AUC",
        "best epoch",
        "AUC",
        "ece",
        "ece floor",
        *CALIBRATORS[1:],
        "processor, s",
    ]
    lines = [
        f"# SEAL on {dataset}",
        "",
        f"`python benchmarks/seal_quality.py --dataset {dataset} --seeds {len(seeds)}`, preset `default`, "
        "in %: test AUC and ece of the uncalibrated model, its noise floor, then the ece after each "
        "calibrator, fitted on validation links.",
        "",
        "| " + " | ".join(head) + " |",
        "| ---: " * len(head) + "|",
    ]
    values = []
    for seed, row in seeds.items():
        values.append(_numbers(row))
        lines.append(_line(seed, values[-1], f"{row['best_epoch']}", f"{row['cpu_seconds']:.0f}"))
    mean = np.mean(values, axis=0)
    lines.append(_line("mean", mean))
    if len(values) > 1:
        lines.append(_line("sd", np.std(values, axis=0, ddof=1)))
    if dataset in BARS:
        auc, ece = BARS[dataset]
        reached = "reached" if mean[1] >= 100 * auc and mean[2] <= 100 * ece else "missed"
        lines += [
            "",
            f"Asked of the means: AUC at least {100 * auc:.1f}, ece at most {100 * ece:.1f}: {reached} "
            f"({mean[1]:.2f} and {mean[2]:.2f}).",
        ]
    lines += ["", f"Settings: {_settings(result['preset'])}."]
    return "\n".join(lines) + "\n"


def _numbers(row: dict[str, Any]) -> list[float]:
    own = row["results"]["uncalibrated"]
    eces = [row["results"][name]["ece"] for name in CALIBRATORS[1:]]
    return [100 * number for number in (row["val_auc"], own["auc"], own["ece"], own["ece_floor"], *eces)]


def _line(name: str, numbers: Any, best_epoch: str = "", seconds: str = "") -> str:
    cells = [f"{number:.1f}" for number in numbers]
    return "| " + " | ".join([name, cells[0], best_epoch, *cells[1:], seconds]) + " |"


def _settings(preset: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for part in preset.values() for name, value in part.items())


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--dataset", default="cora")
    command.add_argument("--seeds", type=int, default=3)
    command.add_argument("--threads", type=int, default=1)
    command.add_argument("--out", type=Path)
    return command


def main() -> None:
    options = parser().parse_args()
    torch.set_num_threads(options.threads)
    default = MODELS["seal"].presets["default"]
    preset = {"model": default.model, "training": asdict(default.training)}
    result: dict[str, Any] = {"dataset": options.dataset, "preset": preset, "seeds": {}}
    if options.out and options.out.exists():
        done = json.loads(options.out.read_text(encoding="utf-8"))
        if (done["dataset"], done["preset"]) == (options.dataset, preset):
            result = done
    graph = load_dataset(options.dataset)
    for seed in map(str, range(options.seeds)):
        if seed not in result["seeds"]:
            result["seeds"][seed] = run_seed(options.dataset, int(seed), graph)
        print(seed, result["seeds"][seed], flush=True)
        if options.out is not None:
            write_page(options.out, json.dumps(result, indent=2) + "\n")
            write_page(options.out.with_suffix(".md"), table(result))
    print(table(result))


if __name__ == "__main__":
    main()
