"""One line about an object, and a small table in a notebook."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from html import escape
from typing import Any


class Shown(ABC):
    """An object that shows what its `_shown` gives: values by label, without the arrays that hold them."""

    @abstractmethod
    def _shown(self) -> Mapping[str, Any]:
        """Values by label."""

    def __repr__(self) -> str:
        """Name and values in one line."""
        return f"{type(self).__name__}({', '.join(f'{k}={_text(v)}' for k, v in self._shown().items())})"

    def _repr_html_(self) -> str:
        """The same as a table."""
        cells = "".join(
            f"<tr><th>{escape(str(key).replace('_', ' '))}</th><td>{escape(_text(value))}</td></tr>"
            for key, value in self._shown().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{cells}</table>"


def _text(value: Any) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if whole else repr(value)
