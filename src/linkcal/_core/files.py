"""Files that are written whole or not at all, and read without pickle: arrays, saved models and artifacts."""

import ctypes
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal.exceptions import ArtifactError, InputError

_KINDS = {"b": "booleans", "i": "integers", "u": "integers", "f": "floats", "U": "strings", "M": "dates"}


def one_line(text: object) -> str:
    """An error or a value from a file as one line of at most 200 characters for a message."""
    line = " ".join(str(text).split()) or type(text).__name__
    return line if len(line) <= 200 else f"{line[:197]}..."


def listed(names: Iterable[str]) -> str:
    """Names from a file for a message."""
    return one_line(", ".join(map(repr, names)) or "none")


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
        arrays = {"": loaded} if isinstance(loaded, np.ndarray) else {k: loaded[k] for k in loaded.files}
        for key, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"{key!r}, which is no array")
    for key, (kinds, ndim) in (expected or {}).items():
        if key not in arrays:
            raise InputError(f"{name} must have the array {key!r}, got {listed(arrays)} in {path}")
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
    remove_leftovers(target.parent)
    temporary = _beside(target)
    temporary.touch(exist_ok=False)  # with the permissions of an ordinary file, unlike tempfile's
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new folder beside `folder`, which takes its place in one step if the block succeeds.

    Whatever ends the block or the process before that step leaves `folder` as it was.
    """
    target = Path(folder).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent)
    staging = _beside(target)
    staging.mkdir()  # with the permissions of an ordinary folder, unlike tempfile's
    try:
        yield staging
        if target.exists():
            staging.chmod(target.stat().st_mode & 0o7777)
            _exchange(staging, target)
        else:
            staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _beside(target: Path) -> Path:
    """A hidden name that tells who writes; it ends as the target's, by which writers choose a format."""
    return target.with_name(f".{target.stem}-{_host()}-{os.getpid()}-{secrets.token_hex(4)}{target.suffix}")


@cache
def _host() -> str:
    """Name of the machine, or container, in which process numbers have a meaning."""
    with suppress(OSError):
        return sha256(f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}".encode())[:8]
    return sha256(platform.node().encode())[:8]


def remove_leftovers(folder: Path) -> None:
    """Remove what processes of this machine that are dead by now were writing into a folder."""
    for path in folder.glob(f".*-{_host()}-*"):
        found = re.fullmatch(rf"\..*-{_host()}-(\d{{1,9}})-[0-9a-f]{{8}}(\..*)?", path.name)
        if found and not _is_alive(int(found[1])):
            with suppress(OSError):  # somebody else may have removed it meanwhile
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # alive, and another user's
        return True
    return True


def _exchange(new: Path, target: Path) -> None:
    """Swap two folders, by one call of the system where it has one; else the old one is away for a moment."""
    libc: Any = ctypes.CDLL(None) if os.name == "posix" else None
    ends = os.fsencode(new), os.fsencode(target)
    if hasattr(libc, "renameat2") and libc.renameat2(_HERE, ends[0], _HERE, ends[1], _SWAP) == 0:
        return
    if hasattr(libc, "renamex_np") and libc.renamex_np(*ends, _SWAP) == 0:
        return
    old = _beside(target)
    target.rename(old)
    try:
        new.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old)


#: AT_FDCWD of Linux; RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS are the same number.
_HERE, _SWAP = -100, 2


def to_json(values: Any) -> str:
    """JSON text; NaN and infinity, which JSON does not have, become null."""
    plain = json.loads(json.dumps(values), parse_constant=lambda _: None)
    return json.dumps(plain, indent=2, allow_nan=False)


def write_json(values: Any, path: Path) -> None:
    """Write :func:`to_json` whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(to_json(values) + "\n", encoding="utf-8")


def file_record(path: str | os.PathLike[str]) -> dict[str, str]:
    """Path and SHA-256 of an input file, so that a run can be repeated on the same bytes."""
    with Path(path).open("rb") as file:
        return {"path": str(Path(path).resolve()), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
