"""Edges of MatrixMarket and GraphML files, which hold a graph and no table."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from linkcal.data._text import unpacked
from linkcal.exceptions import InputError

#: Rows without an entry that a matrix may have: its size is one number, and costs the reader memory.
_MOST_ISOLATED = 10_000_000
#: Bytes of the shortest entry of a matrix, "1 1" and a line's end.
_SHORTEST_ENTRY = 4


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Ends of edges and all nodes, sequences of ids; whether the file says that edges have a direction."""

    source: Any
    target: Any
    nodes: Any
    directed: bool


def read_matrix(path: Path, name: str) -> EdgeList:
    """Entries of a square sparse MatrixMarket file; ids are the row numbers, from 1.

    An entry is an edge whatever its value, so a stored zero is refused; a symmetric file has each pair once.
    """
    import scipy.io  # slow to import, and needed by this format only

    with unpacked(path) as raw:
        content = raw.read()
    rows, columns, entries, form, _, symmetry = scipy.io.mminfo(io.BytesIO(content))
    if form != "coordinate" or rows != columns:
        raise InputError(
            f"{name} must be a square sparse matrix (coordinate, one row and column per node), got {form} of "
            f"{rows} x {columns} in {path}"
        )
    if entries * _SHORTEST_ENTRY > len(content) + 1:
        raise InputError(
            f"{path} must hold the {entries} entries that it announces, got {len(content)} bytes"
        )
    if rows > _MOST_ISOLATED + 2 * entries:
        raise InputError(f"{path} must have fewer rows without an entry, got {rows} rows, {entries} entries")
    matrix: Any = scipy.io.mmread(io.BytesIO(content), spmatrix=False)
    zeros = int((matrix.data == 0).sum())  # a pattern holds ones
    if zeros:
        raise InputError(f"{name} must have no entry of value 0, which is no edge, got {zeros} in {path}")
    source, target = (np.asarray(ends, dtype=np.int64) + 1 for ends in matrix.coords)
    return EdgeList(source, target, np.arange(1, rows + 1), symmetry not in ("symmetric", "hermitian"))


def read_graphml(path: Path) -> EdgeList:
    """Edges and nodes of a GraphML file by the ids in it; a document type, which can expand, is refused."""
    import networkx as nx  # slow to import, and needed by this format only

    with unpacked(path) as raw:
        content = raw.read()
    parser = expat.ParserCreate()

    def refuse(*_: Any) -> None:
        raise InputError(f"{path} must be GraphML without a document type (<!DOCTYPE), got one")

    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(content, True)
    graph = nx.read_graphml(io.BytesIO(content))
    ends = [(str(u), str(v)) for u, v in graph.edges()]
    return EdgeList([u for u, _ in ends], [v for _, v in ends], [str(n) for n in graph], graph.is_directed())
