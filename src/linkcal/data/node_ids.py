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

from linkcal._core.validation import check_positive_int
from linkcal.exceptions import ArtifactError, InputError

__all__ = ["IdColumn", "NodeIds", "is_id_type"]


IntArray = NDArray[np.int64]

#: Whole numbers as Python writes them, of at most 18 digits (so int64 holds all of them); "007" and "1.0" are
#: names, not numbers.
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
_LARGEST = 10**18 - 1

_COLUMN = "node_id"


@dataclass(frozen=True, eq=False)
class IdColumn:
    """A column of node ids, parsed once: hashing millions of strings is what reading a graph costs.

    Parameters
    ----------
    keys : pyarrow.Array
        int64, one per value, if all values are whole numbers; else the texts of the distinct values, without
        surrounding blanks.
    codes : array (n,), int64, optional
        Key of each value, -1 for a null; None if keys and values are the same.
    """

    keys: Any
    codes: IntArray | None

    @classmethod
    def parse(cls, values: Any) -> IdColumn:
        """Parse a pyarrow or NumPy array or a sequence of strings or integers.

        Raises
        ------
        InputError
            If values are of another type.
        """
        if isinstance(values, IdColumn):
            return values
        if not isinstance(values, (pa.Array, pa.ChunkedArray)):
            values = _to_arrow(values)
        if not is_id_type(values.type):
            raise InputError(f"node ids must be strings or integers, got {values.type}")
        if pa.types.is_string_view(values.type):  # what Polars writes; Arrow cannot encode it yet
            values = pc.cast(values, pa.large_string())
        if isinstance(values, pa.ChunkedArray):
            # One array: encoding chunk by chunk repeats the growing dictionary in every chunk.
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
        if not pa.types.is_dictionary(values.type):
            numbers = _as_numbers(values)
            if numbers is not None:
                return cls(keys=numbers, codes=None)
            values = values.dictionary_encode()
        codes = pc.fill_null(values.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(keys=pc.utf8_trim_whitespace(pc.cast(values.dictionary, pa.string())), codes=codes)

    def spread(self, per_key: NDArray[Any], for_null: Any) -> NDArray[Any]:
        """Values (n,) from values per key."""
        if self.codes is None:
            return per_key
        return np.append(per_key, np.asarray(for_null, dtype=per_key.dtype))[self.codes]

    def missing(self) -> NDArray[np.bool_]:
        """Whether each value (n,) is null, empty or blank."""
        nothing = pc.is_null(self.keys)
        if pa.types.is_string(self.keys.type):
            nothing = pc.or_(nothing, pc.fill_null(pc.equal(self.keys, ""), True))
        return self.spread(nothing.to_numpy(zero_copy_only=False), True)


class NodeIds:
    """Two-way map between node ids (any strings or integers) and indices ``0 .. N-1``.

    An id is compared by its text without surrounding blanks, so the integer 7 of one file is the string
    ``"7"`` of another. Ids are sorted, numerically if all are whole numbers and else by their bytes: the
    index of a node does not depend on the order of a file.

    Build one with :meth:`from_values` or :meth:`range`; the constructor trusts its caller.

    Parameters
    ----------
    ids : pyarrow.Array
        Sorted distinct ids, int64 or string.

    Examples
    --------
    >>> ids = NodeIds.from_values(["bob", "alice"], ["carol", "bob"])
    >>> ids.encode(["carol", "alice"])
    array([2, 0])
    >>> ids.decode([2, 0]).to_pylist()
    ['carol', 'alice']
    >>> NodeIds.from_values([10, 9]).encode(["9", 10])
    array([0, 1])
    """

    def __init__(self, ids: Any) -> None:
        self._ids = ids
        self._numbers: IntArray | None = ids.to_numpy() if pa.types.is_int64(ids.type) else None

    @classmethod
    def from_values(cls, *columns: Any) -> NodeIds:
        """Map all ids that occur in `columns` (pyarrow or NumPy arrays, or sequences).

        Raises
        ------
        InputError
            If a value is missing or neither string nor integer.
        """
        parsed = [IdColumn.parse(column) for column in columns] or [IdColumn.parse(pa.array([], pa.string()))]
        if any(column.missing().any() for column in parsed):
            raise InputError("node ids must not be missing or empty, got an empty one")
        keys = [pc.unique(column.keys) for column in parsed]
        if not all(pa.types.is_int64(key.type) for key in keys):
            keys = [pc.cast(key, pa.string()) for key in keys]
        unique = pc.unique(pa.concat_arrays(keys))
        if pa.types.is_string(unique.type) and len(unique) and _look_like_numbers(unique).all():
            unique = pc.cast(unique, pa.int64())
        return cls(unique.take(pc.sort_indices(unique)))

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
        return self._numbers is not None

    @property
    def is_range(self) -> bool:
        """Whether the ids are the integers 0 .. N-1 themselves."""
        numbers = self._numbers
        # Sorted and distinct: the ends tell.
        return (
            numbers is not None and len(numbers) > 0 and numbers[0] == 0 and numbers[-1] == len(numbers) - 1
        )

    def lookup(self, values: Any) -> IntArray:
        """Index of each id, int64 (n,); -1 for one that is unknown or missing."""
        column = IdColumn.parse(values)
        found = self._find_numbers if pa.types.is_int64(column.keys.type) else self._find_texts
        return column.spread(found(column.keys), -1)

    def _find_numbers(self, keys: Any) -> IntArray:
        if self._numbers is None:
            return self._find_texts(pc.cast(keys, pa.string()))
        known = pc.is_valid(keys).to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(keys, 0).to_numpy()
        if self.is_range:
            return np.where(known & (numbers >= 0) & (numbers < len(self)), numbers, -1)
        place = np.minimum(np.searchsorted(self._numbers, numbers), max(len(self) - 1, 0))
        if len(self) == 0:
            return np.full(len(numbers), -1)
        return np.where(known & (self._numbers[place] == numbers), place, -1)

    def _find_texts(self, keys: Any) -> IntArray:
        if self._numbers is None:
            index = pc.index_in(keys, value_set=self._ids)
            return np.asarray(pc.fill_null(index, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
        found = np.full(len(keys), -1, dtype=np.int64)
        numeric = _look_like_numbers(keys)
        found[numeric] = self._find_numbers(pc.cast(keys.filter(pa.array(numeric)), pa.int64()))
        return found

    def encode(self, values: Any) -> IntArray:
        """Index of each id, int64 (n,).

        Raises
        ------
        InputError
            If an id is unknown or missing: the first five with their positions.
        """
        index = self.lookup(values)
        bad = np.flatnonzero(index < 0)[:5]
        if len(bad):
            arrow = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else _to_arrow(values)
            some = ", ".join(f"{arrow[int(i)].as_py()!r} at position {i}" for i in bad)
            raise InputError(f"values must be known node ids, got {some}")
        return index

    def decode(self, index: Any) -> Any:
        """Ids of indices, a pyarrow array (int64 or string).

        Raises
        ------
        InputError
            If an index is no integer in ``[0, N)``.
        """
        index = np.asarray(index)
        if index.ndim != 1 or (len(index) and index.dtype.kind not in "iu"):
            raise InputError(f"index must hold integers (n,), got {index.dtype} {index.shape}")
        index = index.astype(np.int64)
        if len(index) and (index.min() < 0 or index.max() >= len(self)):
            raise InputError(f"index must be in [0, {len(self)}), got {index.min()} to {index.max()}")
        return self._ids.take(pa.array(index))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ids, in index order, as the one column ``node_id`` of a Parquet file."""
        pq.write_table(pa.table({_COLUMN: self._ids}), os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NodeIds:
        """Read what :meth:`save` wrote.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged or no such table.
        """
        try:
            # Through bytes: no memory map stays open on a file that may be replaced.
            table = pq.read_table(pa.BufferReader(Path(path).read_bytes()))
        except (OSError, pa.ArrowException) as error:
            raise ArtifactError(
                f"file {path} must be a readable table of node ids, got {str(error).splitlines()[0]}"
            ) from error
        if table.column_names != [_COLUMN] or table.column(0).type not in (pa.int64(), pa.string()):
            raise ArtifactError(
                f"file {path} must have the one column {_COLUMN} of int64 or string, got {table.schema.names}"
            )
        ids = cls(pa.concat_arrays([pa.array([], table.column(0).type), *table.column(0).chunks]))
        if ids != cls.from_values(table.column(0)):
            raise ArtifactError(f"file {path} must hold sorted, distinct node ids, got other ones")
        return ids


def is_id_type(kind: Any) -> bool:
    """Whether a pyarrow type can hold node ids: strings or integers, dictionary-encoded or not."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return bool(pa.types.is_integer(kind) or any(is_text(kind) for is_text in texts))


def _as_numbers(values: Any) -> Any | None:
    """int64 array of values that are all whole numbers (or null), else None."""
    try:
        # A failing cast is slow (Arrow goes on to the end): let a few values fail first.
        pc.cast(values.slice(0, 100), pa.int64())
        numbers = pc.cast(values, pa.int64())
    except pa.ArrowInvalid:
        return None
    ends = pc.min_max(numbers)
    if len(values) > values.null_count and max(ends["max"].as_py(), -ends["min"].as_py()) > _LARGEST:
        return None
    # Arrow also reads "007" and "0x7" as 7; a name that is not written back the same is no number.
    if pa.types.is_integer(values.type) or pc.cast(numbers, values.type).equals(values):
        return numbers
    return None


def _look_like_numbers(text: Any) -> NDArray[np.bool_]:
    matches = pc.fill_null(pc.match_substring_regex(text, _INTEGER), False)
    return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=bool)


def _to_arrow(values: Any) -> Any:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise InputError(f"node ids must be a sequence of strings or integers, got {values!r}")
    try:
        array = pa.array(values)
        # A list of nothing, or of None alone, has a type of its own.
        return array.cast(pa.string()) if pa.types.is_null(array.type) else array
    except (pa.ArrowException, TypeError, OverflowError):
        # Integers and strings in one list; a column of a file has one type.
        listed = list(values)
        if all(isinstance(v, (str, int, np.integer)) and not isinstance(v, bool) for v in listed):
            return pa.array([str(v) for v in listed], pa.string())
        raise InputError("node ids must be strings or integers, got other values") from None
