"""``linkcal fit``: the main job on the user's own graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from linkcal.cli.options import (
    BatchSize,
    Device,
    Epochs,
    FitOnOption,
    Json,
    Model,
    Negatives,
    NegativesPerPositive,
    Preset,
    Seed,
)
from linkcal.cli.run import run_on_graph

__all__ = ["fit"]


def fit(
    edges: Annotated[Path, typer.Argument(help="Edge list: .csv, .tsv, .parquet or .npz.", metavar="EDGES")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.")],
    features: Annotated[
        Path | None,
        typer.Option("--features", help="Node features: .npy, .npz, .csv or .parquet; without: learned."),
    ] = None,
    model: Model = "sage",
    directed: Annotated[
        bool, typer.Option("--directed", help="(u, v) and (v, u) are different links.")
    ] = False,
    source: Annotated[str, typer.Option("--source", help="Column of the edges' first node.")] = "source",
    target: Annotated[str, typer.Option("--target", help="Column of the edges' second node.")] = "target",
    seed: Seed = 0,
    fit_on: FitOnOption = "val",
    device: Device = "auto",
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    preset: Preset = "default",
    negatives_per_positive: NegativesPerPositive = 1.0,
    negatives: Negatives = "uniform",
    json: Json = False,
) -> None:
    """Train on your own graph and fit every calibrator; `linkcal score` then scores any pairs."""
    from linkcal.data import read_edges
    from linkcal.experiments import RunConfig, check_output_folder, file_record

    config = RunConfig(
        dataset=edges.name.split(".")[0],
        model=model,
        seed=seed,
        fit_on=fit_on,
        preset=preset,
        epochs=epochs,
        batch_size=batch_size,
        negatives_per_positive=negatives_per_positive,
        negatives=negatives,
    )
    check_output_folder(out)
    named = read_edges(edges, features=features, source=source, target=target, directed=directed)
    record = {
        "edges": file_record(edges),
        "features": None if features is None else file_record(features),
        "columns": [source, target],
        "directed": directed,
    }
    run_on_graph(config, named.graph, out, device=device, json=json, source=record, node_ids=named.node_ids)
