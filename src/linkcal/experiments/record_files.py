"""Exported records: a packed CSV file with a row per calibrator and part of a cell, a column per metric."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from linkcal._files import written_whole
from linkcal.exceptions import InputError

__all__ = ["as_floats", "check_record_path", "read_record_file", "read_texts", "write_record_file"]


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
