"""Modules of ``benchmarks/``, imported as they import each other."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from tests.benchmarks.documented import FOLDER


@pytest.fixture(scope="session")
def benchmarks() -> Iterator[dict[str, ModuleType]]:
    """Every module by name, its folder first on the path as in ``python benchmarks/run.py``."""
    threads = torch.get_num_threads()
    names = [path.stem for path in FOLDER.glob("*.py")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(FOLDER), *sys.path])
        for name in names:
            patch.delitem(sys.modules, name, raising=False)
        yield {name: importlib.import_module(name) for name in names}
        for name in names:
            sys.modules.pop(name, None)
    torch.set_num_threads(threads)
