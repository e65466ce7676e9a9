"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal.exceptions import InputError

#: numpy and zipfile report a damaged file by any of these.
_DAMAGED = (KeyError, ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, TokenError)


def read_arrays(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Arrays of an npz file without pickle, by name; `optional` ones only where the file has them.

    Raises
    ------
    InputError
        If the file is not there, is damaged or lacks a required array.
    """
    try:
        # numpy leaves a damaged file open if it opened it itself.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in (*required, *(n for n in optional if n in file.files))}
    except _DAMAGED as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} must be a whole npz file with {required[0]}, got {reason}") from error


def require_writable(folder: str | os.PathLike[str], name: str) -> None:
    """Refuse a folder in which no file can be made, before the work starts whose results it is for.

    The nearest folder above it is asked where it is not there yet.

    Raises
    ------
    InputError
        If no file can be made there.
    """
    place = Path(folder)
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        # Permission bits do not tell of read-only disks; a file that is made does, and it is gone at once.
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise InputError(
            f"{name} must be in a folder that can be written to, got {folder} ({error.strerror})"
        ) from error


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path` to write to; rename it to `path` when the block ends well.

    A reader never sees half a file, and an error leaves what was there before.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("whole")
    ...     (Path(folder) / "a.txt").read_text()
    'whole'
    """
    target = Path(path)
    # The suffix stays, because writers such as matplotlib read the format from it.
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes the file private to its owner; results are ordinary files.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
