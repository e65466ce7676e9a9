"""What a change of structure must not move: numbers of runs, toggles, scores, selections and top pairs.

    python benchmarks/same_numbers.py record before/    # at one commit; a finished case is not run again
    python benchmarks/same_numbers.py record after/     # at another
    python benchmarks/same_numbers.py compare before/ after/

A case is one JSON file of numbers by name. It calls the command line and the few public names that both
commits have. `compare` prints the largest difference of each case, relative to max(1, |before|), and the
names that differ by more than the tolerance or stand on one side only; it ends with 1 if there are any.
Needs the raw data sets under LINKCAL_DATA_ROOT.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch

DATASETS = ("cora", "chameleon", "bitcoin-alpha")
MODELS = ("vgae", "sage", "peg")
TOGGLED = ("gcn", "sage", "gin", "vgae", "peg")
METHODS: tuple[Literal["naive", "fast", "delta", "khop"], ...] = ("naive", "fast", "delta", "khop")

Numbers = dict[str, float]


def main() -> int:
    given = parser().parse_args()
    first, *others = given.folders
    return compare(first, *others, given.tolerance) if others else record(first)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    top.add_argument("action", choices=("record", "compare"), help="record one folder, compare two")
    top.add_argument("folders", type=Path, nargs="+")
    top.add_argument("--tolerance", type=float, default=1e-9)
    return top


def record(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in cases().items():
        path = folder / f"{name}.json"
        if path.exists():
            continue
        numbers = case()
        path.with_suffix(".part").write_text(json.dumps(numbers))
        path.with_suffix(".part").replace(path)
        print(f"{name}: {len(numbers)} numbers", flush=True)
    return 0


def compare(before: Path, after: Path, tolerance: float) -> int:
    failed = False
    for path in sorted(before.glob("*.json")):
        other = after / path.name
        if not other.exists():
            failed = True
            print(f"{path.stem}: not recorded in {after}")
            continue
        first, second = (json.loads(each.read_text()) for each in (path, other))
        differences = {name: difference(first[name], second[name]) for name in first.keys() & second.keys()}
        largest = max(differences.values(), default=0.0)
        print(f"{path.stem}: {len(differences)} numbers, largest difference {largest:.2g}")
        moved = sorted(name for name, value in differences.items() if value > tolerance)
        gone, new = sorted(first.keys() - second.keys()), sorted(second.keys() - first.keys())
        failed = failed or bool(moved or gone or new)
        for title, names in (("moved", moved), ("gone", gone), ("new", new)):
            for name in names[:5]:
                print(f"  {title}: {name} {first.get(name)} -> {second.get(name)}")
            if len(names) > 5:
                print(f"  {title}: {len(names) - 5} more")
    return int(failed)


def difference(before: float, after: float) -> float:
    if math.isnan(before) or math.isnan(after):
        return 0.0 if math.isnan(before) and math.isnan(after) else math.inf
    return abs(after - before) / max(1.0, abs(before))


def cases() -> dict[str, Callable[[], Numbers]]:
    runs = {f"run-{d}-{m}": partial(run, d, m) for d, m in product(DATASETS, MODELS)}
    return {f"toggle-{name}": partial(toggles, name) for name in TOGGLED} | {"folder": folder_numbers} | runs


def linkcal(*arguments: str) -> None:
    # One thread: batch normalisation and matrix products cut their sums over the threads.
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    command = [sys.executable, "-W", "ignore", "-m", "linkcal", *arguments]
    done = subprocess.run(command, env=os.environ | one, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")


def run(dataset: str, model: str) -> Numbers:
    with tempfile.TemporaryDirectory() as folder:
        linkcal("run", "--dataset", dataset, "--model", model, "--seed", "0", "--out", f"{folder}/run")
        metrics = json.loads(Path(folder, "run/metrics.json").read_text())
    return {
        f"{name}.{metric}": value
        for name, measured in metrics["results"].items()
        for metric, value in flat(measured)
        if "seconds" not in metric
    }


def folder_numbers() -> Numbers:
    """`run`, then `score` (with a base rate and with intervals), `select` and `top` on what it leaves."""
    from linkcal.data import simulate_graph, split_links

    numbers: Numbers = {}
    split = split_links(simulate_graph(seed=0), val_fraction=0.1, test_fraction=0.1, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        linkcal("run", "--dataset", "simulated", "--model", "gcn", "--epochs", "60", "--out", str(out))
        pairs, ends = Path(folder, "pairs.csv"), split.test.edge_label_index.numpy()
        pd.DataFrame({"source": ends[0], "target": ends[1]}).to_csv(pairs, index=False)
        for name, arguments in {
            "score": ["score", str(out), str(pairs)],
            "score-rate": ["score", str(out), str(pairs), "--base-rate", "0.001"],
            "score-interval": ["score", str(out), str(pairs), "--interval", "0.9"],
            "select": ["select", str(out), str(pairs), "--fdr", "0.1"],
            "top": ["top", str(out), "-k", "200"],
            "top-score": ["top", str(out), "-k", "200", "--calibrator", "platt"],
        }.items():
            linkcal(*arguments, "--out", f"{folder}/{name}.csv")
            for column, values in pd.read_csv(f"{folder}/{name}.csv").items():
                numbers |= flat({f"{name}.{column}": values.astype(float).tolist()})
    return numbers


def toggles(name: str) -> Numbers:
    from dataclasses import replace

    from linkcal import toggle_edges
    from linkcal.data import simulate_graph, split_links
    from linkcal.models import make_model

    torch.set_num_threads(1)
    graph = simulate_graph(300, num_edges=1500, num_features=24, seed=3)
    split = split_links(graph, val_fraction=0.2, test_fraction=0.2, seed=3)
    model = make_model(name, 24, hidden_channels=8, out_channels=6, seed=3).eval()
    split = replace(split, graph=model.prepare(split.graph))
    pairs = torch.cat([split.train.edge_label_index[:, :60], split.test.edge_label_index[:, -60:]], dim=1)
    numbers, x = Numbers(), split.graph.node_input
    for method in METHODS:
        toggled = toggle_edges(model, x, split.graph.edge_index, pairs, method=method)
        for part in ("absent", "present", "logit_absent", "logit_present"):
            numbers |= flat({f"{method}.{part}": getattr(toggled, part).flatten().tolist()})
    return numbers


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number in nested dictionaries and lists, by its path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(inner, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from flat(inner, f"{prefix}.{place}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield prefix, float(value)


if __name__ == "__main__":
    raise SystemExit(main())
