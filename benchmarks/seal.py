"""Speed of SEAL: scoring pairs beside the plain way to their subgraphs, and a training epoch."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _cells import load_graph
from _harness import Case, Point, Row, taking_turns
from scipy.sparse.csgraph import shortest_path
from torch import Tensor
from torch_geometric.utils import k_hop_subgraph, to_scipy_sparse_matrix

from linkcal.data import LinkSplit, split_links
from linkcal.features import score_links
from linkcal.models import MODELS, SEAL, make_training_config, train_link_predictor


def plain_labels(u: int, v: int, hops: int, edge_index: Tensor, num_nodes: int) -> dict[int, int]:
    """DRNL label of each node around a pair, as PyG's public SEAL example computes it."""
    nodes, inside, ends, _ = k_hop_subgraph([u, v], hops, edge_index, relabel_nodes=True, num_nodes=num_nodes)
    src, dst = sorted(ends.tolist())
    target = ((inside[0] == src) & (inside[1] == dst)) | ((inside[0] == dst) & (inside[1] == src))
    adjacency = to_scipy_sparse_matrix(inside[:, ~target], num_nodes=nodes.numel()).tocsr()
    steps = []
    for end, other in ((src, dst), (dst, src)):
        # Distances to one end, the other left out.
        rest = np.delete(np.arange(nodes.numel()), other)
        place = end - (other < end)
        far = shortest_path(adjacency[rest][:, rest], directed=False, unweighted=True, indices=place)
        steps.append(torch.from_numpy(np.insert(far, other, 0.0)))
    both = steps[0] + steps[1]
    half = both // 2
    label = 1 + torch.minimum(*steps) + half * (half + both % 2 - 1)
    label[[src, dst]] = 1
    label[~torch.isfinite(label)] = 0
    return dict(zip(nodes.tolist(), label.to(torch.int64).tolist(), strict=True))


class SealSpeed(Case):
    """SEAL: scoring pairs beside the plain way to their labelled subgraphs alone, and a training epoch.

    Scoring extracts the enclosing subgraphs, labels their nodes and runs the network. The plain way is what
    PyG's public example does before its network runs: `k_hop_subgraph` and SciPy's `shortest_path` from both
    ends, for a sample of the pairs.
    """

    name = "seal-speed"
    title = "SEAL: seconds of scoring and training"
    needs = ("data",)
    threads = 2
    axes = {"dataset": ("cora", "pubmed"), "hop": (1, 2)}
    settings = {"sample": 200, "repeats": 3}
    quick = {"hop": (1,), "sample": 10, "repeats": 1}

    def setup(self, point: Point, folder: Path) -> LinkSplit:
        return split_links(load_graph(point.dataset), seed=0)

    def measure(self, point: Point, made: LinkSplit) -> list[Row]:
        graph = made.graph
        pairs = made.test.edge_label_index if point.quick else made.train.edge_label_index
        chosen = np.random.default_rng(0).permutation(pairs.size(1))[: point.sample]
        some = pairs[:, torch.from_numpy(chosen)]
        preset = {**MODELS["seal"].presets["default"].model, "num_hops": point.hop}
        options = {**SEAL.options_for(made, **preset), **preset}
        model = SEAL(graph.node_input.size(1), **options).eval()
        graph = model.prepare(graph)

        def plain() -> None:
            for u, v in some.T.tolist():
                plain_labels(u, v, point.hop, graph.edge_index, graph.num_nodes)

        works: dict[str, Any] = {"score": lambda: score_links(model, graph, pairs), "plain": plain}
        measured = taking_turns(works, point.repeats)
        scoring = 1e6 * measured["score"][0] / pairs.size(1)
        by_hand = 1e6 * measured["plain"][0] / point.sample
        clocks: list[tuple[float, float]] = []
        training = replace(make_training_config("seal"), epochs=3, eval_every=3, patience=None)
        note = lambda _: clocks.append((time.perf_counter(), time.process_time()))  # noqa: E731
        train_link_predictor(model, replace(made, graph=graph), training, progress=note)
        wall, processor = np.subtract(clocks[1], clocks[0]).tolist()  # the first epoch compiles
        row: Row = {"pairs": pairs.size(1), "scoring, us a pair": scoring}
        row |= {"plain labels, us a pair": by_hand, "times": by_hand / scoring}
        return [row | {"epoch, s": wall, "epoch, processor s": processor, "training pairs": len(made.train)}]
