"""Arrays from an npz file, all or an error that names the file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal.exceptions import InputError

__all__ = ["read_arrays"]

#: numpy and zipfile tell of a damaged file by any of these.
_DAMAGED = (KeyError, ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, TokenError)


def read_arrays(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Arrays of an npz file without pickle, by name.

    Parameters
    ----------
    path : Path
    required : sequence of str
    optional : sequence of str
        Left out of the result where the file lacks them.

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
