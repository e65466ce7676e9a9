"""Speed of fitting In-n-Out, beside a plain loop written as the paper describes it.

Both run in one process on Cora's calibration set of the paper's protocol: the training edges, each scored
with its target link in the graph, and as many non-edges, drawn anew for each calibration seed; the embedding
is 16 wide. A member is one network: one calibration seed with one weight of the ECE term. The plain loop
trains one member after another with PyTorch (both heads on all links, the bins in a Python loop, autograd,
Adam); linkcal trains all of them at once. Both start from equal weights, and the losses after equally many
epochs are computed for both by the same function in double precision. Over thousands of epochs rounding
grows, since the gradient of the ECE term jumps where a bin's error changes sign; the plain loop in double
precision shows how much of a difference rounding alone makes.

    python benchmarks/calibrators.py
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from _pages import write_page
from _toggle_report import machine
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from linkcal._core.random import numpy_stream
from linkcal.calibrators import InNOut
from linkcal.calibrators._network_training import (
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
from toggle import copy_bandwidth

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
    round: int
    threads: int
    members: int
    epochs: int
    seconds: float
    seed_epochs_per_second: float
    ms_per_seed_epoch: float


def calibration_sets(root: Path | None) -> list[Links]:
    """Cora's training edges and SEEDS draws of non-edges, scored by one VGAE."""
    split = split_links(load_dataset("cora", data_root=root), seed=0)
    x = split.graph.x
    assert x is not None  # Cora has features
    model = make_model("vgae", x.size(1), seed=0)
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


def plain_head(start: TemperatureNet, head: int) -> torch.nn.Sequential:
    """One network of the given first weights."""
    hidden = torch.nn.Linear(start.hidden.shape[2] - 1, start.hidden.shape[1])
    output = torch.nn.Linear(start.hidden.shape[1], 1)
    with torch.no_grad():
        hidden.weight.copy_(torch.as_tensor(start.hidden[head, :, :-1]))
        hidden.bias.copy_(torch.as_tensor(start.hidden[head, :, -1]))
        output.weight[0].copy_(torch.as_tensor(start.output[head, :-1]))
        output.bias.copy_(torch.as_tensor(start.output[head, -1:]))
    return torch.nn.Sequential(hidden, torch.nn.ReLU(), output)


class PlainNetwork(torch.nn.Module):
    """Two networks, one per predicted class."""

    def __init__(self, start: TemperatureNet) -> None:
        super().__init__()
        self.negative, self.positive = (plain_head(start, head) for head in range(2))

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


def train_plain(
    links: Links,
    start: TemperatureNet,
    ece_weight: float,
    epochs: int,
    dtype: torch.dtype = torch.float32,
    watch: Callable[[int, PlainNetwork], None] = lambda _epoch, _network: None,
) -> PlainNetwork:
    """One member, one epoch after another; `watch(epoch, network)` is called after each."""
    logit, inputs, label = (torch.as_tensor(a, dtype=dtype) for a in vars(links).values())
    network = PlainNetwork(start).to(dtype)
    adam = torch.optim.Adam(network.parameters(), lr=PAPER.learning_rate, weight_decay=PAPER.weight_decay)
    for epoch in range(epochs):
        adam.zero_grad()
        plain_loss(network(logit, inputs), label, ece_weight, PAPER.n_bins).backward()
        adam.step()
        watch(epoch + 1, network)
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
        return float(plain_loss(deepcopy(network).double()(logit, inputs), label, ece_weight, PAPER.n_bins))


def first_weights(sets: list[Links]) -> list[TemperatureNet]:
    """One draw per calibration seed, rounded as both ways will read it."""
    width = sets[0].inputs.shape[1]
    draws = (numpy_stream(seed, "initialisation") for seed in range(len(sets)))
    nets = (draw_net(rng, width, PAPER.hidden_channels, 2) for rng in draws)
    return [TemperatureNet(*(array.astype(np.float32).astype(np.float64) for array in net)) for net in nets]


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def speed(sets: list[Links], grid: list[float], threads: int, epochs: int, rounds: int) -> list[Row]:
    """Both ways in turn, a few rounds: what else the machine does meets both."""
    torch.set_num_threads(threads)
    starts = first_weights(sets)
    places = [(number, weight) for number in range(len(sets)) for weight in grid]
    train_plain(sets[0], starts[0], grid[0], 3)
    train_batch(sets[:1], starts[:1], grid[:1], 3)
    rows = []
    for number in range(rounds):
        plain, _ = timed(lambda: [train_plain(sets[i], starts[i], weight, epochs) for i, weight in places])
        # Short runs are repeated, so that both are measured over seconds rather than instants.
        batch = median(timed(lambda: train_batch(sets, starts, grid, epochs))[0] for _ in range(5))
        done = len(places) * epochs
        for method, took in (("plain loop", plain), ("linkcal", batch)):
            rows.append(
                Row(method, number, threads, len(places), epochs, took, done / took, 1e3 * took / done)
            )
            print(rows[-1], flush=True)
    return rows


def losses(sets: list[Links], grid: list[float], epochs: list[int]) -> list[dict[str, float]]:
    """Loss of every seed after the first of `epochs`, and of the first seed after each."""
    starts, rows = first_weights(sets), []
    for number, (links, start) in enumerate(zip(sets, starts, strict=True)):
        marks = epochs if number == 0 else epochs[:1]
        ours = {mark: train_batch([links], [start], grid, mark) for mark in marks}
        for place, weight in enumerate(grid):
            single, double = (
                plain_losses(links, start, weight, marks, dtype) for dtype in (torch.float32, torch.float64)
            )
            for mark in marks:
                loss = fitted_loss(links, PlainNetwork(ours[mark][place].net), weight)
                row = {"calibration_seed": number, "ece_weight": weight, "epochs": mark, "linkcal": loss}
                rows.append({**row, "plain": single[mark], "plain_double": double[mark]})
                print(rows[-1], flush=True)
    return rows


def plain_losses(
    links: Links, start: TemperatureNet, ece_weight: float, marks: list[int], dtype: torch.dtype
) -> dict[int, float]:
    """Loss of the plain loop by epoch."""
    out = {}

    def watch(epoch: int, network: PlainNetwork) -> None:
        if epoch in marks:
            out[epoch] = fitted_loss(links, network, ece_weight)

    train_plain(links, start, ece_weight, max(marks), dtype, watch)
    return out


def whole_fit(sets: list[Links]) -> dict[str, Any]:
    """Seconds and epochs of one fit as users call it, early stopping and held-out links included."""
    links = sets[0]
    X = np.column_stack((links.logit, links.inputs))
    seconds, fitted = timed(lambda: InNOut().fit(X, links.label))
    return {
        "seconds": seconds,
        "n_iter": fitted.n_iter_,
        "networks": len(PAPER.ece_weights) + 1,
    }


def speed_table(rows: list[dict[str, Any]], flop: int) -> list[str]:
    """Median over the rounds of each way and number of threads; `flop` of a seed-epoch's products."""

    def rates(method: str, threads: int) -> list[float]:
        return [r["seed_epochs_per_second"] for r in rows if (r["method"], r["threads"]) == (method, threads)]

    counts = sorted({row["threads"] for row in rows})
    plain = [rates("plain loop", threads) for threads in counts]
    fastest = [max(one) for one in zip(*plain, strict=True)]
    lines = [
        "| method | threads | seed-epochs/s | ms per seed-epoch | Gflop/s | times plain | over the rounds |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for method in ("plain loop", "linkcal"):
        for threads in counts:
            ours = rates(method, threads)
            ratios = [rate / best for rate, best in zip(ours, fastest, strict=True)]
            lines.append(
                f"| {method} | {threads} | {median(ours):,.0f} | {1e3 / median(ours):.3g} "
                f"| {median(ours) * flop / 1e9:.1f} | {median(ratios):.1f} "
                f"| {min(ratios):.1f} to {max(ratios):.1f} |"
            )
    return lines


def loss_table(rows: list[dict[str, float]]) -> list[str]:
    """Largest differences by weight of the ECE term and epochs."""
    lines = [
        "| lambda | epochs | networks | linkcal - plain | plain in single - in double precision |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for weight, epochs in sorted({(row["ece_weight"], row["epochs"]) for row in rows}):
        some = [row for row in rows if (row["ece_weight"], row["epochs"]) == (weight, epochs)]
        ours = max(abs(row["linkcal"] - row["plain"]) for row in some)
        rounding = max(abs(row["plain"] - row["plain_double"]) for row in some)
        lines.append(f"| {weight:g} | {epochs} | {len(some)} | {ours:.2g} | {rounding:.2g} |")
    return lines


def table(result: dict[str, Any]) -> str:
    """Markdown."""
    fit, about = result["whole_fit"], result["machine"]
    # Forward pass and gradient of the hidden layer, a multiplication and an addition each.
    flop = 4 * result["links"] * result["width"] * PAPER.hidden_channels
    lines = [
        "# Fitting In-n-Out",
        "",
        *(f"`{command}`" for command in result["commands"].values()),
        "",
        f"Cora, VGAE, {result['links']:,} calibration links, {result['width']} inputs; {SEEDS} calibration "
        f"seeds x lambda in {result['ece_weights']}; full-batch Adam, {result['rows'][0]['epochs']} epochs. "
        "A seed-epoch is one epoch of one network. Times plain: against the plain loop with the better "
        "number of threads; median over the rounds. Gflop/s: of the two products with the hidden layer's "
        f"weights ({flop / 1e6:.2f} Mflop a seed-epoch), in single precision.",
        "",
        "Machine: " + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in about.items()) + ".",
        "",
        *speed_table(result["rows"], flop),
        "",
        "Loss after equally many epochs from equal weights, largest absolute difference over the networks:",
        "",
        *loss_table(result["losses"]),
        "",
        f"One `InNOut().fit` (lambda and epochs chosen on one held-out fifth, {fit['networks']} networks): "
        f"{fit['seconds']:.2f} s, {fit['n_iter']} epochs.",
    ]
    return "\n".join(lines) + "\n"


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--parts", nargs="+", default=["speed", "losses"], choices=["speed", "losses"])
    command.add_argument("--epochs", type=int, default=100, help="of the timed runs")
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--marks", type=int, nargs="+", default=[100, 1000, 2000, 3000, 4000, 5000])
    command.add_argument("--data-root", type=Path, default=os.environ.get("LINKCAL_DATA_ROOT"))
    command.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    return command


def main() -> None:
    options = parser().parse_args()
    path = options.out / "calibrators.json"
    # A part that is not asked for stays as it was measured before.
    result = json.loads(path.read_text()) if len(options.parts) == 1 and path.exists() else {"commands": {}}
    sets = calibration_sets(options.data_root)
    grid = [float(weight) for weight in PAPER.ece_weights]
    result |= {"links": len(sets[0].label), "width": sets[0].inputs.shape[1], "ece_weights": grid}
    command = "python benchmarks/calibrators.py --parts"
    if "speed" in options.parts:
        result["commands"]["speed"] = f"{command} speed --epochs {options.epochs} --rounds {options.rounds}"
        result["machine"] = machine(os.cpu_count() or 1, copy_bandwidth())
        result["rows"] = [
            asdict(row)
            for threads in sorted({1, os.cpu_count() or 1})
            for row in speed(sets, grid, threads, options.epochs, options.rounds)
        ]
        result["whole_fit"] = whole_fit(sets)
    if "losses" in options.parts:
        result["commands"]["losses"] = f"{command} losses --marks {' '.join(map(str, options.marks))}"
        torch.set_num_threads(1)
        result["losses"] = losses(sets, grid, options.marks)
    options.out.mkdir(parents=True, exist_ok=True)
    write_page(path, json.dumps(result, indent=2) + "\n")
    if {"rows", "losses"} <= set(result):
        write_page(options.out / "calibrators.md", table(result))
        print(table(result))


if __name__ == "__main__":
    main()
