"""Text tables as people have them: packed, commented, without a header, of any delimiter.

A file is recognised for certain, from the column names in its header or the first line of a format with a
fixed meaning, or refused with the option that says what it is. `TextFile.open` gives plain rows: no comment,
blanks as one tab, lines where they stand in the file.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from linkcal._core.files import damage_named, listed, one_line
from linkcal.exceptions import InputError

#: Names that columns of nodes have unless the caller gives others.
DEFAULT_COLUMNS = ("source", "target")
#: What formats with a fixed header call them (SNAP, STRING), looked for where no other names are given.
_KNOWN_COLUMNS = (("FromNodeId", "ToNodeId"), ("protein1", "protein2"))
#: A blank stands for any run of blanks and tabs.
_DELIMITERS = ("\t", ";", "|", ",", " ")
_NAMES = {"\\t": "\t", "tab": "\t", "blank": " "}
#: Bytes that are read at a time, and that one line may have.
BLOCK = 8 << 20
_LONGEST_LINE = 1 << 28
#: Lines among which comments, header and first row are looked for.
_HEAD = 1000
_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
#: Two lines of a row, or quotes that do not pair up.
_OPEN_QUOTE = re.compile(rb'(?m)^[^"\n]*"(?:[^"\n]*"[^"\n]*")*[^"\n]*$')
_KONECT = re.compile(r"%\s*(sym|asym|bip)\s")
_SNAP = re.compile(r"#\s*(un)?directed graph", re.IGNORECASE)


@dataclass(frozen=True)
class TextOptions:
    """What a caller says of a text file; None where it is to be recognised.

    `comment` starts lines that are no rows ("" says that there are none); without a `header` columns are
    numbered from "1".
    """

    delimiter: str | None = None
    header: bool = True
    comment: str | None = None

    def checked(self) -> TextOptions:
        """The same with a delimiter of one character; InputError names the option."""
        delimiter = None if self.delimiter is None else _NAMES.get(self.delimiter, self.delimiter)
        if delimiter is not None and (len(delimiter) != 1 or delimiter.isalnum() or delimiter in '"\r\n.-_'):
            raise InputError(
                "delimiter (--delimiter) must be one character that no value holds, such as ',', ';', '|', "
                f"'\\t' or ' ' (runs of blanks and tabs), got {one_line(repr(self.delimiter))}"
            )
        if self.comment is not None and (self.comment.strip() != self.comment or '"' in self.comment):
            came = one_line(repr(self.comment))
            raise InputError(f"comment (--comment) must be a mark without blanks or quotes, got {came}")
        return TextOptions(delimiter, self.header, self.comment)


@dataclass(frozen=True)
class Dialect:
    """How a file is written; `delimiter` " " stands for any blanks and tabs."""

    delimiter: str
    #: Comment lines at the top; start of those anywhere (given by the caller alone).
    top: int = 0
    comment: str = ""
    #: Names of the columns where no row of the file holds them.
    names: tuple[str, ...] | None = None
    #: What the file says of its edges, if anything.
    directed: bool | None = None


def node_columns(names: list[str], columns: tuple[str, str]) -> tuple[str, str] | None:
    """Which of `names` hold the nodes: `columns`, or those of a known format where these are the defaults."""
    known = _KNOWN_COLUMNS if columns == DEFAULT_COLUMNS else ()
    fits = (pair for pair in (columns, *known) if all(names.count(each) == 1 for each in pair))
    return next(fits, None)


def header_names(columns: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Names that a header copied into the middle of a file has."""
    named = () if all(map(str.isdecimal, columns)) else (columns,)  # else the file has no header
    return (*named, DEFAULT_COLUMNS, *_KNOWN_COLUMNS)


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed as its ending says."""
    packing = path.suffix.lower()
    if packing == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(zip_member(path)) as file:
            yield file
    else:
        opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(packing, open)
        with opener(path, "rb") as file:
            yield file


def zip_member(path: Path) -> str:
    """Name of the one file in a zip archive."""
    with zipfile.ZipFile(path) as archive:
        names = [each for each in archive.namelist() if not each.endswith("/") and "__MACOSX/" not in each]
    if len(names) != 1:
        shown = one_line(", ".join(map(repr, names)) or "none")
        raise InputError(f"{path} must hold one file, got {len(names)}: {shown}")
    return names[0]


class _Blocks(io.RawIOBase):
    """A file whose content comes in blocks."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


class TextFile:
    """A text file whose dialect is known: `delimiter` of its plain rows, `names` that no row holds.

    `own` is the delimiter that the file's ending names, if it does; `columns` are those to find in the header
    (None: it is a table of features, whose header may hold any names and which has no comments). A `dialect`
    that is known needs no recognising.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        own: str | None = None,
        columns: tuple[str, str] | None = None,
        options: TextOptions | None = None,
        *,
        dialect: Dialect | None = None,
    ) -> None:
        self.path, self.name, self.options = path, name, (options or TextOptions()).checked()
        self._dialect = dialect or Dialect(",")
        if dialect is None:
            with damage_named(path, name, "a CSV file in UTF-8"):
                self._dialect = self._recognised(own, columns)
        self.delimiter = "\t" if self._dialect.delimiter == " " else self._dialect.delimiter
        self.names, self.directed = self._dialect.names, self._dialect.directed
        self.quotes = self._scan()

    # --- recognising ---

    def _recognised(self, own: str | None, columns: tuple[str, str] | None) -> Dialect:
        options = self.options
        block = next(self._blocks(size=1 << 20), b"")
        if block[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in block[:1000]:
            raise InputError(f"{self.name} must be text in UTF-8, got UTF-16 or binary data in {self.path}")
        raw = re.split(rb"\r\n?|\n", block, maxsplit=_HEAD)[:_HEAD]
        lines = [line.decode(errors="replace") for line in raw]
        if lines[0].startswith("%%MatrixMarket"):
            raise InputError(f"{self.path} is a MatrixMarket file by its first line; name it .mtx")
        top = self._comments_at_top(lines, columns)
        first = next((i for i in range(top, len(lines)) if lines[i].strip()), None)
        if first is None:
            what = "a header line" if options.header else "at least one row"
            raise InputError(f"{self.name} must have {what}, got the empty file {self.path}")
        raw[first].decode()  # other lines may hold anything in columns that are not read
        comments = [line for line in lines[:top] if line.strip()]
        said = re.match(_KONECT, comments[0]) if comments else None
        if said is not None:
            return self._konect(said[1], top, len(lines[first].split()))
        snap = next((found for found in map(_SNAP.match, comments) if found), None)
        directed = None if snap is None else snap[1] is None
        base = Dialect(",", top, options.comment or "", directed=directed)
        tried = [options.delimiter] if options.delimiter else list(dict.fromkeys([own or "\t", *_DELIMITERS]))
        rows = {each: _split(lines[first], each) for each in tried}
        if not options.header:
            return self._headless(rows, own, base)
        if columns is None:
            wide = next((each for each, row in rows.items() if len(row) > 1), tried[0])
            return replace(base, delimiter=wide)
        for delimiter, row in rows.items():
            if node_columns(row, columns):
                return replace(base, delimiter=delimiter)
        if comments:
            text = comments[-1].strip().lstrip(options.comment or "#%")
            for delimiter in tried:
                names = _split(text.strip(), delimiter)
                pair = node_columns(names, columns)
                if pair:
                    # SNAP's ids are integers; some of its files separate them unlike the names.
                    delimiter = " " if pair == _KNOWN_COLUMNS[0] and not options.delimiter else delimiter
                    return replace(base, delimiter=delimiter, names=tuple(names))
        shown = own if own and len(rows.get(own, ())) > 1 else max(rows, key=lambda each: len(rows[each]))
        hint = self._hint(lines, first, rows, columns)
        raise missing_columns(self.name, rows[shown], columns, self.path, hint)

    def _comments_at_top(self, lines: list[str], columns: tuple[str, str] | None) -> int:
        """Number of lines before the first row. A mark alone is not enough: "#love" may be an id."""
        comment = self.options.comment
        if columns is None or comment == "":
            return 0
        for number, line in enumerate(lines):
            text = line.strip()
            named = any(node_columns(_split(text[1:], each), columns) for each in _DELIMITERS)
            marked = text.startswith(comment) if comment else re.match(r"[#%]+(\s|$)", text) is not None
            if text and not marked and not (text[0] in "#%" and named and comment is None):
                return number
        return len(lines)

    def _konect(self, kind: str, top: int, width: int) -> Dialect:
        if kind == "bip":
            raise InputError(
                f"{self.name} must number all nodes together, got a bipartite KONECT network, whose node 1 "
                f"on the left is not node 1 on the right, in {self.path}; write ids such as l1 and r1"
            )
        names = ("source", "target", "weight", "time", *(str(i) for i in range(5, width + 1)))
        return Dialect(" ", top, self.options.comment or "", names[:width], kind == "asym")

    def _headless(self, rows: dict[str, list[str]], own: str | None, base: Dialect) -> Dialect:
        wide = {each: row for each, row in rows.items() if len(row) > 1}
        if own not in wide and len({tuple(row) for row in wide.values()}) != 1:
            got = "several that would" if wide else "a first row without one"
            raise InputError(
                f"{self.name} without a header must have a delimiter between two columns, got {got} in "
                f"{self.path}; name it with --delimiter (delimiter=...)"
            )
        delimiter = own if own is not None and own in wide else next(iter(wide))
        return replace(base, delimiter=delimiter, names=tuple(map(str, range(1, 1 + len(wide[delimiter])))))

    def _hint(self, lines: list[str], top: int, rows: dict[str, list[str]], columns: tuple[str, str]) -> str:
        """What most likely helps where no header holds the columns."""
        for number, line in enumerate(lines[top + 1 :], top + 2):
            if any(node_columns(_split(line, each), columns) for each in rows):
                return f"; line {number} has them: remove the lines before it, or mark them (--comment)"
        if any(_NUMBER.fullmatch(entry) for row in rows.values() for entry in row):
            return "; the first line looks like data: has the file no header? Pass --no-header (header=False)"
        if all(len(row) == 1 for row in rows.values()):
            return "; what separates the columns? Pass --delimiter"
        return "; name the columns with --source and --target"

    # --- reading ---

    def _blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """Plain rows in blocks of whole lines."""
        with unpacked(self.path) as raw:
            rest, start = raw.read(len(_BOM)).removeprefix(_BOM), True
            while block := raw.read(size):
                rest += block
                # A carriage return may be half of a line's end.
                cut = max(rest.rfind(b"\n"), rest.rfind(b"\r", 0, -1)) + 1
                if len(rest) - cut > _LONGEST_LINE:
                    raise InputError(
                        f"{self.name} must have lines of at most {_LONGEST_LINE:,} bytes, got a longer one "
                        f"in {self.path}"
                    )
                if cut:
                    yield self._edited(rest[:cut], start)
                    rest, start = rest[cut:], False
        if rest:
            yield self._edited(rest, start)

    def _edited(self, block: bytes, start: bool) -> bytes:
        """Comments as empty lines, and blanks as one tab where they delimit."""
        dialect = self._dialect
        if not (dialect.top or dialect.comment or dialect.delimiter == " "):
            return block
        block = re.sub(rb"\r\n?", b"\n", block)
        if start and dialect.top:
            lines = block.split(b"\n", dialect.top)
            block = b"\n" * (len(lines) - 1) + (lines[-1] if len(lines) > dialect.top else b"")
        if dialect.delimiter == " ":
            block = re.sub(rb"\t\t+", b"\t", block.replace(b" ", b"\t"))
            block = block.replace(b"\n\t", b"\n").replace(b"\t\n", b"\n").strip(b"\t")
        mark = dialect.comment.encode()
        if mark and mark in block:
            block = re.sub(rb"(?m)^[ \t]*" + re.escape(mark) + rb"[^\n]*", b"", block)
        if b'"' in block and (dialect.delimiter == " " or _OPEN_QUOTE.search(block)):
            what = "not quote values" if dialect.delimiter == " " else "end quoted values in their line"
            raise InputError(
                f'{self.name} must {what} where blanks delimit or lines are comments, got a quote (") in '
                f"{self.path}; name another delimiter (--delimiter), or no comments (--comment '')"
            )
        return block

    def open(self) -> IO[bytes]:
        """Plain rows as a binary file."""
        return io.BufferedReader(_Blocks(self._blocks()), 1 << 20)

    def rows(self, *, errors: str = "strict", strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not blank, the header among them, each with the line that it ends in."""
        with self.open() as raw, io.TextIOWrapper(raw, "utf-8", errors, newline="") as file:
            reader = csv.reader(file, delimiter=self.delimiter, strict=strict)
            yield from ((reader.line_num, row) for row in reader if row)

    def header(self) -> list[str]:
        """Names of the columns as the file writes them."""
        if self.names is not None:
            return list(self.names)
        with damage_named(self.path, self.name, "a CSV file in UTF-8"):
            return next(row for _, row in self.rows())

    def _scan(self) -> int:
        """Number of quotes; refuses what a parser would read wrongly or carry into an id."""
        quotes, escaped, inner, lines = 0, False, False, 1
        # A quote that neither starts nor ends a value: one of two, a plain character, or a fault.
        within = rb'[^%b\r\n]"[^%b\r\n]' % (2 * (re.escape(self.delimiter.encode()),))
        with damage_named(self.path, self.name, "a CSV file in UTF-8"):
            for block in self._blocks():
                for sign, what in ((b"\0", "a NUL byte"), (_BOM, "a byte order mark (joined files?)")):
                    if sign in block:
                        line = lines + len(re.findall(rb"\r\n?|\n", block[: block.index(sign)]))
                        raise InputError(
                            f"{self.name} must be text in UTF-8, got {what} within line {line} of {self.path}"
                        )
                quotes += block.count(b'"')
                escaped = escaped or re.search(rb'\\"(?!")', block) is not None
                inner = inner or re.search(within, block) is not None
                lines += block.count(b"\n") or block.count(b"\r")
        if quotes % 2 or escaped or inner:
            self._refuse_stray_quotes(escaped)
        return quotes

    def _refuse_stray_quotes(self, escaped: bool) -> None:
        """Parsers read an unclosed quote to the end, a backslash as a character, what follows a quote too."""
        last, row = 0, [""]
        try:
            for last, row in self.rows(errors="replace", strict=True):  # noqa: B007
                if escaped and any(value.endswith('"') for value in row):
                    raise csv.Error
        except csv.Error as error:
            place = f"the row after line {last} of {self.path}"
            if escaped:
                what = 'write a quote within a value twice (""), got one after a backslash (\\") in or near'
            elif "expected after" in str(error):
                what = f"have a delimiter after a quoted value, got {error} in"
            else:
                what = 'close every quoted value, got a quote (") that is open to the end in'
            raise InputError(f"{self.name} must {what} {place}") from error


def missing_columns(
    name: str, names: list[str], columns: tuple[str, str], path: Path, hint: str = ""
) -> InputError:
    """The error of a table without the two columns of nodes."""
    return InputError(
        f"{name} must have the columns {listed(columns)}, each once, got {listed(names)} in {path}{hint}"
    )


def _split(line: str, delimiter: str) -> list[str]:
    """Entries of one line, without the blanks around them."""
    if delimiter == " ":
        return line.split()
    try:
        return [entry.strip() for entry in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:  # a value longer than the module reads
        return [line]
