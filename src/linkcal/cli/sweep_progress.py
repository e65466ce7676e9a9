"""What a sweep tells its user: a line for each finished training, and what a dry run would do."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from linkcal.cli.console import log

if TYPE_CHECKING:
    from linkcal.experiments import JobEstimate, JobReport

__all__ = ["SweepProgress", "counted", "duration", "print_estimates"]

_BASES = (
    "Measured: median times of the same data set and model in this store, less what other programs took of "
    "the processor. Extrapolated: from the data set nearest in size, in proportion to the edges. The start "
    "of the processes comes on top (seconds); another number of jobs, or other programs beside it, change "
    "all of it."
)


class SweepProgress:
    """One line on stderr for each training with its cells, and the time left.

    The rest is expected to take as long per cell as what this sweep has done, so it settles when every data
    set had its turn.

    Parameters
    ----------
    total, found : int
        Cells of the plan, and those that were there at the start.
    """

    def __init__(self, total: int, found: int) -> None:
        self._total, self._found = total, found
        self._finished = 0
        self._start = time.perf_counter()

    def __call__(self, report: JobReport) -> None:
        """Tell of a training that is finished."""
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
    from linkcal.experiments import wall_seconds

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
