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
def test_case_a7_a_read_only_package_without_a_home_still_works(package):
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


PLAIN = """
import torch
from linkcal import CalibratedLinkPredictor, StructuralCalibrator
from linkcal.data import sample_negatives, simulate_graph, split_links
from linkcal.models import make_model

split = split_links(simulate_graph(40, num_edges=90, num_features=5, seed=0), seed=0)
pairs = split.test.edge_label_index[:, :3]
for name, options in [("gcn", {}), ("sage", {"num_layers": 3}), ("gin", {}), ("seal", {})]:
    clp = CalibratedLinkPredictor(make_model(name, 5, seed=0, **options), StructuralCalibrator()).fit(split)
    found = clp.score(pairs)
    print(found.toggled.method, *(f"{p:.6f}" for p in found.logit.tolist()))
"""


def test_without_compilation_the_same_numbers(tmp_path):
    """NUMBA_DISABLE_JIT=1: compiled code runs as plain Python, which is also how coverage sees it."""
    printed = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PLAIN], env={**os.environ, "NUMBA_DISABLE_JIT": off},
            capture_output=True, text=True, check=True,
        ).stdout
        for off in ("0", "1")
    ]  # fmt: skip
    numbers = [[float(n) for line in text.splitlines() for n in line.split()[1:]] for text in printed]
    assert numbers[0] == pytest.approx(numbers[1], abs=2e-6)
    assert [line.split()[0] for line in printed[0].splitlines()] == ["kernel", "kernel", "kernel", "pairwise"]
