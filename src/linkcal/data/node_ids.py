"""The user's names of nodes and the indices 0 .. N-1 that stand for them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from linkcal._core.files import one_line, refusing
from linkcal._core.validation import check_positive_int
from linkcal.exceptions import ArtifactError, InputError

IntArray = NDArray[np.int64]

#: Whole numbers of at most 18 digits (int64 holds them); "007" and "1.0" are names, not numbers.
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
_LARGEST = 10**18 - 1
_COLUMN = "node_id"


class NodeIds:
    """Two-way map between node ids (any strings or integers) and indices ``0 .. N-1``.

    An id is compared by its text without surrounding blanks: the integer 7 equals ``"7"``. Ids are sorted,
    numerically if all are whole numbers and else by their bytes, so indices do not depend on a file's order.
    Build one with :meth:`from_values` or :meth:`range`; the constructor trusts its caller.

    Parameters
    ----------
    ids : pyarrow.Array
        Sorted distinct ids, int64 or string.

    Examples
    --------
    >>> ids = NodeIds.from_values(["bob", "alice"], ["carol", "bob"])
    >>> ids.encode(["carol", "alice"]), ids.decode([2, 0]).to_pylist()
    (array([2, 0]), ['carol', 'alice'])
    """

    def __init__(self, ids: Any) -> None:
        self._ids = ids

    @classmethod
    def from_values(cls, *columns: Any) -> NodeIds:
        """Map all ids of `columns` (arrays or sequences); InputError unless all are strings or integers."""
        parsed = [parse_ids(column) for column in columns or ([],)]
        if any(is_missing(column).any() for column in parsed):
            raise InputError("node ids must not be missing or empty, got an empty one")
        same = {column.type for column in parsed}
        kind = pa.int64() if same == {pa.int64()} else pa.string()
        distinct = pc.unique(pa.concat_arrays([pc.cast(pc.unique(column), kind) for column in parsed]))
        return cls(distinct.take(pc.sort_indices(distinct)))

    @classmethod
    def range(cls, num_nodes: int) -> NodeIds:
        """Map the integers ``0 .. num_nodes - 1`` to themselves."""
        return cls(pa.array(np.arange(check_positive_int(num_nodes, "num_nodes", minimum=0))))

    def __len__(self) -> int:
        return len(self._ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeIds) and bool(self._ids.equals(other._ids))

    __hash__ = None  # type: ignore[assignment]

    @property
    def are_integers(self) -> bool:
        """Whether all ids are whole numbers."""
        return bool(pa.types.is_int64(self._ids.type))

    def lookup(self, values: Any) -> IntArray:
        """Index of each id, int64 (n,); -1 for one that is unknown or missing."""
        values = _to_arrow(values)
        if pa.types.is_dictionary(values.type):  # each distinct text is looked up once
            index = pa.array(self.lookup(values.dictionary)).take(values.indices)
            return np.asarray(pc.fill_null(index, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
        ids = parse_ids(values)
        if self.are_integers and pa.types.is_string(ids.type):  # some are no numbers
            ids = pc.if_else(pc.match_substring_regex(ids, _INTEGER), ids, None)
        ids = pc.cast(ids, self._ids.type)
        if self.are_integers and len(self):  # sorted: no hash table of all ids for each batch of pairs
            known, numbers = self._ids.to_numpy(), pc.fill_null(ids, 0).to_numpy()
            index = np.minimum(np.searchsorted(known, numbers), len(self) - 1)
            found = pc.is_valid(ids).to_numpy(zero_copy_only=False) & (known[index] == numbers)
            return np.where(found, index, -1)
        index = pc.fill_null(pc.index_in(ids, value_set=self._ids), -1)
        return np.asarray(index.to_numpy(zero_copy_only=False), dtype=np.int64)

    def encode(self, values: Any) -> IntArray:
        """Index of each id, int64 (n,); InputError names the first five that are unknown or missing."""
        index = self.lookup(values)
        bad = np.flatnonzero(index < 0)[:5]
        if len(bad):
            arrow = _to_arrow(values)
            some = ", ".join(f"{one_line(repr(arrow[int(i)].as_py()))} at position {i}" for i in bad)
            raise InputError(f"values must be known node ids, got {some}")
        return index

    def decode(self, index: Any) -> Any:
        """Ids of indices, a pyarrow array (int64 or string); InputError if one is not in ``[0, N)``."""
        index = np.asarray(index)
        if index.ndim != 1 or (len(index) and index.dtype.kind not in "iu"):
            raise InputError(f"index must hold integers (n,), got {index.dtype} {index.shape}")
        index = index.astype(np.int64)
        if len(index) and (index.min() < 0 or index.max() >= len(self)):
            raise InputError(f"index must be in [0, {len(self)}), got {index.min()} to {index.max()}")
        return self._ids.take(pa.array(index))

    def lookup_pairs(self, source: Any, target: Any) -> IntArray:
        """Indices [2, n] of two columns of ids; -1 for one that is unknown or missing."""
        return np.stack([self.lookup(source), self.lookup(target)])

    def decode_pairs(self, pairs: Any) -> tuple[Any, Any]:
        """Both columns of ids, pyarrow arrays, of indices [2, n]."""
        return self.decode(pairs[0]), self.decode(pairs[1])

    def hint(self, _end: int, value: Any) -> str:
        """What a message on an unknown id adds: a known one that looks like it."""
        ids = pa.concat_arrays([pc.cast(self._ids, pa.string()), pa.array([str(value.as_py())])])
        found = [spelt(ids[int(known)]) for known, unknown in look_alikes(ids) if unknown == len(self)]
        return f" (the graph has {found[0]}, which looks alike)" if found else ""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ids, in index order, as the one column ``node_id`` of a Parquet file."""
        pq.write_table(pa.table({_COLUMN: self._ids}), os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NodeIds:
        """Read what :meth:`save` wrote; ArtifactError if the file is missing, damaged or no such table."""
        with refusing(Path(path), "be a readable table of node ids"):
            # Through bytes: no memory map stays open on a file that may be replaced.
            table = pq.read_table(pa.BufferReader(Path(path).read_bytes()))
        if table.column_names != [_COLUMN] or table.column(0).type not in (pa.int64(), pa.string()):
            found = table.schema.names
            raise ArtifactError(f"{path} must have the one column {_COLUMN} of int64 or string, got {found}")
        ids = cls(table.column(0).combine_chunks())
        if ids != cls.from_values(table.column(0)):
            raise ArtifactError(f"{path} must hold sorted, distinct node ids, got other ones")
        return ids


@dataclass(frozen=True)
class BipartiteIds:
    """Ids of a bipartite graph: S source nodes with indices ``0 .. S-1``, then the target nodes.

    The two are spaces of their own: an id may stand in both, for two different nodes.

    Parameters
    ----------
    source, target : NodeIds
    """

    source: NodeIds
    target: NodeIds

    def __len__(self) -> int:
        return len(self.source) + len(self.target)

    def lookup_pairs(self, source: Any, target: Any) -> IntArray:
        """Indices [2, n] of a column of source ids and one of target ids; -1 for an unknown one."""
        second = self.target.lookup(target)
        return np.stack([self.source.lookup(source), np.where(second < 0, -1, second + len(self.source))])

    def decode_pairs(self, pairs: Any) -> tuple[Any, Any]:
        """Source ids and target ids, pyarrow arrays, of indices [2, n], the source first."""
        return self.source.decode(pairs[0]), self.target.decode(np.asarray(pairs[1]) - len(self.source))

    def hint(self, end: int, value: Any) -> str:
        """What a message on an unknown id in the source (0) or target column (1) adds."""
        kind, other = (("source", self.target), ("target", self.source))[end]
        is_other = bool(other.lookup([value])[0] >= 0)
        return f", as a {kind} node" + (", where it is none: the source comes first" if is_other else "")


def parse_ids(values: Any) -> Any:
    """A column of ids as int64 if all are whole numbers, else as their texts without surrounding blanks.

    Missing ids stay null or empty. InputError if values are neither strings nor integers.
    """
    ids = _to_arrow(values)
    if not is_id_type(ids.type):
        raise InputError(f"node ids must be strings or integers, got {ids.type}")
    if pa.types.is_dictionary(ids.type):
        ids = pc.cast(ids, ids.type.value_type)
    if pa.types.is_integer(ids.type):
        ends = pc.min_max(ids)
        whole = len(ids) == ids.null_count or max(ends["max"].as_py(), -ends["min"].as_py()) <= _LARGEST
    else:
        ids = pc.utf8_trim_whitespace(pc.cast(ids, pa.string()))
        whole = pc.all(pc.match_substring_regex(ids, _INTEGER), min_count=0).as_py()
    return pc.cast(ids, pa.int64() if whole else pa.string())


def is_missing(ids: Any) -> NDArray[np.bool_]:
    """Whether each of the parsed ids (n,) is null or empty."""
    missing = pc.is_null(ids)
    if pa.types.is_string(ids.type):
        missing = pc.or_(missing, pc.fill_null(pc.equal(ids, ""), True))
    return np.asarray(missing.to_numpy(zero_copy_only=False), dtype=bool)


def is_id_type(kind: Any) -> bool:
    """Whether a pyarrow type can hold node ids: strings or integers, dictionary-encoded or not."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_integer(kind)) or kind in (pa.string(), pa.large_string(), pa.string_view())


def look_alikes(ids: Any) -> IntArray:
    """Pairs of positions (n, 2) of distinct strings that a reader or a careless program takes for one."""
    key = pc.utf8_lower(pc.utf8_normalize(ids, form="NFKC"))
    for pattern, other in (
        (r"\p{Cf}+", ""),  # zero-width and other invisible characters
        (r"\s+", " "),
        (r"^[\"' ]+|[\"' ]+$", ""),
        (r"^(-?)0*([0-9]+?)(\.0*)?$", r"\1\2"),
    ):
        key = pc.replace_substring_regex(key, pattern, other)
    code = pc.dictionary_encode(key).indices.to_numpy()
    _, first = np.unique(code, return_index=True)
    again = np.setdiff1d(np.arange(len(code)), first)
    return np.stack([first[code[again]], again], axis=1)


def spelt(value: Any) -> str:
    """An id for a message that shows how it differs from one that looks alike."""
    text = ascii(value.as_py())
    return text if len(text) <= 200 else f"{text[:197]}..."


def _to_arrow(values: Any) -> Any:
    """One array: Arrow would repeat a growing dictionary in every chunk."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise InputError(f"node ids must be a sequence of strings or integers, got {one_line(repr(values))}")
    try:
        array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    except (pa.ArrowException, TypeError, OverflowError):
        # Integers and strings in one list, or beyond 64 bits; a column of a file has one type.
        listed = list(values)
        if all(isinstance(v, (str, int, np.integer)) and not isinstance(v, bool) for v in listed):
            return pa.array([str(v) for v in listed], pa.string())
        raise InputError("node ids must be strings or integers, got other values") from None
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    # A list of nothing, or of None alone, has a type of its own.
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array
