"""Entry point: parse, call, turn errors into exit codes.

0 success, 1 user error (one line on stderr, no traceback), 2 wrong usage. Results go to stdout or files,
logs and progress to stderr.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from linkcal import __version__
from linkcal.cli.console import shown_once
from linkcal.cli.figures import figures
from linkcal.cli.fit import fit
from linkcal.cli.list import list_names
from linkcal.cli.run import run
from linkcal.cli.score import score
from linkcal.cli.search import search
from linkcal.cli.select import select
from linkcal.cli.sweep import export, sweep
from linkcal.cli.tables import tables
from linkcal.cli.top import top
from linkcal.exceptions import LinkcalError

__all__ = ["app", "main"]

app = typer.Typer(
    name="linkcal",
    help="Calibrated probabilities for the links that a graph neural network predicts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    # Paragraphs of a docstring are filled to the terminal's width, not broken where the source is.
    rich_markup_mode="markdown",
)
app.command("run")(run)
app.command("fit")(fit)
app.command("score")(score)
app.command("select")(select)
app.command("top")(top)
app.command("sweep")(sweep)
app.command("export")(export)
app.command("tables")(tables)
app.command("figures")(figures)
app.command("search")(search)
app.command("list")(list_names)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"linkcal {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Calibrated probabilities for the links that a graph neural network predicts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; by default those of the process.

    Returns
    -------
    int
        0, 1 for a user error, 2 for wrong usage.
    """
    with warnings.catch_warnings():
        warnings.showwarning = shown_once()
        try:
            app(args=None if arguments is None else list(arguments), prog_name="linkcal")
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except LinkcalError as error:
            print(f"linkcal: error: {error}", file=sys.stderr)  # noqa: T201
            return 1
        except BrokenPipeError:
            # The reader of our output went away (`linkcal ... | head`).
            sys.stderr.close()
            return 1
        except OSError as error:
            # A disk that is full, a folder that may not be written: nothing the program could have known.
            place = f": {error.filename}" if error.filename else ""
            print(f"linkcal: error: {error.strerror or error}{place}", file=sys.stderr)  # noqa: T201
            return 1
    return 0
