"""The command `linkcal-lab`."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from linkcal.cli._console import (
    BatchSize,
    Commands,
    DataRoot,
    Dataset,
    Device,
    Epochs,
    Json,
    Model,
    Negatives,
    NegativesPerPositive,
    Out,
    Preset,
    Seed,
    log,
    run_app,
    step_progress,
)

if TYPE_CHECKING:
    from linkcal.workflow import RunConfig
    from linkcal_lab.cells import SweepPlan
    from linkcal_lab.estimate import JobEstimate
    from linkcal_lab.search import SearchResult
    from linkcal_lab.sweep import JobReport

Protocol = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="default, paper or released-code: split, training and calibrators' settings. Other options win "
        "over it.",
    ),
]
ProtocolFitOn = Annotated[
    str | None, typer.Option("--fit-on", help="val, stacked, train-loo or train; default: the protocol's.")
]


# ``linkcal-lab run``: one run under a protocol of the paper.


def run(
    dataset: Dataset,
    model: Model = "vgae",
    seed: Seed = 0,
    protocol: Protocol = "default",
    fit_on: ProtocolFitOn = None,
    data_root: DataRoot = None,
    out: Out = None,
    device: Device = "auto",
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    preset: Preset = None,
    negatives_per_positive: NegativesPerPositive = 1.0,
    negatives: Negatives = "uniform",
    json: Json = False,
) -> None:
    """`linkcal run` under a protocol of the paper; config.json records it and what departs from it."""
    from linkcal.cli._fitting import preset_source, run_on_graph
    from linkcal.workflow import load_graph
    from linkcal_lab.protocols import departures, find_protocol

    config = _config(
        protocol, dataset, model, preset, seed=seed, fit_on=fit_on, epochs=epochs, batch_size=batch_size,
        negatives_per_positive=negatives_per_positive, negatives=negatives,
    )  # fmt: skip
    graph = load_graph(config, data_root=data_root)
    kind = "" if negatives == "uniform" else f"-{negatives}"
    folder = out or Path("runs") / f"{dataset}-{model}-{config.fit_on}{kind}-seed{seed}-{protocol}"
    departed = departures(config, protocol)
    for name, (expected, used) in departed.items():
        log(f"protocol {protocol} departed from: {name} is {used}, not {expected}")
    headline = {name: find_protocol(protocol).headline_of(name) for name in config.calibrators}
    source = {
        "dataset": dataset,
        "data_root": None if data_root is None else str(data_root.resolve()),
        "protocol": protocol,
        "departures": departed,
        "headline": headline,
        **preset_source(preset),
    }
    run_on_graph(config, graph, folder, device, json, source)
    if len(set(headline.values())) > 1:
        pairs = ", ".join(f"{column.replace('_', ' ')} for {name}" for name, column in headline.items())
        log(f"protocol {protocol}: its one-column table mixes metrics: {pairs}")


def _config(protocol: str, dataset: str, model: str, preset: str | None, **given: Any) -> RunConfig:
    from linkcal.workflow import preset_options
    from linkcal_lab.protocols import run_config

    options = {} if preset is None else preset_options(preset, model)
    return run_config(protocol, dataset, model, **options, **given)


# ``linkcal-lab search``: hyper-parameters by validation AUC.

_SHOWN = 10


def search(
    dataset: Dataset,
    model: Model = "vgae",
    seed: Seed = 0,
    sampler: Annotated[str, typer.Option("--sampler", help="grid or tpe.")] = "grid",
    trials: Annotated[
        int | None, typer.Option("--trials", help="Trials in all; default: the whole grid (144), 50 for tpe.")
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Bound on the searched epochs.")] = None,
    storage: Annotated[
        Path | None,
        typer.Option(
            "--storage",
            help="JSON file of the trials; default: searches/DATASET-MODEL-SAMPLER-seedN.json. The same "
            "command goes on with what is there.",
        ),
    ] = None,
    write_preset: Annotated[
        Path | None,
        typer.Option(
            "--write-preset", metavar="FILE.json", help="Write the best values, for `linkcal run --preset`."
        ),
    ] = None,
    data_root: DataRoot = None,
    device: Device = "auto",
    preset: Preset = None,
    protocol: Protocol = "default",
    negatives_per_positive: NegativesPerPositive = 1.0,
    negatives: Negatives = "uniform",
) -> None:
    """Try the paper's grid of learning rates, epochs, layers and widths; rank it by validation AUC.

    What is not searched comes from --preset and --protocol. Test links are taken out beforehand.
    """
    from linkcal._core.files import require_writable
    from linkcal.exceptions import InputError
    from linkcal.workflow import load_graph
    from linkcal.workflow import write_preset as write
    from linkcal_lab.search import search_hyperparameters

    if write_preset is not None and (write_preset.suffix != ".json" or not write_preset.parent.is_dir()):
        raise InputError(f"--write-preset must be a .json file in an existing folder, got {write_preset}")
    config = _config(
        protocol, dataset, model, preset, seed=seed, epochs=epochs,
        negatives_per_positive=negatives_per_positive, negatives=negatives,
    )  # fmt: skip
    graph = load_graph(config, data_root=data_root)
    file = storage or Path("searches") / f"{dataset}-{model}-{sampler}-seed{seed}.json"
    made = storage is None and not file.parent.exists()
    if storage is None:
        require_writable(file.parent, "storage")
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


# Output of a sweep: a line for each finished training, and what a dry run would do.

_BASES = (
    "Measured: median times of the same data set and model in this store, less what other programs took of "
    "the processor. Extrapolated: from the data set nearest in size, in proportion to the edges. The start "
    "of the processes comes on top (seconds); another number of jobs, or other programs beside it, change "
    "all of it."
)


class SweepProgress:
    """One line on stderr for each training with its cells, and the time left.

    The rest is expected to take as long per cell as what this sweep has done, so it settles when every data
    set had its turn. `total` cells are in the plan, `found` of them were there at the start.
    """

    def __init__(self, total: int, found: int) -> None:
        self._total, self._found = total, found
        self._finished = 0
        self._start = time.perf_counter()

    def __call__(self, report: JobReport) -> None:
        """Log a training that is finished."""
        self._finished += report.cells_done + report.cells_failed
        left = max(self._total - self._found - self._finished, 0)
        remaining = (time.perf_counter() - self._start) / max(self._finished, 1) * left
        failed = f", {report.cells_failed} failed" if report.cells_failed else ""
        log(
            f"[{self._found + self._finished:,}/{self._total:,}] {report.job.title}: "
            f"{counted(report.cells_done, 'cell')} done{failed} in {duration(report.seconds)}; "
            f"about {duration(remaining)} left"
        )
        for error in report.errors:
            log(f"  failed: {error}")


def print_estimates(estimates: Sequence[JobEstimate], jobs: int) -> None:
    """Print what is missing and how long it will take, on stdout."""
    from linkcal_lab.estimate import wall_seconds

    table = Table(
        "data set",
        "model",
        "train seed",
        "trained model",
        "cells",
        "time",
        "basis",
        box=None,
        title_justify="left",
    )
    for one in estimates:
        config = one.job.config
        table.add_row(
            config.dataset, f"{config.model}{one.job.suffix}", str(config.seed),
            "to do" if one.train else "there", str(one.cells), duration(one.seconds), one.basis,
        )  # fmt: skip
    console = Console(width=None if Console().is_terminal else 120)
    if not estimates:
        console.print("Nothing is left to do.")
        return
    console.print(table)
    counts = Counter(one.basis for one in estimates)
    bases = ", ".join(f"{counts[basis]} {basis}" for basis in ("measured", "extrapolated", "unknown"))
    work = sum(one.seconds for one in estimates if not math.isnan(one.seconds))
    known = "at least " if counts["unknown"] else ""
    cells = sum(one.cells for one in estimates)
    wall = duration(wall_seconds(estimates, jobs))
    console.print(
        f"{counted(cells, 'cell')} of {counted(len(estimates), 'training')} ({bases}): "
        f"{known}{duration(work)} of work, {wall} with {counted(jobs, 'job')}. {_BASES}",
        soft_wrap=True,
        highlight=False,
    )


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    Examples
    --------
    >>> counted(1, "cell"), counted(1200, "cell")
    ('1 cell', '1,200 cells')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds in words.

    Examples
    --------
    >>> duration(42), duration(150), duration(9000), duration(float("nan"))
    ('42 s', '2 min 30 s', '2 h 30 min', 'unknown')
    """
    if math.isnan(seconds):
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


# ``linkcal-lab sweep``: all cells of an experiment, resumable; ``export``: its results in one file.

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
    data_root: DataRoot = None,
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
    from linkcal_lab.cells import SweepPlan, parse_names, parse_seeds

    settings = {
        **_hyperparameters(preset, parse_names(models)),
        "epochs": epochs,
        "batch_size": batch_size,
        "negatives_per_positive": negatives_per_positive,
        "negatives": negatives,
        "calibrators": tuple(CALIBRATORS) if calibrators is None else parse_names(calibrators),
    }
    plan = SweepPlan(
        parse_names(datasets),
        parse_names(models),
        parse_seeds(train_seeds, "train-seeds"),
        parse_seeds(calibration_seeds, "calibration-seeds"),
        parse_names(fit_on),
        settings,
        protocol,
    )
    plan.check_datasets()
    root = None if data_root is None else str(data_root.resolve())
    _run(plan, store, jobs=jobs, engine=engine, device=device, data_root=root, dry_run=dry_run)


def _hyperparameters(preset: str | None, models: tuple[str, ...]) -> dict[str, Any]:
    """Settings of a preset; a preset file was searched for one model and holds for that one alone."""
    from linkcal.exceptions import InputError
    from linkcal.workflow import preset_options

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
    from linkcal_lab.records import export_records, remeasure_cell
    from linkcal_lab.store import MEASURED_PARTS
    from linkcal_lab.store import Store as SweepStore

    if remeasure:
        for store in stores:
            if not store.is_dir():
                raise InputError(f"--remeasure needs folders with predictions, got {store}")
        for store in stores:
            for folder in SweepStore(store).cells():
                remeasure_cell(folder)
    number = export_records(stores[0], out, parts=part or MEASURED_PARTS, more=stores[1:])
    log(f"{number:,} values: {out}")


def _run(
    plan: SweepPlan, store: Path, *, jobs: int, engine: str, device: str, data_root: str | None, dry_run: bool
) -> None:
    from linkcal_lab.estimate import estimate_jobs
    from linkcal_lab.store import Store as SweepStore
    from linkcal_lab.sweep import SweepOptions, pending_jobs, run_sweep

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


# ``linkcal-lab tables``: the paper's tables from a sweep, the published values beside ours.


def tables(
    store: Annotated[
        list[Path],
        typer.Option(
            "--store",
            help="Folder of `linkcal-lab sweep`, or a file of exported records; may be given again for "
            "parts of one experiment.",
        ),
    ],
    format: Annotated[  # noqa: A002
        str, typer.Option("--format", help="markdown, csv (long form, fractions) or latex.")
    ] = "markdown",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for one file per table; default: stdout.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="Only this table; may be given several times.")
    ] = None,
    join_settings: Annotated[
        bool,
        typer.Option(
            "--join-settings", help="Other settings as rows of the same tables, not as tables of their own."
        ),
    ] = False,
) -> None:
    """Show a sweep's results as the paper's tables, with tests of significance.

    Everything is measured on test links; cells that the sweep lacks are shown as missing.
    """
    from linkcal.exceptions import InputError
    from linkcal_lab.formats import render
    from linkcal_lab.records import read_records
    from linkcal_lab.tables import build_tables, choose_tables, write_tables

    chosen = choose_tables(build_tables(read_records(*store), join_other_settings=join_settings), table or [])
    if out is not None:
        for path in write_tables(chosen, out, format=format):
            log(str(path))
        return
    found = [each for group in chosen.values() for each in group]
    if format == "csv" and len(found) != 1:
        raise InputError(f"csv on stdout must be one table: give --table or --out, got {len(found)} tables")
    typer.echo("\n".join(render(each, format) for each in found), nl=False)


# ``linkcal-lab figures``: reliability diagrams of a sweep, before and after calibration.


def figures(
    store: Annotated[Path, typer.Option("--store", help="Folder of `linkcal-lab sweep`.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the figures.")],
    train_seed: Annotated[
        int | None, typer.Option("--train-seed", help="Training that stands for its row; default: the first.")
    ] = None,
    calibration_seed: Annotated[
        int | None, typer.Option("--calibration-seed", help="Calibration that does; default: the first.")
    ] = None,
    calibrator: Annotated[
        list[str] | None,
        typer.Option(
            "--calibrator",
            help="Column of the figures before and after; may be given several times. "
            "Default: uncalibrated, in-n-out and in-n-out-plus where the sweep has all of them, else all "
            "that it has.",
        ),
    ] = None,
    each: Annotated[
        bool,
        typer.Option("--each", help="One more figure for each data set and model, with all calibrators."),
    ] = False,
    format: Annotated[  # noqa: A002
        list[str] | None, typer.Option("--format", help="svg or png; default: both.")
    ] = None,
) -> None:
    """Draw mean predicted probability against observed frequency, with counts and the 95 % noise band."""
    from linkcal_lab.figures import FIGURE_FORMATS, draw_figures

    paths = draw_figures(
        store,
        out,
        train_seed=train_seed,
        calibration_seed=calibration_seed,
        calibrators=calibrator,
        each=each,
        formats=format or FIGURE_FORMATS,
    )
    for path in paths:
        log(str(path))


app = typer.Typer(
    name="linkcal-lab",
    cls=Commands,
    help="Runs, sweeps, searches, tables and figures: the experiments of the paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
)
app.command("run")(run)
app.command("sweep")(sweep)
app.command("export")(export)
app.command("tables")(tables)
app.command("figures")(figures)
app.command("search")(search)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 for a user error, 2 for wrong usage."""
    return run_app(app, "linkcal-lab", arguments)
