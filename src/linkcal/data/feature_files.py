"""Node features from files, and their alignment with the nodes of a graph."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._validation import count_not_finite
from linkcal.data.node_ids import IdColumn, NodeIds, is_id_type
from linkcal.data.plain_arrays import one_line, plain_array, plain_arrays
from linkcal.data.tables import (
    parse_options,
    place_of,
    read_header,
    refuse_missing_ids,
    table_format,
)
from linkcal.exceptions import InputError

__all__ = ["FeatureTable", "read_feature_table"]

#: Start of the names that pandas gives an index without one.
_NAMELESS = "__index_level_"
#: What people call an array of ids that is to be named "id"; without it rows would be taken in order.
_LIKE_ID = ("ids", "node", "nodes", "node_id", "node_ids")


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Feature rows as they stand in a file.

    Parameters
    ----------
    path : Path
    x : array (M, F), float32, finite
    ids : pyarrow.Array (M,), optional
        Node of each row; without them row i belongs to the node with id i.
    """

    path: Path
    x: NDArray[np.float32]
    ids: Any | None

    def __len__(self) -> int:
        return len(self.x)

    def require_row_numbers(self, node_ids: NodeIds) -> None:
        """Raise unless every id is a row number ``0 .. M-1`` of this file."""
        if len(node_ids) == 0:
            return
        rule = f"node ids must be 0 .. {len(self) - 1} to be matched to the {len(self)} rows of {self.path}"
        first, last = node_ids.decode([0, len(node_ids) - 1]).to_pylist()
        if not node_ids.are_integers:
            raise InputError(
                f"{rule}, got ids such as {first!r}; give .csv or .parquet with the node id in the first "
                "column"
            )
        if first < 0 or last >= len(self):
            wrong = first if first < 0 else last
            raise InputError(f"{rule}, got {wrong}")

    def align(self, node_ids: NodeIds) -> Tensor:
        """Features [N, F] in the order of `node_ids`, float32.

        Raises
        ------
        InputError
            If rows and nodes do not match one to one.
        """
        if self.ids is None:
            self.require_row_numbers(node_ids)
            if len(node_ids) != len(self):
                raise InputError(
                    f"features must have one row per node, {len(node_ids)}, got {len(self)} in {self.path}"
                )
            return torch.from_numpy(self.x)
        index = node_ids.lookup(self.ids)
        self._refuse_bad_ids(index)
        rows = np.full(len(node_ids), -1, dtype=np.int64)
        rows[index] = np.arange(len(index))
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            some = ", ".join(repr(v) for v in node_ids.decode(missing[:5]).to_pylist())
            raise InputError(
                f"features must have a row for each of the {len(node_ids)} nodes, got none for "
                f"{len(missing)} in {self.path}: {some}{', ...' if len(missing) > 5 else ''}"
            )
        return torch.from_numpy(self.x[rows])

    def _refuse_bad_ids(self, index: NDArray[np.int64]) -> None:
        ids: Any = self.ids
        unknown = np.flatnonzero(index < 0)
        if len(unknown):
            some = ", ".join(
                f"{ids[int(row)].as_py()!r} in {place_of(self.path, int(row))}" for row in unknown[:5]
            )
            raise InputError(
                f"features must name nodes of the graph in their first column, got unknown ones in "
                f"{self.path}: {some}"
            )
        order = np.argsort(index, kind="stable")
        again = order[1:][index[order][1:] == index[order][:-1]]
        if len(again):
            row = int(again.min())
            raise InputError(
                f"features must have one row per node and its id in the first column, got a second one for "
                f"{ids[row].as_py()!r} in {place_of(self.path, row)} of {self.path}"
            )


def _without_index(path: Path, table: Any) -> Any:
    """The table without the nameless row index that pandas stores beside the columns.

    A row index with a name most likely holds the ids, but stands in the last column, as a feature would.
    """
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    named = [name for name in index if name in table.column_names[1:] and not name.startswith(_NAMELESS)]
    if named:
        raise InputError(
            f"features must have the node id in the first column, got the pandas index {named[0]!r} after "
            f"the columns of {path}; write df.reset_index()"
        )
    stored = [name for name in table.column_names if name.startswith(_NAMELESS)]
    return table.drop_columns(stored) if stored else table


def read_feature_table(path: Path) -> FeatureTable:
    """Read a feature file of any known format; see :func:`linkcal.data.read_features`.

    Raises
    ------
    InputError
        If the file is no such table or a value is missing, not finite or no number.
    """
    kind = table_format(path, "features", ("csv", "parquet", "npy", "npz"))
    try:
        if kind == "csv":
            ids, x = _read_csv(path)
        elif kind == "parquet":
            ids, x = _split(path, _without_index(path, pq.read_table(os.fspath(path))))
        else:
            ids, x = _read_arrays(path, kind)
    except (pa.ArrowException, OSError) as error:
        reason = _with_column_name(one_line(error), path) if kind == "csv" else one_line(error)
        raise InputError(f"features must be a valid {kind} file, got {path}: {reason}") from error
    bad = ~np.isfinite(x)
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        raise InputError(
            f"features must be finite float32 numbers, got {count_not_finite(int(bad.sum()))}, "
            f"the first in {place_of(path, row)} of {path}"
        )
    return FeatureTable(path=path, x=x, ids=ids)


def _read_csv(path: Path) -> tuple[Any, NDArray[np.float32]]:
    header = read_header(path, "features")
    types = {column: pa.float32() for column in header[1:]} | {header[0]: pa.string()}
    table = pacsv.read_csv(
        os.fspath(path),
        parse_options=parse_options(path, "features"),
        convert_options=pacsv.ConvertOptions(column_types=types, strings_can_be_null=False),
    )
    return _split(path, table)


def _with_column_name(reason: str, path: Path) -> str:
    """Arrow counts columns from 0, which readers take for another column."""
    found = re.match(r"In CSV column #(\d+): ", reason)
    if found is None:
        return reason
    return f"column {read_header(path, 'features')[int(found[1])]!r}: {reason[found.end() :]}"


def _split(path: Path, table: Any) -> tuple[Any, NDArray[np.float32]]:
    """Ids and numbers of a table whose first column is the node id."""
    if table.num_columns < 2:
        raise InputError(
            f"features must have the node id and at least one number per row, got {table.num_columns} "
            f"column{'s' if table.num_columns != 1 else ''} in {path}"
        )
    x = np.empty((table.num_rows, table.num_columns - 1), dtype=np.float32)
    for place, field in enumerate(table.schema):
        if place == 0:
            continue
        column = table.column(place)
        if pa.types.is_boolean(field.type):  # what pandas makes of categories
            column = column.cast(pa.float32())
        elif not (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
            raise InputError(f"column {field.name!r} of {path} must hold numbers, got {field.type}")
        # A null becomes NaN and what float32 cannot hold infinite; the caller reports both with their line.
        with np.errstate(over="ignore"):
            x[:, place - 1] = column.to_numpy()
    return _checked_ids(path, table.schema.names[0], table.column(0)), x


def _checked_ids(path: Path, column: str, ids: Any) -> Any:
    if not is_id_type(ids.type):
        raise InputError(
            f"column {column!r} of {path} must hold node ids, strings or integers, got {ids.type}"
        )
    refuse_missing_ids(path, "features", (column,), [IdColumn.parse(ids)])
    return ids


def _read_arrays(path: Path, kind: str) -> tuple[Any, NDArray[np.float32]]:
    ids = None
    if kind == "npz":
        arrays = plain_arrays(path, "features")
        ids = arrays.pop("id", None)
        like_id = [key for key in arrays if key.lower() in _LIKE_ID]
        if ids is None and like_id:
            raise InputError(f"the array of node ids must be named 'id' in {path}, got {like_id[0]!r}")
        if "x" not in arrays and len(arrays) != 1:
            raise InputError(
                f"features must be the array 'x' or the only one of {path}, got {', '.join(sorted(arrays))}"
            )
        x = arrays["x"] if "x" in arrays else next(iter(arrays.values()))
    else:
        x = plain_array(path, "features")
    if x.ndim != 2 or x.shape[1] == 0 or x.dtype.kind not in "fiub":
        raise InputError(f"features must be numbers of shape [N, F], got {x.dtype} {x.shape} in {path}")
    if ids is not None and (ids.shape != x.shape[:1] or ids.dtype.kind not in "iuU"):
        raise InputError(
            f"array 'id' of {path} must hold one string or integer per row, {len(x)}, "
            f"got {ids.dtype} {ids.shape}"
        )
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
    return None if ids is None else _checked_ids(path, "id", pa.array(ids)), x
