"""A sweep's results as one table, from the store or from the small file that is exported from it."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from linkcal._files import written_whole
from linkcal.exceptions import InputError
from linkcal.experiments.cell_metrics import METRIC_COLUMNS, METRICS_FILE
from linkcal.experiments.cells import settings_suffix
from linkcal.experiments.config import RunConfig
from linkcal.experiments.store import Store, read_record

__all__ = ["RECORD_COLUMNS", "export_records", "read_records"]

RECORD_COLUMNS = (
    "dataset", "model", "protocol", "negatives", "settings", "train_seed", "calibration_seed", "fit_on",
    "calibrator", "part", "metric", "value",
)  # fmt: skip

_KEYS = list(RECORD_COLUMNS[:-1])
_INTEGERS = ("train_seed", "calibration_seed")
#: Settings with a column of their own, and what they are where RunConfig has no such field.
_OWN_COLUMN = {"protocol": "default", "negatives": "uniform"}


def read_records(store: str | os.PathLike[str]) -> pd.DataFrame:
    """Read every measured value of a sweep.

    Parameters
    ----------
    store : path
        A sweep's folder, or a file that :func:`export_records` wrote.

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
        value is there twice.
    """
    path = Path(store)
    if path.is_file():
        frame = _read_export(path)
    elif path.is_dir():
        cells = Store(path).cells()
        if not cells:
            raise InputError(f"store must hold a finished cell, got none in {path}")
        frame = _unique(pd.concat([_cell_records(folder) for folder in cells], ignore_index=True))
    else:
        raise InputError(
            f"store must be a sweep's folder or an exported file, got {path}, which is not there"
        )
    frame = frame.sort_values(_KEYS, kind="stable", ignore_index=True)
    return frame[list(RECORD_COLUMNS)]


def export_records(store: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Write all records of a store to one gzipped CSV file, always the same bytes for the same records.

    Parameters
    ----------
    store : path
    path : path
        Ends in ``.csv.gz``.

    Returns
    -------
    int
        Number of values.

    Raises
    ------
    InputError
        As :func:`read_records`, or if `path` ends otherwise.
    """
    target = Path(path)
    if not target.name.endswith(".csv.gz"):
        raise InputError(f"out must end in .csv.gz, got {target.name}")
    frame = read_records(store)
    # repr gives the shortest text that reads back as the same float.
    text = frame.assign(value=frame["value"].map(repr)).to_csv(index=False, lineterminator="\n")
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0) as file:
        file.write(text.encode())
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(target) as temporary:
        temporary.write_bytes(packed.getvalue())
    return len(frame)


def _cell_records(folder: Path) -> pd.DataFrame:
    record = read_record(folder, "config", "calibration_seed", "calibrators")
    config = RunConfig.from_dict(record["config"])
    path = folder / METRICS_FILE
    frame = _read_csv(path, METRIC_COLUMNS)
    measured = frame.groupby("calibrator")["metric"].count()
    if set(measured.index) != set(record["calibrators"]) or measured.nunique() != 1:
        raise InputError(
            f"{path} must have as many values for each of {', '.join(record['calibrators'])}, "
            f"got {', '.join(f'{n} for {name}' for name, n in measured.items()) or 'none'}"
        )
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


def _settings_text(config: RunConfig) -> str:
    parts = settings_suffix(config).split("~")[1:]
    return "~".join(part for part in parts if part.partition("=")[0] not in _OWN_COLUMN)


def _read_export(path: Path) -> pd.DataFrame:
    frame = _read_csv(path, RECORD_COLUMNS)
    try:
        return _unique(frame.astype(dict.fromkeys(_INTEGERS, "int64")))
    except ValueError as error:
        raise InputError(f"{path} must have whole numbers as {', '.join(_INTEGERS)}, got {error}") from error


def _read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Text columns as they are, ``value`` as the exact float; ``nan`` is the only name of a missing value."""
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        if tuple(frame.columns) != tuple(columns):
            raise InputError(
                f"{path} must have the columns {', '.join(columns)}, got {', '.join(frame.columns)}"
            )
        frame["value"] = frame["value"].map(float).astype("float64")
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} must be a whole file of measured values, got {reason}") from error
    return frame


def _unique(frame: pd.DataFrame) -> pd.DataFrame:
    """Records as they are, if none names a value twice: a mean would count it twice."""
    twice = frame.duplicated(_KEYS)
    if twice.any():
        first = ", ".join(str(value) for value in frame.loc[twice, _KEYS].iloc[0])
        raise InputError(f"records must hold each value once, got {int(twice.sum())} again, first {first}")
    return frame
