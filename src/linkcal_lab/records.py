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
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from linkcal._core.files import written_whole
from linkcal._core.validation import check_choice
from linkcal.exceptions import InputError
from linkcal.metrics import METRICS, evaluate_links
from linkcal.workflow.config import RunConfig
from linkcal_lab.cells import settings_suffix
from linkcal_lab.store import MEASURED_PARTS, PREDICTIONS_FILE, Store, read_cell, read_predictions

__all__ = [
    "METRICS_FILE",
    "METRIC_COLUMNS",
    "RECORD_COLUMNS",
    "as_floats",
    "check_record_path",
    "export_records",
    "measure",
    "read_record_file",
    "read_records",
    "read_texts",
    "remeasure_cell",
    "write_metrics",
    "write_record_file",
]


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
    """Give the path back if its ending says how to pack it.

    Raises
    ------
    InputError
        Otherwise.
    """
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

    A file in long form, as pandas writes the frame of ``read_records``, is read as well.

    Raises
    ------
    InputError
        If the file is damaged, or does not start with the columns `keys`.
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
    """A CSV file as text, with these columns and no others (or, with `more`, these first).

    Raises
    ------
    InputError
        If it has other columns or cannot be read.
    """
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
    """Exact floats of a column of text.

    Raises
    ------
    InputError
        If one is not a number.
    """
    try:
        return texts.map(float).astype("float64")
    except ValueError as error:
        raise InputError(f"{path} must be a whole file of measured values, got {error}") from error


# The metrics of a cell as a table in long form: measured, written, and measured anew.

METRICS_FILE = "metrics.csv"
METRIC_COLUMNS = ("calibrator", "part", "metric", "value")

FloatArray = NDArray[np.float64]


def measure(
    label: FloatArray, probability: FloatArray, logit: FloatArray, truth: FloatArray | None = None
) -> dict[str, float]:
    """Every metric that linkcal has, and what it was measured on.

    Parameters
    ----------
    label : ndarray (L,), values 0 and 1
    probability : ndarray (L,), in [0, 1]
    logit : ndarray (L,)
        For the ranking metrics.
    truth : ndarray (L,), optional
        Known probabilities: adds ``true_error``, the mean absolute distance.

    Returns
    -------
    dict of str to float
        Those of :func:`linkcal.metrics.evaluate_links` (extended), then the rest of ``METRICS``, then
        ``positives`` and ``negatives``: an ECE says nothing without the number of links and their ratio, and
        Hits@K is 1 whenever there are fewer than K negatives.

    Examples
    --------
    >>> y = np.repeat([1.0, 0.0], 60)
    >>> result = measure(y, np.full(120, 0.5), np.zeros(120))
    >>> result["ece"], result["positives"], result["negatives"]
    (0.0, 60.0, 60.0)
    """
    result = evaluate_links(label, probability, logit, extended=True)
    for name, spec in METRICS.items():
        if name not in result:
            one_class = spec.input == "score" and label.min() == label.max()
            values = logit if spec.input == "score" else probability
            result[name] = float("nan") if one_class else float(spec.function(label, values))
    result["positives"] = float(label.sum())
    result["negatives"] = float(len(label) - label.sum())
    if truth is not None:
        result["true_error"] = float(np.abs(probability - truth).mean())
    return result


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

    Raises
    ------
    InputError
        If the predictions are not there or are damaged; the metrics stay as they were.
    """
    stored = read_predictions(folder / PREDICTIONS_FILE)
    metrics = {
        name: {
            part: measure(
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
