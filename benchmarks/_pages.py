"""Results of benchmarks, written whole, in folders that are made where they are not there yet."""

from __future__ import annotations

from pathlib import Path

from linkcal._core.files import written_whole


def write_page(path: Path, text: str) -> None:
    """Replace the file at `path` by `text`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")
