"""Calibration under three kinds of negatives: bars, where the gain comes from, transfer between kinds.

    python benchmarks/negatives.py --store STORE --out benchmarks/results/negatives

A cell is one data set, model and seed. The model is trained as usual (uniform negatives); calibrators are
fitted on the validation links and measured once on the test links, with negatives of each kind, one for each
link, the links being the same. ``STORE/trainings`` (or ``--trainings``, the store of ``linkcal sweep``) holds
the models, ``links`` the scored links, ``measured`` one JSON per cell: an interrupted run goes on where it
stopped. Delete ``measured/structural`` after a change of `in-n-out-plus`. Writes OUT.md and OUT.json.
LINKCAL_DATA_ROOT names the data sets.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _kind_tables import report
from _kinds import KindCell, load_kind_cell
from _pages import write_page
from numpy.typing import NDArray

from linkcal._core.files import written_whole
from linkcal._core.maths import bernoulli_nll, sigmoid
from linkcal._core.random import stream_seed
from linkcal.calibrators import (
    CALIBRATORS,
    Calibrator,
    StructuralCalibrator,
    base_rate_offset,
    fit_together,
    make_calibrator,
)
from linkcal.data import NEGATIVE_KINDS
from linkcal.exceptions import LinkcalWarning
from linkcal.metrics import evaluate_links, expected_calibration_error, negative_log_likelihood, roc_auc

Rows = list[dict[str, Any]]

OURS, STACKED = "in-n-out-plus", "in-n-out-plus stacked"

#: Feature sets of the ablation; "all" is `in-n-out-plus` itself.
FEATURE_SETS: tuple[str, ...] = (
    "logit", "toggle", "structure", "attributes", "toggle+structure", "structure+attributes", "all",
)  # fmt: skip

#: Pairs whose difference of NLL is measured link by link.
GAINS = (
    ("logit", "toggle"),
    ("logit", "structure"),
    ("logit", "attributes"),
    ("structure", "toggle+structure"),
    ("structure+attributes", "all"),
    ("toggle+structure", "all"),
)

#: Negatives per link of the transfer table, beside 1.
RARE = 10


def main() -> None:
    options = parser().parse_args()
    trainings = options.store / "trainings" if options.trainings is None else options.trainings
    rows: Rows = []
    for seed in options.seeds:
        for dataset in options.datasets:
            for model in options.models:
                cell = load_kind_cell(dataset, model, seed, options.store, trainings)
                for part, measure in PARTS.items():
                    if part == "networks" and seed not in options.network_seeds:
                        continue
                    rows += _measured_once(cell, part, measure, options.store)
    table = pd.DataFrame(rows)
    text = report(table, _command(options))
    print(text)
    if options.out is not None:
        write_page(options.out.with_suffix(".md"), text + "\n")
        _write_json(table, _command(options), options.out.with_suffix(".json"))


def _measured_once(cell: KindCell, part: str, measure: Callable[[KindCell], Rows], store: Path) -> Rows:
    """Rows of a cell, from its JSON file where it was measured before."""
    path = store / "measured" / part / f"{cell.name}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        keys = {"dataset": cell.dataset, "model": cell.model, "seed": cell.seed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinkcalWarning)
            rows = [{**keys, **row} for row in measure(cell)]
        with written_whole(path) as whole:
            whole.write_text(json.dumps(rows), encoding="utf-8")
        print(f"{cell.name} {part} measured", file=sys.stderr, flush=True)
    return list(json.loads(path.read_text(encoding="utf-8")))


def _others(cell: KindCell, *, networks: bool) -> Rows:
    """The other calibrators, with or without a network, fitted and measured with each kind."""
    rows: Rows = []
    names = [n for n, spec in CALIBRATORS.items() if n != OURS and spec.trains_network == networks]
    for kind in NEGATIVE_KINDS:
        blank = [_seeded(make_calibrator(name), cell.seed) for name in names]
        val, test = cell.scores(kind, "val"), cell.scores(kind, "test")
        X, y = zip(*(val.to_arrays(calibrator.link_features) for calibrator in blank), strict=True)
        for name, calibrator in zip(names, fit_together(blank, X, y), strict=True):
            X_test, y_test = test.to_arrays(calibrator.link_features)
            row = {"table": "main", "kind": kind, "test_kind": kind, "calibrator": name}
            rows.append(row | _metrics(y_test, calibrator.decision_function(X_test)))
    return rows


def _structural(cell: KindCell) -> Rows:
    """`in-n-out-plus` with each feature set and kind, gains link by link, and transfer between kinds."""
    rows: Rows = []
    tests = {kind: cell.links(kind, "test") for kind in NEGATIVE_KINDS}
    for kind in NEGATIVE_KINDS:
        X, y = cell.links(kind, "val")
        X_test, y_test = tests[kind]
        fitted: dict[str, StructuralCalibrator] = {
            name: StructuralCalibrator(features=name).fit(X, y) for name in FEATURE_SETS
        }
        logits = {name: calibrator.decision_function(X_test) for name, calibrator in fitted.items()}
        for name, logit in logits.items():
            row = {"table": "ablation", "kind": kind, "test_kind": kind, "calibrator": name}
            rows.append(row | _metrics(y_test, logit))
        rows += [_gain(kind, *names, logits, y_test) for names in GAINS]
        platt = make_calibrator("platt").fit(X[:, :1], y)
        for test_kind, (X_other, y_other) in tests.items():
            answers = {OURS: fitted["all"].decision_function(X_other)}
            answers["platt"] = platt.decision_function(X_other[:, :1])
            for name, logit in answers.items():
                row = {"table": "transfer", "kind": kind, "test_kind": test_kind, "calibrator": name}
                rows.append(row | _transferred(y_other, logit))
    return rows


def _stacked(cell: KindCell) -> Rows:
    """`in-n-out-plus` on top of a fit to the training links, leave-one-out, with negatives of the kind."""
    rows: Rows = []
    for kind in NEGATIVE_KINDS:
        X, y = cell.links(kind, "val")
        X_base, y_base = cell.links(kind, "train")
        fitted = StructuralCalibrator().fit(X, y, X_base=X_base, y_base=y_base)
        X_test, y_test = cell.links(kind, "test")
        row = {"table": "main", "kind": kind, "test_kind": kind, "calibrator": STACKED}
        rows.append(row | _metrics(y_test, fitted.decision_function(X_test)))
    return rows


PARTS: dict[str, Callable[[KindCell], Rows]] = {
    "baselines": partial(_others, networks=False),
    "networks": partial(_others, networks=True),
    "structural": _structural,
    "stacked": _stacked,
}


def _seeded(calibrator: Calibrator, seed: int) -> Calibrator:
    if "random_state" in calibrator.get_params():
        calibrator.set_params(random_state=stream_seed(seed, "calibration") % 2**31)
    return calibrator


def _metrics(y: NDArray[np.int64], logit: NDArray[np.float64]) -> dict[str, float]:
    values = evaluate_links(y, sigmoid(logit), logit)
    kept = ("ece", "ece_floor", "ece_floor_q95", "nll", "brier", "auc", "hits@20")
    return {"links": len(y), **{name: values[name] for name in kept}}


def _gain(
    kind: str, first: str, second: str, logits: dict[str, NDArray[np.float64]], y: NDArray[np.int64]
) -> dict[str, Any]:
    """Mean over test links of the fall of the loss from one feature set to another, with standard error."""
    label = y.astype(np.float64)
    fall = bernoulli_nll(logits[first], label) - bernoulli_nll(logits[second], label)
    error = float(fall.std(ddof=1) / np.sqrt(len(fall)))
    return {
        "table": "gain", "kind": kind, "test_kind": kind, "calibrator": f"{first} > {second}",
        "gain": float(fall.mean()), "gain_error": error,
    }  # fmt: skip


def _transferred(y: NDArray[np.int64], logit: NDArray[np.float64]) -> dict[str, float]:
    """As drawn, and with rarer links: probabilities as fitted, or moved to the true base rate."""
    weight = np.where(y == 1, 1.0, RARE)
    p, moved = sigmoid(logit), sigmoid(logit + base_rate_offset(1 / 2, 1 / (1 + RARE)))
    return {
        "ece": expected_calibration_error(y, p),
        "nll": negative_log_likelihood(y, p),
        "auc": roc_auc(y, logit),
        "bias": float(p.mean() - y.mean()),
        "ece_rare": expected_calibration_error(y, p, sample_weight=weight),
        "ece_shifted": expected_calibration_error(y, moved, sample_weight=weight),
        "nll_rare": negative_log_likelihood(y, p, sample_weight=weight),
        "nll_shifted": negative_log_likelihood(y, moved, sample_weight=weight),
    }


def _write_json(table: pd.DataFrame, command: str, path: Path) -> None:
    """Measured values of every cell, one list of rows for each kind of table."""
    parts = []
    for name, rows in table.groupby("table", sort=False):
        shown = rows.drop(columns="table").dropna(axis="columns", how="all")
        lines = ",\n".join(
            json.dumps(row, separators=(",", ":"))
            for row in shown.round(5).astype(object).to_numpy().tolist()
        )
        head = f'{json.dumps(name)}: {{"columns": {json.dumps(list(shown.columns))}, "rows": [\n'
        parts.append(f"{head}{lines}\n]}}")
    text = f'{{"command": {json.dumps(command)},\n' + ",\n".join(parts) + "}\n"
    write_page(path, text)


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    datasets = ["cora", "citeseer", "chameleon", "bitcoin-alpha", "bitcoin-otc", "twitch-pt", "pubmed"]
    command.add_argument("--datasets", nargs="+", default=datasets)
    command.add_argument("--models", nargs="+", default=["vgae", "gcn", "sage", "gin", "peg"])
    command.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    command.add_argument(
        "--network-seeds", nargs="*", type=int, default=[], help="seeds whose cells also fit networks (slow)"
    )
    command.add_argument("--store", type=Path, required=True, help="folder for links and measured cells")
    command.add_argument("--trainings", type=Path, help="store of a sweep (default: STORE/trainings)")
    command.add_argument("--out", type=Path, help="where to write the .md and .json file")
    return command


def _command(options: argparse.Namespace) -> str:
    networks = (
        f" --network-seeds {' '.join(map(str, options.network_seeds))}" if options.network_seeds else ""
    )
    return (
        f"python benchmarks/negatives.py --datasets {' '.join(options.datasets)} --models "
        f"{' '.join(options.models)} --seeds {' '.join(map(str, options.seeds))}{networks} --store STORE"
    )


if __name__ == "__main__":
    main()
