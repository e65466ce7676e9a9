"""The laboratory: the whole folder is left out where it is not installed."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest

collect_ignore_glob = [] if find_spec("linkcal_lab") else ["*"]


@pytest.fixture
def cli(capsys):
    """Run ``linkcal-lab`` in this process; gives exit code, stdout and stderr."""
    from linkcal_lab.cli import main

    def call(*arguments: object) -> SimpleNamespace:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return call
