"""The cache of compiled code: it sees edits of what a function calls, and does without a writable folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import linkcal._core.compiled as module

SOURCE = Path(module.__file__)

CALLED = """
from linkcal._core.compiled import compiled

@compiled()
def number():
    return {value}
"""
CALLER = """
from linkcal._core.compiled import compiled
from linkcal.called import number

@compiled()
def twice():
    return 2 * number()
"""


@pytest.fixture
def package(tmp_path):
    """A package with two compiled files, one of which calls the other."""
    core = tmp_path / "linkcal" / "_core"
    core.mkdir(parents=True)
    for folder in (core, core.parent):
        (folder / "__init__.py").write_text("")
    (core / "compiled.py").write_text(SOURCE.read_text())
    (core.parent / "called.py").write_text(CALLED.format(value=1))
    (core.parent / "caller.py").write_text(CALLER)
    return tmp_path


def ask(package: Path, **environment: str) -> str:
    """`twice()` in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", "from linkcal.caller import twice; print(twice())"],
        env={**os.environ, "PYTHONPATH": str(package), **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip() + done.stderr


def test_an_edit_of_a_called_file_is_seen(package):
    assert ask(package) == "2"
    (package / "linkcal" / "called.py").write_text(CALLED.format(value=5))
    assert ask(package) == "10"


def test_a_second_process_finds_the_compiled_code(package):
    ask(package)
    before = sorted(package.rglob("*.nbc"))
    ask(package)
    assert len(before) == 2
    assert sorted(package.rglob("*.nbc")) == before


def test_numba_cache_dir_is_used(package, tmp_path):
    assert ask(package, NUMBA_CACHE_DIR=str(tmp_path / "chosen")) == "2"
    assert len(list((tmp_path / "chosen").rglob("*.nbc"))) == 2


def test_without_a_writable_folder_it_compiles_in_memory_and_warns_once(package):
    answer = ask(package, NUMBA_CACHE_DIR="/proc/none")
    assert answer.startswith("2")
    assert answer.count("RuntimeWarning: compiled code cannot be kept") == 1


def test_without_compilation_it_is_plain_python(package):
    assert ask(package, NUMBA_DISABLE_JIT="1") == "2"
