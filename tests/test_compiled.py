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


def start(package: Path, first: str = "", **environment: str) -> subprocess.Popen:
    """A fresh process that prints `twice()`."""
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return subprocess.Popen(
        [sys.executable, "-c", first + "from linkcal.caller import twice; print(twice())"],
        env={**inherited, "PYTHONPATH": str(package), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def result(process: subprocess.Popen) -> str:
    output = process.communicate()[0].strip()
    assert process.returncode == 0, output
    return output


def test_processes_share_cached_code_until_a_called_file_is_edited(package):
    both = [start(package), start(package)]
    assert [result(process) for process in both] == ["2", "2"]
    before = {path: path.stat().st_mtime_ns for path in package.rglob("*.nbc")}
    assert len(before) == 2
    assert result(start(package)) == "2"
    assert {path: path.stat().st_mtime_ns for path in package.rglob("*.nbc")} == before
    (package / "linkcal" / "called.py").write_text(CALLED.format(value=5))
    assert result(start(package)) == "10"


def test_numba_cache_dir_is_used(package, tmp_path):
    assert result(start(package, NUMBA_CACHE_DIR=str(tmp_path / "chosen"))) == "2"
    assert len(list((tmp_path / "chosen").rglob("*.nbc"))) == 2
    assert not list((package / "linkcal").rglob("*.nbc"))


def test_without_a_writable_folder_it_compiles_in_memory_and_warns_once(package):
    output = result(start(package, NUMBA_CACHE_DIR="/proc/none"))
    assert output.endswith("2")
    assert output.count("RuntimeWarning: compiled code cannot be cached") == 1


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become nobody")
def test_a_read_only_package_without_a_home_still_works(package):
    for path in (package, *package.rglob("*")):
        path.chmod(0o555)
    for folder in package.parents[:3]:
        folder.chmod(folder.stat().st_mode | 0o111)
    # The interpreter may be root's own: what Numba needs is loaded before the process becomes nobody.
    first = "import os, numba; numba.njit(lambda: 1)(); os.setuid(65534); os.environ.pop('HOME', None)\n"
    output = result(start(package, first, XDG_CACHE_HOME=""))
    assert output.endswith("2")
    assert "RuntimeWarning: compiled code cannot be cached" in output


def test_without_compilation_it_is_plain_python(package):
    assert result(start(package, NUMBA_DISABLE_JIT="1")) == "2"
