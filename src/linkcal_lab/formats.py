"""Tables: how they are built, and as Markdown, CSV and LaTeX. The same table gives the same bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from linkcal._core.validation import check_choice

#: File name suffix of each format.
SUFFIXES: dict[str, str] = {"markdown": ".md", "csv": ".csv", "latex": ".tex"}
#: Shown where there is no value.
MISSING = "\N{EM DASH}"

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "\N{PLUS-MINUS SIGN}": r"$\pm$", "\N{ALMOST EQUAL TO}": r"$\approx$",
    "[": "{[}", "\N{EM DASH}": "---",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """Text of one entry; `strong` marks the best of its row."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table to show, and the same content in long form for CSV.

    Parameters
    ----------
    name : str
        File name without suffix.
    title, caption : str
        One line, and what a reader must know: number of seeds, units, marks, tests.
    header : tuple of str
    rows : tuple of tuple of Entry
        As long as `header` each.
    data : DataFrame
        One row for each number, for CSV.
    n_labels : int
        Leading columns that name the row; they are left-aligned.
    """

    name: str
    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    data: pd.DataFrame
    n_labels: int = 2


@dataclass
class TableBuilder:
    """Rows and long form of a table that is being made."""

    rows: list[tuple[Entry, ...]] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)

    def row(self, *entries: Entry | str) -> None:
        """Add a row to show."""
        self.rows.append(tuple(Entry(each) if isinstance(each, str) else each for each in entries))

    def record(self, **values: Any) -> None:
        """Add a row of the long form."""
        self.data.append(values)

    def table(self, name: str, title: str, caption: str, *header: str, n_labels: int = 2) -> Table:
        """The finished table."""
        return Table(name, title, caption, header, tuple(self.rows), pd.DataFrame(self.data), n_labels)


def sentences(scope: str, *parts: str) -> str:
    """Join the sentences of a caption; `scope` comes first, with a capital, and empty ones are left out.

    Examples
    --------
    >>> sentences("protocol default", "Percent.", "")
    'Protocol default. Percent.'
    """
    first = f"{scope[0].upper()}{scope[1:]}." if scope else ""
    return " ".join(part for part in (first, *parts) if part)


def render(table: Table, format: str) -> str:  # noqa: A002
    """Text of a table as ``"markdown"``, ``"csv"`` or ``"latex"``; ends with a newline.

    CSV has the long form with numbers as they are, without title and caption; LaTeX needs the packages
    ``booktabs`` and ``longtable``.

    Examples
    --------
    >>> table = Table("t", "T", "", ("a|b",), ((Entry("1"),),), pd.DataFrame({"a,b": [1.5]}), 1)
    >>> print(render(table, "csv"), end="")
    "a,b"
    1.5
    """
    check_choice(format, "format", SUFFIXES)
    if format == "csv":
        return str(table.data.to_csv(index=False, lineterminator="\n", float_format="%.8g"))
    return _markdown(table) if format == "markdown" else _latex(table)


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text).replace("\n", " ")


def _markdown(table: Table) -> str:
    def line(texts: list[str]) -> str:
        return f"| {' | '.join(texts)} |"

    def marked(entry: Entry) -> str:
        text = _markdown_text(entry.text)
        return f"**{text}**" if entry.strong and text else text

    rule = [":--" if i < table.n_labels else "--:" for i in range(len(table.header))]
    lines = [f"## {_markdown_text(table.title)}", ""]
    lines += [_markdown_text(table.caption), ""] if table.caption else []
    lines += [line([_markdown_text(name) for name in table.header]), line(rule)]
    lines += [line([marked(entry) for entry in row]) for row in table.rows]
    return "\n".join(lines) + "\n"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text.replace("\n", " "))


def _latex(table: Table) -> str:
    def line(texts: list[str]) -> str:
        return f"{' & '.join(texts)} \\\\"

    def marked(entry: Entry) -> str:
        text = _latex_text(entry.text)
        return f"\\textbf{{{text}}}" if entry.strong and text else text

    columns = "l" * table.n_labels + "r" * (len(table.header) - table.n_labels)
    words = " ".join(_latex_text(part) for part in (f"{table.title}.", table.caption) if part)
    return "\n".join(
        [
            f"\\begin{{longtable}}{{{columns}}}",
            f"\\caption{{{words}}}\\label{{tab:{table.name}}} \\\\",
            "\\toprule",
            line([_latex_text(name) for name in table.header]),
            "\\midrule",
            "\\endhead",
            *(line([marked(entry) for entry in row]) for row in table.rows),
            "\\bottomrule",
            "\\end{longtable}",
            "",
        ]
    )


# Entries: mean, spread, noise floor, and how many values they rest on.

#: Mean, standard deviation and the like of one entry; None where there is no value.
Found = dict[str, float] | None


def by_key(frame: pd.DataFrame) -> dict[Any, dict[str, float]]:
    """The rows of a summary by their index; a look-up in pandas takes milliseconds."""
    rows = frame.to_numpy(dtype=np.float64).tolist()
    return {
        key: dict(zip(frame.columns, row, strict=True)) for key, row in zip(frame.index, rows, strict=True)
    }


def number(value: float, percent: bool) -> str:
    """A fraction in percent, or a number as it is."""
    return f"{100 * value:.2f}" if percent else f"{value:.4f}"


def shown(value: float, form: str, *, strong: bool = False) -> Entry:
    """A number in a format such as ``"{:.2f}"``, NaN as missing."""
    return Entry(MISSING) if np.isnan(value) else Entry(form.format(value), strong=strong)


def mean_text(found: Found, floor: Found, percent: bool, full: int | None) -> str:
    """Mean, standard deviation, floor in brackets, and the number of values if it is not the usual one."""
    if found is None:
        return MISSING
    text = number(found["mean"], percent)
    if not np.isnan(found["std"]):
        text += f" \N{PLUS-MINUS SIGN} {number(found['std'], percent)}"
    if floor is not None:
        text += f" [{number(floor['mean'], percent)}]"
    if full is not None and found["n"] != full:
        text += f" (n = {int(found['n'])})"
    return text


def few_negatives_note(records: pd.DataFrame, k: int = 20) -> str:
    """A sentence on rows whose Hits@k is 1 whatever the model is; empty if there are none."""
    counts = records[
        (records["part"] == "test") & (records["metric"] == "negatives") & (records["value"] < k)
    ]
    rows = sorted({f"{d} {m}" for d, m in zip(counts["dataset"], counts["model"], strict=True)})
    if not rows:
        return ""
    return f"Hits@{k} is 100 % by definition with fewer than {k} test negatives: {', '.join(rows)}."
