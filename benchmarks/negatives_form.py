"""Why `in-n-out-plus` was above the noise floor under two-hop negatives, and what mends it.

    python benchmarks/negatives_form.py --store STORE --seeds 0 1 --out benchmarks/results/negatives_form.md

Validation links alone, of the cells that ``benchmarks/negatives.py`` made in STORE: fitted on one half and
measured on the other, both ways. Three fits: without products of pairs of columns, with them, and without
them on labels drawn anew from the probabilities of the first, so that its form is right by construction: what
excess is left then is the price of few links; what is above it is the form's.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _kind_tables import interval, table
from _kinds import KindCell
from _pages import write_page
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from linkcal._core.files import written_whole
from linkcal._core.random import numpy_stream
from linkcal.calibrators import StructuralCalibrator, _additive
from linkcal.data import NEGATIVE_KINDS
from linkcal.metrics import calibration_floor, expected_calibration_error, negative_log_likelihood

WITHOUT, WITH, RIGHT = "without products", "with products", "without, form right"

#: What the library does; 0 leaves the products out.
_PAIRED_COLUMNS = _additive._PAIRED_COLUMNS


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    datasets = ["cora", "citeseer", "chameleon", "bitcoin-alpha", "bitcoin-otc", "twitch-pt"]
    command.add_argument("--datasets", nargs="+", default=datasets)
    command.add_argument("--models", nargs="+", default=["vgae", "gcn", "sage", "gin", "peg"])
    command.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    command.add_argument("--store", type=Path, required=True)
    command.add_argument("--out", type=Path)
    return command


def main() -> None:
    options = parser().parse_args()
    rows: list[dict[str, Any]] = []
    for seed in options.seeds:
        for dataset in options.datasets:
            for model in options.models:
                name = f"{dataset}-{model}-{seed}"
                rows += _measured_once(
                    KindCell(dataset, model, seed, options.store / "links" / name), options.store
                )
    command = (
        f"python benchmarks/negatives_form.py --datasets {' '.join(options.datasets)} --models "
        f"{' '.join(options.models)} --seeds {' '.join(map(str, options.seeds))} --store STORE"
    )
    text = _report(pd.DataFrame(rows), command)
    print(text)
    if options.out is not None:
        write_page(options.out, text + "\n")


def _measured_once(cell: KindCell, store: Path) -> list[dict[str, Any]]:
    path = store / "form" / f"{cell.name}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [row for kind in NEGATIVE_KINDS for row in _halves(cell, kind)]
        with written_whole(path) as part:
            part.write_text(json.dumps(rows), encoding="utf-8")
        print(f"{cell.name} measured", file=sys.stderr, flush=True)
    return list(json.loads(path.read_text(encoding="utf-8")))


def _halves(cell: KindCell, kind: str) -> list[dict[str, Any]]:
    X, y = cell.links(kind, "val")
    rows = []
    for fold, (fit, test) in enumerate(StratifiedKFold(2, shuffle=True, random_state=cell.seed).split(X, y)):
        # A stream for each fit: shared draws would not average out over cells.
        rng = numpy_stream(cell.seed, f"form {cell.dataset} {cell.model} {kind} {fold}")
        plain = _fitted(X[fit], y[fit], products=False)
        truth, truth_test = (plain.predict_proba(X[rows_])[:, 1] for rows_ in (fit, test))
        drawn, drawn_test = (
            (rng.random(len(p)) < p).astype(np.int64) for p in (truth, truth_test)
        )  # labels under which the form of `plain` is right
        answers = {
            WITHOUT: (truth_test, y[test]),
            WITH: (_fitted(X[fit], y[fit], products=True).predict_proba(X[test])[:, 1], y[test]),
            RIGHT: (_fitted(X[fit], drawn, products=False).predict_proba(X[test])[:, 1], drawn_test),
        }
        keys = {"dataset": cell.dataset, "model": cell.model, "seed": cell.seed, "kind": kind}
        rows += [{**keys, "fit": name, **_row(*answer)} for name, answer in answers.items()]
    return rows


def _fitted(X: NDArray[np.float64], y: NDArray[np.int64], *, products: bool) -> StructuralCalibrator:
    _additive._PAIRED_COLUMNS = _PAIRED_COLUMNS if products else 0
    try:
        return StructuralCalibrator().fit(X, y)
    finally:
        _additive._PAIRED_COLUMNS = _PAIRED_COLUMNS


def _row(p: NDArray[np.float64], y: NDArray[np.int64]) -> dict[str, Any]:
    ece, floor = expected_calibration_error(y, p), calibration_floor(p)
    return {
        "excess": 100 * (ece - floor.mean),
        "inside": ece <= floor.q95,
        "nll": negative_log_likelihood(y, p),
        "links": len(y),
    }


def _report(rows: pd.DataFrame, command: str) -> str:
    cells = rows[["dataset", "model", "seed"]].drop_duplicates()
    division = ["dataset", "seed"]
    lines, gains = [], []
    for kind in NEGATIVE_KINDS:
        here = rows[rows["kind"] == kind]
        for name in (WITHOUT, WITH, RIGHT):
            part = here[here["fit"] == name]
            mean, half = interval(part["excess"], [part[column] for column in division])
            inside = f"{100 * part['inside'].mean():.0f} %"
            lines.append([kind, name, f"{mean:.2f} +- {half:.2f}", inside, f"{part['nll'].mean():.4f}"])
        wide = here.pivot_table(index=["dataset", "seed", "model"], columns="fit", values=["nll", "excess"])
        for value, unit in (("nll", "NLL"), ("excess", "excess")):
            fall = wide[value][WITHOUT] - wide[value][WITH]
            groups = [fall.index.get_level_values(column) for column in division]
            mean, half = interval(fall, groups)
            share = f"{(fall > 0).sum()} of {len(fall)}"
            gains.append(f"- {kind}: products lower the {unit} by {mean:.4f} +- {half:.4f}, in {share} cells")
    return "\n".join(
        [
            "# The form of in-n-out-plus under three kinds of negatives",
            "",
            f"`{command}`",
            "",
            f"{len(cells)} cells, halves of the validation links. +- is half the 95 % t interval of a mean "
            f"over {len(cells[division].drop_duplicates())} divisions of links (data set and seed).",
            "",
            table(["negatives", "fit", "excess ECE, points", "in 95 % band", "NLL"], lines, 2),
            "",
            *gains,
        ]
    )


if __name__ == "__main__":
    main()
