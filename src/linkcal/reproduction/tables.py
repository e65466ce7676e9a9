"""All tables of a sweep, and the files they are written to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from linkcal._files import written_whole
from linkcal._validation import check_choice
from linkcal.exceptions import InputError
from linkcal.reproduction.aggregate import Scope, check_records, fit_on_order, in_scope, scopes
from linkcal.reproduction.agreement import agreement_rows_table, agreement_table
from linkcal.reproduction.comparison import COMPARISONS, comparison_table
from linkcal.reproduction.formats import SUFFIXES, Table, render
from linkcal.reproduction.overview import overview_table
from linkcal.reproduction.patterns import pattern_row_table, pattern_share_table
from linkcal.reproduction.performance import performance_table
from linkcal.reproduction.significance import ranking_table, wilcoxon_table

__all__ = ["build_tables", "choose_tables", "tables_of_scope", "write_tables"]

# In-n-Out as published, and what improves on it.
_TESTED = ("in-n-out", "in-n-out-plus")


def build_tables(records: pd.DataFrame, *, join_settings: bool = False) -> dict[Scope, list[Table]]:
    """Make every table from the records of a sweep.

    Parameters
    ----------
    records : DataFrame
        Long form; see :func:`linkcal.reproduction.check_records`. Their order does not matter.
    join_settings : bool
        Show settings that differ from their default as rows of the same tables (``vgae~preset=paper``)
        instead of in tables of their own.

    Returns
    -------
    dict of Scope to list of Table
        The tables of each combination of protocol, share of negatives and settings.

    Raises
    ------
    InputError
        If a column is missing, there is no record, or a value is there twice.
    """
    checked = check_records(records, join_settings=join_settings)
    return {scope: tables_of_scope(in_scope(checked, scope), scope) for scope in scopes(checked)}


def tables_of_scope(records: pd.DataFrame, scope: Scope) -> list[Table]:
    """Tables of checked records of one scope, in the order in which a reader wants them."""
    words = scope.label
    fitted = fit_on_order(records)
    tables = [overview_table(records, scope=words), agreement_table(records, scope=words)]
    tables += [agreement_rows_table(records, on, scope=words) for on in fitted]
    tables += [comparison_table(records, kind, on, scope=words) for kind in COMPARISONS for on in fitted]
    tables.append(performance_table(records, scope=words))
    tables.append(ranking_table(records, scope=words))
    present = [name for name in _TESTED if name in set(records["calibrator"])]
    tables += [wilcoxon_table(records, on, method=m, scope=words) for m in present for on in fitted]
    tables.append(pattern_share_table(records, scope=words))
    tables.append(pattern_row_table(records, scope=words))
    return tables


def choose_tables(tables: dict[Scope, list[Table]], names: Sequence[str]) -> dict[Scope, list[Table]]:
    """Keep the named tables; all of them for no name.

    Parameters
    ----------
    tables : dict of Scope to list of Table
    names : sequence of str

    Returns
    -------
    dict of Scope to list of Table
        Scopes may be left without a table.

    Raises
    ------
    InputError
        If no scope has a table of that name; the message names the nearest one.
    """
    known = dict.fromkeys(table.name for found in tables.values() for table in found)
    for name in names:
        check_choice(name, "table", known)
    if not names:
        return tables
    return {scope: [t for t in found if t.name in names] for scope, found in tables.items()}


def write_tables(
    tables: dict[Scope, list[Table]],
    folder: str | os.PathLike[str],
    *,
    format: str = "markdown",  # noqa: A002
) -> list[Path]:
    """Write one file for each table, in a sub-folder for each scope if there are several.

    Parameters
    ----------
    tables : dict of Scope to list of Table
    folder : path
        Made if it is not there; files of the same names are replaced, each whole.
    format : {"markdown", "csv", "latex"}

    Returns
    -------
    list of Path

    Raises
    ------
    InputError
        If the format is unknown, the folder is a file, or two scopes have the same folder name.
    """
    check_choice(format, "format", SUFFIXES)
    out = Path(folder)
    if out.exists() and not out.is_dir():
        raise InputError(f"out must be a folder, got the file {out}")
    if len({scope.slug for scope in tables}) < len(tables):
        raise InputError(f"scopes must differ in letters, got {', '.join(scope.label for scope in tables)}")
    paths = []
    for scope, found in tables.items():
        place = out / scope.slug if len(tables) > 1 else out
        place.mkdir(parents=True, exist_ok=True)
        for table in found:
            path = place / f"{table.name}{SUFFIXES[format]}"
            with written_whole(path) as temporary:
                # The same bytes on every system: no translation of line ends.
                temporary.write_bytes(render(table, format).encode("utf-8"))
            paths.append(path)
    return paths
