"""Toggling by depth: a forward pass, naive, delta propagation and the compiled kernels, 1 to 4 layers.

    python benchmarks/toggle_depth.py --out benchmarks/results/toggle_depth.md

All methods take turns in one process on the same graph and pairs (all edges and as many non-edges); naive and
delta run on samples and are extrapolated (~). What they do once per graph, as a call with one pair shows it,
is counted once. The kernel's time is a whole ``toggle_edges``.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from _pages import write_page

from linkcal._core.random import numpy_stream
from linkcal.models import MODELS
from linkcal.toggle import toggle_edges
from toggle import HIDDEN, OUT, THREADS, all_pairs, build_model, load, timed

#: Pairs that naive and delta are timed on.
NAIVE, DELTA = 20, 2000


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    command.add_argument("--graphs", nargs="+", default=["cora", "pubmed", "chameleon"])
    command.add_argument("--models", nargs="+", default=["gcn", "sage", "gin", "peg"], choices=list(MODELS))
    command.add_argument("--depths", nargs="+", type=int, default=[1, 2, 3, 4])
    command.add_argument("--repeats", type=int, default=5)
    command.add_argument("--data-root", type=Path, default=os.environ.get("LINKCAL_DATA_ROOT"))
    command.add_argument("--out", type=Path)
    return command


def main() -> None:
    options = parser().parse_args()
    torch.set_num_threads(THREADS)
    lines = [
        "| graph | model | layers | pairs | forward, ms | kernel, s | forward passes | us per pair "
        "| delta, s | naive, s | kernel times naive |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in options.graphs:
        for model_name in options.models:
            for depth in options.depths:
                lines.append(_line(name, model_name, depth, options.repeats, options.data_root))
                print(lines[-1], flush=True)
    text = "\n".join(
        [
            "# Toggling every pair, by depth",
            "",
            f"`python benchmarks/toggle_depth.py --graphs {' '.join(options.graphs)} --models "
            f"{' '.join(options.models)} --depths {' '.join(map(str, options.depths))} --repeats "
            f"{options.repeats}`",
            "",
            f"All edges and as many non-edges; hidden {HIDDEN}, out {OUT}, float32, {THREADS} threads. "
            f"~ marks times extrapolated from a sample of pairs. Medians of {options.repeats}; all methods "
            "take turns.",
            "",
            *lines,
            "",
            f"Measured on {_processor()}, python {platform.python_version()}, torch {torch.__version__}.",
        ]
    )
    if options.out is not None:
        write_page(options.out, text + "\n")


def _line(name: str, model_name: str, depth: int, repeats: int, root: Path | None) -> str:
    graph = load(name, root)
    pairs = all_pairs(graph)
    model = build_model(model_name, graph, depth)
    graph = model.prepare(graph)
    x, arcs, count = graph.node_input, graph.edge_index, pairs.size(1)
    some = pairs[:, torch.from_numpy(numpy_stream(0, "sample").permutation(count)[:DELTA])]

    def forward() -> None:
        with torch.no_grad():
            model.encode(x, arcs)

    runs: dict[str, Callable[[], object]] = {
        "forward": forward,
        "kernel": lambda: toggle_edges(model, x, arcs, pairs),
        "delta": lambda: toggle_edges(model, x, arcs, some, method="delta"),
        "delta, one": lambda: toggle_edges(model, x, arcs, some[:, :1], method="delta"),
        "naive": lambda: toggle_edges(model, x, arcs, some[:, :NAIVE], method="naive"),
        "naive, one": lambda: toggle_edges(model, x, arcs, some[:, :1], method="naive"),
    }
    used = toggle_edges(model, x, arcs, pairs).method  # compiles, too
    if used != "kernel":
        raise SystemExit(f"{model_name} of {depth} layers is toggled by {used}, not by a kernel")
    seconds: dict[str, list[float]] = {key: [] for key in runs}
    for _ in range(repeats):
        for key, run in runs.items():
            seconds[key].append(timed(run))
    took = {key: median(values) for key, values in seconds.items()}

    def extrapolated(method: str, sample: int) -> float:
        one = took[f"{method}, one"]
        return one + (took[method] - one) / (sample - 1) * (count - 1)

    delta, naive = extrapolated("delta", some.size(1)), extrapolated("naive", NAIVE)
    return (
        f"| {name} | {model_name} | {depth} | {count:,} | {1e3 * took['forward']:.1f} | {took['kernel']:.3f} "
        f"| {took['kernel'] / took['forward']:.1f} | {1e6 * took['kernel'] / count:.1f} | ~{delta:.1f} "
        f"| ~{naive:,.0f} | {naive / took['kernel']:,.0f} |"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
