"""How many faults, put into the code one at a time, the tests find."""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from _harness import Case, Point, Row, table
from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[1]
#: By exit status of pytest; a failed test, a module that cannot be imported any more or a crash kills.
_OUTCOMES = {None: "timeout", 0: "survived"}

_PAIRS: tuple[tuple[type[Any], type[Any]], ...] = (
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn),
    (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr),
)  # fmt: skip
_OPERATORS: dict[type[Any], type[Any]] = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
_OPERATORS |= {ast.FloorDiv: ast.Div, ast.Mod: ast.Mult, ast.Pow: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """One changed expression of a file; `start` and `end` are byte offsets."""

    path: str
    tests: tuple[str, ...]
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        old, new = (text.decode().splitlines(keepends=True) for text in (source, self.apply(source)))
        return "".join(difflib.unified_diff(old, new, self.path, self.path, n=1))


def mutants_of(source: bytes) -> Iterator[tuple[int, int, str]]:
    """Every mutant of a file, as the bytes that are replaced and the expression in their place.

    Operators of comparisons, boolean and arithmetic expressions, numbers, truth values, returned values and
    conditions are changed; annotations, messages of errors, text and decorators are not.
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _mutable(ast.parse(source)):
        for place, mutated in _changed(node):
            start = starts[place.lineno - 1] + place.col_offset
            yield start, starts[place.end_lineno - 1] + place.end_col_offset, f"({ast.unparse(mutated)})"


def _mutable(node: ast.AST) -> Iterator[Any]:
    """The node and all below it that may be mutated; positions inside f-strings are not those of the file."""
    if isinstance(node, (ast.Raise, ast.JoinedStr)):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _mutable(child)


def _changed(node: Any) -> Iterator[tuple[Any, ast.AST]]:
    """The expression of a node that is replaced, and what by."""
    if isinstance(node, (ast.If, ast.While)):
        if not (isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)):  # else: below
            yield node.test, ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return) and node.value is not None:
        yield node.value, ast.Constant(None)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node, node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        yield node, ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            ops = [*node.ops[:place], _OPERATORS[type(operator)](), *node.ops[place + 1 :]]
            yield node, ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield node, ast.BoolOp(_OPERATORS[type(node.op)](), node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield node, ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)


class Mutation(Case):
    """Share of mutants, one changed expression each, that the tests beside the mutated file find.

    A random sample of all mutants of the targets, each `SOURCE=TESTS`: a file or folder, and the tests that
    are run, joined by commas. A mutant is killed if a test or a doctest of its file fails or the time limit
    (seconds) is passed. Finished mutants stay in the store and are not run again.
    """

    name, title = "mutation", "Mutation score"
    needs = ("store",)
    settings = {
        "sample": 300, "seed": 0, "jobs": 2, "limit": 600.0,
        "targets": (
            "src/linkcal/metrics=tests/metrics",
            "src/linkcal/calibrators=tests/calibrators",
            "src/linkcal/decisions=tests/decisions,tests/test_predictor_decisions.py",
            "src/linkcal/data/negatives.py=tests/data/test_negatives.py,tests/test_bipartite.py",
            "src/linkcal/data/split.py=tests/data/test_split.py,tests/data/test_time.py",
            "src/linkcal/toggle/_layers.py=tests/toggle",
        ),
    }  # fmt: skip
    quick = {"sample": 2, "targets": ("src/linkcal/metrics/scores.py=tests/metrics/test_scores.py",)}

    def setup(self, point: Point, folder: Path) -> list[Mutant]:
        every = []
        for target in point.targets:
            source, _, tests = target.partition("=")
            place = ROOT / source
            for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
                name = path.relative_to(ROOT).as_posix()
                every += [Mutant(name, tuple(tests.split(",")), *m) for m in mutants_of(path.read_bytes())]
        return random.Random(point.seed).sample(every, min(point.sample, len(every)))

    def measure(self, point: Point, made: list[Mutant]) -> list[Row]:
        with TemporaryDirectory() as folder:
            copies: Queue[Copy] = Queue()
            for number in range(point.jobs):
                copies.put(Copy(Path(folder, str(number)), point.limit))
            store = Path(folder, "store") if point.store is None else point.store
            store.mkdir(parents=True, exist_ok=True)

            def covered(tests: tuple[str, ...]) -> dict[str, list[str]]:
                copy = copies.get()
                try:
                    return copy.covering(tests, sorted({each.path for each in made if each.tests == tests}))
                finally:
                    copies.put(copy)

            covering: dict[str, list[str]] = {}

            def judged(mutant: Mutant) -> Row:
                source = (ROOT / mutant.path).read_bytes()
                key = hashlib.sha256(b"\0".join([repr(mutant).encode(), source])).hexdigest()[:24]
                path = store / f"{key}.json"
                if not path.exists():
                    copy = copies.get()
                    try:
                        row = copy.judge(mutant, source, covering)
                    finally:
                        copies.put(copy)
                    path.with_suffix(".part").write_text(json.dumps(row), encoding="utf-8")
                    path.with_suffix(".part").replace(path)
                    print(f"{mutant.path}: {row['outcome']}, {row['s']:.0f} s", file=sys.stderr, flush=True)
                return dict(json.loads(path.read_text(encoding="utf-8")))

            with ThreadPoolExecutor(point.jobs) as pool:
                for found in pool.map(covered, sorted({each.tests for each in made})):
                    covering.update(found)
                rows = list(pool.map(judged, made))
            while not copies.empty():
                copies.get().process.communicate()
            return rows

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        lines = []
        for path, part in [*rows.groupby("path"), ("all", rows)]:
            counts = [int((part["outcome"] == o).sum()) for o in ("killed", "timeout", "survived")]
            lines.append([path, len(part), *counts, f"{100 * (1 - counts[-1] / len(part)):.0f} %"])
        survivors = rows[rows["outcome"] == "survived"]
        return [
            table(["file", "mutants", "killed", "timeout", "survived", "score"], lines),
            "## Survivors",
            *(f"```diff\n{diff}```" for diff in survivors["diff"]),
        ]


class Copy:
    """A copy of the repository, and a process that runs tests in it."""

    def __init__(self, place: Path, limit: float) -> None:
        kept = shutil.ignore_patterns(".*", "__pycache__", "runs")
        self.place, self.limit = Path(shutil.copytree(ROOT, place, ignore=kept)), limit
        command = [sys.executable, str(Path(__file__).with_name("_forked_tests.py"))]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        pipe: Any = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)

    def covering(self, tests: Sequence[str], paths: Sequence[str]) -> dict[str, list[str]]:
        """Tests and doctests that run each line of the files, by ``PATH:LINE``; all must pass."""
        code = self._pytest(
            [*paths, *tests, "--cov", "--cov-context=test", "--cov-report=", "--cov-fail-under=0"]
        )
        if code != 0:
            raise SystemExit(f"{tests} must pass on unchanged code, got: {code}")
        data, found = CoverageData(str(self.place / ".coverage")), {}
        data.read()
        for path in paths:
            for line, names in data.contexts_by_lineno(str(self.place / path)).items():
                found[f"{path}:{line}"] = sorted({name.rpartition("|")[0] for name in names} - {""})
        return found

    def judge(self, mutant: Mutant, source: bytes, covering: Mapping[str, Sequence[str]]) -> Row:
        """Run the tests of a mutant, those that run its lines first; the copy is as before afterwards."""
        start, changed = time.perf_counter(), self.place / mutant.path
        lines = range(source.count(b"\n", 0, mutant.start) + 1, source.count(b"\n", 0, mutant.end) + 2)
        first = sorted({name for line in lines for name in covering.get(f"{mutant.path}:{line}", ())})
        changed.write_bytes(mutant.apply(source))
        try:
            code = self._pytest(first) if first else 0
            if code in (0, 4):  # compiled lines leave no trace; 4: a module that cannot be imported
                code = self._pytest([mutant.path, *mutant.tests])
        finally:
            changed.write_bytes(source)
        row = {
            "path": mutant.path,
            "outcome": _OUTCOMES.get(code, "killed"),
            "s": time.perf_counter() - start,
        }
        return row | {"diff": mutant.diff(source)}

    def _pytest(self, tests: Iterable[str]) -> int | None:
        assert self.process.stdin is not None  # both are pipes
        assert self.process.stdout is not None
        words = ["-x", "-q", "-p", "no:cacheprovider", "--doctest-modules", *tests]
        self.process.stdin.write(json.dumps([str(self.place), words, self.limit]) + "\n")
        self.process.stdin.flush()
        code: int | None = json.loads(self.process.stdout.readline())
        return code
