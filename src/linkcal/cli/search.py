"""``linkcal search``: hyper-parameters by validation AUC."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from linkcal.cli.console import log, step_progress
from linkcal.cli.options import Device, Model, Negatives, NegativesPerPositive, Preset, Protocol, Seed

if TYPE_CHECKING:
    from linkcal.experiments import SearchResult

__all__ = ["search"]

_SHOWN = 10


def search(
    dataset: Annotated[str, typer.Option("--dataset", help="Data set; see `linkcal list datasets`.")],
    model: Model = "vgae",
    seed: Seed = 0,
    sampler: Annotated[str, typer.Option("--sampler", help="grid or tpe.")] = "grid",
    trials: Annotated[
        int | None,
        typer.Option("--trials", help="Trials in all; default: the whole grid (144), 50 for tpe."),
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Bound on the searched epochs.")] = None,
    storage: Annotated[
        Path | None,
        typer.Option(
            "--storage",
            help="SQLite file of the trials; default: searches/DATASET-MODEL-SAMPLER-seedN.db. The same "
            "command goes on with what is there.",
        ),
    ] = None,
    write_preset: Annotated[
        Path | None,
        typer.Option(
            "--write-preset", metavar="FILE.json", help="Write the best values, for `linkcal run --preset`."
        ),
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option("--data-root", help="Folder with raw data sets; as for `linkcal run`.")
    ] = None,
    device: Device = "auto",
    preset: Preset = None,
    protocol: Protocol = "default",
    negatives_per_positive: NegativesPerPositive = 1.0,
    negatives: Negatives = "uniform",
) -> None:
    """Try the paper's grid of learning rates, epochs, layers and widths; rank it by validation AUC.

    What is not searched comes from --preset and --protocol. Test links are taken out beforehand.
    """
    from linkcal.exceptions import InputError
    from linkcal.experiments import (
        RunConfig,
        load_graph,
        preset_options,
        search_hyperparameters,
    )
    from linkcal.experiments import (
        write_preset as write,
    )

    if write_preset is not None and (write_preset.suffix != ".json" or not write_preset.parent.is_dir()):
        raise InputError(f"--write-preset must be a .json file in an existing folder, got {write_preset}")
    config = RunConfig(
        dataset=dataset,
        model=model,
        seed=seed,
        protocol=protocol,
        **({} if preset is None else preset_options(preset, model)),
        epochs=epochs,
        negatives_per_positive=negatives_per_positive,
        negatives=negatives,
    )
    graph = load_graph(config, data_root=data_root)
    file = storage or Path("searches") / f"{dataset}-{model}-{sampler}-seed{seed}.db"
    made = storage is None and not file.parent.exists()
    if storage is None:
        file.parent.mkdir(exist_ok=True)
    try:
        with step_progress() as progress:
            result = search_hyperparameters(
                config, graph, file, sampler=sampler, trials=trials, device=device, progress=progress
            )
    finally:
        # A search that was refused leaves no empty folder.
        if made and not any(file.parent.iterdir()):
            file.parent.rmdir()
    _print(result)
    log(f"  trials: {file}")
    if write_preset is not None:
        write(result.preset(write_preset.stem), write_preset)
        log(f"  preset: {write_preset}")


def _print(result: SearchResult) -> None:
    """Print the best trials on stdout."""
    names = list(result.best.values)
    diverged = len(result.trials) - len(result.ranked)
    table = Table(
        title=f"{result.config.model} on {result.config.dataset}, seed {result.config.seed}",
        caption=f"Best {min(_SHOWN, len(result.ranked))} of {len(result.trials)} trainings by validation AUC "
        f"(%), {diverged} diverged.",
    )
    for name in ("trial", *names, "val AUC"):
        table.add_column(name.replace("_", " "), justify="right")
    for trial in result.ranked[:_SHOWN]:
        table.add_row(
            str(trial.number),
            *(f"{trial.values[name]:g}" for name in names),
            f"{100 * float(trial.val_auc or 0.0):.2f}",
        )
    Console(width=None if Console().is_terminal else 120).print(table)
