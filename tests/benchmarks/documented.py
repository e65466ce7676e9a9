"""Command lines of scripts, as documents give them."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"

#: Code in a line of text; it may be broken over lines, though not over paragraphs.
_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)(?:(?!\n\s*\n)[^`])+\1(?!`)")
_COMMAND = re.compile(r"python3? ((?:benchmarks|examples)/\w+\.py)([^`\n]*)")
_MAKE = re.compile(r'make bench BENCH="([^"]*)"')


def commands_in(text: str) -> list[tuple[str, list[str]]]:
    r"""Scripts (``benchmarks/NAME.py``) and the words after them, those of ``make bench`` included."""
    text = re.sub(r"\\\n\s*", " ", text)
    text = _INLINE.sub(lambda code: code[0].replace("\n", " "), text)
    found = [(script, words) for script, words in _COMMAND.findall(text)]
    found += [("benchmarks/run.py", words) for words in _MAKE.findall(text)]
    return [(script, shlex.split(words, comments=True)) for script, words in found]


def documents() -> Iterator[tuple[str, str]]:
    """Path and text of everything that may hold commands."""
    pages = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
    for path in [*pages, *sorted((FOLDER / "results").glob("*.md"))]:
        yield _name(path), path.read_text(encoding="utf-8")
    for path in sorted((FOLDER / "results").glob("*.json")):
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        yield _name(path), "\n".join(run["command"] for run in runs)
    for folder in ("benchmarks", "examples"):
        for path in sorted((ROOT / folder).glob("*.py")):
            yield _name(path), ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
