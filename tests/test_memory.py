"""Pages are kept while asked for, and given back afterwards."""

from __future__ import annotations

import gc
import resource
import sys
import threading
from pathlib import Path

import pytest
import torch

from linkcal import _memory
from linkcal._memory import kept_pages

CPU = torch.device("cpu")
BYTES = 1 << 26
ARCS = 1 << 20
PAGES = BYTES // resource.getpagesize()
gnu = pytest.mark.skipif(_memory._gnu_library() is None, reason="not the GNU C library")


def faults_of(run):
    """Pages that the system had to map while `run` ran."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    run()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def write():
    torch.ones(BYTES // 4)


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])


@gnu
def test_blocks_are_mapped_a_few_times_only():
    """Without it, each of them is. A free block may be some bytes too small, so the first ones still are."""
    with kept_pages(CPU, ARCS):
        for _ in range(10):
            write()
        assert faults_of(lambda: [write() for _ in range(20)]) < PAGES
        with kept_pages(CPU, ARCS):
            write()
        assert faults_of(write) < PAGES
    assert faults_of(lambda: [write() for _ in range(20)]) > 20 * PAGES // 600  # pages of 2 MB at best


@gnu
def test_memory_is_given_back_also_after_an_error():
    gc.collect()
    _memory._gnu_library().malloc_trim(0)
    before = resident()

    def fail():
        with kept_pages(CPU, ARCS):
            write()
            assert resident() > before + PAGES // 2
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert resident() < before + PAGES // 4
    kept = torch.ones(BYTES // 4)
    assert resident() > before + PAGES // 2
    del kept
    assert resident() < before + PAGES // 4
    assert _memory._users == 0


@gnu
def test_tensors_of_the_block_outlive_it():
    with kept_pages(CPU, ARCS):
        kept, gone = torch.arange(BYTES // 8), torch.ones(BYTES // 4)
        del gone
    assert torch.equal(kept[:: 1 << 20], torch.arange(0, BYTES // 8, 1 << 20))
    assert int(kept[-1]) == BYTES // 8 - 1


@gnu
def test_threads_share_the_setting():
    inside, done = threading.Event(), threading.Event()

    def other():
        with kept_pages(CPU, ARCS):
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    assert inside.wait(60)
    with kept_pages(CPU, ARCS):
        write()
    assert _memory._users == 1
    for _ in range(10):
        write()
    assert faults_of(lambda: [write() for _ in range(20)]) < PAGES
    done.set()
    thread.join(60)
    assert _memory._users == 0


def test_other_devices_and_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(_memory, "_set", lambda *_: pytest.fail("a setting of the C library was changed"))
    with kept_pages(torch.device("cuda"), ARCS):
        assert _memory._users == 0
    for few_or_many in (0, 1000, 1 << 30):
        with kept_pages(CPU, few_or_many):
            assert _memory._users == 0
    monkeypatch.setattr(sys, "platform", "darwin")
    with kept_pages(CPU, ARCS):
        assert _memory._users == 0


@gnu
@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_MMAP_THRESHOLD_", "1048576"), ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1048576")],
)
def test_options_that_the_user_has_set_are_left_alone(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(_memory, "_set", lambda *_: pytest.fail("a setting of the C library was changed"))
    with kept_pages(CPU, ARCS):
        assert _memory._users == 0
