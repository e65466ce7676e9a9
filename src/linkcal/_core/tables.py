"""Named columns of a user's table: a CSV or Parquet file, or a mapping of arrays such as a DataFrame."""

import csv
import gzip
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal._core.cells import from_cell, has_cells
from linkcal._core.files import damage_named, listed, one_line
from linkcal._core.validation import is_missing, to_numpy
from linkcal.exceptions import InputError, extra_needed

#: Columns by name, or a file that has them.
Table = str | os.PathLike[str] | Mapping[str, Any]

_FORMATS = {".csv": ",", ".tsv": "\t", ".parquet": "", ".pq": ""}
_TRUTH = {"true": 1.0, "false": 0.0}


class Columns:
    """Columns of a table by name; `name` is that of the argument, for messages."""

    def __init__(self, table: Table, name: str) -> None:
        self.name, self.path = name, Path(table) if isinstance(table, str | os.PathLike) else None
        values: Any = table if self.path is None else _read(self.path, name)
        if not hasattr(values, "keys"):
            raise InputError(f"{name} must be a path or a mapping of columns, got {type(table).__name__}")
        self._values, self.names = values, [str(each) for each in values.keys()]  # noqa: SIM118 (a DataFrame)
        #: Where the columns are from, for messages.
        self.place = name if self.path is None else str(self.path)

    def require(self, names: Sequence[str]) -> None:
        """Refuse a table without one of the columns."""
        missing = [name for name in names if name not in self.names]
        if missing:
            found = f"{listed(self.names)} in {self.place}"
            raise InputError(f"{self.name} must have the column {missing[0]!r}, got {found}")

    def refuse(self, rows: Any, column: str, expected: str, advice: str = "") -> None:
        """Refuse a column if any of the `rows` (n,), bool, is True: in these the value is not as expected."""
        first = np.flatnonzero(rows)
        if first.size:
            value = self.column(column)[first[0]]
            raise InputError(
                f"column {column!r} must {expected} in every row, got {first.size} of {len(rows)} rows where "
                f"it does not, the first with {one_line(repr(getattr(value, 'item', lambda: value)()))} in "
                f"row {first[0] + 1} of {self.place}{advice}"
            )

    def column(self, name: str) -> NDArray[Any]:
        """Values of a column, (n,), as they are."""
        self.require([name])
        values = to_numpy(self._values[name])
        if values.ndim != 1:
            raise InputError(f"column {name!r} must have shape (n,), got {values.shape} in {self.place}")
        return values

    def texts(self, name: str, expected: str) -> NDArray[Any]:
        """A column as texts without surrounding blanks, objects (n,); none may be missing."""
        texts = _texts(self.column(name))
        self.refuse([text == "" for text in texts], name, expected)
        return np.array([*texts, None], dtype=object)[:-1]

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as float64 (n,); NaN where a value is missing, 1 and 0 for true and false."""
        values = self.column(name)
        if values.dtype.kind in "fiub":
            return values.astype(np.float64)
        numbers = [_number(text) for text in _texts(values)]
        self.refuse([number is None for number in numbers], name, "be a number")
        return np.array(numbers, dtype=np.float64)


def _texts(values: NDArray[Any]) -> list[str]:
    """Values (n,) as texts, empty where they are missing."""
    pairs = zip(values.tolist(), is_missing(values), strict=True)
    return ["" if missing else str(value).strip() for value, missing in pairs]


def _number(text: str) -> float | None:
    try:
        return float(_TRUTH.get(text.lower(), text or "nan"))
    except ValueError:
        return None


def _read(path: Path, name: str) -> dict[str, Any]:
    """All columns of a file."""
    if not path.is_file():
        raise InputError(f"{name} must be an existing file, got {str(path)!r}")
    gzipped = path.suffix == ".gz"
    delimiter = _FORMATS.get((path.with_suffix("") if gzipped else path).suffix.lower())
    if delimiter is None or (gzipped and not delimiter):
        raise InputError(f"{name} must be a file that ends in {', '.join(_FORMATS)}, got {str(path)!r}")
    if not delimiter:
        with extra_needed("a Parquet file"):
            from pyarrow import parquet, types
        with damage_named(path, name, "a valid Parquet file"), parquet.ParquetFile(path) as file:
            table = file.read()
            plain = [x.cast(x.type.value_type) if types.is_dictionary(x.type) else x for x in table]
            return {key: each.to_numpy() for key, each in zip(table.column_names, plain, strict=True)}
    opened: Any = gzip.open if gzipped else open
    with (
        damage_named(path, name, "a CSV file in UTF-8"),
        opened(path, "rt", encoding="utf-8-sig", newline="") as text,
    ):
        header, *rows = [row for row in csv.reader(text, delimiter=delimiter, strict=True) if row] or [[]]
    header = [entry.strip() for entry in header]
    odd = [i for i, row in enumerate(rows, 1) if len(row) != len(header)]
    if not header or len(set(header)) < len(header) or odd:
        got = f"{len(rows[odd[0] - 1])} values in row {odd[0]}" if odd else ", ".join(map(repr, header))
        raise InputError(
            f"{name} must have a header with different names and as many values in each row, "
            f"got {one_line(got)} in {path}"
        )
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    ids = header[:2] if has_cells(header) else ()
    return {k: list(map(from_cell, v) if k in ids else v) for k, v in zip(header, columns, strict=True)}
