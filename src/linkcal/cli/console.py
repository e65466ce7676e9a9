"""Progress and messages on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from linkcal.exceptions import LinkcalWarning

if TYPE_CHECKING:
    from linkcal.experiments import Step

Chunk = TypeVar("Chunk", bound=Sized)

__all__ = ["counted", "log", "non_links_per_link", "shown_once", "step_progress"]


def _stderr() -> Console:
    # Made anew each time: tests and callers may exchange sys.stderr.
    return Console(stderr=True)


def log(message: str) -> None:
    """One line on stderr."""
    _stderr().print(message, markup=False, highlight=False, soft_wrap=True)


def non_links_per_link(ratio: float, kind: str | None = None) -> str:
    """For how many non-links, and of which kind if not uniform, a probability holds.

    Examples
    --------
    >>> non_links_per_link(1.0), non_links_per_link(2.5, "two-hop")
    ('1 non-link per link', '2.5 two-hop non-links per link')
    """
    which = "" if kind in (None, "uniform") else f"{kind} "
    return f"{ratio:g} {which}non-link{'' if ratio == 1 else 's'} per link"


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
