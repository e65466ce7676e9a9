"""Speed and memory of toggling every pair's target link."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from _cells import load_graph
from _harness import Case, Point, Row, taking_turns, timed
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv
from torch_geometric.utils import k_hop_subgraph

from linkcal.data import Graph, sample_negatives
from linkcal.models import LinkPredictor, make_model
from linkcal.toggle import toggle_edges
from linkcal.toggle.api import BLOCK_SIZE, toggle_engine

CONVS: dict[str, Any] = {
    "gcn": GCNConv, "sage": SAGEConv, "gat": partial(GATConv, heads=4, concat=False),
    "gin": lambda *widths: GINConv(nn.Sequential(nn.Linear(*widths), nn.ReLU(), nn.Linear(*widths[1:] * 2))),
}  # fmt: skip
FORWARD, PYG = "forward pass", "k_hop_subgraph"


class Own(LinkPredictor):
    """A user's encoder: a linear map, batch norm and functional ReLU; own-gat, own-gcn-residual, ..."""

    def __init__(self, name: str, in_channels: int, depth: int) -> None:
        super().__init__(in_channels)
        _, kind, *self.way = name.split("-")
        parts = (nn.ModuleList([CONVS[kind](32, 32), nn.BatchNorm1d(32)]) for _ in range(depth))
        self.first, self.parts = nn.Linear(in_channels, 32), cast("Any", nn.ModuleList(parts))

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        kept = [self.first(x)]
        for conv, norm in self.parts:
            h = functional.relu(norm(conv(kept[-1], edge_index)))
            kept.append(kept[-1] + h if self.way == ["residual"] else h)
        return torch.cat(kept[1:], dim=1) if self.way == ["jk"] else kept[-1]


class Toggle(Case):
    """Toggling all edges and as many negatives: kernel, delta, fallback, PyG's subgraphs, naive.

    The models are untrained (hidden 32, out 16, float32). The method that linkcal chooses toggles all pairs.
    The others toggle a sample and are extrapolated: what a call with one pair needs is counted once, the rest
    grows with the pairs. All methods take turns; seconds are medians, memory is that above the start.
    """

    name, title = "toggle", "Toggling every pair"
    needs = ("data",)
    threads = 2
    axes = {
        "dataset": ("cora", "pubmed", "ogbl-ddi", "simulated-1m", "simulated-10m"),
        "model": ("gcn",), "depth": (2,),
    }  # fmt: skip
    settings = {"methods": ("delta", "khop", PYG, "naive"), "repeats": 3, "sample": 10_000, "seconds": 5.0}
    quick = {"model": ("gcn", "peg"), "depth": (2, 3), "repeats": 1, "sample": 30}

    @torch.no_grad()
    def measure(self, point: Point, made: Any) -> list[Row]:
        graph = load_graph(point.dataset)
        rng = np.random.default_rng(0)
        pairs = torch.cat([graph.pairs, sample_negatives(graph, graph.num_pairs, rng)], dim=1)
        some = pairs[:, torch.from_numpy(rng.permutation(pairs.size(1))[: point.sample])]
        widths = {"hidden_channels": 32, "out_channels": 16, "num_layers": point.depth, "seed": 0}
        name, channels = point.model, graph.node_input.size(1)
        own = name.startswith("own-")
        model = Own(name, channels, point.depth) if own else make_model(name, channels, **widths)
        graph = model.eval().prepare(graph)
        x, arcs = graph.node_input, graph.edge_index
        encode: Any = model.encode
        used, sizes = toggle_edges(model, x, arcs, pairs[:, :1]).method, {}
        works: dict[str, Callable[[], object]] = {FORWARD: lambda: encode(x, arcs)}
        works[used] = partial(_all_in_blocks, model, x, arcs, pairs)
        for method in point.methods:
            run: Callable[[Tensor], object] = partial(toggle_edges, model, x, arcs, method=method)
            if method == PYG:
                run = partial(_by_pyg, model, graph, hops=point.depth + 1)
            sizes[method] = _affordable(run, some, point.seconds)
            works[f"{method}, one pair"] = partial(run, some[:, :1])
            works[method] = partial(run, some[:, : sizes[method]])
        measured = taking_turns(works, point.repeats)
        rows = []
        for method in (FORWARD, used, *sizes):
            seconds, peak = measured[method]
            number = sizes.get(method, pairs.size(1))
            if method in sizes:
                once = measured[f"{method}, one pair"][0]
                seconds = once + max(seconds - once, 0.0) * (pairs.size(1) - 1) / (number - 1)
            row: Row = {"method": method, "pairs": pairs.size(1), "timed": number, "all, s": seconds}
            row |= {"us a pair": 1e6 * seconds / pairs.size(1)}
            rows.append(row | {"forward passes": seconds / measured[FORWARD][0], "peak MiB": peak})
        naive = next((row["all, s"] for row in rows if row["method"] == "naive"), float("nan"))
        return [row | {"times naive": naive / row["all, s"]} for row in rows]


def _all_in_blocks(model: Any, x: Tensor, arcs: Tensor, pairs: Tensor) -> None:
    engine = toggle_engine(model, x, arcs)
    for block in pairs.split(BLOCK_SIZE, dim=1):
        engine.toggle(block)


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
