"""The user's own graph from files: edges, node features, and pairs to score."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from linkcal._validation import check_positive_int
from linkcal.data.feature_files import FeatureTable, read_feature_table
from linkcal.data.graph import Graph
from linkcal.data.node_ids import IdColumn, NodeIds
from linkcal.data.tables import place_of, refuse_missing_ids, text_batches
from linkcal.exceptions import InputError, LinkcalWarning

__all__ = ["NamedGraph", "PairChunk", "read_edges", "read_features", "read_pairs"]

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
