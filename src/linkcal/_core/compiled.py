"""Numba's ``njit`` with a cache that sees every edit and needs no writable folder.

Numba caches a compiled function beside its file and compiles it anew when that file changes, not when a
function that it calls in another file does. Here the cache folder is named after a hash of all sources that
hold compiled code, so that any edit of one of them starts from an empty folder. Where no folder can be
written (a read-only installation without a home), functions are compiled in memory.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import njit

__all__ = ["cache_folder", "compiled"]

_PACKAGE = Path(__file__).resolve().parents[1]
#: What marks a source that holds compiled code.
_MARK = b"import compiled\n"
_IMPORT = re.compile(r"^from linkcal\.([\w.]+) import", re.MULTILINE)
_lock = threading.Lock()


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function at its first call, and keep the result on disk where that is possible.

    Parameters
    ----------
    **options
        As :func:`numba.njit` takes them (``parallel``, ``fastmath``, ``forceinline``, ...), without
        ``cache``.

    Returns
    -------
    callable
        A decorator.

    Notes
    -----
    ``numba.config.CACHE_DIR`` is read when a function is declared; it is set for that moment alone.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        folder = cache_folder(Path(function.__code__.co_filename))
        if folder is None or numba.config.DISABLE_JIT:
            return njit(**options)(function)
        with _lock:
            before = numba.config.CACHE_DIR
            numba.config.CACHE_DIR = str(folder)
            try:
                return njit(cache=True, **options)(function)
            finally:
                numba.config.CACHE_DIR = before

    return decorate


@cache
def cache_folder(source: Path) -> Path | None:
    """Folder of a source file's compiled code; None where none can be written.

    Parameters
    ----------
    source : Path
        A file of this package.

    Returns
    -------
    Path or None
        Below ``NUMBA_CACHE_DIR`` where that is set, else beside the package, else in the user's cache.
    """
    name = f"linkcal-{_fingerprint(source)}"
    asked = os.environ.get("NUMBA_CACHE_DIR")
    parents = [Path(asked)] if asked else [_PACKAGE / "__pycache__", *_user_caches()]
    for parent in parents:
        folder = parent / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    _warn_uncached()
    return None


@cache
def _warn_uncached() -> None:
    """Once for each process, however many files hold compiled code."""
    warnings.warn(
        "compiled code cannot be kept: no folder is writable, so each process compiles anew (a minute); "
        "set NUMBA_CACHE_DIR to a writable folder",
        RuntimeWarning,
        stacklevel=5,
    )


def _user_caches() -> list[Path]:
    try:
        return [Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkcal"]
    except RuntimeError:  # no home folder is known
        return []


def _fingerprint(source: Path) -> str:
    """Hash of a file and of every file with compiled code that it imports, directly or through others."""
    texts: dict[Path, bytes] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in texts and path.exists():
            texts[path] = path.read_bytes()
            waiting += [
                _PACKAGE / f"{name.replace('.', '/')}.py" for name in _IMPORT.findall(texts[path].decode())
            ]
    found = hashlib.sha256()
    for path in sorted(texts):
        if _MARK in texts[path]:
            found.update(texts[path])
    return found.hexdigest()[:16]
