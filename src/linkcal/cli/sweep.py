"""``linkcal sweep``: all cells of an experiment, resumable; ``linkcal export``: its results in one file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linkcal.cli.console import log
from linkcal.cli.options import BatchSize, Device, Epochs, Negatives, Preset

if TYPE_CHECKING:
    from linkcal.experiments import JobReport, SweepPlan

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
        str, typer.Option("--fit-on", help="val, train-loo, train: one or more, comma-separated.")
    ] = "train,train-loo,val",
    calibrators: Annotated[
        str | None, typer.Option("--calibrators", help="Names, comma-separated; default: all.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Trainings that run at once.")] = 1,
    engine: Annotated[
        str, typer.Option("--engine", help="local, or ray: the cluster of $RAY_ADDRESS.")
    ] = "local",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what is to be done.")] = False,
    data_root: Annotated[
        Path | None,
        typer.Option(
            "--data-root", help="Folder with raw data sets; default: $LINKCAL_DATA_ROOT, else the cache."
        ),
    ] = None,
    device: Device = "auto",
    preset: Preset = "default",
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    negatives: Negatives = 1.0,
) -> None:
    """Train, calibrate and measure every combination, once; run it again to continue."""
    from linkcal.calibrators import CALIBRATORS
    from linkcal.experiments import SweepPlan, parse_seeds

    settings = {
        "preset": preset,
        "epochs": epochs,
        "batch_size": batch_size,
        "negatives_per_positive": negatives,
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


def export(
    store: Annotated[Path, typer.Argument(help="Folder of a sweep.", metavar="STORE")],
    out: Annotated[Path, typer.Option("--out", help="File to write, .csv.gz.")],
    remeasure: Annotated[
        bool, typer.Option("--remeasure", help="First compute all metrics anew from the stored predictions.")
    ] = False,
) -> None:
    """Write all measured values of a sweep to one small file, from which tables can be made as well."""
    from linkcal.experiments import Store as SweepStore
    from linkcal.experiments import export_records, remeasure_cell

    if remeasure:
        for folder in SweepStore(store).cells():
            remeasure_cell(folder)
    log(f"{export_records(store, out):,} values: {out}")


def _run(
    plan: SweepPlan, store: Path, *, jobs: int, engine: str, device: str, data_root: str | None, dry_run: bool
) -> None:
    from linkcal.experiments import Store as SweepStore
    from linkcal.experiments import SweepOptions, pending_jobs, run_sweep

    pending, found = pending_jobs(plan, SweepStore(store))
    total = sum(len(job.cells()) for job in plan.jobs())
    log(f"{total:,} cells, {found:,} in the store, {len(pending):,} trainings to work on")
    options = SweepOptions(jobs=jobs, engine=engine, device=device, data_root=data_root)
    result = run_sweep(plan, store, options, progress=_Progress(total, found))
    for error in result.errors:
        log(f"failed: {error}")
    log(f"{result.found:,} cells found, {result.done:,} done, {result.failed:,} failed: {store}")
    if result.failed:
        raise typer.Exit(1)


class _Progress:
    """One line on stderr for each training with its cells, and the time left."""

    def __init__(self, total: int, found: int) -> None:
        self.total, self.found = total, found
        self.finished = 0
        self.start = time.perf_counter()

    def __call__(self, report: JobReport) -> None:
        self.finished += report.cells_done + report.cells_failed
        left = self.total - self.found - self.finished
        elapsed = time.perf_counter() - self.start
        remaining = elapsed / max(self.finished, 1) * left
        failed = f", {report.cells_failed} failed" if report.cells_failed else ""
        log(
            f"[{self.found + self.finished:,}/{self.total:,}] {report.job.title}: {report.cells_done} cells"
            f"{failed} in {report.seconds:.1f} s; about {duration(remaining)} left"
        )


def duration(seconds: float) -> str:
    """Seconds in words.

    Examples
    --------
    >>> duration(42), duration(150), duration(9000)
    ('42 s', '2 min 30 s', '2 h 30 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))
