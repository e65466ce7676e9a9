"""Command lines of scripts, as documents give them."""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"

#: Code in a line of text; it may be broken over lines, though not over paragraphs.
_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)(?:(?!\n\s*\n)[^`])+\1(?!`)")
_COMMAND = re.compile(r"python3? ((?:benchmarks|examples)/\w+\.py)([^`\n]*)")
_MAKE = re.compile(r'make bench-(\w+)(?: BENCH_ARGS="([^"]*)")?')
_RECIPE = re.compile(r"^bench-(\w+):.*\n\t.*python (benchmarks/\w+\.py) \$\(BENCH_ARGS\)$", re.MULTILINE)

Command = tuple[str, list[str]]


def commands_in(text: str) -> list[Command]:
    r"""Scripts (``benchmarks/NAME.py``) and the words after them, those of ``make bench-NAME`` included."""
    text = re.sub(r"\\\n\s*", " ", text)
    text = _INLINE.sub(lambda code: code[0].replace("\n", " "), text)
    recipes = dict(_RECIPE.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    found = [(script, words) for script, words in _COMMAND.findall(text)]
    found += [(recipes.get(target, f"make bench-{target}"), words) for target, words in _MAKE.findall(text)]
    return [(script, shlex.split(words, comments=True)) for script, words in found]


def documents() -> Iterator[tuple[str, str]]:
    """Path and text of everything that may hold commands."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages += sorted((FOLDER / "results").glob("*.md"))
    for path in pages:
        yield _name(path), path.read_text(encoding="utf-8")
    for path in sorted((FOLDER / "results").glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        yield _name(path), "\n".join([result.get("command", ""), *result.get("commands", {}).values()])
    for folder in ("benchmarks", "examples"):
        for path in sorted((ROOT / folder).glob("*.py")):
            yield _name(path), ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def errors_of(parser: argparse.ArgumentParser, words: list[str]) -> str | None:
    """What the parser has against a command's words; None where it takes them."""
    # Whole names only: what a prefix means changes with the next option.
    parser.allow_abbrev = False
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            parser.parse_args(words)
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1].partition(": ")[2]
    return None


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
