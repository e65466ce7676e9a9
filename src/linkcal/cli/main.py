"""The command `linkcal`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from linkcal import __version__
from linkcal.cli._console import run_app
from linkcal.cli.asking import score, select, top
from linkcal.cli.fitting import fit, run

__all__ = ["app", "list_names", "main"]


# ``linkcal list``: names that the other commands take.


class _What(StrEnum):
    DATASETS = "datasets"
    MODELS = "models"
    CALIBRATORS = "calibrators"


def list_names(
    what: Annotated[
        _What | None, typer.Argument(help="datasets, models or calibrators; all by default.")
    ] = None,
) -> None:
    """List data sets, models and calibrators."""
    console = Console(width=None if Console().is_terminal else 120)
    for each in [what] if what else list(_What):
        table = Table("name", "description", title=each.value, title_justify="left", box=None)
        for name, description in _rows(each):
            table.add_row(name, description)
        console.print(table)


def _rows(what: _What) -> list[tuple[str, str]]:
    from linkcal.calibrators import CALIBRATORS
    from linkcal.data import DATASETS
    from linkcal.models import MODELS

    if what is _What.DATASETS:
        return [
            (
                name,
                f"{d.num_nodes:,} nodes, {d.num_edges:,} edges, {d.num_features:,} features: {d.description}",
            )
            for name, d in DATASETS.items()
        ]
    if what is _What.MODELS:
        return [(name, spec.description) for name, spec in MODELS.items()]
    return [(name, spec.description) for name, spec in CALIBRATORS.items()]


# Entry point: parse, call, turn errors into exit codes.
#
# 0 success, 1 user error (one line on stderr, no traceback), 2 wrong usage. Results go to stdout or files,
# logs and progress to stderr.

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
    return run_app(app, "linkcal", arguments)
