"""Toggling by depth: a forward pass, naive, delta propagation and the compiled kernels, 1 to 4 layers.

    python benchmarks/toggle_depth.py --out benchmarks/results/toggle_depth.md

All methods take turns in one process on the same graph and pairs (all edges and as many non-edges); naive and
delta run on samples and are extrapolated (~). What they do once per graph, as a call with one pair shows it,
is counted once. The kernel's time is a whole ``toggle_edges``.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from statistics import median

import torch

from linkcal._files import written_whole
from linkcal._random import numpy_stream, torch_streams_forked
from linkcal.models import MODELS, make_model
from linkcal.toggle import toggle_edges
from toggle import all_pairs, load, timed

THREADS, HIDDEN, OUT = 2, 32, 16
#: Pairs that naive and delta are timed on.
NAIVE, DELTA = 20, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=["cora", "pubmed", "chameleon"])
    parser.add_argument("--models", nargs="+", default=["gcn", "sage", "gin", "peg"], choices=list(MODELS))
    parser.add_argument("--depths", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
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
        with written_whole(options.out) as part:
            part.write_text(text + "\n", encoding="utf-8")


def _line(name: str, model_name: str, depth: int, repeats: int, root: Path | None) -> str:
    graph = load(name, root)
    pairs = all_pairs(graph)
    with torch_streams_forked(0, "benchmark weights"):
        cls = type(make_model(model_name, graph.x.size(1)))
        model = cls(graph.x.size(1), HIDDEN, OUT, num_layers=depth).eval()
    graph = model.prepare(graph)
    x, arcs, count = graph.node_input, graph.edge_index, pairs.size(1)
    some = pairs[:, torch.from_numpy(numpy_stream(0, "sample").permutation(count)[:DELTA])]

    def forward() -> None:
        with torch.no_grad():
            model.encode(x, arcs)

    runs = {
        "forward": forward,
        "kernel": lambda: toggle_edges(model, x, arcs, pairs),
        "delta": lambda: toggle_edges(model, x, arcs, some, method="delta"),
        "delta, one": lambda: toggle_edges(model, x, arcs, some[:, :1], method="delta"),
        "naive": lambda: toggle_edges(model, x, arcs, some[:, :NAIVE], method="naive"),
        "naive, one": lambda: toggle_edges(model, x, arcs, some[:, :1], method="naive"),
    }
    assert runs["kernel"]().method == "kernel"  # compiles, too
    seconds = {key: [] for key in runs}
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
