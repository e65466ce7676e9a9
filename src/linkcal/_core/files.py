"""Files that are written whole or not at all, and read without pickle: arrays, saved models and artifacts."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal.exceptions import ArtifactError, InputError

_KINDS = {"b": "booleans", "i": "integers", "u": "integers", "f": "floats", "U": "strings"}


def one_line(text: object) -> str:
    """An error or a value from a file as one line of at most 200 characters for a message."""
    line = " ".join(str(text).split()) or type(text).__name__
    return line if len(line) <= 200 else f"{line[:197]}..."


@contextmanager
def damage_named(path: Path, name: str, expected: str) -> Iterator[None]:
    """Turn whatever stops the reading of a file into one line that names the file."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{name} must be {expected}, got {path}: {one_line(error)}") from error


def sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


@contextmanager
def refusing(path: Path, expected: str) -> Iterator[None]:
    """Turn whatever stops the use of a saved file into an ArtifactError of one line."""
    try:
        yield
    except ArtifactError:
        raise
    except Exception as error:
        raise ArtifactError(f"{path} must {expected}, got {one_line(error)}") from error


def read_saved(path: Path) -> bytes:
    """Content of a saved file."""
    with refusing(path, "be a readable file"):
        return path.read_bytes()


def read_description(path: Path, form: str, version: int) -> dict[str, Any]:
    """Object of a JSON file that names its format `form` and that format's version."""
    with refusing(path, "be a JSON file"):
        found = json.loads(read_saved(path))
    if not isinstance(found, dict) or found.get("format") != form:
        raise ArtifactError(f'{path} must have "format": "{form}", got another content')
    if found.get("format_version") != version:
        writer = f" (written by linkcal {one_line(found['linkcal'])})" if "linkcal" in found else ""
        came = one_line(repr(found.get("format_version")))
        raise ArtifactError(f"{path} must have format_version {version}, got {came}{writer}: fit again")
    return found


def read_arrays(
    path: str | os.PathLike[str], name: str, expected: Mapping[str, tuple[str, int]] | None = None
) -> dict[str, NDArray[Any]]:
    """Arrays of an npz file by name, or that of an npy file under the name ``""``; nothing is unpickled.

    `expected`: kinds of dtype (as ``dtype.kind``) and number of dimensions of arrays that must be there.
    Floats among them must be finite.
    """
    path = Path(path)
    # NumPy does not close a damaged file that it opened.
    with damage_named(path, name, "an npz file of plain arrays"), path.open("rb") as raw:
        loaded = np.load(raw, allow_pickle=False)
        arrays = (
            {"": loaded} if isinstance(loaded, np.ndarray) else {key: loaded[key] for key in loaded.files}
        )
        for key, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"{key!r}, which is no array")
    for key, (kinds, ndim) in (expected or {}).items():
        if key not in arrays:
            raise InputError(
                f"{name} must have the array {key!r}, got {one_line(', '.join(map(repr, arrays)))} in {path}"
            )
        array = arrays[key]
        if array.dtype.kind not in kinds or array.ndim != ndim:
            words = " or ".join(dict.fromkeys(_KINDS[kind] for kind in kinds))
            raise InputError(
                f"array {key!r} of {path} must be {ndim}-D and hold {words}, got {array.dtype} {array.shape}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"array {key!r} of {path} must be finite, got NaN or infinite values")
    # In this machine's byte order, the only one that torch and Arrow read.
    return {key: array.astype(array.dtype.newbyteorder("="), copy=False) for key, array in arrays.items()}


def require_writable(folder: str | os.PathLike[str], name: str) -> None:
    """Refuse a folder in which no file can be made; of a folder to be created, the nearest parent counts."""
    place = Path(folder)
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        # Permission bits do not show read-only disks; making a file does.
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise InputError(
            f"{name} must be in a folder that can be written to, got {folder} ({error.strerror})"
        ) from error


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and rename it to `path` if the block succeeds."""
    target = Path(path)
    # Writers such as matplotlib read the format from the suffix.
    temporary = target.with_name(f".{target.stem}-{secrets.token_hex(4)}{target.suffix}")
    temporary.touch(exist_ok=False)  # with the permissions of an ordinary file, unlike tempfile's
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def to_json(values: Any) -> str:
    """JSON text; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_without_nan(values), indent=2, allow_nan=False)


def _without_nan(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _without_nan(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_without_nan(value) for value in values]
    if isinstance(values, float) and not math.isfinite(values):
        return None
    return values


def write_json(values: Any, path: Path) -> None:
    """Write :func:`to_json` whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(to_json(values) + "\n", encoding="utf-8")


def file_record(path: str | os.PathLike[str]) -> dict[str, str]:
    """Path and SHA-256 of an input file, so that a run can be repeated on the same bytes."""
    with Path(path).open("rb") as file:
        return {"path": str(Path(path).resolve()), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
