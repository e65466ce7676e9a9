"""A sweep killed with SIGKILL at 20 random moments and continued leaves the store of an uninterrupted one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from linkcal_lab.records import read_records

#: Files whose content says when or how long, and not what.
_TIMES = ("config.json", ".lock")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    script = Path(__file__).with_name("sweep_killer.py")
    # A forked child must not inherit the state of a thread pool.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder), "0"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def contents(store):
    found = {str(path.relative_to(store)): path for path in sorted(store.rglob("*")) if path.is_file()}
    return {name: None if path.name in _TIMES else path.read_bytes() for name, path in found.items()}


@pytest.mark.slow
def test_killed_and_continued_equals_uninterrupted(killed):
    folder, report = killed
    assert report["codes"].count(-signal.SIGKILL) == 20
    assert report["codes"][-1] == 0
    assert set(report["codes"]) <= {-signal.SIGKILL, 0}
    assert contents(folder / "killed") == contents(folder / "whole")
    records = read_records(folder / "killed")
    assert records.equals(read_records(folder / "whole"))
    # 2 models x 2 fit_on x 2 calibration seeds x 2 calibrators x 2 parts, each value once.
    assert len(records.query("metric == 'ece'")) == 32


@pytest.mark.slow
def test_two_sweeps_at_once_share_a_store(killed):
    folder, report = killed
    assert report["shared"] == [0, 0]
    assert contents(folder / "shared") == contents(folder / "whole")
