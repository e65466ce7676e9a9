"""What bounds the error to the true probabilities on the simulated graph.

    python benchmarks/simulated_bound.py --store STORE --out benchmarks/results/simulated_bound.md

All pairs outside the message-passing graph are a population with known probabilities: a pair of edge
probability q is met as a test link with weight ``q a`` and as a uniform negative with weight ``(1 - q) b``
(a, b: rates of the split). Pairs are drawn from it without limit, so that three errors can be told apart:
that of the few calibration links, that of the calibrator's form, and that of the features, which do not
determine the probability. Measured models stay in STORE/simulated, so that an interrupted run goes on where
it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from _pages import write_page
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from linkcal._core.files import written_whole
from linkcal.calibrators import Isotonic, StructuralCalibrator
from linkcal.data import BlockModelTruth, Graph, LinkSplit, load_dataset
from linkcal.features import score_links
from linkcal.models import GraphModel
from linkcal.workflow import RunConfig, split_graph
from linkcal.workflow._steps import train_model

FloatArray = NDArray[np.float64]

#: Pairs that stand for unlimited data, and pairs that errors are measured on.
LIMITLESS, MEASURED = 30_000, 10_000

BASE = "isotonic, validation links"


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    command.add_argument("--models", nargs="+", default=["gcn", "vgae", "sage"])
    command.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    command.add_argument("--store", type=Path, required=True)
    command.add_argument("--out", type=Path)
    return command


def main() -> None:
    options = parser().parse_args()
    cells = [_measured_once(name, seed, options.store) for seed in options.seeds for name in options.models]
    seeds, models = " ".join(map(str, options.seeds)), " ".join(options.models)
    command = f"python benchmarks/simulated_bound.py --models {models} --seeds {seeds} --store STORE"
    text = _report(pd.DataFrame(cells), command)
    print(text)
    if options.out is not None:
        write_page(options.out, text + "\n")


def _report(errors: pd.DataFrame, command: str) -> str:
    ratio = errors.div(errors[BASE], axis=0)
    lines = ["| fitted | error, points | over the first | range |", "| --- | ---: | ---: | --- |"]
    for name in errors:
        low, high = ratio[name].min(), ratio[name].max()
        mean = f"{100 * errors[name].mean():.2f} | {ratio[name].mean():.2f}"
        lines.append(f"| {name} | {mean} | {low:.2f} to {high:.2f} |")
    return "\n".join(
        [
            "# What bounds the error on the simulated graph",
            "",
            f"`{command}`",
            "",
            f"Mean absolute error to the true probability over {MEASURED:,} pairs, {len(errors)} trained "
            f"models (the graph is drawn anew for each seed); unlimited data are {LIMITLESS:,} pairs. The "
            "bounds are what a boosted tree ensemble attains that is shown the TRUE probabilities of the "
            "unlimited data and minimises this very error: what the columns determine, as nearly as it finds "
            "out.",
            "",
            *lines,
        ]
    )


def _measured_once(name: str, seed: int, store: Path) -> dict[str, float]:
    path = store / "simulated" / f"{name}-{seed}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        graph = load_dataset("simulated", seed=seed)
        config = RunConfig("simulated", name, seed=seed)
        split = split_graph(config, graph)
        model, split, *_ = train_model(config, split, torch.device("cpu"))
        errors = _errors(graph, model, split, seed)
        with written_whole(path) as part:
            part.write_text(json.dumps(errors), encoding="utf-8")
        print(f"{name} {seed} measured", file=sys.stderr, flush=True)
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _errors(graph: Graph, model: GraphModel, split: LinkSplit, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    pairs, truth = _population(graph, split, LIMITLESS + MEASURED, rng)
    X = score_links(model, split.graph, pairs).to_matrix("structural")
    (X_val, y_val), (X_train, y_train) = (
        score_links(model, split.graph, part).to_arrays("structural") for part in (split.val, split.train)
    )
    many, asked = slice(0, LIMITLESS), slice(LIMITLESS, None)
    label = (rng.random(LIMITLESS) < truth[many]).astype(int)

    def error(predicted: FloatArray) -> float:
        return float(np.abs(predicted - truth[asked]).mean())

    def calibrated(features: str, X_fit: FloatArray, y: NDArray[np.int64], **base: Any) -> float:
        calibrator = StructuralCalibrator(features=features)
        return error(calibrator.fit(X_fit, y, **base).predict_proba(X[asked])[:, 1])

    def isotonic(X_fit: FloatArray, y: NDArray[np.int64]) -> float:
        return error(Isotonic().fit(X_fit[:, :1], y).predict_proba(X[asked, :1])[:, 1])

    def bound(columns: FloatArray) -> float:
        # The conditional median has the smallest mean absolute error of all functions of the columns.
        trees = HistGradientBoostingRegressor(
            loss="absolute_error", max_iter=100, min_samples_leaf=50, random_state=0
        )
        return error(trees.fit(columns[many], truth[many]).predict(columns[asked]))

    block = _truth(graph).block
    same = (block[pairs[0]] == block[pairs[1]]).numpy()[:, None]
    return {
        BASE: isotonic(X_val, y_val),
        "in-n-out-plus, validation links": calibrated("all", X_val, y_val),
        "in-n-out-plus stacked on training links": calibrated(
            "all", X_val, y_val, X_base=X_train, y_base=y_train
        ),
        "in-n-out-plus without toggling": calibrated("structure+attributes", X_val, y_val),
        "in-n-out-plus without feature similarity": calibrated("toggle+structure", X_val, y_val),
        "isotonic, unlimited data": isotonic(X[many], label),
        "in-n-out-plus, unlimited data": calibrated("all", X[many], label),
        "bound for the ten columns": bound(X),
        "bound for the ten columns and whether the true blocks agree": bound(np.hstack([X, same])),
    }


def _truth(graph: Graph) -> BlockModelTruth:
    if not isinstance(graph.truth, BlockModelTruth):
        raise SystemExit(f"{graph.name} is not simulated")
    return graph.truth


def _population(
    graph: Graph, split: LinkSplit, num: int, rng: np.random.Generator
) -> tuple[torch.Tensor, FloatArray]:
    """Pairs [2, num] drawn with replacement, and their true probabilities of being a test link."""
    every = torch.triu_indices(graph.num_nodes, graph.num_nodes, offset=1)
    every = every[:, ~split.graph.has_pairs(every)]
    q = _truth(graph).edge_probability(every)
    rates = split.test
    weight = q * (rates.positive_rate or 0.0) + (1 - q) * (rates.negative_rate or 0.0)
    upto = np.cumsum(weight.numpy())
    chosen = torch.from_numpy(np.searchsorted(upto, rng.random(num) * upto[-1], side="right"))
    return every[:, chosen], rates.label_probability(q[chosen]).numpy()


if __name__ == "__main__":
    main()
