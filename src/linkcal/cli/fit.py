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
    RunBaseRate,
    Seed,
    as_base_rate,
)
from linkcal.cli.run import preset_source, run_on_graph

__all__ = ["fit"]


def fit(
    edges: Annotated[Path, typer.Argument(help="Edge list: .csv, .tsv, .parquet or .npz.", metavar="EDGES")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.")],
    features: Annotated[
        Path | None,
        typer.Option(
            "--features",
            help="Node features: .csv or .parquet with the node id in the first column, or .npy or .npz with "
            "a row for each of the nodes 0, 1, ...; without: learned.",
        ),
    ] = None,
    model: Model = "sage",
    directed: Annotated[
        bool, typer.Option("--directed", help="(u, v) and (v, u) are different links.")
    ] = False,
    source: Annotated[str, typer.Option("--source", help="Column of the edges' first node.")] = "source",
    target: Annotated[str, typer.Option("--target", help="Column of the edges' second node.")] = "target",
    seed: Seed = 0,
    fit_on: FitOnOption = None,
    device: Device = "auto",
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    preset: Preset = None,
    negatives_per_positive: NegativesPerPositive = 1.0,
    negatives: Negatives = "uniform",
    base_rate: RunBaseRate = None,
    json: Json = False,
) -> None:
    """Train on your own graph and fit every calibrator; `linkcal score` then scores any pairs."""
    from linkcal.data import DATASETS, read_edges
    from linkcal.experiments import (
        OF_PROTOCOL,
        RunConfig,
        check_output_folder,
        file_record,
        preset_options,
    )

    name = edges.name.split(".")[0]
    config = RunConfig(
        # Not the name of a known data set: some presets have settings for these, which are not this graph's.
        dataset=f"{name}-file" if name in DATASETS else name,
        model=model,
        seed=seed,
        fit_on=OF_PROTOCOL if fit_on is None else fit_on,
        **({} if preset is None else preset_options(preset, model)),
        epochs=epochs,
        batch_size=batch_size,
        negatives_per_positive=negatives_per_positive,
        negatives=negatives,
        base_rate=as_base_rate(base_rate),
    )
    check_output_folder(out)
    named = read_edges(edges, features=features, source=source, target=target, directed=directed)
    record = {
        "edges": file_record(edges),
        "features": None if features is None else file_record(features),
        "columns": [source, target],
        "directed": directed,
        **preset_source(preset),
    }
    run_on_graph(config, named.graph, out, device=device, json=json, source=record, node_ids=named.node_ids)
