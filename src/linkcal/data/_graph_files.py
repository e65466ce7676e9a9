"""Edges of MatrixMarket and GraphML files, which hold a graph and no table."""

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from linkcal.data._text import Dialect, TextFile, unpacked
from linkcal.exceptions import InputError

#: Rows without an entry that a matrix may have: its size is one number, and costs the reader memory.
_MOST_ISOLATED = 10_000_000
_BANNER = re.compile(
    r"%%MatrixMarket\s+matrix\s+coordinate\s+(pattern|real|integer|complex)\s+"
    r"(general|symmetric|skew-symmetric|hermitian)\s*$",
    re.IGNORECASE,
)
_LONGEST_BANNER = 1024
_VALUES = {"pattern": (), "real": ("real",), "integer": ("real",), "complex": ("real", "imaginary")}


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
    The table is read by Arrow: scipy 1.17 crashes on some damaged files.
    """
    with unpacked(path) as raw:
        banner = _BANNER.match(raw.readline(_LONGEST_BANNER).decode("latin-1"))
        top, line = 1, b""
        while (not line.strip() or line.startswith(b"%")) and (line := raw.readline()):
            top += 1
    size = line.split()
    if banner is None or len(size) != 3 or not all(map(bytes.isdigit, size)):
        raise InputError(
            f"{name} must start with '%%MatrixMarket matrix coordinate', a field, a symmetry and, after "
            f"comments, three numbers, got another start of {path}"
        )
    rows, columns, entries = map(int, size)
    if rows != columns or rows > _MOST_ISOLATED + 2 * entries:
        raise InputError(
            f"{name} must be a square matrix, a row per node and most rows in use, got {rows} x {columns} "
            f"with {entries} entries in {path}"
        )
    values = _VALUES[banner[1].lower()]
    text = TextFile(path, name, dialect=Dialect(" ", top, names=("row", "column", *values)))
    types = {"row": pa.int64(), "column": pa.int64(), **dict.fromkeys(values, pa.float64())}
    with text.open() as stream:
        table = pacsv.read_csv(
            stream,
            pacsv.ReadOptions(column_names=list(types)),
            pacsv.ParseOptions(delimiter=text.delimiter),
            pacsv.ConvertOptions(column_types=types, null_values=[]),
        )
    source, target, *numbers = (column.to_numpy() for column in table.columns)
    ends = np.concatenate([source, target])
    if len(source) != entries or not ((ends >= 1) & (ends <= rows)).all():
        raise InputError(
            f"{path} must hold {entries} entries of rows 1 to {rows}, as it announces, got {len(source)} "
            "entries or another row"
        )
    zeros = int(np.all([column == 0 for column in numbers], axis=0).sum()) if numbers else 0
    if zeros:
        raise InputError(f"{name} must have no entry of value 0, which is no edge, got {zeros} in {path}")
    directed = banner[2].lower() not in ("symmetric", "hermitian")
    return EdgeList(source, target, np.arange(1, rows + 1), directed)


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
