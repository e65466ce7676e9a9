"""Speed of toggling every pair: one forward pass, naive, PyG's k_hop_subgraph, the fallback and the kernel.

All methods run in one process on the same graph and pairs (all edges and as many non-edges). Slow methods run
on a sample of the pairs and are extrapolated; the table marks them with ~. What naive and the fallback do
once per graph (a forward pass, their checks) is timed apart from the sample and counted once: all pairs take
that and the sample's time times all pairs over sampled ones. Run ``make bench-toggle``; with
``BENCH_ARGS="--graphs cora"`` one graph is measured anew and the others' results stay, each with the machine
and the load of its own measurement.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from _toggle_report import FORWARD, Row, machine, render, store
from torch_geometric.utils import k_hop_subgraph

from linkcal._core.random import numpy_stream, torch_stream, torch_streams_forked
from linkcal.data import Graph, load_dataset, sample_negatives, simulate_graph
from linkcal.models import MODELS, GraphModel, LinkPredictor
from linkcal.toggle import iter_toggled, toggle_edges
from linkcal.toggle._engine import Method
from linkcal.toggle._naive import toggle_edge_index
from linkcal.toggle.api import toggle_engine

THREADS, HIDDEN, OUT, LAYERS = 2, 32, 16, 2
#: Sampled pairs for naive, for k_hop_subgraph and for the fallback: what that does once per batch must weigh
#: no more than for all pairs, and a sample fills a few batches at least.
SAMPLES = {"cora": (200, 400, 10_000), "pubmed": (60, 400, 10_000), "ogbl-ddi": (4, 8, 24)}
SAMPLES |= {"simulated-1m": (4, 40, 10_000), "simulated-10m": (2, 20, 4_000)}
GRAPHS = tuple(SAMPLES)
#: Graphs whose cost per pair is compared with a smaller one's.
BESIDE = {"simulated-10m": "simulated-1m"}
TITLE = f"{LAYERS} layers, hidden {HIDDEN}, out {OUT}, float32, {THREADS} threads"
MIB = 1 << 20


def load(name: str, root: Path | None) -> Graph:
    """Graph with features."""
    if name == "simulated-1m":
        return simulate_graph(236_000, num_edges=1_240_000, num_features=128, seed=0)
    if name == "simulated-10m":
        return simulate_graph(1_967_000, num_edges=10_330_000, num_features=128, seed=0)
    if name == "ogbl-ddi":
        if root is None:
            raise SystemExit("ogbl-ddi needs --data-root or LINKCAL_DATA_ROOT")
        table = np.loadtxt(root / "ogbl_ddi" / "raw" / "edge.csv.gz", delimiter=",", dtype=np.int64)
        x = torch.randn(4267, 64, generator=torch_stream(0, "benchmark features"))
        return Graph.from_edges(torch.from_numpy(table.T.copy()), 4267, x=x, name=name)
    return load_dataset(name, data_root=root)


def all_pairs(graph: Graph) -> torch.Tensor:
    """Every edge and as many non-edges."""
    return torch.cat(
        [graph.pairs, sample_negatives(graph, graph.num_pairs, numpy_stream(0, "benchmark"))], dim=1
    )


def build_model(name: str, graph: Graph, layers: int = LAYERS) -> LinkPredictor:
    """Untrained model of the benchmarks' widths, for a graph with features."""
    if graph.x is None:
        raise SystemExit(f"{graph.name} has no node features")
    made: Callable[..., GraphModel] = MODELS[name].cls
    with torch_streams_forked(0, "benchmark weights"):
        model = made(graph.x.size(1), HIDDEN, OUT, num_layers=layers).eval()
    if not isinstance(model, LinkPredictor):
        raise SystemExit(f"{name} embeds pairs, not nodes: nothing to toggle")
    return model


@contextmanager
def peak_memory() -> Iterator[Callable[[], float]]:
    """Largest resident memory inside the block above that before it, in MiB, sampled every 2 ms.

    What earlier blocks freed is first given back to the system: memory that is used again counts.
    """
    page = os.sysconf("SC_PAGE_SIZE")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    ctypes.CDLL("libc.so.6").malloc_trim(0)
    start, highest, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            highest[0] = max(highest[0], resident() - start)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: max(highest[0], resident() - start) / MIB
    finally:
        done.set()
        watcher.join()


def timed(run: Callable[[], Any]) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def subgraphs_by_pyg(model: Any, graph: Graph, pairs: torch.Tensor, batch: int = 64) -> None:
    """What PyG offers: a k_hop_subgraph for each pair, one hop wider for exact degrees, batched forward."""
    known = graph.has_pairs(pairs)
    for start in range(0, pairs.size(1), batch):
        nodes, arcs, count = [], [], 0
        for (u, v), inside in zip(
            pairs[:, start : start + batch].T.tolist(), known[start : start + batch].tolist(), strict=True
        ):
            subset, edges, place, _ = k_hop_subgraph(
                [u, v], LAYERS + 1, graph.edge_index, relabel_nodes=True, num_nodes=graph.num_nodes
            )
            toggled = toggle_edge_index(edges, *place.tolist(), insert=not inside, undirected=True)
            nodes.append(subset)
            arcs.append(toggled + count)
            count += subset.numel()
        model.encode(graph.node_input[torch.cat(nodes)], torch.cat(arcs, dim=1))


def stream(model: Any, graph: Graph, pairs: torch.Tensor) -> None:
    """Toggle all pairs, keep nothing."""
    for _ in iter_toggled(model, graph.node_input, graph.edge_index, pairs):
        pass


def copy_bandwidth() -> float:
    """GB/s read plus written by a copy of 256 MiB on all threads."""
    source = torch.ones(64 * MIB)
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = median(timed(lambda: target.copy_(source)) for _ in range(9))
    return 2 * source.numel() * 4 / seconds / 1e9


def kernel_work(graph: Graph, pairs: torch.Tensor) -> dict[str, float]:
    """What the GCN kernel does for all pairs: bytes if nothing stays in cache, operations, look-ups.

    Common neighbours are counted for a sample of the pairs.
    """
    degree = torch.bincount(graph.edge_index[0], minlength=graph.num_nodes)
    steps = float(torch.minimum(degree[pairs[0]], degree[pairs[1]]).sum())
    start = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)]).numpy()
    column = graph.edge_index[1].numpy()
    some = pairs[:, torch.randint(pairs.size(1), (2000,), generator=torch_stream(0, "sample"))].T.tolist()
    rows = ((column[start[u] : start[u + 1]], column[start[v] : start[v + 1]]) for u, v in some)
    common = sum(np.intersect1d(a, b, assume_unique=True).size for a, b in rows) / len(some) * pairs.size(1)
    number, arcs, row = pairs.size(1), 2 * graph.edge_index.size(1), 4 * HIDDEN
    return {
        "bytes_pairs": number * (2 * 3 * row + 2 * row + 2 * 4 * OUT),
        "bytes_look_ups": steps * 8,
        "bytes_common": common * (row + 8),
        "bytes_bases": arcs * (4 + 8 + row),
        "operations": number * (30 * HIDDEN + 4 * HIDDEN * OUT) + common * 14 * HIDDEN + arcs * 5 * HIDDEN,
        "look_ups": steps,
        "common_neighbours": common,
    }


@dataclass(frozen=True)
class Turn:
    """One method: what is timed, how often and for how many pairs, and what is done once before it."""

    run: Callable[[Any], Any]
    repeats: int
    pairs: int
    prepare: Callable[[], Any] = lambda: None


def taking_turns(turns: Mapping[str, Turn]) -> dict[str, tuple[float, float, float]]:
    """Seconds of each method's preparation, median seconds of its run, largest extra MiB of both.

    The runs take turns, so that a change of the machine's pace meets all of them. Memory is measured in a
    first run of its own, which is also the warm-up: what earlier runs freed is given back to the system
    before it, and taking that anew would count as time. What is run once is timed in that run.
    """
    prepared: dict[str, Any] = {}
    first = {}
    for name, turn in turns.items():
        with peak_memory() as peak:
            start = time.perf_counter()
            prepared[name] = turn.prepare()
            once = time.perf_counter() - start
            first[name] = (once, timed(partial(turn.run, prepared[name])), peak())
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(max(turn.repeats for turn in turns.values())):
        for name, turn in turns.items():
            if number < turn.repeats and turn.repeats > 1:
                seconds[name].append(timed(partial(turn.run, prepared[name])))
    return {
        name: (once, median(seconds[name]) if seconds[name] else spent, peak)
        for name, (once, spent, peak) in first.items()
    }


def measure(name: str, model_name: str, graph: Graph, pairs: torch.Tensor, repeats: int) -> list[Row]:
    """All methods on one graph."""
    model = build_model(model_name, graph)
    x, edges, number = graph.node_input, graph.edge_index, pairs.size(1)
    order = torch.randperm(number, generator=torch_stream(0, "benchmark sample"))
    naive, by_pyg, khop = (pairs[:, order[:size]] for size in SAMPLES[name])
    small = number < 10**5
    whole, sample = repeats if small else min(repeats, 3), min(repeats, 3) if small else 1

    def warm(method: Method, some: torch.Tensor) -> Turn:
        """An engine that is made once and toggles the sample."""
        return Turn(
            lambda engine: engine.toggle(some),
            sample,
            some.size(1),
            lambda: toggle_engine(model, x, edges, method=method),
        )

    with torch.no_grad():
        used = toggle_edges(model, x, edges, pairs[:, :1]).method
        # What is compiled in the first call of a process is no part of what is done once per graph.
        toggle_edges(model, x, edges, pairs[:, :1], method="khop")
        turns = {
            FORWARD: Turn(lambda _: model.encode(x, edges), whole, number),
            used: Turn(lambda _: stream(model, graph, pairs), whole, number),
            "naive": warm("naive", naive),
            "k_hop_subgraph": Turn(lambda _: subgraphs_by_pyg(model, graph, by_pyg), sample, by_pyg.size(1)),
            "khop": warm("khop", khop),
        }
        measured = taking_turns(turns)
    forward = measured[FORWARD][1]

    def row(method: str, **extra: Any) -> Row:
        once, spent, peak = measured[method]
        timed_pairs = turns[method].pairs
        seconds = once + spent * number / timed_pairs
        print(f"{name} {model_name} {method}: {seconds:.3g} s, {seconds / forward:.1f} passes", flush=True)
        per_second = 0.0 if method == FORWARD else number / seconds
        return Row(
            name, model_name, method, number, timed_pairs, seconds, per_second, seconds / forward, peak, extra
        )  # fmt: skip

    work = kernel_work(graph, pairs) if used == "kernel" and model_name == "gcn" else {}
    if name in BESIDE:
        work |= cost_beside(BESIDE[name], model_name, graph, pairs)
    return [row(FORWARD), row("naive"), row("k_hop_subgraph"), row("khop"), row(used, **work)]


def cost_beside(small_name: str, model_name: str, graph: Graph, pairs: torch.Tensor) -> dict[str, float]:
    """Microseconds a pair on `graph` and on a smaller graph, measured by turns: medians of three.

    A comparison of runs minutes apart would be one of the machine's pace at two times.
    """
    small = load(small_name, None)
    cases = {"large": (graph, pairs), "small": (small, all_pairs(small))}
    models = {name: build_model(model_name, part) for name, (part, _) in cases.items()}
    cost: dict[str, list[float]] = {name: [] for name in cases}
    with torch.no_grad():
        stream(models["small"], *cases["small"])  # the large graph has warmed up
        for _ in range(3):
            for name, case in cases.items():
                seconds = timed(partial(stream, models[name], *case))
                cost[name].append(1e6 * seconds / case[1].size(1))
    return {f"{name}_us_per_pair": median(spent) for name, spent in cost.items()}


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--graphs", nargs="+", default=GRAPHS, choices=GRAPHS)
    command.add_argument("--models", nargs="+", default=["gcn"], choices=list(MODELS))
    command.add_argument("--repeats", type=int, default=9)
    command.add_argument("--data-root", type=Path, default=os.environ.get("LINKCAL_DATA_ROOT"))
    command.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    return command


def main() -> None:
    options = parser().parse_args()
    torch.set_num_threads(THREADS)
    for name in options.graphs:
        about = machine(THREADS, copy_bandwidth())
        graph = load(name, None if options.data_root is None else Path(options.data_root))
        pairs = all_pairs(graph)
        for model in options.models:
            store(options.out, name, model, about, measure(name, model, graph, pairs, options.repeats))
    report = render(options.out, TITLE)
    print(report)


if __name__ == "__main__":
    main()
