"""Seconds that `in-n-out-plus` takes: a fit to PubMed's calibration links, and a million predictions.

    python benchmarks/structural_speed.py --store STORE --out benchmarks/results/structural_speed.md

STORE is that of a sweep: a training that it lacks is added to it. Scores and link features are there already;
what scoring takes is in benchmarks/toggle.py. LINKCAL_DATA_ROOT names the raw data sets.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _cells import load_cell
from _pages import write_page

from linkcal.calibrators import StructuralCalibrator

PREDICTIONS = 1_000_000


def main() -> None:
    options = parser().parse_args()
    torch.set_num_threads(options.threads)
    cell = load_cell(options.dataset, options.model, 0, options.store)
    X, y = cell.links_for("in-n-out-plus", "val")
    X_base, y_base = cell.links_for("in-n-out-plus", "train")
    calibrator = StructuralCalibrator()
    stacked = StructuralCalibrator()
    rows: dict[str, Callable[[], Any]] = {
        f"fit, {len(y):,} links": lambda: calibrator.fit(X, y),
        f"stacked fit, {len(y):,} links over {len(y_base):,}": lambda: stacked.fit(
            X, y, X_base=X_base, y_base=y_base
        ),
    }
    many = X[np.resize(np.arange(len(X)), PREDICTIONS)]
    rows |= {
        f"{PREDICTIONS:,} predictions": lambda: calibrator.predict_proba(many),
        f"{PREDICTIONS:,} predictions, stacked": lambda: stacked.predict_proba(many),
    }
    text = [
        "# Seconds of in-n-out-plus",
        f"`python benchmarks/structural_speed.py --dataset {options.dataset} --model {options.model} "
        f"--repeats {options.repeats} --threads {options.threads} --store STORE`",
        f"{os.cpu_count()} cores, threads: {options.threads}, NumPy {np.__version__}; median and range of "
        f"{options.repeats} runs, wall clock.",
        "| what | median, s | range, s |\n| --- | ---: | ---: |\n"
        + "\n".join(_row(name, work, options.repeats) for name, work in rows.items()),
    ]
    print("\n\n".join(text))
    if options.out is not None:
        write_page(options.out, "\n\n".join(text) + "\n")


def _row(name: str, work: Callable[[], Any], repeats: int) -> str:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return f"| {name} | {np.median(seconds):.2f} | {min(seconds):.2f} to {max(seconds):.2f} |"


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    command.add_argument("--dataset", default="pubmed")
    command.add_argument("--model", default="gcn")
    command.add_argument("--repeats", type=int, default=5)
    command.add_argument("--threads", type=int, default=1)
    command.add_argument("--store", type=Path, required=True, help="store of a sweep")
    command.add_argument("--out", type=Path, help="where to write the page")
    return command


if __name__ == "__main__":
    main()
