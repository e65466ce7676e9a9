"""``linkcal figures``: reliability diagrams of a sweep, before and after calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from linkcal.cli.console import log

__all__ = ["figures"]


def figures(
    store: Annotated[Path, typer.Option("--store", help="Folder of `linkcal sweep`.")],
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
    from linkcal.reproduction import FIGURE_FORMATS, draw_figures

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
