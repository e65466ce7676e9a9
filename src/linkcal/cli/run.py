"""``linkcal run``: the main job on a named data set.

torch and PyG are imported when a command runs, not before: `--help` and usage errors answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linkcal.cli.console import log, step_progress
from linkcal.cli.options import (
    BatchSize,
    Device,
    Epochs,
    FitOnOption,
    Json,
    Model,
    Negatives,
    NegativesPerPositive,
    Out,
    Preset,
    Seed,
)
from linkcal.cli.results import print_results

if TYPE_CHECKING:
    from linkcal.data import Graph, LinkSplit, NodeIds
    from linkcal.experiments import RunConfig

__all__ = ["run", "run_on_graph"]


def run(
    dataset: Annotated[str, typer.Option("--dataset", help="Data set; see `linkcal list datasets`.")],
    model: Model = "vgae",
    seed: Seed = 0,
    fit_on: FitOnOption = "val",
    data_root: Annotated[
        Path | None,
        typer.Option(
            "--data-root", help="Folder with raw data sets; default: $LINKCAL_DATA_ROOT, else the cache."
        ),
    ] = None,
    out: Out = None,
    device: Device = "auto",
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    preset: Preset = "default",
    negatives_per_positive: NegativesPerPositive = 1.0,
    negatives: Negatives = "uniform",
    json: Json = False,
) -> None:
    """Train on a data set, fit every calibrator, and report calibration and ranking on held-out links."""
    from linkcal.data import OFFICIAL_SPLITS, load_dataset, load_official_split
    from linkcal.experiments import RunConfig

    config = RunConfig(
        dataset=dataset,
        model=model,
        seed=seed,
        fit_on=fit_on,
        preset=preset,
        epochs=epochs,
        batch_size=batch_size,
        negatives_per_positive=negatives_per_positive,
        negatives=negatives,
    )
    graph: Graph | LinkSplit
    if dataset in OFFICIAL_SPLITS:
        _refuse_for_official(dataset, negatives_per_positive, negatives)
        graph = load_official_split(dataset, data_root=data_root, seed=seed)
    else:
        graph = load_dataset(dataset, data_root=data_root)
    kind = "" if negatives == "uniform" else f"-{negatives}"
    folder = out or Path("runs") / f"{dataset}-{model}-{fit_on}{kind}-seed{seed}"
    source = {"dataset": dataset, "data_root": None if data_root is None else str(data_root.resolve())}
    run_on_graph(config, graph, folder, device=device, json=json, source=source)


def _refuse_for_official(dataset: str, negatives_per_positive: float, negatives: str) -> None:
    from linkcal.exceptions import InputError

    asked = {"--negatives-per-positive": (negatives_per_positive, 1.0), "--negatives": (negatives, "uniform")}
    for option, (value, default) in asked.items():
        if value != default:
            raise InputError(f"{option} must be left out for {dataset}, whose split is fixed, got {value}")


def run_on_graph(
    config: RunConfig,
    graph: Graph | LinkSplit,
    folder: Path,
    *,
    device: str,
    json: bool,
    source: dict[str, Any],
    node_ids: NodeIds | None = None,
) -> None:
    """Run, write the folder, and print the table (or the JSON) and where things lie."""
    from linkcal.experiments import check_output_folder, run_experiment, to_json, write_outputs

    check_output_folder(folder)
    with step_progress() as progress:
        outcome = run_experiment(config, graph, device=device, node_ids=node_ids, progress=progress)
    log(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in outcome.metrics["counts"].items()))
    paths = write_outputs(outcome, folder, source=source)
    if json:
        typer.echo(to_json(outcome.metrics))
    else:
        print_results(outcome.metrics)
    for name, path in paths.items():
        log(f"{name:>9}: {path}")
