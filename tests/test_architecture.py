"""Imports run one way: the table in docs/architecture.md, checked on the syntax trees."""

import ast
from pathlib import Path

import pytest

import linkcal

ROOT = Path(linkcal.__file__).parent

_BASICS = {"exceptions", "_validation", "_math", "_random", "_columns", "_files", "_threads", "_memory"}
_GRAPH_SIDE = _BASICS | {"data", "models", "toggle", "features"}
_ALL = _GRAPH_SIDE | {"calibrators", "metrics", "plots", "report", "artifact", "experiments"}
_ALL |= {"evidence", "scoring", "decisions", "fitting", "wrapper"}

#: Sub-packages (and modules) that each may import at run time, beside itself.
ALLOWED = {
    "exceptions": set(),
    "_files": _BASICS,
    "_threads": set(),
    "_memory": set(),
    "__main__": {"cli"},
    "_validation": _BASICS,
    "_math": _BASICS,
    "_random": _BASICS,
    "_columns": set(),
    "data": _BASICS,
    "models": _BASICS | {"data"},
    "toggle": _BASICS | {"data", "models"},
    "features": _BASICS | {"data", "models", "toggle"},
    "metrics": _BASICS,
    "calibrators": _BASICS | {"metrics"},
    "plots": _BASICS | {"metrics"},
    "report": _BASICS | {"metrics", "plots"},
    "evidence": _GRAPH_SIDE,
    "artifact": _GRAPH_SIDE | {"calibrators", "evidence"},
    "scoring": _GRAPH_SIDE | {"calibrators"},
    "decisions": _GRAPH_SIDE | {"calibrators", "evidence", "scoring"},
    "fitting": _GRAPH_SIDE | {"calibrators"},
    "wrapper": _GRAPH_SIDE | {"calibrators", "evidence", "artifact", "scoring", "decisions", "fitting"},
    "ranking": _ALL - {"experiments"},
    "experiments": _ALL,
    "reproduction": _BASICS | {"calibrators", "metrics", "plots", "experiments"},
    "cli": _ALL | {"__version__", "ranking", "reproduction"},
}


def _imports(path: Path) -> set[str]:
    """Second parts of the linkcal names that a file imports: ``linkcal.data.graph`` gives ``data``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "linkcal":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("linkcal.")}
    return found


def _unit(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def test_every_unit_is_in_the_table():
    assert {_unit(path) for path in FILES} == set(ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path):
    unit = _unit(path)
    assert _imports(path) - {unit} <= ALLOWED[unit]


def test_a_forbidden_import_would_be_seen(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from linkcal.models import GCN\n    import linkcal.data.graph\n")
    assert _imports(bad) == {"models", "data"}
