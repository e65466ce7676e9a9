"""Seconds and peak memory at the size of ogbl-collab, and of reading ten million edges."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from _harness import Case, Point, Row
from pyarrow import csv, parquet

from linkcal.all_pairs import most_probable_pairs
from linkcal.calibrators import StructuralCalibrator
from linkcal.data import read_edges, simulate_graph, split_links
from linkcal.exceptions import LinkcalWarning
from linkcal.models import make_model
from linkcal.predictor import CalibratedLinkPredictor
from linkcal.workflow import RunConfig, run_experiment, write_outputs


class Scale(Case):
    """Large graphs: a whole run and the top of all pairs at the size of ogbl-collab; reading 10 M edges.

    ``collab-MODEL``: a simulated graph (235,868 nodes, 1.2 M edges, 128 features) through the whole run
    (split, training steps, toggling, all calibrators, test links), then the 100 most probable of its
    28 thousand million missing pairs. ``read-FORMAT``: `read_edges` on 10 M edges among 1 M nodes.
    """

    name, title = "scale", "Large graphs"
    own_process = True
    threads = 2
    axes = {"part": ("collab-vgae", "collab-peg", "latency", "read-csv", "read-csv-strings", "read-parquet")}
    settings = {
        "nodes": 235_868, "edges": 1_200_000, "features": 128, "file_nodes": 1_000_000,
        "file_edges": 10_000_000, "epochs": 3, "batch": 65_536,
    }  # fmt: skip
    quick = {
        "part": ("collab-vgae", "latency", "read-csv-strings"), "nodes": 300, "edges": 1_500, "features": 24,
        "file_nodes": 50, "file_edges": 200, "epochs": 1,
    }  # fmt: skip

    def setup(self, point: Point, folder: Path) -> Path:
        job, _, kind = point.part.partition("-")
        if job == "collab":
            return folder
        pairs = np.random.default_rng(0).integers(point.file_nodes, size=(2, point.file_edges))
        path = folder / f"edges.{kind.split('-')[0]}"
        columns = [pa.array(row) for row in pairs]
        if kind.endswith("strings"):
            names = pa.array([f"node{i:07d}" for i in range(point.file_nodes)])
            columns = [names.take(column) for column in columns]
        edges = pa.table(columns, names=["source", "target"])
        write = parquet.write_table if kind == "parquet" else csv.write_csv
        write(edges, path)
        return path

    def measure(self, point: Point, made: Path) -> list[Row]:
        job, _, kind = point.part.partition("-")
        if job == "read":
            return [{"stage": "read", **read_edges(made).graph.counts()}]
        if job == "latency":
            return list(_latency(point))
        clock = [time.perf_counter()]
        # 3 % more are drawn than remain, as repeats collapse.
        sizes = {"num_edges": round(1.03 * point.edges), "num_features": point.features, "num_blocks": 50}
        graph = simulate_graph(point.nodes, **sizes, seed=0)
        clock.append(time.perf_counter())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinkcalWarning)
            config = RunConfig("simulated", kind, epochs=point.epochs, batch_size=point.batch)
            outcome = run_experiment(config, graph)
        clock.append(time.perf_counter())
        predictor = CalibratedLinkPredictor.load(write_outputs(outcome, made / "run")["artifact"])
        clock.append(time.perf_counter())
        ranked = most_probable_pairs(predictor, 100, base_rate="density")
        clock.append(time.perf_counter())
        assert ranked.logit.numel() == 100
        simulate, run, written, top = np.diff(clock).tolist()
        seconds = {"simulate": simulate, **outcome.seconds, "whole run": run, "write and load": written}
        seconds["top 100 of all pairs"] = top
        selected = outcome.metrics["results"][outcome.metrics["selected"]]
        row = {**graph.counts(), "AUC": selected["auc"], "ECE": selected["ece"]}
        return [{"stage": name, "seconds": value, **row} for name, value in seconds.items()]


def _latency(point: Point) -> Iterator[Row]:
    """Milliseconds of requests to a held scorer (GCN, in-n-out-plus), warm."""
    graph = simulate_graph(point.nodes, num_edges=point.edges, num_features=point.features, seed=0)
    model, rng = make_model("gcn", point.features), np.random.default_rng(0)
    clp = CalibratedLinkPredictor(model, StructuralCalibrator()).fit(split_links(graph, seed=0))
    scorer, first = clp.scorer(), torch.from_numpy(rng.integers(point.nodes, size=(300, 1000)))
    for size in (1, 10, 1000):
        clock = [time.perf_counter()]
        for u in first[:, :size]:
            clp.probability_of(scorer.score(torch.stack([u, (u + 1 + u // 2) % point.nodes])))
            clock.append(time.perf_counter())
        p50, p99 = 1e3 * np.quantile(np.diff(clock)[50:], [0.5, 0.99])
        yield {"stage": f"{size} pairs", "p50_ms": p50, "p99_ms": p99, "pairs_per_s": 1e3 * size / p50}
