"""A sweep's results as one table: from its store, from exported files, or from several of them together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from linkcal._validation import check_choice
from linkcal.exceptions import InputError
from linkcal.experiments.cell_metrics import METRIC_COLUMNS, METRICS_FILE
from linkcal.experiments.cells import settings_suffix
from linkcal.experiments.config import RunConfig
from linkcal.experiments.predictions import MEASURED_PARTS
from linkcal.experiments.record_files import (
    as_floats,
    check_record_path,
    read_record_file,
    read_texts,
    write_record_file,
)
from linkcal.experiments.store import Store, read_cell

__all__ = ["RECORD_COLUMNS", "export_records", "read_records"]

RECORD_COLUMNS = (
    "dataset", "model", "protocol", "negatives", "settings", "train_seed", "calibration_seed", "fit_on",
    "calibrator", "part", "metric", "value",
)  # fmt: skip

_KEYS = list(RECORD_COLUMNS[:-1])
_INTEGERS = ("train_seed", "calibration_seed")
#: Settings with a column of their own, and what they are where RunConfig has no such field.
_OWN_COLUMN = {"protocol": "default", "negatives": "uniform"}


def read_records(store: str | os.PathLike[str], *more: str | os.PathLike[str]) -> pd.DataFrame:
    """Read every measured value of a sweep, or of several that share no cell's calibrator.

    Parameters
    ----------
    store, *more : path
        A sweep's folder, or a file that :func:`export_records` wrote, each.

    Returns
    -------
    DataFrame
        One row per value, columns ``RECORD_COLUMNS``: ``part`` is ``"val"`` or ``"test"``, ``settings``
        the others that differ from their default (``"preset=paper~epochs=20"``; empty if none does),
        ``value`` a float64, fractions and not percent. Rows are sorted by all columns but the value; store
        and file give equal frames, bit for bit.

    Raises
    ------
    InputError
        If there is no such store or file, or it holds no finished cell, or a file in it was damaged, or a
        value is there twice, in one of them or in two.
    """
    frames = [_of_one(Path(each)) for each in (store, *more)]
    frame = _unique(pd.concat(frames, ignore_index=True))
    frame = frame.sort_values(_KEYS, kind="stable", ignore_index=True)
    return frame[list(RECORD_COLUMNS)]


def export_records(
    store: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    parts: Sequence[str] = MEASURED_PARTS,
    more: Sequence[str | os.PathLike[str]] = (),
) -> int:
    """Write the records of a store to one packed CSV file, always the same bytes for the same records.

    A row per calibrator and part of a cell, a column per metric; every value reads back as the same float.

    Parameters
    ----------
    store : path
    path : path
        Ends in ``.csv.gz`` or, for a file of about half the size, ``.csv.xz``.
    parts : sequence of {"val", "test"}
        Whose values to write. Tables need those of the test links only.
    more : sequence of path
        Further stores or exported files whose records are written into the same file, as
        :func:`read_records` joins them.

    Returns
    -------
    int
        Number of values.

    Raises
    ------
    InputError
        As :func:`read_records`, or if `path` ends otherwise, or `parts` names none or an unknown one.
    """
    target = check_record_path(Path(path))
    if not parts:
        raise InputError("parts must name val, test or both, got none")
    for part in parts:
        check_choice(part, "part", MEASURED_PARTS)
    frame = read_records(store, *more)
    frame = frame[frame["part"].isin(list(parts))]
    if frame.empty:
        raise InputError(f"store must hold values of {' or '.join(parts)}, got none")
    write_record_file(frame, target)
    return len(frame)


def _of_one(path: Path) -> pd.DataFrame:
    if path.is_file():
        return _of_file(path)
    if not path.is_dir():
        raise InputError(
            f"store must be a sweep's folder or an exported file, got {path}, which is not there"
        )
    cells = Store(path).cells()
    if not cells:
        raise InputError(f"store must hold a finished cell, got none in {path}")
    return pd.concat([_cell_records(folder) for folder in cells], ignore_index=True)


def _cell_records(folder: Path) -> pd.DataFrame:
    record = read_cell(folder)
    config: RunConfig = record["config"]
    path = folder / METRICS_FILE
    frame = read_texts(path, METRIC_COLUMNS)
    frame["value"] = as_floats(frame["value"], path)
    _check_whole(frame, list(record["calibrators"]), path)
    values: dict[str, Any] = {
        "dataset": config.dataset,
        "model": config.model,
        **{name: str(getattr(config, name, default)) for name, default in _OWN_COLUMN.items()},
        "settings": _settings_text(config),
        "train_seed": config.seed,
        "calibration_seed": record["calibration_seed"],
        "fit_on": config.fit_on,
    }
    return frame.assign(**values)


def _check_whole(frame: pd.DataFrame, calibrators: list[str], path: Path) -> None:
    """Refuse measured values of which a part was cut off."""
    measured = frame.groupby("calibrator")["metric"].count()
    if set(measured.index) != set(calibrators) or measured.nunique() != 1:
        raise InputError(
            f"{path} must have as many values for each of {', '.join(calibrators)}, "
            f"got {', '.join(f'{n} for {name}' for name, n in measured.items()) or 'none'}"
        )
    parts = {part: set(frame.loc[frame["part"] == part, "metric"]) for part in MEASURED_PARTS}
    # The test links may have more: the distance to the truth. A last number may have lost digits.
    if not parts["val"] <= parts["test"] or not path.read_bytes().endswith(b"\n"):
        raise InputError(f"{path} must be a whole file of measured values, got one that was cut off")


def _settings_text(config: RunConfig) -> str:
    parts = settings_suffix(config).split("~")[1:]
    return "~".join(part for part in parts if part.partition("=")[0] not in _OWN_COLUMN)


def _of_file(path: Path) -> pd.DataFrame:
    frame = read_record_file(path, _KEYS[:-1])
    try:
        return frame.astype(dict.fromkeys(_INTEGERS, "int64"))
    except ValueError as error:
        raise InputError(f"{path} must have whole numbers as {', '.join(_INTEGERS)}, got {error}") from error


def _unique(frame: pd.DataFrame) -> pd.DataFrame:
    """Records as they are, if none names a value twice: a mean would count it twice."""
    twice = frame.duplicated(_KEYS)
    if twice.any():
        first = ", ".join(str(value) for value in frame.loc[twice, _KEYS].iloc[0])
        raise InputError(f"records must hold each value once, got {int(twice.sum())} again, first {first}")
    return frame
