"""Whether probabilities hold where links are rare: test links against very many fresh negatives.

    python benchmarks/rare_links.py --store STORE --out benchmarks/results/rare_links.md

Calibrators are fitted on the validation links, one negative for each link, as ever. A pair whose odds are
1,000 to 1 at that ratio is an even bet at one link in a thousand, but no test set of that ratio shows whether
it is: so each test link is weighed here against hundreds of fresh negatives, uniform ones that are no link of
the graph and no pair of the split. STORE is that of a sweep: trainings that it lacks are added to it.
LINKCAL_DATA_ROOT names the raw data sets.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from _cells import job_for, load_cell, training_of
from _pages import write_page
from numpy.typing import NDArray
from scipy.special import expit

from linkcal._core.maths import bernoulli_nll
from linkcal._core.random import numpy_stream
from linkcal.calibrators import StructuralCalibrator, base_rate_offset, make_calibrator
from linkcal.data import LinkSplit, NegativeSampler
from linkcal.exceptions import LinkcalWarning
from linkcal.features import LinkScorer
from linkcal.models import load_model
from linkcal.workflow import load_graph, split_graph

FloatArray = NDArray[np.float64]

CALIBRATORS = ("platt", "isotonic", "bbq", "in-n-out-plus")

#: Bounds of calibrated logits at one to one.
BOUNDS = (-np.inf, -6.0, -5.0, -4.0, -3.0, -2.0, 0.0, 2.0, 3.0, 4.0, 5.0, 6.0, np.inf)

#: Shares of links that probabilities are moved to and measured at.
BASE_RATES = (0.5, 0.01, 0.001)


@dataclass(frozen=True)
class Answers:
    """Calibrated logits at one to one of the test links and of the fresh negatives of one cell."""

    dataset: str
    seed: int
    calibrator: str
    link: FloatArray
    negative: FloatArray

    def loss(self, rate: float) -> float:
        """NLL in nats where links have the share `rate`, of probabilities that were moved there."""
        shift = base_rate_offset(0.5, rate)
        parts = (
            bernoulli_nll(z + shift, np.full(z.shape, y)) for z, y in ((self.link, 1.0), (self.negative, 0.0))
        )
        of_links, of_others = (float(part.mean()) for part in parts)
        return rate * of_links + (1.0 - rate) * of_others


def main() -> None:
    options = parser().parse_args()
    answers = [
        answer
        for seed in range(options.seeds)
        for dataset in options.datasets
        for model in options.models
        for answer in answers_of(dataset, model, seed, options.store, options.negatives)
    ]
    names = list(dict.fromkeys(answer.calibrator for answer in answers))
    size = f"{' x '.join(map(', '.join, (options.datasets, options.models)))} x {options.seeds} seeds"
    text = [
        "# Probabilities where links are rare",
        f"`python benchmarks/rare_links.py {command_of(options)}`",
        f"{len(answers) // len(names)} cells: {size}, fitted on validation links at one to one; measured on "
        f"test links and up to {options.negatives:,} fresh negatives a cell.",
        "## Log likelihood at three base rates",
        "Mean over cells of the NLL in nats, probabilities moved to the rate by `base_rate=`; in brackets "
        "the share of cells where it is the lowest. The base rate itself, said of every pair, has "
        f"{', '.join(f'{constant_loss(rate):.5f}' for rate in BASE_RATES)}.",
        losses(answers, names),
        *(part for name in names for part in (f"## Odds: {name}", odds(answers, name))),
    ]
    print("\n\n".join(text))
    if options.out is not None:
        write_page(options.out, "\n\n".join(text) + "\n")


def answers_of(dataset: str, model: str, seed: int, store: Path, negatives: int) -> Iterator[Answers]:
    job = job_for(dataset, model, seed)
    trained, graph = load_model(training_of(job, store)), load_graph(job.config)
    if isinstance(graph, LinkSplit):
        raise SystemExit(f"{job.title}: an official split has its own negatives")
    split = split_graph(job.config, graph)
    drawn = torch.cat([split.part(part).edge_label_index for part in ("train", "val", "test")], dim=1)
    sampler = NegativeSampler(graph, exclude=drawn)
    count = min(negatives, sampler.num_available)
    fresh = sampler.sample(count, numpy_stream(seed, "fresh negatives"))
    others = LinkScorer(trained, trained.prepare(split.graph)).score(fresh)
    cell = load_cell(dataset, model, seed, store)
    made = {name: make_calibrator(name) for name in CALIBRATORS}
    for name, calibrator in {
        **made,
        "in-n-out-plus, toggle": StructuralCalibrator(features="toggle"),
    }.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinkcalWarning)
            calibrator.fit(*cell.links_for(calibrator, "val"))
        X, y = cell.links_for(calibrator, "test")
        z = calibrator.decision_function(X[y == 1])
        yield Answers(
            dataset, seed, name, z, calibrator.decision_function(others.to_matrix(calibrator.link_features))
        )
    print(f"{dataset} {model} {seed}", file=sys.stderr, flush=True)


def constant_loss(rate: float) -> float:
    return float(-(rate * np.log(rate) + (1.0 - rate) * np.log1p(-rate)))


def losses(answers: list[Answers], names: list[str]) -> str:
    heads = " | ".join(f"base rate {rate:g}" for rate in BASE_RATES)
    lines = [f"| calibrator | {heads} |", "| --- |" + " ---: |" * len(BASE_RATES)]
    table = np.array([[a.loss(rate) for rate in BASE_RATES] for a in answers]).reshape(
        -1, len(names), len(BASE_RATES)
    )
    lowest = table.argmin(axis=1)
    for i, name in enumerate(names):
        mean, best = table[:, i].mean(axis=0), (lowest == i).mean(axis=0)
        cells = " | ".join(f"{m:.5f} ({100 * b:.0f} %)" for m, b in zip(mean, best, strict=True))
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def odds(answers: list[Answers], name: str) -> str:
    """Log odds that were said and that were found, by calibrated logit; cells are added up."""
    lines = [
        "| logit | links | negatives as one to one | log odds said | log odds found |",
        "| --- |" + " ---: |" * 4,
    ]
    links, others, said, denied = (np.zeros(len(BOUNDS) - 1) for _ in range(4))
    for answer in answers:
        if answer.calibrator == name:
            share = len(answer.link) / len(answer.negative)
            for z, weight, count in ((answer.link, 1.0, links), (answer.negative, share, others)):
                count += weight * np.histogram(z, BOUNDS)[0]
                said += weight * np.histogram(z, BOUNDS, weights=expit(z))[0]
                denied += weight * np.histogram(z, BOUNDS, weights=expit(-z))[0]
    for i, (low, high) in enumerate(pairwise(BOUNDS)):
        if links[i] + others[i] == 0.0:
            continue
        with np.errstate(divide="ignore"):  # isotonic regression may be certain
            promised = np.log(said[i]) - np.log(denied[i])
        found = f"{np.log(links[i] / others[i]):.2f}" if links[i] > 0 and others[i] > 0 else "-"
        lines.append(
            f"| {low:g} to {high:g} | {links[i]:,.0f} | {others[i]:,.1f} | {promised:.2f} | {found} |"
        )
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    datasets = ["cora", "citeseer", "chameleon", "bitcoin-alpha", "bitcoin-otc", "twitch-pt", "pubmed"]
    command.add_argument("--datasets", nargs="+", default=datasets)
    command.add_argument("--models", nargs="+", default=["vgae", "gcn", "sage", "gin", "peg"])
    command.add_argument("--seeds", type=int, default=3, help="seeds 0 to SEEDS - 1")
    command.add_argument("--negatives", type=int, default=400_000, help="fresh negatives of a cell, at most")
    command.add_argument("--store", type=Path, required=True, help="store of a sweep")
    command.add_argument("--out", type=Path, help="where to write the page")
    return command


def command_of(options: argparse.Namespace) -> str:
    return (
        f"--datasets {' '.join(options.datasets)} --models {' '.join(options.models)} "
        f"--seeds {options.seeds} --negatives {options.negatives} --store STORE"
    )


if __name__ == "__main__":
    main()
