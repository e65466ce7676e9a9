"""Raw data files: where they lie, their published checksums, and the download of missing ones.

Downloads are checked in a staging folder before they are moved, so a file is complete or absent. Nothing
else is written to the data root, so it may be read-only.
"""

import gzip
import hashlib
import json
import os
import shutil
import urllib.request
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from linkcal._core.files import damage_named, one_line
from linkcal.exceptions import DataNotFoundError, InputError

#: Environment variable that names the data root where no argument does.
DATA_ROOT_VARIABLE = "LINKCAL_DATA_ROOT"

#: Seconds without an answer after which a download counts as failed.
_TIMEOUT = 30.0
#: What a host that does not answer and an archive that arrived damaged raise.
_FAILED = (OSError, HTTPException, EOFError, BadZipFile, zlib.error)


@dataclass(frozen=True)
class RawFiles:
    """Raw files `names` of one data set, from below `url` or a zip archive with a folder of its own name."""

    folder: str
    names: tuple[str, ...]
    url: str

    def ensure(self, root: Path) -> Path:
        """Return ``root / folder`` with all files in it, verified; fetch the missing ones."""
        target = root / self.folder
        missing = [name for name in self.names if not (target / name).is_file()]
        if missing:
            try:
                self._fetch(root, missing)
            except _FAILED as error:
                raise DataNotFoundError(
                    f"file {target / missing[0]} must exist or be fetched, got neither ({one_line(error)}); "
                    f"pass --data-root (data_root, {DATA_ROOT_VARIABLE}) with the folder that holds "
                    f"{self.folder}/{missing[0]}"
                ) from error
        for name in self.names:
            _verify(target / name, f"{self.folder}/{name}")
        return target

    def _fetch(self, root: Path, missing: list[str]) -> None:
        with TemporaryDirectory(prefix=".linkcal-download-", dir=root) as folder:
            staging = Path(folder)
            if self.url.endswith(".zip"):
                _download(self.url, staging / "archive.zip")
                with ZipFile(staging / "archive.zip") as archive:
                    archive.extractall(staging)
                staging /= Path(self.url).stem
            else:
                for name in missing:
                    _download(f"{self.url}/{name}", staging / name)
            for name in missing:
                _verify(staging / name, f"{self.folder}/{name}")
                place = root / self.folder / name
                place.parent.mkdir(parents=True, exist_ok=True)
                (staging / name).replace(place)


def find_data_root(data_root: str | os.PathLike[str] | None = None) -> Path:
    """Folder of the raw data: `data_root`, else ``LINKCAL_DATA_ROOT``, else the cache folder (created)."""
    named_by = DATA_ROOT_VARIABLE if data_root is None else "data_root"
    chosen = os.environ.get(DATA_ROOT_VARIABLE) if data_root is None else data_root
    if chosen:
        root = Path(chosen).expanduser()
        if not root.is_dir():
            raise DataNotFoundError(f"{named_by} must be an existing folder, got {str(root)!r}")
        return root
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "linkcal", "data")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataNotFoundError(
            f"cache folder {root} must be writable, got {error.strerror}; pass --data-root "
            f"(data_root, {DATA_ROOT_VARIABLE})"
        ) from error
    return root


def _download(url: str, path: Path) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, path.open("wb") as file:  # noqa: S310
        shutil.copyfileobj(answer, file)


def _verify(path: Path, key: str) -> None:
    """Compare a file with its published SHA-256, where one is known."""
    published = resources.files("linkcal.data").joinpath("checksums.json").read_text(encoding="utf-8")
    expected = json.loads(published)["sha256"].get(key)
    if expected is None:
        return
    content = path.read_bytes()
    if path.suffix == ".gz":
        # The same table can be compressed in many ways; its content counts.
        with damage_named(path, "file", "gzip-compressed"):
            content = gzip.decompress(content)
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise InputError(
            f"file {path} must be the published one (SHA-256 {expected[:16]}...), got {found[:16]}...; "
            "remove it to have it fetched anew"
        )
