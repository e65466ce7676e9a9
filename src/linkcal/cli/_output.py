"""Rows of pairs that a command writes: CSV that a spreadsheet may open, or Parquet."""

import csv
import hashlib
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

# Results that are longer than this wait in a file.
_SPOOL_BYTES = 1 << 26
# Rows of a Parquet group.
_ROWS = 100_000
# Line breaks, some of which Python's writer leaves bare, and what delimits where commas are decimal.
_TO_QUOTE = re.compile(r"[\r\n\t;|]")


@contextmanager
def csv_rows(out: Path | None, *header: str, raw_ids: bool = False) -> Iterator[Any]:
    """Yield an object with ``writerows`` for rows that start with two ids; `out` is a file or None (stdout).

    The file's ending names the format; it is written at the end of the block, whole or not at all. In CSV an
    id that a spreadsheet would take for a formula is made safe (``_core.cells``) unless `raw_ids`. Then the
    object's ``sha256`` is the file's.
    """
    from linkcal._core.files import written_whole

    with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
        if out is not None and out.suffix.lower() in (".parquet", ".pq"):
            rows: _ParquetRows | _CsvRows = (table := _ParquetRows(spool, header))
            yield rows
            table.close()
        else:
            text = io.TextIOWrapper(spool, "utf-8", newline="")
            rows = _CsvRows(text, header, raw_ids)
            yield rows
            text.flush()
            if out is None:
                text.seek(0)
                shutil.copyfileobj(text, sys.stdout)
            text.detach()
        if out is not None:
            spool.seek(0)
            rows.sha256 = hashlib.file_digest(spool, "sha256").hexdigest()
            spool.seek(0)
            with written_whole(out) as path, path.open("wb") as file:
                shutil.copyfileobj(spool, file)


def _columns(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[Any]]:
    """The columns of some rows at a time."""
    rows = iter(rows)
    while some := list(islice(rows, _ROWS)):
        yield list(zip(*some, strict=True))


class _CsvRows:
    sha256 = ""

    def __init__(self, file: IO[str], header: tuple[str, ...], raw_ids: bool) -> None:
        self._plain = csv.writer(file, lineterminator="\n")
        self._quoting = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        self._raw_ids = raw_ids
        self._plain.writerow(header)

    def writerows(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for ends_and_values in _columns(rows):
            ends, values = ends_and_values[:2], ends_and_values[2:]
            cells = [self._cells(end) for end in ends]
            texts = [
                ["true" if value else "false" for value in column] if isinstance(column[0], bool) else column
                for column in values
            ]
            bare = all(_TO_QUOTE.search("".join(map(str, end))) is None for end in cells)
            (self._plain if bare else self._quoting).writerows(zip(*cells, *texts, strict=True))

    def _cells(self, ids: Any) -> Any:
        from linkcal._core.cells import to_cell

        return ids if self._raw_ids or not isinstance(ids[0], str) else list(map(to_cell, ids))


class _ParquetRows:
    sha256 = ""

    def __init__(self, file: IO[bytes], header: tuple[str, ...]) -> None:
        self._file, self._header = file, header
        self._writer: Any = None

    def close(self) -> None:
        if self._writer is None:  # no row that shows the types
            self._write([[""], [""], *([0.0] for _ in self._header[2:])], rows=0)
        self._writer.close()

    def writerows(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for columns in _columns(rows):
            self._write(columns)

    def _write(self, columns: list[Any], rows: int | None = None) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({name: pa.array(column) for name, column in zip(self._header, columns, strict=True)})
        self._writer = self._writer or pq.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table.slice(0, rows))
