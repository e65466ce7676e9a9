"""Arrays from ``.npy`` and ``.npz`` files: plain ones only, and one line for a damaged file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal.exceptions import InputError

__all__ = ["one_line", "plain_array", "plain_arrays"]


def plain_array(path: Path, name: str) -> NDArray[Any]:
    """The array of an npy file; a pickled object is never loaded.

    Raises
    ------
    InputError
        If the file is no whole npy file of plain values.
    """
    with _damage_named(path, name, "a plain npy array"), path.open("rb") as raw:
        loaded = np.load(raw, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            loaded.close()
            raise ValueError("an npz file")
    return _native(loaded)


def plain_arrays(path: Path, name: str) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file, by name; a pickled object is never loaded.

    Raises
    ------
    InputError
        If the file is no whole npz file of plain values.
    """
    # numpy leaves a damaged file open if it opened it itself.
    with _damage_named(path, name, "an npz file of plain arrays"), path.open("rb") as raw:
        if not zipfile.is_zipfile(raw):
            raise ValueError("no zip archive, or a truncated one")
        raw.seek(0)
        with np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        strange = [key for key, array in arrays.items() if not isinstance(array, np.ndarray)]
        if strange:
            raise ValueError(f"{strange[0]!r}, which is no array")
    return {key: _native(array) for key, array in arrays.items()}


def one_line(error: BaseException) -> str:
    """The first line of an error's text, or its type where it has none."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """The same values in this machine's byte order, the only one that torch and Arrow read."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


@contextmanager
def _damage_named(path: Path, name: str, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # numpy, zipfile, zlib and tokenize tell of flipped bytes by ten unrelated types of errors, among them
        # RuntimeError and MemoryError; whatever stops the reading, the file is not what was expected.
        raise InputError(f"{name} must be {what}, got {path}: {one_line(error)}") from error
