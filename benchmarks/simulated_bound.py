"""What bounds the error to the true probabilities on the simulated graph.

    python benchmarks/simulated_bound.py --seeds 10 11 12 --out benchmarks/results/simulated_bound.md

All pairs outside the message graph are a population with known probabilities: a pair of edge probability q is
met as a test link with weight ``q a`` and as a uniform non-link with weight ``(1 - q) b`` (a, b: rates of the
split). Pairs are drawn from it without limit, so that three errors can be told apart: of the few calibration
links, of the calibrator's form, and of the features, which do not determine the probability.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from _kinds import load_graph, trained_model
from sklearn.ensemble import HistGradientBoostingRegressor

from linkcal.calibrators import Isotonic, StructuralCalibrator
from linkcal.data import Graph, LinkSplit, split_links
from linkcal.features import LinkScores, score_links
from linkcal.models import GraphModel

#: Pairs that stand for unlimited data, and pairs that errors are measured on.
LIMITLESS, MEASURED = 100_000, 50_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["gcn", "vgae", "sage"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    errors = pd.DataFrame(
        {
            f"{name} {seed}": _errors(*_trained(name, seed), seed)
            for seed in options.seeds
            for name in options.models
        }
    ).T
    ratio = errors.div(errors["isotonic, validation links"], axis=0)
    lines = ["| error | points | over isotonic | range |", "| --- | ---: | ---: | --- |"]
    for name in errors:
        low, high = ratio[name].min(), ratio[name].max()
        mean = f"{100 * errors[name].mean():.2f} | {ratio[name].mean():.2f}"
        lines.append(f"| {name} | {mean} | {low:.2f} to {high:.2f} |")
    seeds, models = " ".join(map(str, options.seeds)), " ".join(options.models)
    text = "\n".join(
        [
            "# What bounds the error on the simulated graph",
            "",
            f"`python benchmarks/simulated_bound.py --models {models} --seeds {seeds}`",
            "",
            f"Mean absolute error to the true probability over {MEASURED:,} pairs, {len(errors)} trained "
            f"models; unlimited data are {LIMITLESS:,} pairs.",
            "",
            *lines,
        ]
    )
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")


def _trained(name: str, seed: int) -> tuple[Graph, GraphModel, LinkSplit]:
    graph = load_graph("simulated", seed)
    return graph, *trained_model(name, split_links(graph, seed=seed), seed)


def _errors(graph: Graph, model: GraphModel, split: LinkSplit, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    pairs, truth = _population(graph, split, LIMITLESS + MEASURED, rng)
    scores = score_links(model, split.graph, pairs)
    X, p = scores.to_matrix("structural"), truth
    label = (rng.random(len(p)) < p).astype(int)
    train, test = slice(0, LIMITLESS), slice(LIMITLESS, None)
    val: LinkScores = score_links(model, split.graph, split.val)
    X_val, y_val = val.to_arrays("structural")

    def error(predicted: np.ndarray) -> float:
        return float(np.abs(predicted - p[test]).mean())

    def boosted(columns: np.ndarray) -> float:
        # The conditional median has the smallest mean absolute error of all functions of the columns.
        trees = HistGradientBoostingRegressor(
            loss="absolute_error", max_iter=400, min_samples_leaf=50, random_state=0
        )
        return error(trees.fit(columns[train], p[train]).predict(columns[test]))

    block = graph.truth.block  # type: ignore[union-attr]
    same = (block[pairs[0]] == block[pairs[1]]).numpy()[:, None]
    out = {
        "isotonic, validation links": error(
            Isotonic().fit(X_val[:, :1], y_val).predict_proba(X[test, :1])[:, 1]
        )
    }
    for name, features in (("in-n-out-plus", "all"), ("in-n-out-plus without toggling", "structure")):
        calibrator = StructuralCalibrator(features=features)  # type: ignore[arg-type]
        fitted = calibrator.fit(X_val, y_val).predict_proba(X[test])[:, 1]
        out[f"{name}, validation links"] = error(fitted)
    out["isotonic, unlimited data"] = error(
        Isotonic().fit(X[train, :1], label[train]).predict_proba(X[test, :1])[:, 1]
    )
    out["in-n-out-plus, unlimited data"] = error(
        StructuralCalibrator().fit(X[train], label[train]).predict_proba(X[test])[:, 1]
    )
    out["bound for the logit alone"] = boosted(X[:, :1])
    out["bound for the eight columns"] = boosted(X)
    out["bound for the eight columns and whether the true blocks agree"] = boosted(np.hstack([X, same]))
    return out


def _population(
    graph: Graph, split: LinkSplit, num: int, rng: np.random.Generator
) -> tuple[torch.Tensor, np.ndarray]:
    """Pairs [2, num] drawn with replacement, and their true probabilities of being a test link."""
    every = torch.triu_indices(graph.num_nodes, graph.num_nodes, offset=1)
    every = every[:, ~split.graph.has_pairs(every)]
    q = graph.truth.edge_probability(every)  # type: ignore[union-attr]
    rates = split.test
    weight = q * (rates.positive_rate or 0.0) + (1 - q) * (rates.negative_rate or 0.0)
    upto = np.cumsum(weight.numpy())
    chosen = torch.from_numpy(np.searchsorted(upto, rng.random(num) * upto[-1], side="right"))
    return every[:, chosen], rates.label_probability(q[chosen]).numpy()


if __name__ == "__main__":
    main()
