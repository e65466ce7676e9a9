"""Numba's ``njit`` with a cache that sees every edit and needs no writable folder.

Numba does not compile a cached function anew when a function that it calls in another file changes. So the
cache folder is named after a hash of all compiled sources that a source imports; a constant that a kernel
uses must be defined in one of them.
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

_PACKAGE = Path(__file__).resolve().parents[1]
_IMPORT = re.compile(r"^from linkcal\.([\w.]+) import", re.MULTILINE)
_lock = threading.Lock()


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: compile at the first call, with :func:`numba.njit`'s options, and cache if possible."""

    def decorate(function: Callable[..., Any]) -> Any:
        folder = _cache_folder(Path(function.__code__.co_filename))
        if folder is None or numba.config.DISABLE_JIT:
            return njit(**options)(function)
        # Numba reads the setting when a function is declared; it is changed for that moment only.
        with _lock:
            before = numba.config.CACHE_DIR
            numba.config.CACHE_DIR = str(folder)
            try:
                return njit(cache=True, **options)(function)
            finally:
                numba.config.CACHE_DIR = before

    return decorate


@cache
def _cache_folder(source: Path) -> Path | None:
    """Below ``NUMBA_CACHE_DIR`` if that is set, else beside the package, else in the user's cache."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    parents = [Path(chosen)] if chosen else [_PACKAGE / "__pycache__", *_user_caches()]
    for parent in parents:
        folder = parent / f"linkcal-{_fingerprint(source)}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:  # the next one may be writable; if none is, a warning is given
            continue
    _warn_uncached()
    return None


@cache
def _warn_uncached() -> None:
    """Once per process, however many files hold compiled code."""
    warnings.warn(
        "compiled code cannot be cached: no folder is writable, so each process compiles anew (a minute); "
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
    """Hash of a file and of every compiled source that it imports, directly or through other files."""
    texts: dict[Path, str] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in texts and path.exists():
            texts[path] = path.read_text(encoding="utf-8")
            waiting += [_PACKAGE / f"{n.replace('.', '/')}.py" for n in _IMPORT.findall(texts[path])]
    hashed = hashlib.sha256()
    for path in sorted(texts):
        if path == source or "_core.compiled import" in texts[path]:
            hashed.update(texts[path].encode())
    return hashed.hexdigest()[:16]
