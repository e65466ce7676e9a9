"""``linkcal sweep``: all cells of an experiment, resumable; ``linkcal export``: its results in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linkcal.cli.console import log
from linkcal.cli.options import BatchSize, Device, Epochs, Negatives, NegativesPerPositive, Preset, Protocol
from linkcal.cli.sweep_progress import SweepProgress, counted, print_estimates

if TYPE_CHECKING:
    from linkcal.experiments import SweepPlan

__all__ = ["export", "sweep"]

Store = Annotated[Path, typer.Option("--store", help="Folder of the sweep; made, or continued.")]


def sweep(
    datasets: Annotated[str, typer.Option("--datasets", help="Names, comma-separated.")],
    models: Annotated[str, typer.Option("--models", help="Names, comma-separated.")],
    store: Store,
    train_seeds: Annotated[
        str, typer.Option("--train-seeds", help="A count, or seeds and ranges such as 0,2-4.")
    ] = "5",
    calibration_seeds: Annotated[
        str, typer.Option("--calibration-seeds", help="The same, for the calibrations of each training.")
    ] = "5",
    fit_on: Annotated[
        str, typer.Option("--fit-on", help="val, stacked, train-loo, train: one or more, comma-separated.")
    ] = "train,train-loo,val",
    calibrators: Annotated[
        str | None, typer.Option("--calibrators", help="Names, comma-separated; default: all.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Trainings that run at once.")] = 1,
    engine: Annotated[
        str, typer.Option("--engine", help="local, or ray: the cluster of $RAY_ADDRESS.")
    ] = "local",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only list what is to be done, and how long it takes as far as the store can tell.",
        ),
    ] = False,
    data_root: Annotated[
        Path | None,
        typer.Option(
            "--data-root", help="Folder with raw data sets; default: $LINKCAL_DATA_ROOT, else the cache."
        ),
    ] = None,
    device: Device = "auto",
    preset: Preset = None,
    protocol: Protocol = "default",
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    negatives_per_positive: NegativesPerPositive = 1.0,
    negatives: Negatives = "uniform",
) -> None:
    """Train, calibrate and measure every combination, once; run it again to continue."""
    from linkcal.calibrators import CALIBRATORS
    from linkcal.experiments import SweepPlan, parse_seeds

    settings = {
        **_hyperparameters(preset, _names(models)),
        "protocol": protocol,
        "epochs": epochs,
        "batch_size": batch_size,
        "negatives_per_positive": negatives_per_positive,
        "negatives": negatives,
        "calibrators": tuple(CALIBRATORS) if calibrators is None else _names(calibrators),
    }
    plan = SweepPlan(
        _names(datasets),
        _names(models),
        parse_seeds(train_seeds, "train-seeds"),
        parse_seeds(calibration_seeds, "calibration-seeds"),
        _names(fit_on),
        settings,
    )
    plan.check_datasets()
    root = None if data_root is None else str(data_root.resolve())
    _run(plan, store, jobs=jobs, engine=engine, device=device, data_root=root, dry_run=dry_run)


def _hyperparameters(preset: str | None, models: tuple[str, ...]) -> dict[str, Any]:
    """Settings of a preset; a preset file was searched for one model and holds for that one alone."""
    from linkcal.exceptions import InputError
    from linkcal.experiments import preset_options

    if preset is None:
        return {}
    if preset.endswith(".json") and len(models) > 1:
        raise InputError(f"--preset FILE.json must go with the one model it is for, got {len(models)} models")
    return preset_options(preset, models[0])


def export(
    stores: Annotated[
        list[Path],
        typer.Argument(
            help="Folder of a sweep, or exported records; several are joined.", metavar="STORE..."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="File to write, .csv.gz or .csv.xz.")],
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help="Values of val or test only; may be given twice. Default: both."),
    ] = None,
    remeasure: Annotated[
        bool, typer.Option("--remeasure", help="First compute all metrics anew from the stored predictions.")
    ] = False,
) -> None:
    """Write all measured values of sweeps to one small file, from which tables can be made as well."""
    from linkcal.exceptions import InputError
    from linkcal.experiments import MEASURED_PARTS, export_records, remeasure_cell
    from linkcal.experiments import Store as SweepStore

    if remeasure:
        for store in stores:
            if not store.is_dir():
                raise InputError(f"--remeasure must be asked of folders with predictions, got {store}")
        for store in stores:
            for folder in SweepStore(store).cells():
                remeasure_cell(folder)
    number = export_records(stores[0], out, parts=part or MEASURED_PARTS, more=stores[1:])
    log(f"{number:,} values: {out}")


def _run(
    plan: SweepPlan, store: Path, *, jobs: int, engine: str, device: str, data_root: str | None, dry_run: bool
) -> None:
    from linkcal.experiments import Store as SweepStore
    from linkcal.experiments import SweepOptions, estimate_jobs, pending_jobs, run_sweep

    options = SweepOptions(jobs=jobs, engine=engine, device=device, data_root=data_root)
    pending, found = pending_jobs(plan, SweepStore(store))
    options.check_data_root(job.config.dataset for job in pending)
    total = sum(len(job.cells()) for job in plan.jobs())
    log(f"{counted(total, 'cell')}, {found:,} complete, {counted(len(pending), 'training')} to work on")
    if dry_run:
        print_estimates(estimate_jobs(plan, SweepStore(store)), jobs)
        return
    try:
        result = run_sweep(plan, store, options, progress=SweepProgress(total, found))
    except KeyboardInterrupt:
        log(f"interrupted; what is finished stays in {store}, and the same command goes on from there")
        raise typer.Exit(130) from None
    for error in result.errors:
        log(f"failed: {error}")
    log(f"{counted(result.found, 'cell')} found, {result.done:,} done, {result.failed:,} failed: {store}")
    if result.failed:
        raise typer.Exit(1)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))
