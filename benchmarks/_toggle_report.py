"""Results of the toggle benchmark on disk, and the tables made of them."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch_geometric

from linkcal._core.files import written_whole

FORWARD = "forward pass"
KERNEL, NAIVE, FALLBACK, PYG = "kernel", "naive", "khop", "k_hop_subgraph"
#: What a two-layer GCN's kernel is held to: graph, quantity, "<=" or ">=", figure.
TARGETS = (
    ("cora", "forward passes", "<=", 6),
    ("cora", "times naive", ">=", 1500),
    ("pubmed", "forward passes", "<=", 4),
    ("pubmed", "times naive", ">=", 30_000),
    ("ogbl-ddi", "forward passes", "<=", 60),
    ("ogbl-ddi", "peak extra GiB", "<=", 2),
    ("ogbl-ddi", "times naive", ">=", 25_000),
    ("simulated-1m", "forward passes", "<=", 6),
    ("simulated-10m", "peak extra GiB", "<=", 4),
    ("simulated-10m", "cost per pair, of simulated-1m's", "<=", 1.5),
)


@dataclass
class Row:
    """One method on one graph."""

    graph: str
    model: str
    method: str
    pairs: int
    pairs_timed: int
    seconds_all_pairs: float
    pairs_per_second: float
    forward_passes: float
    peak_extra_mib: float
    extra: dict[str, Any] = field(default_factory=dict)


def machine(threads: int, copy_bandwidth: float) -> dict[str, Any]:
    """Where and when a graph was measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "day": datetime.now(UTC).date().isoformat(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads_used": threads,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
        "copy_bandwidth_gb_s": round(copy_bandwidth, 1),
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
    }


def store(folder: Path, graph: str, model: str, about: dict[str, Any], rows: list[Row]) -> None:
    """Put one graph's measurement in the place of an earlier one of the same graph and model."""
    folder.mkdir(parents=True, exist_ok=True)
    results = [r for r in _stored(folder) if (r["graph"], r["model"]) != (graph, model)]
    results.append({"graph": graph, "model": model, "machine": about, "rows": [asdict(row) for row in rows]})
    with written_whole(folder / "toggle.json") as path:
        path.write_text(json.dumps({"measurements": results}, indent=2) + "\n")


def render(folder: Path, title: str) -> str:
    """Write the tables of all stored measurements to toggle.md; its text."""
    order = list(dict.fromkeys(target[0] for target in TARGETS))
    results = sorted(_stored(folder), key=lambda r: (order.index(r["graph"]), r["model"]))
    lines = [
        "# Toggling every pair",
        "",
        f"Written by `make bench-toggle`. All edges and as many non-edges; {title}. ~ marks times "
        "extrapolated from a sample of pairs; what naive and khop do once per graph is timed apart and "
        "counted once. Medians; all methods take turns, and so do the two simulated graphs where their cost "
        "per pair is compared.",
        *("", *_methods(results)),
        *("", "What the kernel does, and how fast (GCN):", "", *_work(results)),
        *("", "Targets of the kernel (GCN), and of the fallback:", "", *_targets(results)),
        *("", "Measured on:", "", *_machines(results)),
    ]
    text = "\n".join(lines) + "\n"
    with written_whole(folder / "toggle.md") as path:
        path.write_text(text)
    return text


def _stored(folder: Path) -> list[dict[str, Any]]:
    path = folder / "toggle.json"
    if not path.exists():
        return []
    measurements: list[dict[str, Any]] = json.loads(path.read_text())["measurements"]
    return measurements


def _methods(results: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| graph | model | method | pairs timed | all pairs, s | pairs/s | forward passes | times naive "
        "| peak extra MiB |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for result in results:
        naive = _row(result, NAIVE)["seconds_all_pairs"]
        for row in result["rows"]:
            seconds, sampled = row["seconds_all_pairs"], "~" if row["pairs_timed"] < row["pairs"] else ""
            per_pair = ["", "", ""]
            if row["method"] != FORWARD:
                per_pair = [
                    f"{row['pairs_timed']:,}",
                    f"{row['pairs_per_second']:,.0f}",
                    f"{naive / seconds:,.0f}",
                ]
            lines.append(
                f"| {row['graph']} | {row['model']} | {row['method']} | {per_pair[0]} "
                f"| {sampled}{seconds:.4g} | {per_pair[1]} | {row['forward_passes']:,.1f} | {per_pair[2]} "
                f"| {row['peak_extra_mib']:,.0f} |"
            )
    return lines


def _work(results: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| graph | pairs | look-ups per pair | common neighbours per pair | GB moved | copied in, s | Gflop "
        "| measured, s | Gflop/s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for result in results:
        row, bandwidth = result["rows"][-1], result["machine"]["copy_bandwidth_gb_s"]
        work, number, seconds = row["extra"], row["pairs"], row["seconds_all_pairs"]
        if "operations" not in work:
            continue
        moved = sum(value for name, value in work.items() if name.startswith("bytes_")) / 1e9
        flop = work["operations"] / 1e9
        lines.append(
            f"| {row['graph']} | {number:,} | {work['look_ups'] / number:.1f} "
            f"| {work['common_neighbours'] / number:.2f} | {moved:.3g} | {moved / bandwidth:.3g} "
            f"| {flop:.3g} | {seconds:.3g} | {flop / seconds:.1f} |"
        )
    return lines


def _targets(results: list[dict[str, Any]]) -> list[str]:
    lines = ["| graph | quantity | target | measured | met |", "| --- | --- | ---: | ---: | --- |"]
    by_graph = {result["graph"]: result for result in results if result["model"] == "gcn"}
    checks = [(*target, _figures(by_graph).get(target[:2])) for target in TARGETS]
    for graph, result in by_graph.items():
        ratio = _row(result, PYG)["seconds_all_pairs"] / _row(result, FALLBACK)["seconds_all_pairs"]
        checks.append((graph, f"{FALLBACK}: times {PYG}", ">=", 5, ratio))
    for graph, quantity, sign, bound, figure in checks:
        if figure is None:
            lines.append(f"| {graph} | {quantity} | {sign} {bound:,} | not measured | |")
            continue
        met = figure <= bound if sign == "<=" else figure >= bound
        shown = f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"
        lines.append(f"| {graph} | {quantity} | {sign} {bound:,} | {shown} | {'yes' if met else 'no'} |")
    return lines


def _figures(by_graph: dict[str, dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Measured figures of the kernel by graph and quantity."""
    out = {}
    for graph, result in by_graph.items():
        row = _row(result, KERNEL)
        out[graph, "forward passes"] = row["forward_passes"]
        out[graph, "times naive"] = _row(result, NAIVE)["seconds_all_pairs"] / row["seconds_all_pairs"]
        out[graph, "peak extra GiB"] = row["peak_extra_mib"] / 1024
        beside = row["extra"]
        if "small_us_per_pair" in beside:
            ratio = beside["large_us_per_pair"] / beside["small_us_per_pair"]
            out[graph, "cost per pair, of simulated-1m's"] = ratio
    return out


def _row(result: dict[str, Any], method: str) -> dict[str, Any]:
    return next(row for row in result["rows"] if row["method"] == method)


def _machines(results: list[dict[str, Any]]) -> list[str]:
    """One line for each machine and set of versions, then what differs from graph to graph."""
    own = ("day", "copy_bandwidth_gb_s", "load_average_at_start")
    places: dict[str, list[str]] = {}
    for result in results:
        about = result["machine"]
        place = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in about.items() if k not in own)
        day, bandwidth, load = (about[name] for name in own)
        places.setdefault(place, []).append(
            f"  - {result['graph']} ({result['model']}): {day}, copy {bandwidth} GB/s, "
            f"load average before it {load}"
        )
    return [line for place, graphs in places.items() for line in (f"- {place}", *graphs)]
