"""``linkcal list``: names that the other commands take."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["list_names"]


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
