"""Options, progress, warnings and the result table on a terminal."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

import typer
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

from linkcal._core.files import require_writable
from linkcal.exceptions import InputError, LinkcalError, LinkcalWarning

if TYPE_CHECKING:
    from linkcal.workflow import Step

__all__ = [
    "BaseRateOption",
    "BatchSize",
    "Device",
    "Epochs",
    "FitOnOption",
    "Json",
    "Model",
    "Negatives",
    "NegativesPerPositive",
    "Out",
    "Preset",
    "RunBaseRate",
    "Seed",
    "as_base_rate",
    "check_output_file",
    "counted",
    "log",
    "negatives_per_link_text",
    "print_results",
    "shown_once",
    "step_progress",
]


# Progress and messages on stderr.

Chunk = TypeVar("Chunk", bound=Sized)


def _stderr() -> Console:
    # Made anew each time: tests and callers may exchange sys.stderr.
    return Console(stderr=True)


def log(message: str) -> None:
    """One line on stderr."""
    _stderr().print(message, markup=False, highlight=False, soft_wrap=True)


def negatives_per_link_text(ratio: float, kind: str | None = None) -> str:
    """For how many negatives, and of which kind if not uniform, a probability holds.

    Examples
    --------
    >>> negatives_per_link_text(1.0), negatives_per_link_text(2.5, "two-hop")
    ('1 negative per link', '2.5 two-hop negatives per link')
    """
    which = "" if kind in (None, "uniform") else f"{kind} "
    return f"{ratio:g} {which}negative{'' if ratio == 1 else 's'} per link"


def shown_once() -> Callable[..., None]:
    """A ``warnings.showwarning`` for one command.

    Prints linkcal's own warnings as one line, each different one once; others as Python does.
    """
    said: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        import warnings

        if not issubclass(category, LinkcalWarning):
            (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))
        elif str(message) not in said:
            said.add(str(message))
            log(f"linkcal: warning: {message}")

    return show


def counted(chunks: Iterator[Chunk], description: str) -> Iterator[Chunk]:
    """Pass chunks on and show how many items they held so far."""
    columns = (TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=_stderr(), transient=True) as bars:
        task = bars.add_task(description, total=None)
        for chunk in chunks:
            yield chunk
            bars.advance(task, len(chunk))


@contextmanager
def step_progress() -> Iterator[Callable[[Step], None]]:
    """Progress bars for a run's stages, one after the other."""
    columns = (
        TextColumn("{task.description:>22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=_stderr(), transient=True) as bars:
        task = bars.add_task("", total=None)

        def show(step: Step) -> None:
            bars.update(task, description=step.stage, completed=step.done, total=step.total)

        yield show


# The table of all calibrators on stdout.

_PERCENT = (
    "ece",
    "ece_top_label",
    "ece_floor",
    "ece_floor_q95",
    "auc",
    "hits@20",
    "hits@50",
    "acc",
    "true_error",
)


def print_results(metrics: dict[str, Any]) -> None:
    """Print one row per calibrator; percentages but for NLL (nats) and seconds."""
    rows: dict[str, dict[str, float]] = dict(metrics["results"])
    columns = list(next(iter(rows.values())))
    counts = metrics["counts"]
    table = Table(
        title=(
            # A name from a file's: what stands in brackets there is no markup.
            f"{metrics['model']} on {escape(metrics['dataset'])}, seed {metrics['seed']}, "
            f"fitted on {metrics['fit_on']}"
        ),
        caption=(
            f"{counts['test_positives']:,} test links, {counts['test_negatives']:,} negatives: "
            f"probabilities hold for {_ratio(metrics)}. In %, "
            "NLL in nats, Brier as it is. * ECE at or below floor q95, which a calibrated predictor "
            "exceeds in 5 of 100 test sets."
        ),
    )
    table.add_column("calibrator", no_wrap=True)
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for calibrator, row in rows.items():
        label = f"{calibrator} (selected)" if calibrator == metrics["selected"] else calibrator
        table.add_row(label, *(_cell(name, row) for name in columns))
    if "oracle" in metrics:
        table.add_section()
        oracle = {**metrics["oracle"], "true_error": 0.0}
        table.add_row(
            "true probability", *(_cell(name, oracle) if name in oracle else "" for name in columns)
        )
    # Wide enough for all columns wherever the output goes; a terminal narrower than that wraps cells.
    console = Console(width=None if Console().is_terminal else 170)
    console.print(table)


def _ratio(metrics: dict[str, Any]) -> str:
    if "base_rate" not in metrics:
        return negatives_per_link_text(metrics["negatives_per_positive"], metrics.get("negatives"))
    return (
        f"a base rate of {metrics['base_rate']:.4g} ({metrics['base_rate_origin']}), where metrics weigh the "
        "negatives accordingly"
    )


def _cell(name: str, row: dict[str, float]) -> str:
    value = row[name]
    if value != value:
        return "n/a"
    text = f"{100 * value:.2f}" if name in _PERCENT else f"{value:.3f}"
    if name == "ece":
        text += "*" if value <= row["ece_floor_q95"] else " "
    return text


# Options that mean the same in every command.

Model = Annotated[str, typer.Option("--model", help="Link predictor; see `linkcal list models`.")]
Seed = Annotated[int, typer.Option("--seed", help="The one seed; same seed, same numbers.")]
FitOnOption = Annotated[
    str,
    typer.Option(
        "--fit-on",
        help="Links that calibrators are fitted on: val, train-loo (training, target link removed), "
        "train (training links as they are), stacked (val, and in-n-out-plus builds on train-loo).",
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Epochs = Annotated[int | None, typer.Option("--epochs", help="Most training epochs; default: the preset's.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="Training links per step; default: the preset's.")
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="Hyper-parameters: default, paper, or a FILE.json of `linkcal-lab search`.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for the results; default: one under runs/, named by the settings."),
]
Json = Annotated[bool, typer.Option("--json", help="Print metrics.json to stdout instead of a table.")]
_BASE_RATE = (
    "Share of links among the pairs that probabilities are for, or `density`: the share of all pairs that "
    "are edges of the message-passing graph."
)
BaseRateOption = Annotated[
    str | None,
    typer.Option(
        "--base-rate",
        metavar="RATE|density",
        help=f"{_BASE_RATE} Default: what the folder was made with, else that of the calibration links.",
    ),
]
RunBaseRate = Annotated[
    str | None,
    typer.Option(
        "--base-rate",
        metavar="RATE|density",
        help=f"{_BASE_RATE} Default: that of the calibration links. The folder keeps it for later scores.",
    ),
]
NegativesPerPositive = Annotated[
    float,
    typer.Option(
        "--negatives-per-positive", help="Negatives drawn for each link, in every part of the split."
    ),
]
Negatives = Annotated[
    str,
    typer.Option(
        "--negatives",
        help="Negatives to calibrate and measure with: uniform, degree (endpoints drawn by degree), two-hop "
        "(pairs with a common neighbour).",
    ),
]


def check_output_file(out: Path | None, asked: Path | None = None) -> None:
    """Refuse an output file that could not be written, or that is the file of query pairs."""
    if out is None:
        return
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"out must be a file in an existing folder, got {out}")
    if asked is not None and out.resolve() == asked.resolve():
        raise InputError(f"out must be another file than the pairs, got {out} for both")
    require_writable(out.parent, "out")


def as_base_rate(text: str | None) -> Any:
    """A number where the text is one; anything else is left to the library's own check."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def run_app(app: typer.Typer, name: str, arguments: Sequence[str] | None) -> int:
    """Run a command line and turn its end into an exit code: 0, 1 for a user error, 2 for wrong usage."""
    with warnings.catch_warnings():
        warnings.showwarning = shown_once()
        try:
            app(args=None if arguments is None else list(arguments), prog_name=name)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except LinkcalError as error:
            print(f"{name}: error: {error}", file=sys.stderr)  # noqa: T201
            return 1
        except BrokenPipeError:
            # The reader of our output went away (`linkcal ... | head`).
            sys.stderr.close()
            return 1
        except OSError as error:
            # A disk that is full, a folder that may not be written: nothing the program could have known.
            place = f": {error.filename}" if error.filename else ""
            print(f"{name}: error: {error.strerror or error}{place}", file=sys.stderr)  # noqa: T201
            return 1
    return 0
