"""Speed of SEAL's subgraph extraction, beside the plain way, and of one training epoch.

The plain way is what PyG's public SEAL example does for each pair: ``k_hop_subgraph``, dropping the pair's
target link, and SciPy's ``shortest_path`` from both ends. Both run in one process on the same pairs, and
their nodes and labels are compared; the plain way runs on a sample of the pairs.

    python benchmarks/seal.py --graphs cora pubmed --out benchmarks/results/seal.json

writes the numbers, and a table of them in Markdown beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric
from _pages import write_page
from scipy.sparse.csgraph import shortest_path
from torch import Tensor
from torch_geometric.utils import k_hop_subgraph, to_scipy_sparse_matrix

from linkcal.data import LinkSplit, load_dataset, split_links
from linkcal.models import train_link_predictor
from linkcal.models._enclosing import EnclosingSubgraphs
from linkcal.workflow import RunConfig
from linkcal.workflow._steps import build_model

REPEATS = 3
BATCH = 512
PRESETS = ("default", "paper")


def plain(u: int, v: int, hops: int, edge_index: Tensor, num_nodes: int) -> dict[int, int]:
    """DRNL label of each node, by k_hop_subgraph and shortest_path."""
    nodes, inside, ends, _ = k_hop_subgraph([u, v], hops, edge_index, relabel_nodes=True, num_nodes=num_nodes)
    src, dst = ends.tolist()
    own = ((inside[0] == src) & (inside[1] == dst)) | ((inside[0] == dst) & (inside[1] == src))
    adjacency = to_scipy_sparse_matrix(inside[:, ~own], num_nodes=nodes.numel()).tocsr()
    src, dst = (dst, src) if src > dst else (src, dst)
    rest = list(range(src)) + list(range(src + 1, nodes.numel()))
    steps = shortest_path(adjacency[rest][:, rest], directed=False, unweighted=True, indices=dst - 1)
    to_dst = torch.from_numpy(np.insert(steps, src, 0.0))
    rest = list(range(dst)) + list(range(dst + 1, nodes.numel()))
    steps = shortest_path(adjacency[rest][:, rest], directed=False, unweighted=True, indices=src)
    to_src = torch.from_numpy(np.insert(steps, dst, 0.0))
    both = to_src + to_dst
    half = both // 2
    label = 1 + torch.minimum(to_src, to_dst) + half * (half + both % 2 - 1)
    label[src] = label[dst] = 1
    label[~torch.isfinite(label)] = 0
    return dict(zip(nodes.tolist(), label.to(torch.int64).tolist(), strict=True))


def compiled_labels(subgraphs: EnclosingSubgraphs, pairs: np.ndarray) -> list[dict[int, int]]:
    batch = subgraphs.extract(pairs)
    nodes, label = batch.nodes.tolist(), batch.label.tolist()
    bounds = batch.start.tolist()
    return [dict(zip(nodes[a:b], label[a:b], strict=True)) for a, b in pairwise(bounds)]


def extraction(split: LinkSplit, hops: int, sample: int) -> dict[str, Any]:
    """Seconds per pair of both ways, the fastest of three rounds each, taken in turn."""
    graph = split.graph
    pairs = split.train.edge_label_index.numpy()
    chosen = np.random.default_rng(0).permutation(pairs.shape[1])[:sample]
    subgraphs = EnclosingSubgraphs(graph.edge_index, graph.num_nodes, hops)
    found = compiled_labels(subgraphs, pairs[:, chosen])  # compiles
    fast, slow = [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for first in range(0, pairs.shape[1], BATCH):
            subgraphs.extract(pairs[:, first : first + BATCH])
        fast.append((time.perf_counter() - start) / pairs.shape[1])
        start = time.perf_counter()
        expected = [
            plain(u, v, hops, graph.edge_index, graph.num_nodes) for u, v in pairs[:, chosen].T.tolist()
        ]
        slow.append((time.perf_counter() - start) / sample)
    if found != expected:
        raise SystemExit("labels differ")
    return {
        "hops": hops,
        "pairs": pairs.shape[1],
        "pairs_plain": sample,
        "mean_nodes": float(subgraphs.sizes(pairs)[0].mean()),
        "compiled_us_per_pair": 1e6 * min(fast),
        "plain_us_per_pair": 1e6 * min(slow),
        "speed_up": min(slow) / min(fast),
        "labels_equal": True,
    }


def one_epoch(graph: str, preset: str, split: LinkSplit) -> dict[str, float]:
    """Wall and CPU seconds of the second training epoch with a preset."""
    model, split, training = build_model(RunConfig(graph, "seal", preset=preset), split)
    ends = [(time.perf_counter(), time.process_time())]
    train_link_predictor(
        model,
        split,
        replace(training, epochs=3, eval_every=3, patience=None),
        progress=lambda _: ends.append((time.perf_counter(), time.process_time())),
    )
    wall, cpu = (later - earlier for earlier, later in zip(ends[1], ends[2], strict=True))
    return {"seconds": wall, "cpu_seconds": cpu, "pairs": len(split.train)}


def machine(threads: int) -> dict[str, Any]:
    return {
        "cpu_count": os.cpu_count(),
        "threads": threads,
        "platform": platform.platform(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
    }


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown page."""
    where = result["environment"]
    lines = [
        "# SEAL: extraction of enclosing subgraphs, and a training epoch",
        "",
        f"`{result['command']}`, torch {where['torch']}, PyG {where['torch_geometric']}, "
        f"{where['threads']} threads on {where['cpu_count']} cores.",
        "Plain: `k_hop_subgraph` and SciPy's `shortest_path` for each pair, on a sample of the same pairs. "
        "Nodes and labels of both are equal.",
        "",
        "| graph | hops | pairs | nodes a pair | plain, us a pair | compiled, us a pair | speed-up |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for graph, rows in result["extraction"].items():
        lines += [
            f"| {graph} | {row['hops']} | {row['pairs']:,} | {row['mean_nodes']:.1f} | "
            f"{row['plain_us_per_pair']:,.0f} | {row['compiled_us_per_pair']:.1f} | {row['speed_up']:,.0f}x |"
            for row in rows
        ]
    for preset, epoch in result.get("epochs", {}).items():
        lines += [
            "",
            f"One training epoch on {epoch['graph']} ({epoch['pairs']:,} pairs, preset `{preset}`): "
            f"{epoch['seconds']:.1f} s, {epoch['cpu_seconds']:.1f} s of processor time.",
        ]
    return "\n".join(lines) + "\n"


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--graphs", nargs="+", default=["cora"])
    command.add_argument("--sample", type=int, default=200, help="pairs that the plain way gets")
    command.add_argument("--no-epoch", action="store_true", help="no training epochs on the first graph")
    command.add_argument("--only-epoch", action="store_true", help="take extraction from the file --out")
    command.add_argument("--threads", type=int, default=2)
    command.add_argument("--out", type=Path)
    return command


def main() -> None:
    arguments = parser().parse_args()
    torch.set_num_threads(arguments.threads)
    splits = {name: split_links(load_dataset(name), seed=0) for name in arguments.graphs}
    result: dict[str, Any] = {
        "command": f"python benchmarks/seal.py --graphs {' '.join(arguments.graphs)}",
        "environment": machine(arguments.threads),
    }
    if arguments.only_epoch:
        result["extraction"] = json.loads(arguments.out.read_text(encoding="utf-8"))["extraction"]
    else:
        result["extraction"] = {
            name: [extraction(split, hops, arguments.sample) for hops in (1, 2)]
            for name, split in splits.items()
        }
    if not arguments.no_epoch:
        first = arguments.graphs[0]
        result["epochs"] = {
            preset: {"graph": first, **one_epoch(first, preset, splits[first])} for preset in PRESETS
        }
    print(table(result))
    if arguments.out is not None:
        write_page(arguments.out, json.dumps(result, indent=2) + "\n")
        write_page(arguments.out.with_suffix(".md"), table(result))


if __name__ == "__main__":
    main()
