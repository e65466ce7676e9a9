"""Scripts of ``benchmarks/``, imported as they import each other."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from tests.benchmarks.documented import FOLDER


@pytest.fixture
def load(monkeypatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import a script by name, its folder first on the path as in ``python benchmarks/NAME.py``.

    What was imported is forgotten afterwards: ``toggle`` is a folder of tests, too.
    """
    names = [path.stem for path in FOLDER.glob("*.py")]
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    threads = torch.get_num_threads()
    yield importlib.import_module
    torch.set_num_threads(threads)
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def run(load, monkeypatch) -> Callable[..., ModuleType]:
    """Run a script's ``main`` with words of a command line, some of its globals replaced."""

    def run(name: str, *words: object, **replaced: object) -> ModuleType:
        module = load(name)
        for attribute, value in replaced.items():
            monkeypatch.setattr(module, attribute, value)
        monkeypatch.setattr(sys, "argv", [str(FOLDER / f"{name}.py"), *map(str, words)])
        module.main()
        return module

    return run
