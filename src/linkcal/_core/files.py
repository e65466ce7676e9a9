"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from linkcal.exceptions import InputError


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
    """Yield a temporary path beside `path`, and rename it to `path` if the block succeeds.

    A reader never sees half a file, and an error leaves the old file in place.

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
    # Writers such as matplotlib read the format from the suffix.
    temporary = target.with_name(f".{target.stem}-{secrets.token_hex(4)}{target.suffix}")
    temporary.touch(exist_ok=False)  # with the permissions of an ordinary file, unlike tempfile's
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
