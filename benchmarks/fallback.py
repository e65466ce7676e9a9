"""The fallback of toggling: what its subgraphs hold, and what each saving saves.

    python benchmarks/fallback.py --out benchmarks/results/fallback.md

Random edges and non-edges of each graph are toggled with two GCN layers by the model itself on subgraphs: on
whole ones with all messages; without the messages that no endpoint depends on; with a shared rim too; with
pages that are kept too, which is the fallback. They take turns in one process, with equal bounds on batches.
"""

from __future__ import annotations

import argparse
import os
import platform
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from _pages import write_page
from torch import Tensor

from linkcal._core.random import torch_stream
from linkcal.toggle import _khop as khop
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._khop import MessageTrimmer
from linkcal.toggle._recognise import watching_messages
from linkcal.toggle._shared_rim import SharedRimExtractor
from linkcal.toggle._subgraphs import FAR, SubgraphExtractor, batch_nodes
from toggle import LAYERS, THREADS, all_pairs, build_model, load, timed

#: How many pairs are toggled: few where one costs as much as a pass over the graph.
SAMPLES = {"cora": 10_000, "pubmed": 10_000, "ogbl-ddi": 12}
WAYS = ("whole subgraphs", "messages left out", "rim shared", "pages kept")


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
            f"Microseconds a pair, medians of {options.repeats}; each column adds a saving to the last one.",
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
    with torch.no_grad():
        with watching_messages(model, graph.num_nodes) as watched:
            model.encode(graph.node_input, graph.edge_index)
        trimmer = MessageTrimmer(model, watched.rounds)
        whole = SubgraphExtractor(rows, LAYERS, batch_nodes(rows))
        shared = SharedRimExtractor(rows, LAYERS, batch_nodes(rows))
        ways: dict[str, tuple[Any, ...]] = {
            WAYS[0]: (whole, None, False),
            WAYS[1]: (whole, trimmer, False),
            WAYS[2]: (shared, trimmer, False),
            WAYS[3]: (shared, trimmer, True),
        }

        def run(extractor: Any, leaving_out: MessageTrimmer | None, kept: bool) -> None:
            usual = mock.patch.object(khop, "kept_pages", return_value=nullcontext())
            with nullcontext() if kept else usual:
                khop.khop_endpoints(model, graph.node_input, extractor, pairs, insert, trimmer=leaving_out)

        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(repeats + 1):
            for way, arguments in ways.items():
                spent = timed(lambda: run(*arguments))  # noqa: B023
                if number:  # the first round compiles
                    seconds[way].append(spent)
    took = " | ".join(f"{1e6 * median(seconds[way]) / pairs.size(1):,.0f}" for way in WAYS)
    return f"| {name} | {sizes_of(whole, shared, pairs, insert)} |", f"| {name} | {took} |"


def sizes_of(whole: SubgraphExtractor, shared: SharedRimExtractor, pairs: Tensor, insert: Tensor) -> str:
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
