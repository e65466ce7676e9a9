"""Options, progress, warnings and the result table on a terminal."""

from __future__ import annotations

import functools
import inspect
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from typer.core import TyperGroup

if TYPE_CHECKING:
    from linkcal.data import PairChunk
    from linkcal.workflow import Step

# Everything slow (torch, Numba, scikit-learn with pandas) is imported when a command runs: `--help` and usage
# errors answer at once.


def log(message: str) -> None:
    """One line on stderr."""
    Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)


def ratio_in_words(negatives_per_link: float, kind: str | None = None) -> str:
    """``2 two-hop negatives per link``: the ratio for which a probability holds, and a kind but uniform."""
    which = "" if kind in (None, "uniform") else f"{kind} "
    return f"{negatives_per_link:g} {which}negative{'' if negatives_per_link == 1 else 's'} per link"


def _warnings_kept(kept: list[str]) -> Callable[..., None]:
    """A ``warnings.showwarning`` that keeps the texts of linkcal's own warnings, each only once."""
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
        from linkcal.exceptions import LinkcalWarning

        if not issubclass(category, LinkcalWarning):
            others(message, category, *where, **options)
        elif str(message) not in kept:
            kept.append(str(message))

    return show


def with_counter(chunks: Iterator[PairChunk], description: str) -> Iterator[PairChunk]:
    """Yield the chunks and show how many pairs they held so far."""
    columns = (TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(description, total=None)
        for chunk in chunks:
            yield chunk
            bars.advance(task, len(chunk))


@contextmanager
def step_progress() -> Iterator[Callable[[Step], None]]:
    """Progress bars for a run's stages, one after the other."""
    columns = (
        TextColumn("{task.description:>22}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)

        def show(step: Step) -> None:
            bars.update(task, description=step.stage, completed=step.done, total=step.total)

        yield show


#: What a table of 80 columns shows; the others are in the report.
_NARROW = ("ece", "ece_floor_q95", "nll", "auc", "hits@20", "true_error")


def print_results(metrics: dict[str, Any], *, wide: bool = False) -> None:
    """Print one row per calibrator, with the labels and units of ``linkcal.metrics``."""
    from linkcal.report._page import build_table, headline

    rows: dict[str, dict[str, float]] = dict(metrics["results"])
    if not wide:
        rows = {name: {key: row[key] for key in _NARROW if key in row} for name, row in rows.items()}
    columns, cells = build_table(rows)
    counts = metrics["counts"]
    # A name from a file's: what stands in brackets there is no markup.
    name = f"{metrics['model']} on {escape(metrics['dataset'])}"
    table = Table(
        title=f"{name}, seed {metrics['seed']}, fitted on {metrics['fit_on']}",
        caption=f"> selected, * best of its column. {counts['test_positives']:,} test links, "
        f"{counts['test_negatives']:,} negatives: probabilities hold for {_ratio(metrics)}. A calibrated "
        "predictor exceeds the ECE floor in 5 of 100 test sets.",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("calibrator", no_wrap=True)
    for column in columns:
        table.add_column(column.label + (f" ({column.unit})" if column.unit else ""), justify="right")
    for calibrator, row in cells.items():
        mark = "> " if calibrator == metrics["selected"] else "  "
        table.add_row(mark + calibrator, *(cell.text + ("*" if cell.best else " ") for cell in row))
    if "oracle" in metrics:
        oracle = {**metrics["oracle"], "true_error": 0.0}
        table.add_section()
        texts = [c.text(oracle[c.name]) + " " if c.name in oracle else "" for c in columns]
        table.add_row("  true probability", *texts)
    # As wide as its columns need wherever the output goes; a terminal narrower than that wraps cells.
    Console(width=None if Console().is_terminal else 190 if wide else 80).print(table)
    beside = [metrics["model_value"]["sentence"]] if "model_value" in metrics else []
    for sentence in [*headline(metrics), *beside]:
        Console(soft_wrap=True).print(sentence, highlight=False, markup=False)


def _ratio(metrics: dict[str, Any]) -> str:
    if "base_rate" not in metrics:
        return ratio_in_words(metrics["negatives_per_positive"], metrics.get("negatives"))
    rate = f"a base rate of {metrics['base_rate']:.4g} ({metrics['base_rate_origin']})"
    return f"{rate}, and the metrics weight the negatives accordingly"


# Options that mean the same in every command; their names are those of the parameters.

Model = Annotated[str, typer.Option(help="Link predictor; see `linkcal list models`.")]
Seed = Annotated[int, typer.Option(help="Random seed: the same seed gives the same numbers.")]
_FIT_ON = (
    "Links to fit calibrators on: val; train-loo (training links, each scored without its target link); "
    "train (training links as they are); stacked (val, and in-n-out-plus also uses train-loo)."
)
FitOnOption = Annotated[str, typer.Option(help=_FIT_ON)]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Epochs = Annotated[int | None, typer.Option(help="Most training epochs; default: the preset's.")]
BatchSize = Annotated[int | None, typer.Option(help="Training links per step; default: the preset's.")]
_PRESET = "Hyper-parameters: default, paper, or a FILE.json of `linkcal-lab search`."
Preset = Annotated[str | None, typer.Option(help=_PRESET)]
_OUT = "Folder for the results; default: runs/, then a name from the settings."
Out = Annotated[Path | None, typer.Option(help=_OUT)]
OutFile = Annotated[Path | None, typer.Option(help="CSV or Parquet file; default: CSV to stdout.")]
Wide = Annotated[bool, typer.Option("--wide", help="Print all columns of the table, not those that fit 80.")]
Json = Annotated[bool, typer.Option("--json", help="Print metrics.json to stdout instead of a table.")]
Folder = Annotated[Path, typer.Argument(help="Folder of `linkcal run` or `linkcal fit`.", metavar="DIR")]
Pairs = Annotated[Path, typer.Argument(help="Query pairs: .csv, .tsv, .parquet or .npz.", metavar="PAIRS")]
Source = Annotated[str, typer.Option(help="Column with the first node of each pair.")]
Target = Annotated[str, typer.Option(help="Column with the second node of each pair.")]
_DELIMITER = "Character between columns of a text file, ' ' for blanks and tabs; default: by the header."
Delimiter = Annotated[str | None, typer.Option(help=_DELIMITER)]
_NO_HEADER = "The first row is data: columns are named 1, 2, ..., and the first two hold the nodes."
NoHeader = Annotated[bool, typer.Option("--no-header", help=_NO_HEADER)]
_COMMENT = "Start of lines to skip, '' for none; default: the first lines that start with # or % and a blank."
Comment = Annotated[str | None, typer.Option(help=_COMMENT)]
_RAW_IDS = (
    "Read and write ids as they are. By default one that a spreadsheet would take for a formula (=, +, -, @, "
    "tab or line break at its start) has an apostrophe before it in CSV output, which is removed on reading."
)
RawIds = Annotated[bool, typer.Option("--raw-ids", help=_RAW_IDS)]
_CALIBRATOR = "Calibrator to use; default: the one that the run selected."
CalibratorOption = Annotated[str | None, typer.Option(help=_CALIBRATOR)]
ChunkSize = Annotated[int, typer.Option(help="Number of pairs held in memory at once.")]
_BASE_RATE = (
    "Share of links among the pairs that the probabilities are for: a number in (0, 1), or `density`, the "
    "share of all pairs that are edges of the message-passing graph. Default: that of "
)


def _base_rate_option(default: str) -> Any:
    return typer.Option(metavar="RATE|density", help=_BASE_RATE + default)


BaseRateOption = Annotated[str | None, _base_rate_option("the folder, else of the calibration links.")]
_STORED = "the calibration links. It is stored and used for later scores."
RunBaseRate = Annotated[str | None, _base_rate_option(_STORED)]
_PER_POSITIVE = "Negatives sampled for each link, in every part of the split."
NegativesPerPositive = Annotated[float, typer.Option(help=_PER_POSITIVE)]
_NEGATIVES = (
    "Kind of negatives for calibration and metrics: uniform, degree (endpoints drawn by degree), two-hop "
    "(pairs with a common neighbour), heart (one end of a link kept, among the hardest 500 of HeaRT)."
)
Negatives = Annotated[str, typer.Option(help=_NEGATIVES)]
_CALIBRATORS = "Calibrators to fit and choose from, comma-separated; default: all."
_DATA_ROOT = "Folder with raw data sets; default: $LINKCAL_DATA_ROOT, else the cache."
Dataset = Annotated[str, typer.Option(help="Data set; see `linkcal list datasets`.")]
DataRoot = Annotated[Path | None, typer.Option(help=_DATA_ROOT)]


def _table_format(
    source: Source = "source",
    target: Target = "target",
    delimiter: Delimiter = None,
    no_header: NoHeader = False,
    comment: Comment = None,
    raw_ids: RawIds = False,
) -> dict[str, Any]:
    """The options of a table of pairs as keywords of the readers of :mod:`linkcal.data`."""
    return {
        "source": source, "target": target, "delimiter": delimiter, "header": not no_header,
        "comment": comment, "raw_ids": raw_ids,
    }  # fmt: skip


def training_options(
    seed: Seed = 0,
    fit_on: FitOnOption = "val",
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    preset: Preset = None,
    negatives_per_positive: NegativesPerPositive = 1.0,
    negatives: Negatives = "uniform",
    base_rate: RunBaseRate = None,
    calibrators: Annotated[str | None, typer.Option(help=_CALIBRATORS)] = None,
) -> dict[str, Any]:
    """The options of a training as arguments of a ``RunConfig``."""
    chosen = {} if calibrators is None else {"calibrators": tuple(calibrators.split(","))}
    return {
        "seed": seed, "fit_on": fit_on, "epochs": epochs, "batch_size": batch_size, "preset": preset,
        "negatives_per_positive": negatives_per_positive, "negatives": negatives,
        "base_rate": as_base_rate(base_rate), **chosen,
    }  # fmt: skip


def with_options(
    name: str, declare: Callable[..., dict[str, Any]]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command with the options of `declare`, and what it returns, in place of the parameter `name`."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        options = inspect.signature(declare, eval_str=True).parameters
        parameters = list(signature.parameters.values())
        place = list(signature.parameters).index(name)
        parameters[place : place + 1] = options.values()
        parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]

        @functools.wraps(command)
        def run_command(**values: Any) -> None:
            command(**{name: declare(**{option: values.pop(option) for option in options})}, **values)

        run_command.__annotations__ = {each.name: each.annotation for each in parameters}
        run_command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run_command

    return decorated


with_table_format = with_options("table", _table_format)


def check_output_file(out: Path | None, pairs: Path | None = None) -> None:
    """Refuse an output file that could not be written, or that is the file of query pairs."""
    from linkcal._core.files import require_writable
    from linkcal.exceptions import InputError

    if out is None:
        return
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"out must be a file in an existing folder, got {out}")
    if pairs is not None and out.resolve() == pairs.resolve():
        raise InputError(f"out must be another file than the pairs, got {out} for both")
    require_writable(out.parent, "out")


def as_base_rate(text: str | None) -> Any:
    """A number where the text is one; the library checks anything else."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


INTERRUPTED = 130


class Commands(TyperGroup):
    """Commands that Ctrl-C ends with one line and exit code 130, as a shell reports it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _report_interrupt(str(ctx.info_name))
            raise typer.Exit(INTERRUPTED) from None


def end_after_interrupt(name: str, seconds: float = 1.5) -> None:
    """End the process, also in the middle of a long computation, some time after the first Ctrl-C.

    Python tells the main thread only when a call into torch returns. What is being written is removed by the
    next call (``_core.files``).
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        while reader.recv(1)[0] != signal.SIGINT:
            pass
        time.sleep(seconds)
        _report_interrupt(name)
        os._exit(INTERRUPTED)

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        # Ctrl-C within a callback, which loses it, is reported by the thread.
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)

    sys.unraisablehook = report
    threading.Thread(target=watch, daemon=True).start()
    _sockets.append(writer)  # else it would be closed


_sockets: list[socket.socket] = []
_reported = threading.Lock()


def _report_interrupt(name: str) -> None:
    """Print the line, once a process."""
    if _reported.acquire(blocking=False):
        os.write(2, f"{name}: interrupted\n".encode())


def run_app(app: typer.Typer, name: str, arguments: Sequence[str] | None) -> int:
    """Run a command line and return its exit code.

    0, 1 for a user error (one line) or a leak, 2 for wrong usage, 3 for an alarm, 130 after Ctrl-C.
    """
    if arguments is None and threading.current_thread() is threading.main_thread():
        end_after_interrupt(name)
    kept: list[str] = []
    with warnings.catch_warnings():
        warnings.showwarning = _warnings_kept(kept)
        try:
            app(args=None if arguments is None else list(arguments), prog_name=name)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except Exception as error:
            from linkcal.exceptions import LinkcalError, missing_extra

            command = next(iter(sys.argv[1:] if arguments is None else arguments), "")
            error = missing_extra(error, f"{name} {command}") or error
            if isinstance(error, LinkcalError):
                message = str(error)
            elif isinstance(error, OSError):  # a full disk, a folder without permission
                message = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
            else:
                raise
            print(f"{name}: error: {message}", file=sys.stderr)  # noqa: T201
            return 1
        finally:
            # After the results, and never in the middle of a progress bar.
            for text in kept:
                log(f"{name}: warning: {text}")
    return 0
