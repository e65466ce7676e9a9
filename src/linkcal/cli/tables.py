"""``linkcal tables``: the paper's tables from a sweep, the published values beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from linkcal.cli.console import log

__all__ = ["tables"]


def tables(
    store: Annotated[
        list[Path],
        typer.Option(
            "--store",
            help="Folder of `linkcal sweep`, or a file of its exported records; may be given several times "
            "for parts of one experiment.",
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
    from linkcal.experiments import read_records
    from linkcal.reproduction import build_tables, choose_tables, render, write_tables

    chosen = choose_tables(build_tables(read_records(*store), join_settings=join_settings), table or [])
    if out is not None:
        for path in write_tables(chosen, out, format=format):
            log(str(path))
        return
    found = [each for group in chosen.values() for each in group]
    if format == "csv" and len(found) != 1:
        raise InputError(f"csv on stdout must be one table: give --table or --out, got {len(found)} tables")
    typer.echo("\n".join(render(each, format) for each in found), nl=False)
