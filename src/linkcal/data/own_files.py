"""Edges, features and pairs from a user's own text, Parquet, npz, MatrixMarket and GraphML files.

Ids in CSV files are read as text: type inference would turn "007" into 7 in some files only.
"""

from __future__ import annotations

import contextlib
import csv
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.cells import FORMULA, has_cells
from linkcal._core.files import damage_named, listed, one_line, read_arrays
from linkcal._core.validation import check_choice, check_positive_int, count_not_finite
from linkcal.data._graph_files import EdgeList, read_graphml, read_matrix
from linkcal.data._text import (
    DEFAULT_COLUMNS,
    TextFile,
    TextOptions,
    header_names,
    missing_columns,
    node_columns,
    zip_member,
)
from linkcal.data.graph import Graph, bipartite_features
from linkcal.data.node_ids import BipartiteIds, NodeIds, is_id_type, is_missing, look_alikes, parse_ids, spelt
from linkcal.data.split import LinkPairs
from linkcal.exceptions import InputError, LinkcalWarning

_PathLike = str | os.PathLike[str]
FloatArray = NDArray[np.float32]

#: File endings by format. Text and graphs may be packed, which a further ending says.
_FORMATS = {
    "csv": "csv", "tsv": "csv", "inter": "csv", "txt": "csv", "edges": "csv", "edgelist": "csv",
    "parquet": "parquet", "pq": "parquet", "npz": "npz", "npy": "npy", "mtx": "mtx", "graphml": "graphml",
}  # fmt: skip
_PACKINGS = (".gz", ".bz2", ".zip")
_DELIMITERS = {"csv": ",", "tsv": "\t", "inter": "\t"}
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
        Their ids as they stand in the file; the number of pairs before them.
    skipped : int
        Rows of unknown nodes that were left out since the chunk before.
    """

    edge_label_index: Tensor
    source: Any
    target: Any
    first_row: int
    skipped: int = 0

    def __len__(self) -> int:
        return self.edge_label_index.size(1)


def read_edges(
    path: _PathLike,
    *,
    features: _PathLike | None = None,
    source: str = "source",
    target: str = "target",
    directed: bool = False,
    delimiter: str | None = None,
    header: bool = True,
    comment: str | None = None,
    raw_ids: bool = False,
    bipartite: bool | None = None,
    target_features: _PathLike | None = None,
    weight: str | None = None,
    time: str | None = None,
) -> NamedGraph:
    r"""Read a graph from an edge list and, optionally, node features; InputError names what is wrong.

    Parameters
    ----------
    path : path
        Text (``.csv``, ``.tsv``, ``.txt``, ``.edges``, ``.edgelist``), ``.parquet`` or ``.npz`` (1-D arrays)
        with columns named `source` and `target`; others are ignored (with
        a warning if named as weights are). Also MatrixMarket (``.mtx``, ids are row
        numbers from 1) and ``.graphml``. Text and graphs may end in ``.gz``, ``.bz2`` or ``.zip``. Files of
        SNAP, KONECT and STRING are recognised. Ids are strings or integers (:class:`NodeIds`). Self-loops and
        repeated edges are dropped and counted.
    features : path, optional
        As for :func:`read_features`. A node that stands only there is an isolated node.
    source, target, directed : str and bool
        Names of the columns; whether (u, v) and (v, u) are different links.
    delimiter, header, comment : str, optional, bool and str, optional
        Of a text file: the character between columns (``" "``: any blanks and tabs), by default the one that
        gives the header both columns; whether there is a header, else columns are named "1", "2", ... and
        hold the nodes first; the start of lines to skip, by default the lines at the top that start with
        ``#`` or ``%`` and a blank (``""``: none).
    raw_ids : bool
        Ids of a file that linkcal wrote are read as they stand there (written with ``--raw-ids``).
    bipartite : bool, optional
        Whether the two columns name nodes of two types, such as users and items; an id that stands in both is
        two nodes then. None refuses a list of ten or more edges whose columns have no id in common.
    target_features : path, optional
        Features of the target nodes of a bipartite graph; `features` are those of its source nodes. A node's
        row of `x` has the columns of `features`, those of `target_features` (0 where they are of the other
        type), and 1 for a target node.
    weight : str, optional
        Name of the column with edge weights, all above 0, and equal where an edge is repeated.
    time : str, optional
        Name of the column that says when each edge was there, numbers or ISO 8601 dates (of the zone UTC
        unless they name one; seconds since 1970 in ``Graph.edge_time``). Of a repeated edge the first counts.

    Warns
    -----
    LinkcalWarning
        If ids differ only in letter case, blanks, Unicode form, invisible characters, leading zeros or
        ".0": different nodes here, but most often one. If the file says that its edges have a direction and
        `directed` is false.

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
        raise InputError("directed must be False for a bipartite graph, whose types give the order, got True")
    if (target_features is not None) != bool(bipartite and features is not None):
        raise InputError(
            "features and target_features must be given together, and for a bipartite graph alone, got "
            f"features {features}, target_features {target_features} and bipartite {bool(bipartite)}"
        )
    text = TextOptions(delimiter, header, comment)
    file = _File(path, "edges", ("csv", "parquet", "npz", "mtx", "graphml"), (source, target), text, raw_ids)
    batches, nodes = _edge_batches(file)
    _check_direction(file, directed)
    if bipartite and file.kind in ("mtx", "graphml"):
        raise InputError(f"bipartite graphs must be read from a table of two columns, got {path}")
    ends = _joined(file, batches)
    if file.kind == "csv":
        _refuse_rows_of_no_edge(file, *ends)
    coded = [end.dictionary_encode() for end in ends]  # each distinct text is looked up once
    name = file.path.name.split(".")[0]
    values: dict[str, Any] = {
        "edge_weight": None if weight is None else file.numbers(weight),
        "edge_time": None if time is None else file.times(time),
    }
    if weight is None:
        _warn_of_weights(file, file.columns)
    x: Tensor | None
    ids: NodeIds | BipartiteIds
    if bipartite:
        first, source_x = _nodes(file, [coded[0].dictionary], features)
        second, target_x = _nodes(file, [coded[1].dictionary], target_features)
        ids = BipartiteIds(first, second)
        values["node_type"] = torch.arange(len(ids)) >= len(first)
        x = None if source_x is None or target_x is None else bipartite_features(source_x, target_x)
    else:
        ids, x = _nodes(file, [*(end.dictionary for end in coded), *nodes], features)
    index = ids.lookup_pairs(*coded)
    if bipartite is None and index.shape[1] >= _FEW_EDGES and not np.isin(*index).any():
        sizes = [len(end.dictionary) for end in coded]
        raise InputError(
            "bipartite must be given (--bipartite or --no-bipartite) for edges whose columns have no id in "
            f"common, got {sizes[0]} ids and {sizes[1]} others in {path}: of two types, such as users and "
            "items, only pairs of both may be negatives"
        )
    return NamedGraph(Graph.from_edges(index, len(ids), x=x, directed=directed, name=name, **values), ids)


def read_features(path: _PathLike, node_ids: NodeIds) -> Tensor:
    r"""Read one row of features for each known node; row i of the result belongs to index i.

    InputError if rows and nodes do not match one to one, or a value is missing, not finite or no number.

    Parameters
    ----------
    path : path
        Text (endings as in :func:`read_edges`; its header shows the delimiter) or ``.parquet``: the node id
        in the first column, numbers in the others (in Parquet also true and false), rows in any order.
        ``.npy`` (2-D), ``.npz`` (``x``, or the only array): row i belongs to the node with id i of
        ``0 .. N-1``, or to the i-th id of an array ``id``.
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
    delimiter: str | None = None,
    header: bool = True,
    comment: str | None = None,
    raw_ids: bool = False,
    unknown: str = "error",
) -> Iterator[PairChunk]:
    r"""Read query pairs in the file's order, without holding the whole file in memory.

    InputError if an id is unknown or missing, or a node is paired with itself: raised when the first such row
    is reached, so move an output file to its place only at the end. With ``unknown="skip"`` rows of unknown
    nodes are left out, and counted.

    Parameters
    ----------
    path, source, target, delimiter, header, comment, raw_ids
        As in :func:`read_edges` (an npz file is read at once), without files of graphs.
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
    skip = check_choice(unknown, "unknown", ("error", "skip")) == "skip"
    text, first_row, pairs_before = TextOptions(delimiter, header, comment), 0, 0
    file = _File(path, "pairs", ("csv", "parquet", "npz"), (source, target), text, raw_ids)
    batches = file.batches()
    for batch in batches:
        index = node_ids.lookup_pairs(*batch)
        known, rows = (index >= 0).all(axis=0), index.shape[1]
        if not known.all():
            file.refuse_missing_ids([parse_ids(column) for column in batch], file.columns, first_row)
        if not (known.all() or skip):
            row, end = np.argwhere(index.T < 0)[0].tolist()
            rest = sum(int((node_ids.lookup_pairs(*other) < 0).sum()) for other in batches)
            value = batch[end][row]
            raise InputError(
                f"pairs must name nodes of the graph ({len(node_ids)} nodes), got {(index < 0).sum() + rest} "
                f"unknown ids in {path}, the first {_shown(value)} in {file.place(first_row + row)}"
                f"{node_ids.hint(end, value)}"
            )
        same = np.flatnonzero((index[0] == index[1]) & known).tolist()
        if same:
            raise InputError(
                f"pairs must join two different nodes, got {_shown(batch[0][same[0]])} with itself in "
                f"{file.place(first_row + same[0])} of {path}"
            )
        index, batch = index[:, known], [column.filter(pa.array(known)) for column in batch]
        for start in range(0, max(index.shape[1], int(rows > 0)), chunk_size):
            some, skipped = slice(start, start + chunk_size), 0 if start else rows - index.shape[1]
            pairs = torch.from_numpy(index[:, some].copy())
            yield PairChunk(pairs, batch[0][some], batch[1][some], pairs_before + start, skipped)
        first_row, pairs_before = first_row + rows, pairs_before + index.shape[1]


def read_labelled_pairs(
    path: _PathLike,
    node_ids: NodeIds | BipartiteIds,
    *,
    label: str = "label",
    optional: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    r"""Read pairs of a fitted graph and whether they are links.

    Parameters
    ----------
    path, node_ids, **options
        As in :func:`read_pairs`, without `unknown`.
    label : str
        Name of the column of 1 (link) and 0 (negative).
    optional : bool
        Whether a file without that column is read too.

    Returns
    -------
    pairs, labels : Tensor [2, L] and Tensor [L], or None without the column

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "new.csv")
    ...     _ = path.write_text("source,target,label\n0,1,1\n2,0,0\n")
    ...     read_labelled_pairs(path, NodeIds.range(3))
    (tensor([[0, 2],
            [1, 0]]), tensor([1., 0.]))
    """
    chunks = [chunk.edge_label_index for chunk in read_pairs(path, node_ids, **options, unknown="error")]
    columns = options.get("source", "source"), options.get("target", "target")
    text = TextOptions(options.get("delimiter"), options.get("header", True), options.get("comment"))
    file = _File(path, "pairs", ("csv", "parquet", "npz"), columns, text, options.get("raw_ids", False))
    if not chunks:
        raise InputError(f"pairs must have at least one row, got none in {path}")
    pairs = torch.cat(chunks, dim=1)
    return pairs, None if optional and label not in file.names() else _labels(file, label)


def _labels(file: _File, column: str) -> Tensor:
    """A column of 1 and 0 [rows], float32."""
    values = file.numbers(column)
    wrong = torch.nonzero((values != 0) & (values != 1)).flatten().tolist()
    if wrong:
        raise InputError(
            f"column {_shown(column)} of {file.path} must hold 1 (link) or 0 (negative), got {len(wrong)} "
            f"others, the first {values[wrong[0]]:g} in {file.place(wrong[0])}"
        )
    return values.float()


def read_split(
    edges: _PathLike, parts: Mapping[str, _PathLike], *, label: str = "label", **options: Any
) -> tuple[NamedGraph, dict[str, LinkPairs]]:
    r"""Read message-passing edges and labelled pairs, which need not be a split: see :func:`audit_pairs`.

    Parameters
    ----------
    edges : path
        As in :func:`read_edges`.
    parts : mapping of str to path
        ``train``, ``val`` and ``test``, or some of them: text, Parquet or npz with the same columns of nodes
        as `edges`, and labels.
    label : str
        Name of the column of 1 (link) and 0 (negative).
    **options
        `source`, `target`, `directed`, `bipartite`, `delimiter`, `header`, `comment` and `raw_ids` of
        :func:`read_edges`, for all files.

    Returns
    -------
    NamedGraph and dict of str to LinkPairs
        The graph has the nodes of all files; a node that stands in pairs alone is isolated.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     edges, pairs = Path(folder, "edges.csv"), Path(folder, "test.csv")
    ...     _ = edges.write_text("source,target\nbob,alice\nalice,carol\n")
    ...     _ = pairs.write_text("source,target,label\nbob,carol,1\ndave,bob,0\n")
    ...     named, parts = read_split(edges, {"test": pairs})
    >>> named.graph.num_nodes, parts["test"].edge_label_index.tolist(), parts["test"].edge_label.tolist()
    (4, [[1, 3], [2, 1]], [1.0, 0.0])
    """
    if not parts:
        raise InputError("parts must name train, val or test pairs (--train, --val, --test), got none")
    named = read_edges(edges, **options)
    columns = options.get("source", "source"), options.get("target", "target")
    text = TextOptions(options.get("delimiter"), options.get("header", True), options.get("comment"))
    read, raw_ids = {}, options.get("raw_ids", False)
    for name, path in parts.items():
        file = _File(path, f"{name} pairs", ("csv", "parquet", "npz"), columns, text, raw_ids)
        read[name] = _joined(file, list(file.batches())), _labels(file, label)
    old, graph = named.node_ids, named.graph
    sides = list(zip(*(ends for ends, _ in read.values()), strict=True))
    ids: NodeIds | BipartiteIds
    if isinstance(old, BipartiteIds):
        ids = BipartiteIds(*(
            NodeIds.from_values(side.decode(np.arange(len(side))), *more)
            for side, more in zip((old.source, old.target), sides, strict=True)
        ))  # fmt: skip
        node_type = torch.arange(len(ids)) >= len(ids.source)
    else:
        ids = NodeIds.from_values(old.decode(np.arange(len(old))), *sides[0], *sides[1])
        node_type = None
    index = ids.lookup_pairs(*old.decode_pairs(graph.pairs.numpy()))
    graph = Graph.from_edges(index, len(ids), directed=graph.directed, name=graph.name, node_type=node_type)
    found = {k: LinkPairs(torch.from_numpy(ids.lookup_pairs(*ends)), y) for k, (ends, y) in read.items()}
    return NamedGraph(graph, ids), found


def _joined(file: _File, batches: list[list[Any]]) -> list[Any]:
    """Both columns of a table as parsed ids; refused if there is none, or one is missing."""
    if not batches:
        raise InputError(f"{file.name} must have at least one row, got none in {file.path}")
    ends = [parse_ids(pa.chunked_array(list(chunks))) for chunks in zip(*batches, strict=True)]
    file.refuse_missing_ids(ends, file.columns)
    return ends


def _nodes(file: _File, columns: list[Any], features: _PathLike | None) -> tuple[NodeIds, Tensor | None]:
    """Ids of the columns and of the rows of a file of features, and these rows in the order of the ids."""
    rows = None if features is None else _feature_rows(features)
    node_ids = NodeIds.from_values(*columns, *([] if rows is None else [rows[1]]))
    _check_ids(file, node_ids)
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


def _edge_batches(file: _File) -> tuple[list[list[Any]], list[Any]]:
    """Batches of both columns, and the nodes that the file lists beside them."""
    if file.kind not in ("mtx", "graphml"):
        return list(file.batches()), []
    with damage_named(file.path, file.name, file.valid):
        edges: EdgeList = read_matrix(file.path, file.name) if file.kind == "mtx" else read_graphml(file.path)
        file.directed = edges.directed
        batch = [pa.array(edges.source), pa.array(edges.target)]
    return [batch] * (len(batch[0]) > 0), [edges.nodes]


def _check_direction(file: _File, directed: bool) -> None:
    """Compare what is asked with what the file says of itself."""
    if file.directed is False and directed:
        raise InputError(
            f"{file.name} must have a direction with directed (--directed), got an undirected network by the "
            f"header of {file.path}"
        )
    if file.directed and not directed:
        warnings.warn(
            f"{file.path} says that its edges have a direction, which is dropped: (u, v) and (v, u) are one "
            "link without directed (--directed)",
            LinkcalWarning,
            stacklevel=3,
        )


def _refuse_rows_of_no_edge(file: _File, source: Any, target: Any) -> None:
    """Refuse a header or a comment among the rows, whose words would be nodes."""
    if not pa.types.is_string(source.type):
        return
    wrong = []
    if file.text.options.comment is None:
        help_ = "pass --comment (comment=...), '' if it is an id"
        wrong.append(("a comment", help_, pc.match_substring_regex(source, r"^([#%]+|//)(\s|$)")))
    for u, v in header_names(file.columns) if pa.types.is_string(target.type) else ():
        wrong.append(("a header", "remove it", pc.and_(pc.equal(source, u), pc.equal(target, v))))
    for what, help_, found in wrong:
        rows = np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist()
        if rows:
            raise InputError(
                f"{file.name} must have an edge in every row, got what looks like {what} in "
                f"{file.place(rows[0])} of {file.path}; {help_}"
            )


def _check_ids(file: _File, node_ids: NodeIds) -> None:
    """Refuse ids with a NUL or a byte order mark, and warn of ids that a reader takes for the same."""
    if node_ids.are_integers:
        return
    ids = node_ids.decode(np.arange(len(node_ids)))
    strange = ids.filter(pc.match_substring_regex(ids, r"[\x00\x{FEFF}]"))
    if len(strange):
        shown = f"{_shown(strange[0])} in {file.path}"
        raise InputError(f"node ids must have no NUL or byte order mark, got {shown}")
    twins = look_alikes(ids)
    if len(twins):
        first, second = (spelt(ids[int(i)]) for i in twins[0])
        warnings.warn(
            f"{file.path} has ids that differ only in case, blanks, quotes, invisible characters, Unicode "
            f"form, leading zeros or '.0' and are different nodes, {len(twins)} times, such as {first} and "
            f"{second}",
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
        if file.kind == "csv":
            header = file.text.header()
            table = file.read_csv(dict.fromkeys(header, pa.float32()) | {header[0]: pa.string()})
        else:
            table = _read_parquet(file)
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


def _read_parquet(file: _File) -> Any:
    """The table without pandas' nameless row index; a named one most likely holds the ids and is refused."""
    table = pq.read_table(file.path)
    table.validate(full=True)  # damaged bytes need not be UTF-8
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
        came = f"{ids.dtype} {ids.shape} in {file.path}"
        raise InputError(f"array 'id' must hold one string or integer per row, {len(x)}, got {came}")
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
    """A user's table: its path, its name in messages, its format by the ending, its `columns` of nodes."""

    text: TextFile

    def __init__(
        self,
        path: _PathLike,
        name: str,
        formats: tuple[str, ...],
        columns: tuple[str, str] | None = None,
        text: TextOptions | None = None,
        raw_ids: bool = False,
    ) -> None:
        self.path, self.name, self.raw_ids = Path(path), name, raw_ids
        if not self.path.is_file():
            raise InputError(f"{name} must be an existing file, got {os.fspath(path)!r}")
        inner, packing = self.path, self.path.suffix.lower()
        if packing in _PACKINGS:
            with damage_named(self.path, name, "a zip archive"):
                inner = Path(zip_member(self.path)) if packing == ".zip" else self.path.with_suffix("")
        ending = inner.suffix.lower().removeprefix(".")
        # KONECT's files are named out.NETWORK.
        self.kind = _FORMATS.get(ending, "csv" if inner.name.startswith("out.") else "")
        if self.kind not in formats or (inner != self.path and self.kind not in ("csv", "mtx", "graphml")):
            known = ", ".join(f".{ending}" for ending, kind in _FORMATS.items() if kind in formats)
            raise InputError(
                f"{name} must be a file that ends in {known} (text also .gz, .bz2, .zip), got "
                f"{os.fspath(path)!r}"
            )
        self.valid, self.directed = f"a valid {self.kind} file", None
        if columns is not None and columns[0] == columns[1]:
            raise InputError(f"{name} must have nodes in two different columns, got {columns[0]!r} for both")
        self.columns = columns or DEFAULT_COLUMNS
        if self.kind == "csv":
            self.text = TextFile(self.path, name, _DELIMITERS.get(ending), columns, text)
            self.directed = self.text.directed

    def batches(self) -> Iterator[list[Any]]:
        """Batches of the two columns, each a pyarrow array of strings or integers; none is empty."""
        read = {"csv": self._csv_batches, "parquet": self._parquet_batches, "npz": self._npz_batches}
        with damage_named(self.path, self.name, self.valid):
            yield from (batch for batch in read[self.kind]() if len(batch[0]))

    def names(self) -> list[str]:
        """Names of the columns, or of the arrays."""
        if self.kind == "npz":
            with damage_named(self.path, self.name, self.valid), np.load(self.path) as arrays:
                return list(arrays.files)
        if self.kind == "parquet":
            with damage_named(self.path, self.name, self.valid):
                return list(pq.read_schema(self.path).names)
        return [entry.strip() for entry in self.text.header()] if self.kind == "csv" else []

    def numbers(self, column: str) -> Tensor:
        """A column of numbers [rows], float64; what is missing becomes NaN."""
        with damage_named(self.path, self.name, self.valid):
            values = self._column(column, "fiu", pa.float64()).cast(pa.float64()).to_numpy()
        return torch.from_numpy(np.array(values, dtype=np.float64))

    def times(self, column: str) -> Tensor:
        """A column of times [rows], float64: numbers, or dates as seconds since 1970."""
        with damage_named(self.path, self.name, self.valid):
            given = self._column(column, "fiuUM", pa.string()).to_pandas()
        values = given if given.dtype.kind in "fiuM" else pd.to_numeric(given, errors="coerce")
        if values.dtype.kind == "M" or not values.notna().any():
            dates = pd.to_datetime(given, format="ISO8601", utc=True, errors="coerce")
            values = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
        wrong = np.flatnonzero(~np.isfinite(values.to_numpy(np.float64)))
        if len(wrong):
            raise InputError(
                f"column {column!r} of {self.path} must hold numbers or ISO 8601 dates, one kind in all "
                f"rows, got {len(wrong)} that are not, the first {_shown(given[int(wrong[0])])} in "
                f"{self.place(int(wrong[0]))}"
            )
        return torch.from_numpy(values.to_numpy(np.float64, copy=True))

    def _column(self, column: str, kinds: str, read_as: Any) -> Any:
        """A named column, a pyarrow array: of an npz file of NumPy `kinds`, of text `read_as`."""
        names = self.names()
        if self.kind in ("mtx", "graphml"):
            what = f"{column!r} of {self.path}: give the edges as a table of columns"
            raise InputError(
                f"{self.name} of a {self.kind} file must be read without further columns, got {what}"
            )
        if names.count(column) != 1:
            where = f"{listed(names)} in {self.path}"
            raise InputError(f"{self.name} must have the column {column!r} once, got {where}")
        if self.kind == "npz":
            return pa.array(read_arrays(self.path, self.name, {column: (kinds, 1)})[column])
        if self.kind == "parquet":
            return pq.read_table(self.path, columns=[column]).column(0)
        header = self.text.header()[names.index(column)]
        return self.read_csv({header: read_as}, include_columns=[header]).column(0)

    def read_csv(self, types: Mapping[str, Any], **options: Any) -> Any:
        """A text file as a table with pyarrow `types` by column."""
        convert = pacsv.ConvertOptions(column_types=types, **options)
        with self.text.open() as stream:
            return pacsv.read_csv(
                stream, pacsv.ReadOptions(column_names=self.text.names), self.parse_options(), convert
            )

    def _csv_batches(self) -> Iterator[list[Any]]:
        header = self.text.header()
        wanted = self._find_columns(header)
        names = [entry.strip() for entry in header]
        ours = has_cells(names) and not self.raw_ids
        types = dict.fromkeys(wanted, pa.string())
        options = pacsv.ConvertOptions(include_columns=wanted, column_types=types)
        blocks = pacsv.ReadOptions(block_size=_BLOCK, column_names=self.text.names)
        with self.text.open() as stream:
            try:
                for batch in pacsv.open_csv(stream, blocks, self.parse_options(), options):
                    # Without the apostrophe of `to_cell`.
                    plain = partial(pc.replace_substring_regex, pattern=f"^'('*{FORMULA})", replacement=r"\1")
                    yield list(map(plain, batch.columns) if ours else batch.columns)
            except pa.ArrowInvalid as error:
                raise InputError(
                    f"{self.name} must be {self.valid}, got {self.path}: {one_line(error)}; the delimiter is "
                    f"{self.text.delimiter!r} (--delimiter), and comments within are rows (--comment)"
                ) from error

    def _parquet_batches(self) -> Iterator[list[Any]]:
        with pq.ParquetFile(self.path) as file:
            wanted = self._find_columns(file.schema_arrow.names)
            for column in wanted:
                self.check_id_type(file.schema_arrow.field(column))
            for batch in file.iter_batches(columns=wanted):
                batch.validate(full=True)  # damaged bytes need not be UTF-8
                yield [batch.column(column) for column in wanted]

    def _npz_batches(self) -> Iterator[list[Any]]:
        columns = self.columns
        arrays = read_arrays(self.path, self.name, dict.fromkeys(columns, ("iuU", 1)))
        first, second = (arrays[column] for column in columns)
        if len(first) != len(second):
            lengths = f"{columns[0]} {len(first)}, {columns[1]} {len(second)}"
            raise InputError(f"arrays of {self.path} must have equal lengths, got {lengths}")
        yield [pa.array(first), pa.array(second)]

    def _find_columns(self, header: list[str]) -> list[str]:
        """The columns as they are written in `header`, where blanks may surround them."""
        names = [entry.strip() for entry in header]
        numbered = self.kind == "csv" and not self.text.options.header and self.columns == DEFAULT_COLUMNS
        found = node_columns(names, self.columns) or (("1", "2") if numbered else None)
        if found is None:
            hint = "; name the columns with --source and --target"
            raise missing_columns(self.name, names, self.columns, self.path, hint)
        self.columns = found
        return [header[names.index(column)] for column in found]

    def check_id_type(self, field: Any) -> None:
        if not is_id_type(field.type):
            column = f"column {_shown(field.name)} of {self.path}"
            raise InputError(f"{column} must hold node ids (strings or integers), got {field.type}")

    def parse_options(self) -> pacsv.ParseOptions:
        text = self.text
        return pacsv.ParseOptions(delimiter=text.delimiter, newlines_in_values=text.quotes > 0)

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
            before = int(self.kind == "csv" and self.text.names is None)  # the header stands before row 0
            lines = self.text.rows(errors="replace") if self.kind == "csv" else iter(())
            for line, _ in islice(lines, row + before, None):
                return f"line {line}"
        return f"row {row}"


def _shown(value: Any) -> str:
    """A value of a file for a message."""
    return one_line(repr(value.as_py() if isinstance(value, pa.Scalar) else value))
