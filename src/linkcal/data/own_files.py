"""Edges, features and pairs from a user's own CSV, Parquet and npz files.

Ids in CSV files are read as text: type inference would turn "007" into 7 in some files only.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.files import damage_named, one_line, read_arrays
from linkcal._core.validation import check_positive_int, count_not_finite
from linkcal.data.graph import Graph, bipartite_features
from linkcal.data.node_ids import BipartiteIds, NodeIds, is_id_type, is_missing, parse_ids
from linkcal.exceptions import InputError, LinkcalWarning

_PathLike = str | os.PathLike[str]
FloatArray = NDArray[np.float32]

#: File endings by format; a ".gz" after a text format is decompressed.
_FORMATS = {"csv": "csv", "tsv": "csv", "parquet": "parquet", "pq": "parquet", "npz": "npz", "npy": "npy"}
#: Bytes of a CSV file that are parsed at a time; bounds the memory of streaming.
_BLOCK = 8 << 20
#: Fewer edges may have no node in both columns by chance, and cannot be split.
_FEW_EDGES = 10
#: Start of the names that pandas gives an index without one.
_NAMELESS = "__index_level_"
#: Names of columns that most likely hold edge weights.
_LIKE_WEIGHT = ("weight", "weights", "edge_weight", "score", "combined_score", "rating", "strength")
#: Names of an array of ids that should have been named "id"; without it rows would be matched in order.
_LIKE_ID = ("ids", "node", "nodes", "node_id", "node_ids")


@dataclass(frozen=True, eq=False)
class NamedGraph:
    """A graph and the ids of its N nodes in the user's files: index i is the i-th of `node_ids`.

    A bipartite graph's source and target nodes have ids of their own.

    Parameters
    ----------
    graph : Graph
    node_ids : NodeIds or BipartiteIds

    Examples
    --------
    >>> NamedGraph(Graph.from_edges(torch.tensor([[0], [1]]), 2), NodeIds.range(2)).graph.num_pairs
    1
    """

    graph: Graph
    node_ids: NodeIds | BipartiteIds


@dataclass(frozen=True, eq=False)
class PairChunk:
    """Consecutive pairs of a file in its order.

    Parameters
    ----------
    edge_label_index : Tensor [2, l], int64
    source, target, first_row : pyarrow.Array (l,), pyarrow.Array (l,) and int
        Their ids as they stand in the file; the number of rows before them.

    Examples
    --------
    >>> len(PairChunk(torch.tensor([[0], [1]]), pa.array(["alice"]), pa.array(["bob"]), first_row=0))
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
    bipartite: bool | None = None,
    target_features: _PathLike | None = None,
    weight: str | None = None,
) -> NamedGraph:
    r"""Read a graph from an edge list and, optionally, node features; InputError names what is wrong.

    Parameters
    ----------
    path : path
        ``.csv``, ``.tsv`` (also ``.gz``), ``.parquet`` or ``.npz`` (1-D arrays) with columns named `source`
        and `target`; others are ignored (with a warning if named as weights are). Ids are strings or integers
        (:class:`NodeIds`). Self-loops and repeated edges are dropped and counted.
    features : path, optional
        As for :func:`read_features`. A node that stands only there is an isolated node.
    source, target, directed : str and bool
        Names of the columns; whether (u, v) and (v, u) are different links.
    bipartite : bool, optional
        Whether the two columns name nodes of two types, such as users and items; an id that stands in both is
        two nodes then. None refuses a list of ten or more edges whose columns have no id in common.
    target_features : path, optional
        Features of the target nodes of a bipartite graph; `features` are those of its source nodes. A node's
        row of `x` has the columns of `features`, those of `target_features` (0 where they are of the other
        type), and 1 for a target node.
    weight : str, optional
        Name of the column with edge weights, all above 0, and equal where an edge is repeated.

    Returns
    -------
    NamedGraph

    Warns
    -----
    LinkcalWarning
        If both "7" and "7.0" are ids: two nodes here, but most often one that a program wrote as a float.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "edges.csv")
    ...     _ = path.write_text("source,target\nbob,alice\nalice,carol\n")
    ...     read_edges(path).graph.pairs.tolist()
    [[0, 0], [1, 2]]
    """
    if bipartite and directed:
        raise InputError(
            "directed must be False for a bipartite graph, whose pairs are ordered by their types, got True"
        )
    if (target_features is not None) != bool(bipartite and features is not None):
        raise InputError(
            "features and target_features must be given together, and for a bipartite graph alone, got "
            f"features {features}, target_features {target_features} and bipartite {bool(bipartite)}"
        )
    file, columns = _File(path, "edges", ("csv", "parquet", "npz")), (source, target)
    batches = list(file.batches(columns))
    if not batches:
        raise InputError(f"edges must have at least one row, got none in {path}")
    ends = [parse_ids(pa.chunked_array(list(chunks))) for chunks in zip(*batches, strict=True)]
    file.refuse_missing_ids(ends, columns)
    coded = [end.dictionary_encode() for end in ends]  # each distinct text is looked up once
    name = file.path.name.split(".")[0]
    weights = None if weight is None else file.numbers(weight)
    if weight is None:
        _warn_of_weights(file, columns)
    if bipartite:
        sides = [_side(file, end, rows) for end, rows in zip(coded, (features, target_features), strict=True)]
        (first, source_x), (second, target_x) = sides
        ids = BipartiteIds(first, second)
        near, far = (
            side.lookup(end.dictionary)[end.indices] for side, end in zip((first, second), coded, strict=True)
        )
        index = np.stack([near, far + len(first)])
        node_type = torch.arange(len(ids)) >= len(first)
        x = None
        if source_x is not None and target_x is not None:
            x = bipartite_features(source_x, target_x)
        graph = Graph.from_edges(index, len(ids), x=x, name=name, node_type=node_type, edge_weight=weights)
        return NamedGraph(graph, ids)
    rows = None if features is None else _feature_rows(features)
    node_ids = NodeIds.from_values(*(end.dictionary for end in coded), *([] if rows is None else [rows[1]]))
    _warn_of_decimals(file, node_ids)
    lookup = [node_ids.lookup(end.dictionary) for end in coded]
    index = np.stack([place[end.indices] for place, end in zip(lookup, coded, strict=True)])
    if bipartite is None and index.shape[1] >= _FEW_EDGES and not np.isin(lookup[0], lookup[1]).any():
        raise InputError(
            "bipartite must be given (--bipartite or --no-bipartite) for edges whose columns have no id in "
            f"common, got {len(lookup[0])} ids and {len(lookup[1])} others in {path}: of two types, such as "
            "users and items, only pairs of both may be negatives"
        )
    x = None if rows is None else _aligned(*rows, node_ids)
    rest: dict[str, Any] = {"x": x, "directed": directed, "name": name, "edge_weight": weights}
    return NamedGraph(Graph.from_edges(index, len(node_ids), **rest), node_ids)


def read_features(path: _PathLike, node_ids: NodeIds) -> Tensor:
    r"""Read one row of features for each known node; row i of the result belongs to index i.

    InputError if rows and nodes do not match one to one, or a value is missing, not finite or no number.

    Parameters
    ----------
    path : path
        ``.csv``, ``.tsv`` (also ``.gz``), ``.parquet``: the node id in the first column, numbers in the
        others (in Parquet also true and false), rows in any order. ``.npy`` (2-D), ``.npz`` (``x``, or the
        only array): row i belongs to the node with id i of ``0 .. N-1``, or to the i-th id of an array
        ``id``.
    node_ids : NodeIds

    Returns
    -------
    Tensor [N, F], float32

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "x.csv")
    ...     _ = path.write_text("node,age\n1,30\n0,25\n")
    ...     read_features(path, NodeIds.range(2)).tolist()
    [[25.0], [30.0]]
    """
    return _aligned(*_feature_rows(path), node_ids)


def read_pairs(
    path: _PathLike,
    node_ids: NodeIds | BipartiteIds,
    *,
    source: str = "source",
    target: str = "target",
    chunk_size: int = 100_000,
) -> Iterator[PairChunk]:
    r"""Read query pairs in the file's order, without holding the whole file in memory.

    InputError if an id is unknown or missing, or a node is paired with itself: raised when the first such row
    is reached, so move an output file to its place only at the end.

    Parameters
    ----------
    path, source, target
        As in :func:`read_edges` (an npz file is read at once).
    node_ids, chunk_size : NodeIds or BipartiteIds, and int
        Of the graph that the pairs are scored on; largest number of pairs in a chunk.

    Yields
    ------
    PairChunk

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
    file, columns, first_row = _File(path, "pairs", ("csv", "parquet", "npz")), (source, target), 0
    batches = file.batches(columns)
    for batch in batches:
        index = node_ids.lookup_pairs(*batch)
        if (index < 0).any():
            file.refuse_missing_ids([parse_ids(column) for column in batch], columns, first_row)
            row, end = np.argwhere(index.T < 0)[0].tolist()
            rest = sum(int((node_ids.lookup_pairs(*other) < 0).sum()) for other in batches)
            hint = node_ids.hint(end, batch[end][row]) if isinstance(node_ids, BipartiteIds) else ""
            raise InputError(
                f"pairs must name nodes of the graph ({len(node_ids)} nodes), got {(index < 0).sum() + rest} "
                f"unknown ids in {path}, the first {_shown(batch[end][row])} in {file.place(first_row + row)}"
                f"{hint}"
            )
        same = np.flatnonzero(index[0] == index[1]).tolist()
        if same:
            raise InputError(
                f"pairs must join two different nodes, got {_shown(batch[0][same[0]])} with itself in "
                f"{file.place(first_row + same[0])} of {path}"
            )
        for start in range(0, index.shape[1], chunk_size):
            some = slice(start, start + chunk_size)
            pairs = torch.from_numpy(index[:, some].copy())
            yield PairChunk(pairs, batch[0][some], batch[1][some], first_row + start)
        first_row += index.shape[1]


def _side(file: _File, coded: Any, features: _PathLike | None) -> tuple[NodeIds, Tensor | None]:
    """Ids and features of one type of nodes of a bipartite graph."""
    rows = None if features is None else _feature_rows(features)
    node_ids = NodeIds.from_values(coded.dictionary, *([] if rows is None else [rows[1]]))
    _warn_of_decimals(file, node_ids)
    return node_ids, None if rows is None else _aligned(*rows, node_ids)


def _warn_of_weights(file: _File, columns: tuple[str, str]) -> None:
    """Warn of a column that most likely holds weights and is not read."""
    found = [name for name in file.names() if name.lower() in _LIKE_WEIGHT and name not in columns]
    if found:
        warnings.warn(
            f"column {_shown(found[0])} of {file.path} is not read: weight={_shown(found[0])} (--weight) "
            "reads it as edge weights",
            LinkcalWarning,
            stacklevel=3,
        )


def _warn_of_decimals(file: _File, node_ids: NodeIds) -> None:
    """Programs write a column of integers with gaps as floats, and the other column as it was."""
    if node_ids.are_integers:
        return
    ids = node_ids.decode(np.arange(len(node_ids)))
    decimal = ids.filter(pc.match_substring_regex(ids, r"^-?[0-9]+\.0+$"))
    whole = pc.replace_substring_regex(decimal, r"\.0+$", "")
    both = np.flatnonzero(node_ids.lookup(whole) >= 0).tolist()
    if both:
        warnings.warn(
            f"{file.path} has ids that differ in '.0' alone and are different nodes, {len(both)} times, such "
            f"as {_shown(whole[both[0]])} and {_shown(decimal[both[0]])}: were integers written as floats?",
            LinkcalWarning,
            stacklevel=3,
        )


def _feature_rows(path: _PathLike) -> tuple[_File, Any, FloatArray]:
    """The file, the ids of its rows (their numbers where the file has none), and x (M, F)."""
    file = _File(path, "features", ("csv", "parquet", "npy", "npz"))
    ids, x = _feature_arrays(file) if file.kind in ("npy", "npz") else _feature_table(file)
    file.refuse_missing_ids([parse_ids(ids)])
    bad = ~np.isfinite(x)
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        raise InputError(
            f"features must be finite float32 numbers, got {count_not_finite(int(bad.sum()))}, the first in "
            f"{file.place(row)} of {path}"
        )
    return file, ids, x


def _feature_table(file: _File) -> tuple[Any, FloatArray]:
    """Ids and numbers of a table whose first column is the node id."""
    with damage_named(file.path, file.name, file.valid):
        table = _read_csv(file) if file.kind == "csv" else _read_parquet(file)
    if table.num_columns < 2:
        got = f"{_shown(table.column_names)} in {file.path}"
        raise InputError(f"features must have columns for the node id and at least one number, got {got}")
    file.check_id_type(table.schema.field(0))
    x = np.empty((table.num_rows, table.num_columns - 1), dtype=np.float32)
    for place, field in enumerate(list(table.schema)[1:]):
        column = table.column(place + 1)
        if pa.types.is_boolean(field.type):  # what pandas makes of categories
            column = column.cast(pa.float32())
        elif not (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
            raise InputError(
                f"column {_shown(field.name)} of {file.path} must hold numbers, got {field.type}"
            )
        # A null becomes NaN and what float32 cannot hold infinite; the caller reports both with their line.
        with np.errstate(over="ignore"):
            x[:, place] = column.to_numpy()
    return table.column(0), x


def _read_csv(file: _File) -> Any:
    header = file.header()
    types = dict.fromkeys(header, pa.float32()) | {header[0]: pa.string()}
    options = pacsv.ConvertOptions(column_types=types, strings_can_be_null=False)
    return pacsv.read_csv(file.path, parse_options=file.parse_options(), convert_options=options)


def _read_parquet(file: _File) -> Any:
    """The table without pandas' nameless row index; a named one most likely holds the ids and is refused."""
    table = pq.read_table(file.path)
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    named = [name for name in index if name in table.column_names[1:] and not name.startswith(_NAMELESS)]
    if named:
        raise InputError(
            f"features must have the node id in the first column, got the pandas index {_shown(named[0])} "
            f"after the columns of {file.path}; write df.reset_index()"
        )
    return table.drop_columns([name for name in table.column_names if name.startswith(_NAMELESS)])


def _feature_arrays(file: _File) -> tuple[Any, FloatArray]:
    arrays = read_arrays(file.path, "features")
    like_id = [key for key in arrays if key.lower() in _LIKE_ID]
    ids = arrays.pop("id", None)
    if ids is None and like_id:
        raise InputError(f"the array of node ids must be named 'id' in {file.path}, got {like_id[0]!r}")
    if "x" not in arrays and len(arrays) != 1:
        names = one_line(", ".join(sorted(arrays)))
        raise InputError(f"features must be the array 'x' or the only one of {file.path}, got {names}")
    x = arrays.get("x", next(iter(arrays.values())))
    if x.ndim != 2 or x.shape[1] == 0 or x.dtype.kind not in "fiub":
        raise InputError(f"features must be numbers of shape [N, F], got {x.dtype} {x.shape} in {file.path}")
    ids = np.arange(len(x)) if ids is None else ids
    if ids.shape != x.shape[:1] or ids.dtype.kind not in "iuU":
        raise InputError(
            f"array 'id' of {file.path} must hold one string or integer per row, {len(x)}, "
            f"got {ids.dtype} {ids.shape}"
        )
    with np.errstate(over="ignore"):
        return pa.array(ids), x.astype(np.float32)


def _aligned(file: _File, ids: Any, x: FloatArray, node_ids: NodeIds) -> Tensor:
    """Feature rows in the order of `node_ids`, [N, F]; refused unless rows and nodes match one to one."""
    index, path = node_ids.lookup(ids), file.path
    unknown = np.flatnonzero(index < 0).tolist()
    if unknown:
        raise InputError(
            f"features must have rows for nodes of the graph alone, got {len(unknown)} unknown ids in {path} "
            f"(the first column, or row numbers), the first {_shown(ids[unknown[0]])} in "
            f"{file.place(unknown[0])}"
        )
    known, rows = np.unique(index, return_index=True)
    again = np.setdiff1d(np.arange(len(index)), rows).tolist()
    if again:
        raise InputError(
            f"features must have one row per node and its id in the first column, got a second one for "
            f"{_shown(ids[again[0]])} in {file.place(again[0])} of {path}"
        )
    missing = np.setdiff1d(np.arange(len(node_ids)), known)
    if len(missing):
        raise InputError(
            f"features must have a row for each of the {len(node_ids)} nodes, got none for {len(missing)} in "
            f"{path} (ids are the first column, or row numbers), the first "
            f"{_shown(node_ids.decode(missing[:1])[0])}"
        )
    return torch.from_numpy(x[rows])


class _File:
    """A user's table: its path, its name in messages, its format by the ending."""

    def __init__(self, path: _PathLike, name: str, formats: tuple[str, ...]) -> None:
        self.path, self.name = Path(path), name
        if not self.path.is_file():
            raise InputError(f"{name} must be an existing file, got {os.fspath(path)!r}")
        gzipped = self.path.suffix == ".gz"  # Arrow does not decompress ".GZ"
        ending = (self.path.with_suffix("") if gzipped else self.path).suffix.lower().removeprefix(".")
        self.kind = _FORMATS.get(ending, "")
        if self.kind not in formats or (gzipped and self.kind != "csv"):
            known = ", ".join(f".{ending}" for ending, kind in _FORMATS.items() if kind in formats)
            raise InputError(f"{name} must be a file that ends in {known}, got {os.fspath(path)!r}")
        self._open = gzip.open if gzipped else open
        self._delimiter = "\t" if ending == "tsv" else ","
        self.valid = f"a valid {self.kind} file"

    def batches(self, columns: tuple[str, str]) -> Iterator[list[Any]]:
        """Batches of the two columns, each a pyarrow array of strings or integers; none is empty."""
        source, target = columns
        if source == target:
            raise InputError(f"{self.name} must have nodes in two different columns, got {source!r} for both")
        read = {"csv": self._csv_batches, "parquet": self._parquet_batches, "npz": self._npz_batches}
        with damage_named(self.path, self.name, self.valid):
            yield from (batch for batch in read[self.kind](columns) if len(batch[0]))

    def names(self) -> list[str]:
        """Names of the columns, or of the arrays."""
        if self.kind == "npz":
            with damage_named(self.path, self.name, self.valid), np.load(self.path) as arrays:
                return list(arrays.files)
        if self.kind == "parquet":
            with damage_named(self.path, self.name, self.valid):
                return list(pq.read_schema(self.path).names)
        return [entry.strip() for entry in self.header()]

    def numbers(self, column: str) -> Tensor:
        """A column of numbers [rows], float64; what is missing becomes NaN."""
        names = self.names()
        if names.count(column) != 1:
            raise InputError(
                f"{self.name} must have the column {column!r} once, got "
                f"{one_line(', '.join(map(repr, names)))} in {self.path}"
            )
        with damage_named(self.path, self.name, self.valid):
            if self.kind == "npz":
                values = read_arrays(self.path, self.name, {column: ("fiu", 1)})[column]
            elif self.kind == "parquet":
                values = pq.read_table(self.path, columns=[column]).column(0).cast(pa.float64()).to_numpy()
            else:
                header = self.header()[names.index(column)]
                options = pacsv.ConvertOptions(include_columns=[header], column_types={header: pa.float64()})
                table = pacsv.read_csv(self.path, parse_options=self.parse_options(), convert_options=options)
                values = table.column(0).to_numpy()
        return torch.from_numpy(np.array(values, dtype=np.float64))

    def _csv_batches(self, columns: tuple[str, str]) -> Iterator[list[Any]]:
        wanted = self._find_columns(self.header(), columns)
        options = pacsv.ConvertOptions(
            include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()), strings_can_be_null=False
        )
        blocks = pacsv.ReadOptions(block_size=_BLOCK)
        for batch in pacsv.open_csv(self.path, blocks, self.parse_options(), options):
            yield list(batch.columns)

    def _parquet_batches(self, columns: tuple[str, str]) -> Iterator[list[Any]]:
        with pq.ParquetFile(self.path) as file:
            wanted = self._find_columns(file.schema_arrow.names, columns)
            for column in wanted:
                self.check_id_type(file.schema_arrow.field(column))
            for batch in file.iter_batches(columns=wanted):
                yield [batch.column(column) for column in wanted]

    def _npz_batches(self, columns: tuple[str, str]) -> Iterator[list[Any]]:
        arrays = read_arrays(self.path, self.name, dict.fromkeys(columns, ("iuU", 1)))
        first, second = (arrays[column] for column in columns)
        if len(first) != len(second):
            lengths = f"{columns[0]} {len(first)}, {columns[1]} {len(second)}"
            raise InputError(f"arrays of {self.path} must have equal lengths, got {lengths}")
        yield [pa.array(first), pa.array(second)]

    def _find_columns(self, header: list[str], columns: tuple[str, str]) -> list[str]:
        """The columns as they are written in `header`, where blanks may surround them."""
        names = [entry.strip() for entry in header]
        if any(names.count(column) != 1 for column in columns):
            numeric = any(re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", entry) for entry in names)
            hint = "; the first line looks like data: has the file no header?" if numeric else ""
            raise InputError(
                f"{self.name} must have the columns {columns[0]!r}, {columns[1]!r}, each once, got "
                f"{one_line(', '.join(map(repr, names)))} in {self.path}{hint}"
            )
        return [header[names.index(column)] for column in columns]

    def check_id_type(self, field: Any) -> None:
        if not is_id_type(field.type):
            column = f"column {_shown(field.name)} of {self.path}"
            raise InputError(f"{column} must hold node ids (strings or integers), got {field.type}")

    def rows(self, *, errors: str = "strict", strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Rows of a text file that are not blank, each with the line that it ends in."""
        with self._open(self.path, "rt", encoding="utf-8-sig", errors=errors, newline="") as file:
            reader = csv.reader(file, delimiter=self._delimiter, strict=strict)
            yield from ((reader.line_num, row) for row in reader if row)

    def header(self) -> list[str]:
        with damage_named(self.path, self.name, "a CSV file in UTF-8"):
            for _, row in self.rows():
                return row
        raise InputError(f"{self.name} must have a header line, got the empty file {self.path}")

    def parse_options(self) -> pacsv.ParseOptions:
        """Options for Arrow, which would read an unclosed quote to the end: refused before."""
        with self._open(self.path, "rb") as raw:
            quotes = sum(block.count(b'"') for block in iter(lambda: raw.read(_BLOCK), b""))
        if quotes % 2:  # else all are closed; or a plain value has one, where it is a character like others
            last = 0
            try:
                for last, _ in self.rows(errors="replace", strict=True):  # noqa: B007
                    pass
            except csv.Error as error:
                raise InputError(
                    f'{self.name} must close every quoted value, got a quote (") that is open to the end in '
                    f"the row after line {last} of {self.path}"
                ) from error
        return pacsv.ParseOptions(delimiter=self._delimiter, newlines_in_values=quotes > 0)

    def refuse_missing_ids(self, ids: list[Any], columns: tuple[str, ...] = (), first_row: int = 0) -> None:
        """Raise if an id of the parsed columns is missing; they start at row `first_row` of the file."""
        missing = np.stack([is_missing(column) for column in ids])
        rows = np.flatnonzero(missing.any(axis=0))
        if len(rows):
            column = f" (column {columns[int(missing[:, rows[0]].argmax())]!r})" if columns else ""
            raise InputError(
                f"{self.name} must have a node id in every row, got {len(rows)} without one, the first in "
                f"{self.place(first_row + int(rows[0]))}{column} of {self.path}"
            )

    def place(self, row: int) -> str:
        """Where data row `row` (from 0) stands, for messages: the line of a text file, else the row."""
        with contextlib.suppress(csv.Error):  # one very long value
            lines = self.rows(errors="replace") if self.kind == "csv" else iter(())
            for line, _ in islice(lines, row + 1, None):  # the header stands before row 0
                return f"line {line}"
        return f"row {row}"


def _shown(value: Any) -> str:
    """A value of a file for a message."""
    return one_line(repr(value.as_py() if isinstance(value, pa.Scalar) else value))
