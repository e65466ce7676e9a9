"""Speed and memory of toggling every pair's target link."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from _cells import load_graph
from _harness import Case, Point, Row, table, taking_turns, timed
from torch import Tensor
from torch_geometric.utils import k_hop_subgraph

from linkcal.data import Graph, sample_negatives
from linkcal.models import make_model
from linkcal.toggle import iter_toggled, toggle_edges

FORWARD, PYG = "forward pass", "k_hop_subgraph"

#: What the kernel of a two-layer GCN has to reach: data set, column of the page, "<=" or ">=", figure.
TARGETS = (
    ("cora", "forward passes", "<=", 6.0),
    ("cora", "times naive", ">=", 1_500.0),
    ("pubmed", "forward passes", "<=", 4.0),
    ("pubmed", "times naive", ">=", 30_000.0),
    ("ogbl-ddi", "forward passes", "<=", 60.0),
    ("ogbl-ddi", "peak_mib", "<=", 2_048.0),
    ("ogbl-ddi", "times naive", ">=", 25_000.0),
    ("simulated-1m", "forward passes", "<=", 6.0),
    ("simulated-10m", "peak_mib", "<=", 4_096.0),
)


class Toggle(Case):
    """Toggling all edges and as many negatives: kernel, delta, fallback, PyG's subgraphs, naive.

    The models are untrained (hidden 32, out 16, float32). All pairs are toggled by `auto`, the method that
    linkcal chooses. The others toggle a sample and are extrapolated, which the page marks with ~: what a call
    with one pair needs is counted once, the rest grows with the pairs. All methods take turns.
    """

    name = "toggle"
    title = "Toggling every pair"
    needs = ("data",)
    threads = 2
    axes = {
        "dataset": ("cora", "pubmed", "ogbl-ddi", "simulated-1m", "simulated-10m"),
        "model": ("gcn",),
        "depth": (2,),
    }
    settings = {"methods": ("delta", "khop", PYG, "naive"), "repeats": 3, "sample": 10_000, "seconds": 5.0}
    quick = {"model": ("gcn", "peg"), "depth": (2, 3), "repeats": 1, "sample": 30}

    def measure(self, point: Point, made: Any) -> list[Row]:
        graph = load_graph(point.dataset)
        rng = np.random.default_rng(0)
        pairs = torch.cat([graph.pairs, sample_negatives(graph, graph.num_pairs, rng)], dim=1)
        some = pairs[:, torch.from_numpy(rng.permutation(pairs.size(1))[: point.sample])]
        model = make_model(
            point.model,
            graph.node_input.size(1),
            hidden_channels=32,
            out_channels=16,
            num_layers=point.depth,
            seed=0,
        ).eval()
        graph = model.prepare(graph)
        x, arcs = graph.node_input, graph.edge_index
        encode: Any = model.encode
        used = toggle_edges(model, x, arcs, pairs[:, :1]).method
        works: dict[str, Callable[[], object]] = {
            FORWARD: partial(encode, x, arcs),
            used: lambda: _exhaust(iter_toggled(model, x, arcs, pairs)),
        }
        sizes = {}
        for method in point.methods:
            run: Callable[[Tensor], object] = (
                partial(_by_pyg, model, graph, hops=point.depth + 1)
                if method == PYG
                else partial(toggle_edges, model, x, arcs, method=method)
            )
            sizes[method] = _affordable(run, some, point.seconds)
            works[f"{method}, one pair"] = partial(run, some[:, :1])
            works[method] = partial(run, some[:, : sizes[method]])
        with torch.no_grad():
            measured = taking_turns(works, point.repeats)
        rows = []
        for method in (FORWARD, used, *sizes):
            seconds, peak = measured[method]
            number = sizes.get(method, pairs.size(1))
            if method in sizes:
                once = measured[f"{method}, one pair"][0]
                seconds = once + max(seconds - once, 0.0) * (pairs.size(1) - 1) / (number - 1)
            row = {"method": method, "pairs": pairs.size(1), "timed": number, "seconds": seconds}
            rows.append(row | {"peak_mib": peak, "forward passes": seconds / measured[FORWARD][0]})
        return rows

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        key = ["dataset", "model", "depth"]
        naive = rows[rows["method"] == "naive"].set_index(key)["seconds"]
        rows["times naive"] = [
            naive.get(tuple(row), np.nan) / s
            for row, s in zip(rows[key].to_numpy(), rows["seconds"], strict=True)
        ]
        lines = [
            [
                r["dataset"], r["model"], r["depth"], r["method"], f"{r['timed']:,} of {r['pairs']:,}",
                f"{'~' if r['timed'] < r['pairs'] else ''}{r['seconds']:,.4g}",
                f"{1e6 * r['seconds'] / r['pairs']:,.3g}", f"{r['forward passes']:,.1f}",
                f"{r['times naive']:,.0f}", f"{r['peak_mib']:,.0f}",
            ]
            for r in rows.to_dict(orient="records")
        ]  # fmt: skip
        head = [
            "data set", "model", "layers", "method", "pairs timed", "all pairs, s", "us a pair",
            "forward passes", "times naive", "peak MiB",
        ]  # fmt: skip
        parts = [
            "All edges and as many negatives; hidden 32, out 16, float32. ~ marks times extrapolated from a "
            f"sample. Medians of {settings.repeats}; all methods take turns.",
            table(head, lines, 4),
        ]
        return [*parts, "## Targets", _targets(rows[(rows["model"] == "gcn") & (rows["depth"] == 2)])]


def _targets(rows: pd.DataFrame) -> str:
    lines = []
    others = ("khop", PYG, "naive", "delta", FORWARD)
    for dataset, column, sign, figure in TARGETS:
        kernel = rows[(rows["dataset"] == dataset) & ~rows["method"].isin(others)]
        for value in kernel[column]:
            reached = value <= figure if sign == "<=" else value >= figure
            lines.append([dataset, column, f"{sign} {figure:,.0f}", float(value), "yes" if reached else "no"])
    return table(["data set", "quantity", "target", "measured", "reached"], lines, 2)


def _exhaust(blocks: Any) -> None:
    for _ in blocks:
        pass


def _affordable(run: Callable[[Tensor], object], pairs: Tensor, seconds: float) -> int:
    """How many of the pairs take about so many seconds, judged by a run of two and one of ten."""
    run(pairs[:, :2])
    each = (timed(lambda: run(pairs[:, :10])) - timed(lambda: run(pairs[:, :2]))) / 8
    return int(np.clip(seconds / max(each, 1e-9), 2, pairs.size(1)))


def _by_pyg(model: Any, graph: Graph, pairs: Tensor, hops: int, batch: int = 64) -> None:
    """What PyG offers: a k_hop_subgraph for each pair, one hop wider for exact degrees, batched forward."""
    known = graph.has_pairs(pairs).tolist()
    ends = list(zip(pairs.T.tolist(), known, strict=True))
    for start in range(0, len(ends), batch):
        nodes, arcs, count = [], [], 0
        for pair, inside in ends[start : start + batch]:
            subset, edges, place, _ = k_hop_subgraph(
                pair, hops, graph.edge_index, relabel_nodes=True, num_nodes=graph.num_nodes
            )
            both = torch.stack([place, place.flip(0)], dim=1)
            if inside:
                target = (edges[:, :, None] == both[:, None, :]).all(dim=0).any(dim=1)
                edges = edges[:, ~target]
            else:
                edges = torch.cat([edges, both], dim=1)
            nodes.append(subset)
            arcs.append(edges + count)
            count += subset.numel()
        model.encode(graph.node_input[torch.cat(nodes)], torch.cat(arcs, dim=1))
