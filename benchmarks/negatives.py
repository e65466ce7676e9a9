"""Calibration under three kinds of non-links: bars, ablation over features, and transfer between kinds.

    python benchmarks/negatives.py --store STORE --seeds 10 11 12 --out benchmarks/results/negatives

A cell is one data set, model and seed. The model is trained as usual (uniform non-links); calibrators are
fitted on the validation links and measured once on the test links, with non-links of each kind, one for each
link. Trained cells (``links/``) and measured cells (``measured/``, one JSON each) stay in STORE, so that an
interrupted run goes on where it stopped. Writes OUT.md and OUT.csv. LINKCAL_DATA_ROOT names the data sets.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _kind_tables import report
from _kinds import KindCell, Links, load_kind_cell

from linkcal._files import written_whole
from linkcal._random import numpy_stream
from linkcal.calibrators import (
    CALIBRATORS,
    Calibrator,
    StructuralCalibrator,
    base_rate_offset,
    make_calibrator,
)
from linkcal.data import NEGATIVE_KINDS
from linkcal.exceptions import LinkcalWarning
from linkcal.metrics import evaluate_links

OURS = "in-n-out-plus"

#: Calibrators whose networks train for seconds a cell.
SLOW = ("embedding-mlp", "in-n-out")

#: Feature sets of the ablation; "all" is `in-n-out-plus` itself.
ABLATION = {"logit": "logit", "+ toggle": "toggle", "+ structure": "structure"}

#: Non-links per link of the transfer table, beside 1.
RARE = 10


def main() -> None:
    options = _options()
    rows: list[dict[str, Any]] = []
    for seed in options.seeds:
        for dataset in options.datasets:
            for model in options.models:
                rows += _measured_once(dataset, model, seed, options)
    table = pd.DataFrame(rows)
    text = report(table, _command(options))
    print(text)
    if options.out is not None:
        options.out.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
        table.round(6).to_csv(options.out.with_suffix(".csv"), index=False)


def _measured_once(dataset: str, model: str, seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of a cell, from its JSON file where it was measured before."""
    path = options.store / "measured" / f"{dataset}-{model}-{seed}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        cell = load_kind_cell(dataset, model, seed, options.store)
        keys = {"dataset": dataset, "model": model, "seed": seed}
        rows = [{**keys, **row} for row in _measured(cell, options.redivisions)]
        with written_whole(path) as part:
            part.write_text(json.dumps(rows), encoding="utf-8")
        print(f"{cell.name} measured", file=sys.stderr)
    rows = json.loads(path.read_text(encoding="utf-8"))
    return list(rows)


def _measured(cell: KindCell, redivisions: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for kind in NEGATIVE_KINDS:
        val, test = cell.links(kind, "val"), cell.links(kind, "test")
        maps = {name: make_calibrator(name) for name in CALIBRATORS if name not in SLOW}
        sets = {name: StructuralCalibrator(features=features) for name, features in ABLATION.items()}
        for table, calibrators in (("main", maps), ("ablation", sets)):
            for name, calibrator in calibrators.items():
                rows.append(_row(table, kind, name, _fitted(calibrator, val), test))
        for name in (OURS, "platt"):
            rows += _transfer(cell, kind, name)
        rows += _redivided(cell, kind, redivisions)
    return rows


def _fitted(calibrator: Calibrator, links: Links) -> Calibrator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        return calibrator.fit(_columns(calibrator, links), links.y)


def _columns(calibrator: Calibrator, links: Links) -> Any:
    return links.X if calibrator.link_features == "structural" else links.X[:, :1]


def _row(table: str, kind: str, name: str, calibrator: Calibrator, test: Links) -> dict[str, Any]:
    X = _columns(calibrator, test)
    p = calibrator.predict_proba(X)[:, 1]
    row = {"table": table, "kind": kind, "calibrator": name, "test_kind": kind, "links": len(test.y)}
    row |= evaluate_links(test.y, p, calibrator.decision_function(X))
    if test.truth is not None:
        row["true_error"] = float(np.abs(p - test.truth).mean())
    return row


def _transfer(cell: KindCell, kind: str, name: str) -> list[dict[str, Any]]:
    """Fitted with one kind and measured with each, as drawn and with rarer links, shifted or not."""
    calibrator = _fitted(make_calibrator(name), cell.links(kind, "val"))
    rows = []
    for test_kind in NEGATIVE_KINDS:
        test = cell.links(test_kind, "test")
        logit = calibrator.decision_function(_columns(calibrator, test))
        weight = np.where(test.y == 1, 1.0, RARE)
        offset = base_rate_offset(1 / 2, 1 / (1 + RARE))
        for label, z, w in (
            ("1:1", logit, None),
            ("rare", logit, weight),
            ("shifted", logit + offset, weight),
        ):
            p = 1.0 / (1.0 + np.exp(-z))
            row = {"table": f"transfer {label}", "kind": kind, "calibrator": name, "test_kind": test_kind}
            rows.append(row | {"links": len(test.y)} | evaluate_links(test.y, p, z, sample_weight=w))
    return rows


def _redivided(cell: KindCell, kind: str, repeats: int) -> list[dict[str, Any]]:
    """Validation and test links, which are exchangeable, divided anew: the same quantity with less noise."""
    parts = [cell.links(kind, part) for part in ("val", "test")]
    X, y = np.concatenate([p.X for p in parts]), np.concatenate([p.y for p in parts])
    rows = []
    for repeat in range(repeats):
        order = numpy_stream(cell.seed, f"division {repeat}").permutation(len(y))
        fit, test = (Links(X[rows_], y[rows_], None) for rows_ in np.array_split(order, 2))
        rows.append(_row("divided anew", kind, OURS, _fitted(make_calibrator(OURS), fit), test))
    return rows


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    datasets = ["cora", "citeseer", "bitcoin-alpha", "bitcoin-otc", "twitch-pt", "chameleon", "simulated"]
    parser.add_argument("--datasets", nargs="+", default=datasets)
    parser.add_argument("--models", nargs="+", default=["gcn", "vgae", "sage"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--redivisions", type=int, default=6, help="new divisions of a cell's links")
    parser.add_argument("--store", type=Path, required=True, help="folder for trained and measured cells")
    parser.add_argument("--out", type=Path, help="where to write the .md and .csv file")
    return parser.parse_args()


def _command(options: argparse.Namespace) -> str:
    seeds = " ".join(map(str, options.seeds))
    return (
        f"python benchmarks/negatives.py --datasets {' '.join(options.datasets)} --models "
        f"{' '.join(options.models)} --seeds {seeds} --redivisions {options.redivisions} --store STORE"
    )


if __name__ == "__main__":
    main()
