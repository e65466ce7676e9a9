"""The fallback of toggling: what its subgraphs hold, and what each saving saves.

    python benchmarks/fallback.py --out benchmarks/results/fallback.md

Random edges and non-edges of each graph are toggled with two GCN layers by the model itself on subgraphs: on
whole ones with all messages, and with a shared rim, without the messages that no endpoint depends on. Both
take turns in one process, with equal bounds on batches.
"""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path
from statistics import median

import torch
from _pages import write_page
from torch import Tensor

from linkcal._core.random import torch_stream
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._khop import KHop, Messages
from linkcal.toggle._subgraphs import FAR, Subgraphs, batch_nodes
from toggle import LAYERS, THREADS, all_pairs, build_model, load, timed

#: How many pairs are toggled: few where one costs as much as a pass over the graph.
SAMPLES = {"cora": 10_000, "pubmed": 10_000, "ogbl-ddi": 12}
WAYS = ("whole subgraphs", "rim shared, messages left out")


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    command.add_argument("--graphs", nargs="+", default=list(SAMPLES), choices=list(SAMPLES))
    command.add_argument("--repeats", type=int, default=3)
    command.add_argument("--data-root", type=Path, default=os.environ.get("LINKCAL_DATA_ROOT"))
    command.add_argument("--out", type=Path)
    return command


def main() -> None:
    options = parser().parse_args()
    torch.set_num_threads(THREADS)
    root = None if options.data_root is None else Path(options.data_root)
    sizes = [
        "| graph | pairs | nodes | rim | rim, shared | arcs | arcs inside | arcs into the shared rim |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    times = [f"| graph | {' | '.join(WAYS)} |", "| --- | " + "---: | " * len(WAYS)]
    for name in options.graphs:
        size, took = measure(name, root, options.repeats)
        sizes.append(size)
        times.append(took)
        print(size, took, sep="\n", flush=True)
    text = "\n".join(
        [
            "# The fallback, taken apart",
            "",
            f"`python benchmarks/fallback.py --graphs {' '.join(options.graphs)} "
            f"--repeats {options.repeats}`; {LAYERS} GCN layers, {THREADS} threads, "
            f"torch {torch.__version__}, python {platform.python_version()}. Numbers are per pair.",
            "",
            *sizes,
            "",
            f"Microseconds a pair, medians of {options.repeats}.",
            "",
            *times,
        ]
    )
    if options.out is not None:
        write_page(options.out, text + "\n")


def measure(name: str, root: Path | None, repeats: int) -> tuple[str, str]:
    """One row of each table."""
    graph = load(name, root)
    model, pairs = build_model("gcn", graph), all_pairs(graph)
    order = torch.randperm(pairs.size(1), generator=torch_stream(0, "benchmark sample"))
    pairs = pairs[:, order[: SAMPLES[name]]]
    rows = ToggleGraph.from_edge_index(graph.edge_index, graph.num_nodes, undirected=True)
    insert = ~rows.contains(pairs)
    subgraphs = [Subgraphs(rows, LAYERS, batch_nodes(rows), shared=shared) for shared in (False, True)]
    messages = Messages(model)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    with torch.no_grad():
        messages.record(graph.num_nodes)
        model.encode(graph.node_input, graph.edge_index)
        for number in range(repeats + 1):
            for way, each in zip(WAYS, subgraphs, strict=True):
                khop = KHop(model, graph.node_input, each, messages, counted=True)
                spent = timed(lambda: khop.endpoints(pairs, insert))  # noqa: B023
                if number:  # the first round compiles
                    seconds[way].append(spent)
    took = " | ".join(f"{1e6 * median(seconds[way]) / pairs.size(1):,.0f}" for way in WAYS)
    return f"| {name} | {sizes_of(subgraphs[0], subgraphs[1], pairs, insert)} |", f"| {name} | {took} |"


def sizes_of(whole: Subgraphs, shared: Subgraphs, pairs: Tensor, insert: Tensor) -> str:
    """Numbers per pair of whole subgraphs and of those with a shared rim; dummies are left out."""
    number = pairs.size(1)
    nodes = rim = arcs = 0
    for batch in whole.batches(pairs, insert, toggle=False):
        nodes += int((batch.distance < FAR).sum())
        rim += int((batch.distance == LAYERS).sum())
        arcs += batch.edge_index.size(1)
    common = inside = into_rim = 0
    for batch in shared.batches(pairs, insert, toggle=False):
        distance = batch.distance[batch.edge_index[1]]
        common += int((batch.distance == LAYERS).sum())
        inside += int((distance < LAYERS).sum())
        into_rim += int((distance == LAYERS).sum())
    values = (nodes, rim, common, arcs, inside, into_rim)
    return " | ".join([f"{number:,}", *(f"{value / number:,.0f}" for value in values)])


if __name__ == "__main__":
    main()
