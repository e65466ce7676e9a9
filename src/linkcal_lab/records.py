"""A sweep's results as one table: measured, exported, read."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from linkcal._core.files import written_whole
from linkcal._core.validation import check_choice
from linkcal.exceptions import InputError
from linkcal_lab.patterns import measure_completely
from linkcal_lab.store import MEASURED_PARTS, PREDICTIONS_FILE, Store, read_cell, read_predictions

#: Columns of records; all but the last name a value.
RECORD_COLUMNS = (
    "dataset", "model", "protocol", "negatives", "settings", "train_seed", "calibration_seed", "fit_on",
    "calibrator", "part", "metric", "value",
)  # fmt: skip
_KEYS = list(RECORD_COLUMNS[:-1])
SEEDS = ("train_seed", "calibration_seed")

METRICS_FILE = "metrics.csv"
METRIC_COLUMNS = ("calibrator", "part", "metric", "value")


def check_records(records: pd.DataFrame) -> pd.DataFrame:
    """A sorted copy of records with the columns ``RECORD_COLUMNS`` and missing settings as empty strings.

    `records` has a row for each value: a fraction (NLL: nats), NaN where the metric does not exist. A missing
    column, no record at all, and a value that is there twice are errors.
    """
    absent = [name for name in RECORD_COLUMNS if name not in records]
    if absent:
        raise InputError(
            f"records must have the columns {', '.join(RECORD_COLUMNS)}, got none of name {absent[0]}"
        )
    if records.empty:
        raise InputError("records must hold at least one value, got none")
    frame = records[list(RECORD_COLUMNS)].copy()
    for name in _KEYS:
        if name in SEEDS:
            frame[name] = frame[name].astype("int64")
        else:
            # Categories and missing settings become plain strings; whole columns of "" are read as NaN.
            frame[name] = frame[name].astype(object).where(frame[name].notna(), "").astype(str)
    frame["value"] = frame["value"].astype(float)
    twice = frame.duplicated(_KEYS)
    if twice.any():
        first = ", ".join(str(value) for value in frame.loc[twice, _KEYS].iloc[0])
        raise InputError(f"records must hold each value once, got {int(twice.sum())} again, first {first}")
    return frame.sort_values(_KEYS, ignore_index=True)


# Exported records: a packed CSV file with a row per calibrator and part of a cell, a column per metric.


def _gzipped(text: bytes) -> bytes:
    packed = io.BytesIO()
    # Neither a name nor a time: the same records give the same bytes.
    with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0) as file:
        file.write(text)
    return packed.getvalue()


def _xz(text: bytes) -> bytes:
    return lzma.compress(text, preset=9)


#: Starts the column of a metric: "negatives" is also the name of a key.
_METRIC = "metric:"

_PACKERS: dict[str, Callable[[bytes], bytes]] = {".csv.gz": _gzipped, ".csv.xz": _xz}


def check_record_path(path: Path) -> Path:
    """Give the path back if its ending says how to pack it; another one is an error."""
    if not path.name.endswith(tuple(_PACKERS)):
        raise InputError(f"out must end in {' or '.join(_PACKERS)}, got {path.name}")
    return path


def write_record_file(frame: pd.DataFrame, path: Path) -> None:
    """Write records (all columns but ``metric`` and ``value`` are keys) to `path`, whole or not at all."""
    keys = [name for name in frame.columns if name not in ("metric", "value")]
    # repr gives the shortest text that reads back as the same float; an empty field is a value not measured.
    texts = frame.assign(value=frame["value"].map(repr)).set_index([*keys, "metric"])["value"]
    wide = texts.unstack("metric", fill_value="").sort_index(axis=1).add_prefix(_METRIC).reset_index()
    text = wide.to_csv(index=False, lineterminator="\n")
    pack = next(packer for ending, packer in _PACKERS.items() if path.name.endswith(ending))
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as temporary:
        temporary.write_bytes(pack(text.encode()))


def read_record_file(path: Path, keys: Sequence[str]) -> pd.DataFrame:
    """Records in long form: the keys as text, ``metric``, and ``value`` as the exact float.

    A file in long form, as pandas writes the frame of ``read_records``, is read as well. A damaged file, and
    one that does not start with the columns `keys`, are errors.
    """
    wide = read_texts(path, keys, more=True)
    if tuple(wide.columns) == (*keys, "metric", "value"):
        return wide.assign(value=as_floats(wide["value"], path))
    metrics = wide.columns[len(keys) :]
    # pandas gives a second column of one name another: "metric:ece.1".
    if not len(metrics) or not all(re.fullmatch(rf"{_METRIC}[^.]+", name) for name in metrics):
        raise InputError(f"{path} must have one column for each metric, got {', '.join(metrics) or 'none'}")
    long = wide.melt(list(keys), var_name="metric", value_name="value")
    long["metric"] = long["metric"].str.removeprefix(_METRIC)
    long = long[long["value"] != ""].reset_index(drop=True)
    return long.assign(value=as_floats(long["value"], path))


def read_texts(path: Path, columns: Sequence[str], *, more: bool = False) -> pd.DataFrame:
    """A CSV file as text, with these columns and no others (or, with `more`, these first)."""
    try:
        # No text stands for a missing value: "" and "nan" are told apart.
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} must be a whole file of measured values, got {reason}") from error
    found = tuple(frame.columns)
    if not isinstance(frame.index, pd.RangeIndex):  # what pandas makes of the fields beyond the header's
        raise InputError(f"{path} must be a whole file of measured values, got more fields than columns")
    if found[: len(columns)] != tuple(columns) or (len(found) > len(columns) and not more):
        raise InputError(f"{path} must have the columns {', '.join(columns)}, got {', '.join(found)}")
    return frame


def as_floats(texts: pd.Series, path: Path) -> pd.Series:
    """Exact floats of a column of text."""
    try:
        return texts.map(float).astype("float64")
    except ValueError as error:
        raise InputError(f"{path} must be a whole file of measured values, got {error}") from error


# The metrics of a cell as a table in long form: written, and measured anew.


def write_metrics(metrics: Mapping[str, Mapping[str, Mapping[str, float]]], path: Path) -> None:
    """Long form of values by calibrator, part and metric."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(METRIC_COLUMNS)
        for calibrator, parts in metrics.items():
            for part, row in parts.items():
                # repr gives the shortest text that reads back as the same float.
                writer.writerows((calibrator, part, metric, repr(value)) for metric, value in row.items())


def remeasure_cell(folder: Path) -> None:
    """Compute all metrics of a finished cell anew from its stored predictions: nothing is trained or fitted.

    For metrics that linkcal did not have when the cell was made. ``metrics.csv`` is replaced whole.
    """
    stored = read_predictions(folder / PREDICTIONS_FILE)
    metrics = {
        name: {
            part: measure_completely(
                stored.label[part].astype(np.float64),
                stored.probability[part][number],
                stored.logit[part][number],
                stored.truth.get(part),
            )
            for part in MEASURED_PARTS
        }
        for number, name in enumerate(stored.calibrators)
    }
    with written_whole(folder / METRICS_FILE) as path:
        write_metrics(metrics, path)


# A sweep's results as one table: from its store, from exported files, or from several of them together.


def read_records(store: str | os.PathLike[str], *more: str | os.PathLike[str]) -> pd.DataFrame:
    """Read every measured value of a sweep, or of several that share no cell's calibrator.

    Parameters
    ----------
    store, *more : path
        A sweep's folder, or a file that :func:`export_records` wrote, each.

    Returns
    -------
    DataFrame
        Checked records (:func:`check_records`): ``part`` is ``"val"`` or ``"test"``, ``settings`` the
        others that are not the protocol's (``"preset=paper~epochs=20"``). Store and file give equal frames,
        bit for bit.

    Raises
    ------
    InputError
        If there is no such store or file, or it holds no finished cell, or a file in it was damaged, or a
        value is there twice, in one of them or in two.
    """
    frames = [_of_one(Path(each)) for each in (store, *more)]
    return check_records(pd.concat(frames, ignore_index=True))


def export_records(
    store: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    parts: Sequence[str] = MEASURED_PARTS,
    more: Sequence[str | os.PathLike[str]] = (),
) -> int:
    """Write the records of a store to one packed CSV file, always the same bytes for the same records.

    A row per calibrator and part of a cell, a column per metric; every value reads back as the same float.
    `path` ends in ``.csv.gz`` or, for a file of about half the size, ``.csv.xz``. `parts` of the split are
    written (tables need those of the test links only), and the records of `more` stores or files with those
    of `store`. Gives the number of values.
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
    job, cell, record = read_cell(folder)
    path = folder / METRICS_FILE
    frame = read_texts(path, METRIC_COLUMNS)
    frame["value"] = as_floats(frame["value"], path)
    _check_whole(frame, list(record["calibrators"]), path)
    return frame.assign(
        dataset=job.config.dataset,
        model=job.config.model,
        protocol=job.protocol,
        negatives=job.config.negatives,
        settings=job.named_settings("negatives").removeprefix("~"),
        train_seed=job.config.seed,
        calibration_seed=cell.calibration_seed,
        fit_on=cell.fit_on,
    )


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


def _of_file(path: Path) -> pd.DataFrame:
    frame = read_record_file(path, _KEYS[:-1])
    try:
        return frame.astype(dict.fromkeys(SEEDS, "int64"))
    except ValueError as error:
        raise InputError(f"{path} must have whole numbers as {', '.join(SEEDS)}, got {error}") from error
