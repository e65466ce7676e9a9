"""Pages are kept while asked for, and given back afterwards."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

from linkcal._core import threads as _memory
from linkcal._core.threads import kept_pages

CPU = torch.device("cpu")
BYTES = 1 << 26
ARCS = 1 << 20
gnu = pytest.mark.skipif(_memory._gnu_library() is None, reason="not the GNU C library")


#: Run in a process of its own: free blocks that earlier tests left in the heap would be taken for new ones.
FRESH = """
import resource
from pathlib import Path
import torch
from linkcal._core.threads import kept_pages

CPU, ARCS, BYTES = torch.device("cpu"), 1 << 20, 1 << 26
PAGES = BYTES // resource.getpagesize()
torch.set_num_threads(1)

def write(times=1):
    for _ in range(times):
        torch.ones(BYTES // 4)

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    write(times)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

write()
print(faults(20) / PAGES)
before = resident()
try:
    with kept_pages(CPU, ARCS):
        write(10)
        print(faults(20) / PAGES)
        with kept_pages(CPU, ARCS):
            write()
        print(faults(20) / PAGES)
        print((resident() - before) / PAGES)
        raise RuntimeError("stop")
except RuntimeError:
    print((resident() - before) / PAGES)
"""


@gnu
def test_blocks_are_mapped_a_few_times_and_given_back_after_an_error():
    """Without it each block is mapped. A free one may be too small by a bit: the first ones still are."""
    answer = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    usual, kept, nested, inside, after = map(float, answer.stdout.split())
    assert usual > 20 / 600  # pages of 2 MB at best
    assert kept < 0.05 * usual
    assert nested < 0.05 * usual
    assert inside > 0.5
    assert after < 0.25


@gnu
def test_tensors_of_the_block_outlive_it():
    with kept_pages(CPU, ARCS):
        kept, gone = torch.arange(BYTES // 8), torch.ones(BYTES // 4)
        del gone
    assert torch.equal(kept[:: 1 << 20], torch.arange(0, BYTES // 8, 1 << 20))
    assert int(kept[-1]) == BYTES // 8 - 1


@gnu
def test_threads_share_the_setting(monkeypatch):
    told = []
    original = _memory._set
    monkeypatch.setattr(_memory, "_set", lambda *to: told.append(to[1]) or original(*to))
    inside, done = threading.Event(), threading.Event()

    def other():
        with kept_pages(CPU, ARCS):
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    assert inside.wait(60)
    with kept_pages(CPU, ARCS):
        assert _memory._users == 2
    assert _memory._users == 1
    assert told == [_memory._KEPT]
    done.set()
    thread.join(60)
    assert _memory._users == 0
    assert told == [_memory._KEPT, _memory._USUAL]


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
