"""Seconds and peak memory at the size of ogbl-collab, and of reading ten million edges.

Every part runs in a process of its own, so that its peak memory is its own:

- ``collab-MODEL``: a simulated graph of ogbl-collab's size (235,868 nodes, 1.2 M edges, 128 features) through
  the whole run (split, training steps, toggling, all calibrators, scoring of the test links), then the 100
  most probable of its 28 thousand million missing pairs;
- ``read-FORMAT``: `read_edges` on a file of 10 M edges among 1 M nodes.

    python benchmarks/scale.py --out benchmarks/results/scale.json

writes the numbers, and a table of them in Markdown beside them. With ``--folder`` the steps of a part leave
their files there, and a call that was cut off goes on after the last finished step.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from _pages import write_page

from linkcal._core.files import written_whole
from linkcal.all_pairs import most_probable_pairs
from linkcal.data import read_edges, simulate_graph
from linkcal.exceptions import LinkcalWarning
from linkcal.predictor import CalibratedLinkPredictor
from linkcal.workflow import RunConfig, run_experiment, write_outputs

NODES, EDGES, FEATURES = 235_868, 1_200_000, 128
FILE_NODES, FILE_EDGES = 1_000_000, 10_000_000
EPOCHS, BATCH = 3, 65_536
PARTS = ("collab-vgae", "collab-peg", "read-csv", "read-csv-strings", "read-parquet", "read-npz")


def run_collab(model: str, folder: Path) -> dict[str, Any]:
    """The whole run, with seconds of each stage; leaves its outputs in `folder`."""
    clock = time.perf_counter
    start = clock()
    # 3 % more are drawn than remain, as repeats collapse.
    graph = simulate_graph(NODES, num_edges=round(1.03 * EDGES), num_features=FEATURES, num_blocks=50, seed=0)
    seconds = {"simulate": clock() - start}
    config = RunConfig("simulated", model, epochs=EPOCHS, batch_size=BATCH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        outcome = run_experiment(config, graph)
    seconds |= outcome.seconds
    start = clock()
    write_outputs(outcome, folder / "run")
    seconds["write"] = clock() - start
    selected = outcome.metrics["results"][outcome.metrics["selected"]]
    return {
        "seconds": seconds,
        "counts": {**graph.counts(), "test_links": outcome.metrics["counts"]["test_positives"]},
        "training_steps": EPOCHS * -(-outcome.metrics["counts"]["train_positives"] // BATCH),
        "val_auc": outcome.trained.result.best_val_auc,
        "auc": selected["auc"],
        "ece": selected["ece"],
    }


def top_pairs(folder: Path) -> dict[str, Any]:
    """Seconds of reading the artifact and of searching all missing pairs."""
    start = time.perf_counter()
    predictor = CalibratedLinkPredictor.load(folder / "run" / "artifact")
    loaded = time.perf_counter()
    ranked = most_probable_pairs(predictor, 100, base_rate="density")
    return {
        "seconds": {"load": loaded - start, "top 100 of all pairs": time.perf_counter() - loaded},
        "ranked": ranked.logit.numel(),
        "probability": [float(ranked.probability.min()), float(ranked.probability.max())],
    }


def read(kind: str, folder: Path) -> dict[str, Any]:
    path = folder / f"edges.{kind.split('-')[0]}"
    counts = read_edges(path).graph.counts()
    return {"counts": counts, "file_mb": path.stat().st_size / 1e6}


def write_edges(kind: str, folder: Path) -> None:
    """Ten million random pairs; string ids look like ``node0000123``."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    pairs = np.random.default_rng(0).integers(FILE_NODES, size=(2, FILE_EDGES))
    path = folder / f"edges.{kind.split('-')[0]}"
    if kind == "npz":
        np.savez(path, source=pairs[0], target=pairs[1])
        return
    columns = [pa.array(row) for row in pairs]
    if kind.endswith("strings"):
        names = pa.array([f"node{i:07d}" for i in range(FILE_NODES)])
        columns = [names.take(column) for column in columns]
    table = pa.table(columns, names=["source", "target"])
    if kind == "parquet":
        parquet.write_table(table, path)
    else:
        csv.write_csv(table, path)


def steps_of(part: str) -> tuple[str, ...]:
    """Steps that run one after the other, each in a process of its own; ``write`` is not measured."""
    return ("write", "read") if part.startswith("read-") else ("run", "top")


def take_step(step: str, part: str, folder: Path) -> dict[str, Any]:
    """What a step says, with its wall and processor seconds and its peak memory."""
    torch.set_num_threads(2)
    kind = part.partition("-")[2]
    before, cpu_before = time.perf_counter(), time.process_time()
    result: dict[str, Any] = {}
    if step == "write":
        write_edges(kind, folder)
    elif step == "read":
        result = read(kind, folder)
    elif step == "run":
        result = run_collab(kind, folder)
    else:
        result = top_pairs(folder)
    return {
        **result,
        "wall_seconds": time.perf_counter() - before,
        "cpu_seconds": time.process_time() - cpu_before,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "load_average": os.getloadavg()[0],
    }


def in_own_processes(part: str, folder: Path | None) -> dict[str, Any]:
    """Take the steps of a part that `folder` lacks, and join what the measured ones said."""
    place = TemporaryDirectory() if folder is None else nullcontext(folder / part)
    said = []
    with place as inside:
        Path(inside).mkdir(parents=True, exist_ok=True)
        for step in steps_of(part):
            done = Path(inside, f"{step}.json")
            if not done.exists():
                own = ["--step", step, "--parts", part, "--folder", str(inside)]
                subprocess.run([sys.executable, __file__, *own], check=True)
            if step != "write":
                said.append(json.loads(done.read_text(encoding="utf-8")))
    together = {key: value for each in said for key, value in each.items()}
    if "seconds" in together:
        together["seconds"] = {name: value for each in said for name, value in each["seconds"].items()}
    for name, merge in (
        ("wall_seconds", sum),
        ("cpu_seconds", sum),
        ("peak_gib", max),
        ("load_average", max),
    ):
        together[name] = merge(each[name] for each in said)
    return together


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown page."""
    about = result["environment"]
    lines = [
        "# Large graphs",
        "",
        f"`python benchmarks/scale.py --parts {' '.join(result['parts'])}`; torch {about['torch']}, "
        f"{about['cpu_count']} cores, 2 threads. Load is that of the last minute; where it is above 2 the "
        "cores were shared, and processor time tells more than the wall clock.",
        "",
        "| part | wall, s | processor, s | peak memory, GiB | load |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for part, row in result["parts"].items():
        lines.append(
            f"| {part} | {row['wall_seconds']:.1f} | {row['cpu_seconds']:.1f} | {row['peak_gib']:.2f} "
            f"| {row['load_average']:.1f} |"
        )
    for part, row in result["parts"].items():
        if "seconds" not in row:
            continue
        stages = ", ".join(f"{name} {value:.1f}" for name, value in row["seconds"].items())
        lines += [
            "",
            f"{part}: {row['counts']['nodes']:,} nodes, {row['counts']['edges']:,} edges, {FEATURES} "
            f"features; {row['training_steps']} training steps of {BATCH:,} links and as many negatives; "
            f"test AUC {100 * row['auc']:.1f}, ece {100 * row['ece']:.2f} of the selected calibrator. "
            f"Wall seconds by stage: {stages}.",
        ]
    return "\n".join(lines) + "\n"


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    command.add_argument("--out", type=Path, help="JSON file; parts that it holds already are kept")
    command.add_argument(
        "--folder", type=Path, help="keeps what the steps of a part leave; default: nothing is kept"
    )
    command.add_argument("--step", choices=("write", "read", "run", "top"), help=argparse.SUPPRESS)
    return command


def main() -> None:
    options = parser().parse_args()
    if options.step is not None:
        text = json.dumps(take_step(options.step, options.parts[0], options.folder))
        with written_whole(options.folder / f"{options.step}.json") as path:
            path.write_text(text, encoding="utf-8")
        return
    done = json.loads(options.out.read_text()) if options.out and options.out.exists() else {"parts": {}}
    environment = {
        "cpu_count": os.cpu_count(),
        "platform": platform.platform(),
        "torch": torch.__version__,
    }
    for part in options.parts:
        found = {**done["parts"], part: in_own_processes(part, options.folder)}
        done = {"environment": environment, "parts": {name: found[name] for name in PARTS if name in found}}
        if options.out is not None:
            write_page(options.out, json.dumps(done, indent=2) + "\n")
            write_page(options.out.with_suffix(".md"), table(done))
    print(table(done))


if __name__ == "__main__":
    main()
