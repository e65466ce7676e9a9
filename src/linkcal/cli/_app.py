"""The command `linkcal`. Results go to stdout or files, logs and progress to stderr."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from linkcal import __version__
from linkcal.cli._console import Commands, run_app
from linkcal.cli._fitting import audit, fit, run
from linkcal.cli._labelled import check, refresh, threshold
from linkcal.cli._scores import apply, calibrate, decode
from linkcal.cli._scoring import score, select, top


class _What(StrEnum):
    DATASETS = "datasets"
    MODELS = "models"
    CALIBRATORS = "calibrators"


def list_names(
    what: Annotated[_What | None, typer.Argument(help="What to list; default: everything.")] = None,
) -> None:
    """List data sets, models and calibrators."""
    console = Console(width=None if Console().is_terminal else 120)
    for each in [what] if what else list(_What):
        table = Table("name", "description", title=each.value, title_justify="left", box=None)
        for row in _described(each).items():
            table.add_row(*row)
        console.print(table)


def _described(what: _What) -> dict[str, str]:
    if what is _What.CALIBRATORS:  # which need no torch
        from linkcal.calibrators import CALIBRATORS

        return {name: cls.description for name, cls in CALIBRATORS.items()}
    from linkcal.data import DATASETS
    from linkcal.models import MODELS

    if what is _What.MODELS:
        return {name: spec.description for name, spec in MODELS.items()}
    size = "{0.num_nodes:,} nodes, {0.num_edges:,} edges, {0.num_features:,} features: {0.description}"
    return {name: size.format(info) for name, info in DATASETS.items()}


app = typer.Typer(
    name="linkcal",
    cls=Commands,
    help="Calibrated probabilities for the links that a graph neural network predicts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    # Fills the paragraphs of a docstring to the width of the terminal.
    rich_markup_mode="markdown",
)
for _command in (run, fit, audit, score, select, top, check, threshold, refresh, decode, calibrate, apply):
    app.command()(_command)
app.command("list")(list_names)


def _print_version(given: bool) -> None:
    if given:
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
        0, 1 for a user error or a leak, 2 for wrong usage, 3 for an alarm, 130 after Ctrl-C.
    """
    return run_app(app, "linkcal", arguments)
