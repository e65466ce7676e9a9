"""Which order of missing pairs has more links at its top: the model's, or the calibrated probability's.

    python benchmarks/top_order.py --store STORE --out benchmarks/results/top_order.md

``linkcal top -k K`` takes the missing pairs that the model scores highest. A calibrator that reads more than
the score gives them probabilities in another order: ``--rerank C`` takes the C best by the model and keeps
the K most probable of them. Counted are the test links among these, for all missing pairs of the graph
compete (validation links, which the calibrator was fitted on, are left out). STORE is that of a sweep:
trainings that it lacks are added to it. LINKCAL_DATA_ROOT names the raw data sets.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from _cells import job_for, training_of
from _pages import write_page
from numpy.typing import NDArray

from linkcal import CalibratedLinkPredictor, StructuralCalibrator
from linkcal.all_pairs import most_probable_pairs
from linkcal.data import LinkSplit, pair_keys
from linkcal.exceptions import LinkcalWarning
from linkcal.models import load_model
from linkcal.workflow import load_graph, split_graph

#: How many pairs are kept, and out of how many of the model's best they are taken.
KEPT = (100, 1_000)
CANDIDATES = (1_000, 10_000, 100_000)


@dataclass(frozen=True)
class Counts:
    """Test links among the first `KEPT` pairs of one training, by order: the model's, then by candidates."""

    dataset: str
    model: str
    links: int
    missing: int
    found: NDArray[np.int64]


def main() -> None:
    options = parser().parse_args()
    counts = [
        counts_of(dataset, model, seed, options.store)
        for dataset in options.datasets
        for model in options.models
        for seed in range(options.seeds)
    ]
    command = (
        f"--datasets {' '.join(options.datasets)} --models {' '.join(options.models)} "
        f"--seeds {options.seeds} --store STORE"
    )
    text = [
        "# Order of the most probable missing pairs",
        f"`python benchmarks/top_order.py {command}`",
        f"Mean number of test links among the first k of all missing pairs over {options.seeds} trainings "
        f"each of {', '.join(options.models)}: in the order of the model's score, and of the probability of "
        "`in-n-out-plus` (fitted on validation links, one negative for each) among the C best by that score, "
        "`linkcal top -k K --rerank C`. "
        "In brackets the share of trainings that find more, and fewer, than in the model's order.",
        *(part for place, k in enumerate(KEPT) for part in (f"## k = {k:,}", table(counts, place))),
        f"## k = {KEPT[-1]:,}, by model",
        by_model(counts),
    ]
    print("\n\n".join(text))
    if options.out is not None:
        write_page(options.out, "\n\n".join(text) + "\n")


def counts_of(dataset: str, model: str, seed: int, store: Path) -> Counts:
    job = job_for(dataset, model, seed)
    trained, graph = load_model(training_of(job, store)), load_graph(job.config)
    if isinstance(graph, LinkSplit):
        raise SystemExit(f"{job.title}: an official split has its own negatives")
    split = split_graph(job.config, graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        predictor = CalibratedLinkPredictor(trained, StructuralCalibrator()).fit(split)
    orders = [most_probable_pairs(predictor, KEPT[-1], rerank=c) for c in (None, *CANDIDATES)]
    if orders[-1].reranked < CANDIDATES[-1]:
        raise SystemExit(f"{job.title}: fewer than {CANDIDATES[-1]:,} missing pairs")
    links = split.test.edge_label_index[:, split.test.edge_label == 1]
    # What the list was chosen from: pairs of two nodes that are no edge of the message-passing graph, nor
    # held out.
    missing = graph.num_nodes * (graph.num_nodes - 1) // (1 if graph.directed else 2)
    missing -= split.graph.num_pairs + int((split.val.edge_label == 1).sum())
    wanted, *listed = (
        pair_keys(pairs, graph.num_nodes, directed=graph.directed)
        for pairs in (links, *(order.edge_label_index for order in orders))
    )
    hits = [torch.isin(keys, wanted).numpy() for keys in listed]
    found = np.array([[hit[:k].sum() for hit in hits] for k in KEPT])
    print(f"{job.title}: {found.tolist()} of {links.size(1)}", file=sys.stderr, flush=True)
    return Counts(dataset, model, links.size(1), missing, found)


def table(counts: list[Counts], place: int) -> str:
    """A line for each data set."""
    # The first k of the k best are the k best.
    shown = [i for i, c in enumerate(CANDIDATES) if c > KEPT[place]]
    heads = " | ".join(f"probability, C = {CANDIDATES[i]:,}" for i in shown)
    lines = [
        f"| data set | test links | missing pairs | model's order | {heads} |",
        "| --- |" + " ---: |" * (3 + len(shown)),
    ]
    for dataset in dict.fromkeys(c.dataset for c in counts):
        mine = [c for c in counts if c.dataset == dataset]
        found = np.array([c.found[place] for c in mine])
        plain, cells = found[:, 0], []
        for i in shown:
            other = found[:, 1 + i]
            more, fewer = (100.0 * np.mean(part) for part in (other > plain, other < plain))
            cells.append(f"{other.mean():.1f} ({more:.0f} %, {fewer:.0f} %)")
        lines.append(
            f"| {dataset} | {np.mean([c.links for c in mine]):,.0f} | "
            f"{np.mean([c.missing for c in mine]):,.0f} | {plain.mean():.1f} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def by_model(counts: list[Counts]) -> str:
    """Means of the largest k, in the model's order and by probability."""
    shown = [0, *(1 + i for i, c in enumerate(CANDIDATES) if c > KEPT[-1])]
    heads = " | ".join(f"probability, C = {CANDIDATES[i - 1]:,}" for i in shown[1:])
    lines = [f"| data set | model | model's order | {heads} |", "| --- | --- |" + " ---: |" * len(shown)]
    for dataset, model in dict.fromkeys((c.dataset, c.model) for c in counts):
        mine = [c.found[-1] for c in counts if (c.dataset, c.model) == (dataset, model)]
        means = np.mean(mine, axis=0)[shown]
        lines.append(f"| {dataset} | {model} | {' | '.join(f'{value:.1f}' for value in means)} |")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    datasets = ["cora", "citeseer", "chameleon", "bitcoin-alpha", "bitcoin-otc", "twitch-pt", "pubmed"]
    command.add_argument("--datasets", nargs="+", default=datasets)
    command.add_argument("--models", nargs="+", default=["vgae", "gcn", "sage", "gin"])
    command.add_argument("--seeds", type=int, default=3, help="seeds 0 to SEEDS - 1")
    command.add_argument("--store", type=Path, required=True, help="store of a sweep")
    command.add_argument("--out", type=Path, help="where to write the page")
    return command


if __name__ == "__main__":
    main()
