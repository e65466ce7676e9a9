"""The command ``linkcal-lab`` in this process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from linkcal.cli import main
from linkcal_lab.cli import main as lab_main


@pytest.fixture
def cli(capsys):
    """Run ``linkcal-lab`` (``run`` and ``fit``: ``linkcal``); gives exit code, stdout and stderr."""

    def call(*arguments: object) -> SimpleNamespace:
        capsys.readouterr()
        command = main if arguments[0] in {"run", "fit"} else lab_main
        code = command([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return call
