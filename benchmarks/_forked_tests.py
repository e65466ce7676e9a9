"""Pytest in forks of one process that has imported the libraries; `mutation` starts it and sends requests.

Reads lines of JSON ``[folder, arguments, seconds]`` and answers each with pytest's exit status, or null after
that many seconds. Nothing of linkcal is imported here: a fork imports it from ``folder/src``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numba
import pandas as pd
import pytest
import sklearn.ensemble
import torch_geometric.nn

_IMPORTED = (numba, pd, plt, sklearn.ensemble, torch_geometric.nn)


def run(folder: str, arguments: list[str], limit: float) -> int | None:
    """Exit status of pytest in a fork; None where it is killed, with its children, after `limit` seconds."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(folder)
        sys.path[:0] = [str(Path(folder, "src")), folder]
        os.environ["PYTHONPATH"] = sys.path[0]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(int(pytest.main(arguments)))
    end = time.monotonic() + limit
    status: int | None = None
    while status is None and time.monotonic() < end:
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(code)
        time.sleep(0.02)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it has ended, and left nothing behind
        return status
    if status is None:
        os.waitpid(child, 0)
    return status


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(*json.loads(line))), flush=True)
