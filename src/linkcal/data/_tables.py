"""Tables of text, Parquet and npz files, read in blocks and checked."""

from __future__ import annotations

import contextlib
import csv
import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from linkcal.data.node_ids import IdColumn, is_id_type
from linkcal.exceptions import InputError

__all__ = [
    "check_header",
    "delimiter",
    "one_line",
    "open_text",
    "parse_options",
    "place_of",
    "plain_array",
    "plain_arrays",
    "read_header",
    "refuse_missing_ids",
    "table_format",
    "text_batches",
]


# Arrays from ``.npy`` and ``.npz`` files: plain ones only, and one line for a damaged file.


def plain_array(path: Path, name: str) -> NDArray[Any]:
    """The array of an npy file; a pickled object is never loaded.

    Raises
    ------
    InputError
        If the file is no whole npy file of plain values.
    """
    with _damage_named(path, name, "a plain npy array"), path.open("rb") as raw:
        loaded = np.load(raw, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            loaded.close()
            raise ValueError("an npz file")
    return _native(loaded)


def plain_arrays(path: Path, name: str) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file, by name; a pickled object is never loaded.

    Raises
    ------
    InputError
        If the file is no whole npz file of plain values.
    """
    # numpy leaves a damaged file open if it opened it itself.
    with _damage_named(path, name, "an npz file of plain arrays"), path.open("rb") as raw:
        if not zipfile.is_zipfile(raw):
            raise ValueError("no zip archive, or a truncated one")
        raw.seek(0)
        with np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        strange = [key for key, array in arrays.items() if not isinstance(array, np.ndarray)]
        if strange:
            raise ValueError(f"{strange[0]!r}, which is no array")
    return {key: _native(array) for key, array in arrays.items()}


def one_line(error: BaseException) -> str:
    """The first line of an error's text, or its type where it has none."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """The same values in this machine's byte order, the only one that torch and Arrow read."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


@contextmanager
def _damage_named(path: Path, name: str, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # numpy, zipfile, zlib and tokenize tell of flipped bytes by ten unrelated types of errors, among them
        # RuntimeError and MemoryError; whatever stops the reading, the file is not what was expected.
        raise InputError(f"{name} must be {what}, got {path}: {one_line(error)}") from error


# Columns of node ids from CSV, Parquet and npz files, batch by batch, with clear errors.
#
# Ids in CSV files are always read as text: type inference would turn "007" into 7 in one file and leave it in
# the next.

#: File endings by format; a ".gz" after a text format is decompressed.
_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".npy": "npy",
}

#: Bytes of a CSV file that are parsed at a time; bounds the memory of streaming.
_BLOCK = 8 << 20
#: A line that stands in no file.
_END = "linkcal: end of the file"


def table_format(path: Path, name: str, allowed: tuple[str, ...]) -> str:
    """Return the format by the file's ending, after checking that the file is there."""
    if not path.is_file():
        raise InputError(f"{name} must be an existing file, got {os.fspath(path)!r}")
    found = _FORMATS.get(_ending(path))
    if found not in allowed or (found != "csv" and _is_gzip(path)):
        known = ", ".join(ending for ending, kind in _FORMATS.items() if kind in allowed)
        raise InputError(f"{name} must be a file that ends in {known}, got {os.fspath(path)!r}")
    return found


def _is_gzip(path: Path) -> bool:
    return path.suffix == ".gz"  # Arrow does not decompress ".GZ"


def _ending(path: Path) -> str:
    """The ending that names the format, in lower case: the last one, or the one before ``.gz``."""
    return (path.with_suffix("") if _is_gzip(path) else path).suffix.lower()


def delimiter(path: Path) -> str:
    """Return the separator of a text table: tab for .tsv, else comma."""
    return "\t" if _ending(path) == ".tsv" else ","


def text_batches(path: Path, name: str, columns: tuple[str, ...]) -> Iterator[list[Any]]:
    """Yield batches of the named columns, each a pyarrow array of strings or integers.

    Raises
    ------
    InputError
        If the file is missing, empty, damaged or lacks a column, or one column is named twice.
    """
    kind = table_format(path, name, ("csv", "parquet", "npz"))
    if len(set(columns)) < len(columns):
        raise InputError(f"{name} must have its nodes in two different columns, got {columns[0]!r} for both")
    try:
        if kind == "csv":
            yield from _csv_batches(path, name, columns)
        elif kind == "parquet":
            yield from _parquet_batches(path, name, columns)
        else:
            batch = _npz_columns(path, name, columns)
            if len(batch[0]):
                yield batch
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} must be a valid {kind} file, got {path}: {one_line(error)}") from error


def _csv_batches(path: Path, name: str, columns: tuple[str, ...]) -> Iterator[list[Any]]:
    header = read_header(path, name)
    places = check_header(path, name, header, columns)
    wanted = [header[i] for i in places]
    reader = pacsv.open_csv(
        os.fspath(path),
        read_options=pacsv.ReadOptions(block_size=_BLOCK),
        parse_options=parse_options(path, name),
        convert_options=pacsv.ConvertOptions(
            include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()), strings_can_be_null=False
        ),
    )
    for batch in reader:
        if batch.num_rows:
            yield list(batch.columns)


def _parquet_batches(path: Path, name: str, columns: tuple[str, ...]) -> Iterator[list[Any]]:
    with pq.ParquetFile(os.fspath(path)) as file:
        header = list(file.schema_arrow.names)
        places = check_header(path, name, header, columns)
        for place in places:
            _check_id_type(path, header[place], file.schema_arrow.field(place).type)
        for batch in file.iter_batches(columns=[header[i] for i in places]):
            if batch.num_rows:
                yield [batch.column(header[i]) for i in places]


def _check_id_type(path: Path, column: str, kind: Any) -> None:
    if not is_id_type(kind):
        raise InputError(f"column {column!r} of {path} must hold strings or integers, got {kind}")


def _npz_columns(path: Path, name: str, columns: tuple[str, ...]) -> list[Any]:
    arrays = plain_arrays(path, name)
    check_header(path, name, list(arrays), columns)
    found = [arrays[column] for column in columns]
    for column, array in zip(columns, found, strict=True):
        if array.ndim != 1 or array.dtype.kind not in "iuU":
            raise InputError(
                f"array {column!r} of {path} must be 1-D and hold strings or integers, "
                f"got {array.dtype} {array.shape}"
            )
    if len({len(array) for array in found}) > 1:
        lengths = ", ".join(f"{c} {len(a)}" for c, a in zip(columns, found, strict=True))
        raise InputError(f"arrays of {path} must have equal lengths, got {lengths}")
    return [pa.array(array) for array in found]


def open_text(path: Path, errors: str = "strict") -> TextIO:
    """Open a plain or gzip-compressed text file as UTF-8, without a byte order mark."""
    if _is_gzip(path):
        return gzip.open(path, "rt", encoding="utf-8-sig", errors=errors, newline="")
    return path.open(encoding="utf-8-sig", errors=errors, newline="")


def read_header(path: Path, name: str) -> list[str]:
    """Return the column names of a CSV file, as they stand there."""
    try:
        with open_text(path) as file:
            for row in csv.reader(file, delimiter=delimiter(path)):
                if row:
                    return row
    except (UnicodeDecodeError, csv.Error, OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} must be a CSV file in UTF-8, got {path}: {one_line(error)}") from error
    raise InputError(f"{name} must have a header line, got the empty file {path}")


def parse_options(path: Path, name: str) -> pacsv.ParseOptions:
    """How Arrow is to parse a CSV file, after checking that no quoted value is open at its end.

    Arrow takes all lines up to the end for such a value. It also cuts a long file into blocks at line breaks,
    also within quoted values unless told of them, which makes it slower; so only files with quotes are
    read so.
    """
    try:
        quotes = _count_quotes(path)
        if quotes % 2:  # else all are closed
            _refuse_open_quote(path, name)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} must be a valid csv file, got {path}: {one_line(error)}") from error
    return pacsv.ParseOptions(delimiter=delimiter(path), newlines_in_values=quotes > 0)


def _refuse_open_quote(path: Path, name: str) -> None:
    """Tell an open quote from one in the middle of a plain value, where it is a character like others."""
    line, start, last = 1, 1, [""]
    try:
        with open_text(path, errors="replace") as file:
            # Where a quote is open, the line that is added at the end belongs to the last value.
            reader = csv.reader(chain(file, ["\n", f"{_END}\n"]), delimiter=delimiter(path))
            for row in reader:
                if row:
                    line, last = start, row
                start = reader.line_num + 1
    except csv.Error:
        line = start  # longer than a value may be
    if last != [_END]:
        raise InputError(
            f'{name} must close every quoted value, got a quote (") in the row at line {line} of {path} that '
            "is open to the end"
        )


def _count_quotes(path: Path) -> int:
    quotes = 0
    with gzip.open(path, "rb") if _is_gzip(path) else path.open("rb") as file:
        while block := file.read(_BLOCK):
            quotes += block.count(b'"')
    return quotes


def check_header(path: Path, name: str, header: list[str], columns: tuple[str, ...]) -> list[int]:
    """Return the place of each of `columns` in `header`, blanks around names aside."""
    names = [entry.strip() for entry in header]
    missing = [column for column in columns if column not in names]
    if missing:
        hint = ""
        if any(_is_number(entry) for entry in names):
            hint = "; the first line looks like data: has the file no header?"
        raise InputError(
            f"{name} must have the column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}, "
            f"got {', '.join(map(repr, names))} in {path}{hint}"
        )
    repeated = [column for column in columns if names.count(column) > 1]
    if repeated:
        raise InputError(f"{name} must have the column {repeated[0]!r} once, got it repeated in {path}")
    return [names.index(column) for column in columns]


def place_of(path: Path, row: int) -> str:
    """Say where data row `row` (from 0) stands: ``line 17`` of a text file, else ``row 15``.

    Blank lines and quoted line breaks make lines and rows differ, so the text is read again. That is slow,
    and happens only on the way to an error message. Columns that nobody asked for may hold anything.
    """
    if _FORMATS.get(_ending(path)) != "csv":
        return f"row {row}"
    with open_text(path, errors="replace") as file, contextlib.suppress(csv.Error):  # one very long value
        reader = csv.reader(file, delimiter=delimiter(path))
        rows = -1  # the header is row -1
        for entry in reader:
            if entry:
                if rows == row:
                    return f"line {reader.line_num}"
                rows += 1
    return f"row {row}"


def refuse_missing_ids(
    path: Path, name: str, columns: tuple[str, ...], values: list[IdColumn], row: int = 0
) -> None:
    """Raise if an id of the parsed columns is missing; their first row is row `row` of the file."""
    missing = np.stack([column.missing() for column in values])
    rows = np.flatnonzero(missing.any(axis=0))
    if len(rows):
        column = columns[int(np.flatnonzero(missing[:, rows[0]])[0])]
        raise InputError(
            f"{name} must have a node id in every row, got {len(rows)} without one, "
            f"the first in {place_of(path, row + int(rows[0]))} (column {column!r}) of {path}"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
