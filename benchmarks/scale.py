"""Seconds and peak memory at the size of ogbl-collab, and of reading ten million edges."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
from _harness import Case, Point, Row
from pyarrow import csv, parquet

from linkcal.all_pairs import most_probable_pairs
from linkcal.data import read_edges, simulate_graph
from linkcal.exceptions import LinkcalWarning
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
    axes = {"part": ("collab-vgae", "collab-peg", "read-csv", "read-csv-strings", "read-parquet", "read-npz")}
    settings = {
        "nodes": 235_868, "edges": 1_200_000, "features": 128, "file_nodes": 1_000_000,
        "file_edges": 10_000_000, "epochs": 3, "batch": 65_536,
    }  # fmt: skip
    quick = {
        "part": ("collab-vgae", "read-csv-strings"), "nodes": 300, "edges": 1_500, "features": 24,
        "file_nodes": 50, "file_edges": 200, "epochs": 1,
    }  # fmt: skip

    def setup(self, point: Point, folder: Path) -> Path:
        job, _, kind = point.part.partition("-")
        if job == "collab":
            return folder
        pairs = np.random.default_rng(0).integers(point.file_nodes, size=(2, point.file_edges))
        path = folder / f"edges.{kind.split('-')[0]}"
        if kind == "npz":
            np.savez(path, source=pairs[0], target=pairs[1])
            return path
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
