"""Raw data files: where they lie, their published checksums, and the download of missing ones.

Downloads are checked in a staging folder before they are moved, so a file is complete or absent. Nothing
else is written to the data root, so it may be read-only.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import socket
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile

from linkcal._core.files import one_line
from linkcal.exceptions import DataNotFoundError, InputError

#: Environment variable that names the data root where no argument does.
DATA_ROOT_VARIABLE = "LINKCAL_DATA_ROOT"

#: Seconds without an answer after which a download counts as failed.
_TIMEOUT = 30.0


@dataclass(frozen=True)
class RawFiles:
    """Raw files of one data set; `download` fills ``staging / folder`` unread: checks come first."""

    folder: str
    names: tuple[str, ...]
    download: Callable[[Path], None]

    def ensure(self, root: Path) -> Path:
        """Return ``root / folder`` with all files in it, verified; fetch the missing ones."""
        target = root / self.folder
        missing = [name for name in self.names if not (target / name).is_file()]
        if missing:
            self._fetch(root, missing)
        for name in self.names:
            _verify(target / name, f"{self.folder}/{name}")
        return target

    def _fetch(self, root: Path, missing: list[str]) -> None:
        target = root / self.folder
        try:
            with TemporaryDirectory(prefix=".linkcal-download-", dir=root) as staging, _network_patience():
                self.download(Path(staging))
                for name in missing:
                    _verify(Path(staging, self.folder, name), f"{self.folder}/{name}")
                target.mkdir(parents=True, exist_ok=True)
                for name in missing:
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    Path(staging, self.folder, name).replace(target / name)
        except _download_errors() as error:
            raise DataNotFoundError(
                f"file {target / missing[0]} must exist or be fetched, got neither ({one_line(error)}); pass "
                f"--data-root (data_root, {DATA_ROOT_VARIABLE}) with the folder that holds "
                f"{self.folder}/{missing[0]}"
            ) from error


def find_data_root(data_root: str | os.PathLike[str] | None = None) -> Path:
    """Folder of the raw data: `data_root`, else ``LINKCAL_DATA_ROOT``, else the cache folder (created)."""
    named_by = "data_root"
    if data_root is None and os.environ.get(DATA_ROOT_VARIABLE):
        data_root, named_by = os.environ[DATA_ROOT_VARIABLE], DATA_ROOT_VARIABLE
    if data_root is None:
        root = _user_cache() / "linkcal" / "data"
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataNotFoundError(
                f"cache folder {root} must be writable, got {error.strerror}; pass --data-root "
                f"(data_root, {DATA_ROOT_VARIABLE})"
            ) from error
        return root
    root = Path(data_root).expanduser()
    if not root.is_dir():
        raise DataNotFoundError(f"{named_by} must be an existing folder, got {str(root)!r}")
    return root


def _user_cache() -> Path:
    """The cache folder that the platform prescribes; ``XDG_CACHE_HOME`` wins everywhere."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"


@cache
def _checksums() -> dict[str, str]:
    text = resources.files("linkcal.data").joinpath("checksums.json").read_text(encoding="utf-8")
    return dict(json.loads(text)["sha256"])


def _verify(path: Path, key: str) -> None:
    """Compare a file with its published SHA-256, where one is known."""
    expected = _checksums().get(key)
    if expected is None:
        return
    content = path.read_bytes()
    if path.suffix == ".gz":
        # The same table can be compressed in many ways; its content counts.
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"file {path} must be gzip-compressed, got damaged data ({error})") from error
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise InputError(
            f"file {path} must be the published one (SHA-256 {expected[:16]}...), got {found[:16]}...; "
            "remove it to have it fetched anew"
        )


@contextlib.contextmanager
def _network_patience() -> Iterator[None]:
    """Bound the wait for a silent host, and keep progress messages of other libraries off stdout."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        socket.setdefaulttimeout(before)


def _download_errors() -> tuple[type[Exception], ...]:
    from aiohttp import ClientError  # PyG's downloader; imported here because it is slow to load

    # An archive that arrived damaged is no better than none.
    return (OSError, HTTPException, ClientError, EOFError, BadZipFile, zlib.error)
