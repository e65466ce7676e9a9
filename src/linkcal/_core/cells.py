"""Ids in a CSV file that somebody may open in a spreadsheet."""

import re
from collections.abc import Sequence

#: Start of what a spreadsheet takes for a formula, also of full width, or for the next cell or row.
FORMULA = "([\t\r\n]| *[=+\\-@\uff0b\uff0d\uff1d\uff20])"
_UNSAFE = re.compile(f"'*{FORMULA}")
_NUMBER = re.compile(r"-[0-9]+(\.[0-9]+)?")


def to_cell(text: str) -> str:
    """An id with an apostrophe before what would be a formula, that is one that starts with `FORMULA`.

    So does one that starts with apostrophes before that, so that taking one away gives every id back
    (as ``data.own_files`` does). Negative numbers stay as they are.
    """
    return f"'{text}" if _UNSAFE.match(text) and not _NUMBER.fullmatch(text) else text


def from_cell(text: str) -> str:
    """The id that :func:`to_cell` was given."""
    return text[1:] if text.startswith("'") and _UNSAFE.match(text) else text


def has_cells(names: Sequence[str]) -> bool:
    """Whether a CSV file with these columns is one that linkcal writes."""
    return list(names[:2]) == ["source", "target"] and "probability" in names
