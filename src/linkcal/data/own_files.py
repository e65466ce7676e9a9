"""Edges, features and pairs from a user's own CSV, Parquet and npz files."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.validation import check_positive_int, count_not_finite
from linkcal.data._tables import (
    one_line,
    parse_options,
    place_of,
    plain_array,
    plain_arrays,
    read_header,
    refuse_missing_ids,
    table_format,
    text_batches,
)
from linkcal.data.graph import Graph
from linkcal.data.node_ids import IdColumn, NodeIds, is_id_type
from linkcal.exceptions import InputError, LinkcalWarning

__all__ = [
    "FeatureTable",
    "NamedGraph",
    "PairChunk",
    "read_edges",
    "read_feature_table",
    "read_features",
    "read_pairs",
]


# Node features from files, and their alignment with the nodes of a graph.

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


# The user's own graph from files: edges, node features, and pairs to score.

_PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class NamedGraph:
    """A graph and the ids that its nodes have in the user's files.

    Parameters
    ----------
    graph : Graph
    node_ids : NodeIds
        N ids; index i of the graph is the i-th of them.

    Examples
    --------
    >>> graph = Graph.from_edges(torch.tensor([[0], [1]]), 2)
    >>> named = NamedGraph(graph, NodeIds.range(2))
    >>> named.graph.num_pairs, len(named.node_ids)
    (1, 2)
    """

    graph: Graph
    node_ids: NodeIds


@dataclass(frozen=True, eq=False)
class PairChunk:
    """Consecutive pairs of a file, in its order.

    Parameters
    ----------
    edge_label_index : Tensor [2, l], int64
    source, target : pyarrow.Array (l,)
        The ids as they stand in the file.
    first_row : int
        Rows of the file before this chunk.

    Examples
    --------
    >>> chunk = PairChunk(torch.tensor([[0], [1]]), pa.array(["alice"]), pa.array(["bob"]), first_row=0)
    >>> len(chunk)
    1
    """

    edge_label_index: Tensor
    source: Any
    target: Any
    first_row: int

    def __len__(self) -> int:
        return self.edge_label_index.size(1)


def read_edges(
    path: _PathLike,
    *,
    features: _PathLike | None = None,
    source: str = "source",
    target: str = "target",
    directed: bool = False,
) -> NamedGraph:
    r"""Read a graph from an edge list and, optionally, a file of node features.

    Parameters
    ----------
    path : path
        ``.csv``, ``.tsv`` (also ``.gz``) or ``.parquet`` with columns, or ``.npz`` with 1-D arrays, named
        `source` and `target`; others are left alone. Node ids are any strings or integers (:class:`NodeIds`).
        Self-loops and repeated edges are dropped and counted.
    features : path, optional
        Node features as for :func:`read_features`. A node that stands only there is an isolated node.
    source, target : str
    directed : bool
        Whether (u, v) and (v, u) are different links.

    Returns
    -------
    NamedGraph

    Raises
    ------
    InputError
        If a file, a column, a value, a row of features is missing or wrong: one line that names it.

    Warns
    -----
    LinkcalWarning
        If both "7" and "7.0" are ids: two nodes here, and most often one that a program wrote as a float.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "edges.csv")
    ...     _ = path.write_text("source,target\nbob,alice\nalice,carol\n")
    ...     named = read_edges(path)
    >>> named.node_ids.decode([0, 1, 2]).to_pylist()
    ['alice', 'bob', 'carol']
    >>> named.graph.pairs.tolist()
    [[0, 0], [1, 2]]
    """
    path = Path(path)
    columns = (source, target)
    batches = list(text_batches(path, "edges", columns))
    if not batches:
        raise InputError(f"edges must have at least one row, got none in {path}")
    ends = [IdColumn.parse(pa.chunked_array([batch[i] for batch in batches])) for i in range(2)]
    refuse_missing_ids(path, "edges", columns, ends)
    table = None if features is None else read_feature_table(Path(features))
    node_ids = _all_ids(ends, table)
    _warn_of_decimals(path, node_ids)
    edge_index = torch.from_numpy(np.stack([node_ids.lookup(end) for end in ends]))
    x = None if table is None else table.align(node_ids)
    graph = Graph.from_edges(edge_index, len(node_ids), x=x, directed=directed, name=path.name.split(".")[0])
    return NamedGraph(graph=graph, node_ids=node_ids)


def read_features(path: _PathLike, node_ids: NodeIds) -> Tensor:
    r"""Read one feature row for each known node.

    Parameters
    ----------
    path : path
        ``.csv``, ``.tsv`` (also ``.gz``), ``.parquet``: the first column is the node id, all others are
        numbers (in Parquet also true and false); rows in any order. ``.npy`` (2-D), ``.npz`` (array ``x``,
        or the only one): row i belongs to the node with id i, so the ids must be ``0 .. N-1``; an array
        ``id`` beside ``x`` names the rows instead.
    node_ids : NodeIds

    Returns
    -------
    Tensor [N, F], float32
        Row i belongs to index i.

    Raises
    ------
    InputError
        If rows and nodes do not match one to one, or a value is missing, not finite or no number.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "x.csv")
    ...     _ = path.write_text("node,age\n1,30\n0,25\n")
    ...     read_features(path, NodeIds.range(2))
    tensor([[25.],
            [30.]])
    """
    return read_feature_table(Path(path)).align(node_ids)


def read_pairs(
    path: _PathLike,
    node_ids: NodeIds,
    *,
    source: str = "source",
    target: str = "target",
    chunk_size: int = 100_000,
) -> Iterator[PairChunk]:
    r"""Read pairs to score, in the file's order, without holding the whole file in memory.

    Parameters
    ----------
    path : path
        A file of the formats of :func:`read_edges` (an npz file is read at once).
    node_ids : NodeIds
        Of the graph that the pairs are scored on.
    source, target : str
    chunk_size : int
        Largest number of pairs in a chunk.

    Yields
    ------
    PairChunk

    Raises
    ------
    InputError
        If a node is unknown (the first five of the file are listed with their lines), a value is
        missing or a node is paired with itself. It is raised when the first such row is reached, so
        an output file should be put in its place only at the end.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "pairs.csv")
    ...     _ = path.write_text("source,target\n0,1\n2,0\n0,2\n")
    ...     [chunk.edge_label_index.tolist() for chunk in read_pairs(path, NodeIds.range(3), chunk_size=2)]
    [[[0, 2], [1, 0]], [[0], [2]]]
    """
    chunk_size = check_positive_int(chunk_size, "chunk_size")
    path, columns = Path(path), (source, target)
    first_row = 0
    batches = text_batches(path, "pairs", columns)
    for batch in batches:
        index = np.stack([node_ids.lookup(column) for column in batch])
        if (index < 0).any():
            _raise_unknown(path, columns, node_ids, first_row, batch, batches)
        same = np.flatnonzero(index[0] == index[1])
        if len(same):
            row = int(same[0])
            raise InputError(
                f"pairs must join two different nodes, got {batch[0][row].as_py()!r} with itself in "
                f"{place_of(path, first_row + row)} of {path}"
            )
        for start in range(0, index.shape[1], chunk_size):
            stop = min(start + chunk_size, index.shape[1])
            yield PairChunk(
                edge_label_index=torch.from_numpy(index[:, start:stop].copy()),
                source=batch[0].slice(start, stop - start),
                target=batch[1].slice(start, stop - start),
                first_row=first_row + start,
            )
        first_row += index.shape[1]


def _all_ids(ends: list[IdColumn], table: FeatureTable | None) -> NodeIds:
    """Ids of the edges and of the feature rows together."""
    if table is None:
        return NodeIds.from_values(*ends)
    if table.ids is not None:
        return NodeIds.from_values(*ends, table.ids)
    table.require_row_numbers(NodeIds.from_values(*ends))
    return NodeIds.range(len(table))


def _warn_of_decimals(path: Path, node_ids: NodeIds) -> None:
    """Programs write a column of integers with gaps as floats, and the other column as it was."""
    if node_ids.are_integers:
        return
    ids = node_ids.decode(np.arange(len(node_ids)))
    decimal = ids.filter(pc.match_substring_regex(ids, r"^-?[0-9]+\.0+$"))
    whole = pc.replace_substring_regex(decimal, r"\.0+$", "")
    both = np.flatnonzero(node_ids.lookup(whole) >= 0)
    if both.size:
        first = int(both[0])
        warnings.warn(
            f"{path} has ids that differ in '.0' alone and are different nodes, {both.size} times, such as "
            f"{whole[first].as_py()!r} and {decimal[first].as_py()!r}: were integers written as floats?",
            LinkcalWarning,
            stacklevel=3,
        )


def _raise_unknown(
    path: Path,
    columns: tuple[str, ...],
    node_ids: NodeIds,
    first_row: int,
    batch: list[Any],
    rest: Iterator[list[Any]],
) -> NoReturn:
    """Raise with the first five unknown nodes of the file, reading on as far as needed to find them."""
    unknown: list[str] = []
    while True:
        index = np.stack([node_ids.lookup(column) for column in batch])
        refuse_missing_ids(path, "pairs", columns, [IdColumn.parse(c) for c in batch], first_row)
        for row in np.flatnonzero((index < 0).any(axis=0)).tolist():
            place = place_of(path, first_row + row)
            unknown += [f"{batch[i][row].as_py()!r} in {place}" for i in (0, 1) if index[i, row] < 0]
            if len(unknown) >= 5:
                break
        first_row += index.shape[1]
        following = next(rest, None) if len(unknown) < 5 else None
        if following is None:
            break
        batch = following
    raise InputError(
        f"pairs must name nodes of the graph ({len(node_ids)} nodes), got unknown ones in {path}: "
        f"{', '.join(unknown[:5])}"
    )
