"""Speed of fitting In-n-Out, beside a plain loop written as the paper describes it.

Both run in one process on Cora's calibration set of the paper's protocol: the training edges, each scored
with its own edge in the graph, and as many non-edges, drawn anew for each calibration seed; the embedding is
16 wide. A member is one network: one calibration seed with one weight of the ECE term. The plain loop trains
one member after another with PyTorch (both heads on all links, the bins in a Python loop, autograd, Adam);
linkcal trains all of them at once. Both start from equal weights, and the losses after equally many epochs
are computed for both by the same function in double precision.

    python benchmarks/calibrators.py --out benchmarks/results
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from linkcal._random import numpy_stream
from linkcal.calibrators import InNOut
from linkcal.calibrators._temperature_net import (
    Member,
    TemperatureNet,
    Trained,
    TrainOptions,
    draw_net,
    link_blocks,
    train,
)
from linkcal.data import LinkPairs, load_dataset, sample_negatives, split_links
from linkcal.features import score_links
from linkcal.models import make_model, make_training_config, train_link_predictor
from toggle import machine

FloatArray = NDArray[np.float64]

#: The paper's learning rate, weight decay, width and number of bins are InNOut's defaults.
PAPER = InNOut()
SEEDS = 5


@dataclass(frozen=True)
class Links:
    """Calibration links of one seed."""

    logit: FloatArray
    inputs: FloatArray
    label: FloatArray


@dataclass
class Row:
    """One way of training on a number of threads."""

    method: str
    threads: int
    members: int
    epochs: int
    seconds: float
    seed_epochs_per_second: float
    ms_per_seed_epoch: float


def calibration_sets(root: Path | None) -> list[Links]:
    """Cora's training edges and SEEDS draws of non-edges, scored by one VGAE."""
    split = split_links(load_dataset("cora", data_root=root), seed=0)
    model = make_model("vgae", split.graph.x.size(1), seed=0)
    train_link_predictor(model, split, make_training_config("vgae"), seed=0)
    edges = split.train.edge_label_index[:, split.train.edge_label == 1]
    label = torch.cat([torch.ones(edges.size(1)), torch.zeros(edges.size(1))])
    sets = []
    for seed in range(SEEDS):
        rng = numpy_stream(seed, "calibration negatives")
        negatives = sample_negatives(split.graph, edges.size(1), rng, exclude=split.held_out_edges())
        pairs = LinkPairs(torch.cat([edges, negatives], dim=1), label)
        X, y = score_links(model, split.graph, pairs).to_arrays("difference")
        sets.append(Links(X[:, 0], X[:, 1:], y.astype(np.float64)))
    return sets


class PlainNetwork(torch.nn.Module):
    """Two networks, one per predicted class."""

    def __init__(self, start: TemperatureNet) -> None:
        super().__init__()
        self.negative, self.positive = (
            torch.nn.Sequential(
                torch.nn.Linear(start.hidden.shape[2] - 1, start.hidden.shape[1]),
                torch.nn.ReLU(),
                torch.nn.Linear(start.hidden.shape[1], 1),
            )
            for _ in range(2)
        )
        with torch.no_grad():
            for head, net in enumerate((self.negative, self.positive)):
                net[0].weight.copy_(torch.as_tensor(start.hidden[head, :, :-1]))
                net[0].bias.copy_(torch.as_tensor(start.hidden[head, :, -1]))
                net[2].weight[0].copy_(torch.as_tensor(start.output[head, :-1]))
                net[2].bias.copy_(torch.as_tensor(start.output[head, -1:]))

    def forward(self, logit: Tensor, inputs: Tensor) -> Tensor:
        """Calibrated logit s / T."""
        raw = torch.where(logit > 0, self.positive(inputs)[:, 0], self.negative(inputs)[:, 0])
        return logit / softplus(raw)


def plain_loss(z: Tensor, label: Tensor, ece_weight: float, n_bins: int) -> Tensor:
    """``L_NLL + L_Cal + lambda L_ECE``."""
    p = torch.sigmoid(z)
    nll = binary_cross_entropy_with_logits(z, label)
    cal = -((2 * label - 1) * p).mean()
    ece = torch.zeros((), dtype=z.dtype)
    for b in range(n_bins):
        inside = (p > b / n_bins) & (p <= (b + 1) / n_bins)
        ece = ece + (label[inside] - p[inside]).sum().abs() / len(label)
    return nll + cal + ece_weight * ece


def train_plain(links: Links, start: TemperatureNet, ece_weight: float, epochs: int) -> PlainNetwork:
    """One member, one epoch after another."""
    logit, inputs, label = (torch.as_tensor(a, dtype=torch.float32) for a in vars(links).values())
    network = PlainNetwork(start)
    adam = torch.optim.Adam(network.parameters(), lr=PAPER.learning_rate, weight_decay=PAPER.weight_decay)
    for _ in range(epochs):
        adam.zero_grad()
        plain_loss(network(logit, inputs), label, ece_weight, PAPER.n_bins).backward()
        adam.step()
    return network


def train_batch(
    sets: list[Links], starts: list[TemperatureNet], grid: list[float], epochs: int
) -> list[Trained]:
    """All members at once, the layout of the links included."""
    options = TrainOptions(PAPER.n_bins, PAPER.learning_rate, PAPER.weight_decay, epochs, patience=None)
    members = []
    for links, start in zip(sets, starts, strict=True):
        blocks = link_blocks(links.logit, links.inputs, links.label, np.ones(len(links.label)), heads=2)
        members += [Member(start, blocks, None, weight, options) for weight in grid]
    return train(members)


def fitted_loss(links: Links, network: PlainNetwork, ece_weight: float) -> float:
    """Loss of a network in double precision."""
    logit, inputs, label = (torch.as_tensor(a) for a in vars(links).values())
    with torch.no_grad():
        return float(plain_loss(network.double()(logit, inputs), label, ece_weight, PAPER.n_bins))


def timed(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median seconds and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    return median(seconds), result


def measure(
    sets: list[Links], grid: list[float], threads: int, epochs: int, repeats: int
) -> tuple[list[Row], list[dict[str, float]]]:
    """Rows of both ways, and the losses of each member."""
    torch.set_num_threads(threads)
    width = sets[0].inputs.shape[1]
    starts = [
        draw_net(numpy_stream(seed, "initialisation"), width, PAPER.hidden_channels, 2)
        for seed in range(len(sets))
    ]
    places = [(number, weight) for number in range(len(sets)) for weight in grid]
    train_plain(sets[0], starts[0], grid[0], 3)
    train_batch(sets[:1], starts[:1], grid[:1], 3)
    plain_seconds, plain = timed(
        lambda: [train_plain(sets[i], starts[i], weight, epochs) for i, weight in places], 1
    )
    seconds, batch = timed(lambda: train_batch(sets, starts, grid, epochs), repeats)
    rows = []
    for method, took in (("plain loop", plain_seconds), ("linkcal", seconds)):
        done = len(places) * epochs
        rows.append(Row(method, threads, len(places), epochs, took, done / took, 1e3 * took / done))
    losses = [
        {
            "calibration_seed": i,
            "ece_weight": weight,
            "epochs": epochs,
            "plain": fitted_loss(sets[i], network, weight),
            "linkcal": fitted_loss(sets[i], PlainNetwork(trained.net), weight),
        }
        for (i, weight), network, trained in zip(places, plain, batch, strict=True)
    ]
    return rows, losses


def whole_fit(sets: list[Links]) -> dict[str, Any]:
    """Seconds and epochs of one fit as users call it, early stopping and held-out links included."""
    links = sets[0]
    X = np.column_stack((links.logit, links.inputs))
    seconds, fitted = timed(lambda: InNOut().fit(X, links.label), 1)
    return {
        "seconds": seconds,
        "n_iter": fitted.n_iter_,
        "networks": len(PAPER.ece_weights) + 1,
    }


def table(result: dict[str, Any]) -> str:
    """Markdown."""
    about, rows, losses = result["machine"], result["rows"], result["losses"]
    plain = {row["threads"]: row["seed_epochs_per_second"] for row in rows if row["method"] == "plain loop"}
    lines = [
        "# Fitting In-n-Out",
        "",
        f"`{result['command']}`",
        "",
        f"Cora, VGAE, {result['links']:,} calibration links, {result['width']} inputs; {SEEDS} calibration "
        f"seeds x lambda in {result['ece_weights']}; full-batch Adam. A seed-epoch is one epoch of one "
        "network. Times plain: against the plain loop with as many threads, and against the faster one.",
        "",
        "Machine: " + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in about.items()) + ".",
        "",
        "| method | threads | networks | epochs | seconds | seed-epochs/s | ms per seed-epoch "
        "| times plain, equal threads | times plain, faster |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row['method']} | {row['threads']} | {row['members']} | {row['epochs']} | {row['seconds']:.3g} "
        f"| {row['seed_epochs_per_second']:,.0f} | {row['ms_per_seed_epoch']:.3g} "
        f"| {row['seed_epochs_per_second'] / plain[row['threads']]:.1f} "
        f"| {row['seed_epochs_per_second'] / max(plain.values()):.1f} |"
        for row in rows
    ]
    lines += [
        "",
        "Loss after equally many epochs from equal weights, largest difference over the networks:",
        "",
        "| epochs | networks | largest difference |",
        "| ---: | ---: | ---: |",
    ]
    for epochs in sorted({row["epochs"] for row in losses}):
        gaps = [abs(row["plain"] - row["linkcal"]) for row in losses if row["epochs"] == epochs]
        lines.append(f"| {epochs} | {len(gaps)} | {max(gaps):.2g} |")
    fit = result["whole_fit"]
    lines += [
        "",
        f"One `InNOut().fit` (lambda and epochs chosen on one held-out fifth, {fit['networks']} networks): "
        f"{fit['seconds']:.2f} s, {fit['n_iter']} epochs.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=200, help="of the timed runs")
    parser.add_argument("--long-epochs", type=int, default=5000, help="of one seed; 0 leaves it out")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data-root", type=Path, default=os.environ.get("LINKCAL_DATA_ROOT"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    about = machine()
    sets = calibration_sets(options.data_root)
    grid = [float(weight) for weight in PAPER.ece_weights]
    rows, losses = [], []
    for threads in (1, os.cpu_count() or 1):
        some, losses = measure(sets, grid, threads, options.epochs, options.repeats)
        rows += some
        print(*(asdict(row) for row in some), sep="\n", flush=True)
    if options.long_epochs:
        _, more = measure(sets[:1], grid, 1, options.long_epochs, 1)
        losses += more
    torch.set_num_threads(os.cpu_count() or 1)
    result = {
        "command": f"python benchmarks/calibrators.py --epochs {options.epochs} "
        f"--long-epochs {options.long_epochs} --repeats {options.repeats}",
        "machine": {**about, "threads_used": "see rows"},
        "links": len(sets[0].label),
        "width": sets[0].inputs.shape[1],
        "ece_weights": grid,
        "rows": [asdict(row) for row in rows],
        "losses": losses,
        "whole_fit": whole_fit(sets),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "calibrators.json").write_text(json.dumps(result, indent=2) + "\n")
    (options.out / "calibrators.md").write_text(table(result))
    print(table(result))


if __name__ == "__main__":
    main()
