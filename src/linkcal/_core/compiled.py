"""Numba's ``njit`` with a cache that sees every edit and needs no writable folder.

Numba does not compile a cached function anew when a function that it calls in another file changes. So the
cache folder is named after a hash of all compiled sources; a constant that a kernel uses must be defined in
one of them.
"""

import hashlib
import os
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import njit

_PACKAGE = Path(__file__).resolve().parents[1]
_lock = threading.Lock()
_process = os.getpid()


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: compile at the first call, with :func:`numba.njit`'s options, and cache if possible.

    A function with ``parallel=True`` runs serially in a forked child, where Numba's threads do not exist:
    its OpenMP layer would end the process, the others would wait for ever.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        made = _declared(function, "", **options)
        if numba.config.DISABLE_JIT or not options.get("parallel"):
            return made
        serial = _declared(function, "serial", **{**options, "parallel": False})

        @wraps(function)
        def call(*arguments: Any) -> Any:
            return (made if os.getpid() == _process else serial)(*arguments)

        return call

    return decorate


def _declared(function: Callable[..., Any], part: str, **options: Any) -> Any:
    """Numba's form of a function; `part` of the cache, which does not tell serial from parallel code."""
    if numba.config.DISABLE_JIT or (folder := _cache_folder()) is None:
        return njit(**options)(function)
    # Numba reads the setting when a function is declared; it is changed for that moment only.
    with _lock:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(folder / part)
        try:
            return njit(cache=True, **options)(function)
        finally:
            numba.config.CACHE_DIR = before


def as_records(rows: Any) -> Any:
    """A structured array whose fields are attributes, also where compilation is off (NUMBA_DISABLE_JIT)."""
    return rows.view(np.recarray) if numba.config.DISABLE_JIT else rows


@cache
def _cache_folder() -> Path | None:
    """Below ``NUMBA_CACHE_DIR`` if that is set, else beside the package, else in the user's cache."""
    sources = [path.read_bytes() for path in sorted(_PACKAGE.rglob("*.py"))]
    compiled_ones = b"".join(text for text in sources if b"_core.compiled import" in text)
    name = f"linkcal-{hashlib.sha256(compiled_ones).hexdigest()[:16]}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    parents = [Path(chosen)] if chosen else [_PACKAGE / "__pycache__", *_user_caches()]
    for parent in parents:
        try:
            (parent / name).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=parent / name):
                return parent / name
        except OSError:  # the next one may be writable; if none is, a warning is given
            continue
    text = "compiled code cannot be cached: no folder is writable, so each process compiles anew (a minute)"
    warnings.warn(f"{text}; set NUMBA_CACHE_DIR to a writable folder", RuntimeWarning, stacklevel=4)
    return None


def _user_caches() -> list[Path]:
    try:
        return [Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkcal"]
    except RuntimeError:  # no home folder is known
        return []
