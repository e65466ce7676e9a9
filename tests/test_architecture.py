"""Imports run one way: the table in docs/architecture.md, checked on the syntax trees."""

import ast
from pathlib import Path

import linkcal

ROOT = Path(linkcal.__file__).parent

_CORE = {"exceptions", "_core"}
_GRAPH_SIDE = _CORE | {"data", "models", "toggle", "features"}
_ARRAY_SIDE = _CORE | {"calibrators", "decisions", "metrics", "plots", "report"}
_PREDICTOR = _GRAPH_SIDE | {"calibrators", "decisions", "artifact", "_scoring"}

#: Parts of the library that each may import, beside itself. None may import the laboratory.
ALLOWED = {
    "exceptions": set(),
    "_core": _CORE,
    "data": _CORE,
    "models": _CORE | {"data"},
    "toggle": _CORE | {"data", "models"},
    "features": _CORE | {"data", "models", "toggle"},
    "metrics": _CORE,
    "calibrators": _CORE | {"metrics"},
    "decisions": _CORE | {"calibrators"},
    "plots": _CORE | {"metrics"},
    "report": _CORE | {"metrics", "plots"},
    "_folder": _CORE | {"calibrators"},
    "scores": _ARRAY_SIDE | {"_folder", "artifact", "data", "features"},  # with `edges` alone
    "embeddings": _CORE,
    "artifact": _GRAPH_SIDE | {"calibrators", "_scoring", "_folder"},
    "_scoring": _GRAPH_SIDE | {"calibrators"},
    "predictor": _PREDICTOR | {"metrics", "report"},
    "all_pairs": _PREDICTOR | {"predictor"},
    "batches": _PREDICTOR | {"_folder", "predictor"},
    "workflow": _PREDICTOR | _ARRAY_SIDE | {"predictor"},
    "cli": _PREDICTOR
    | _ARRAY_SIDE
    | {"predictor", "all_pairs", "batches", "workflow", "scores", "embeddings", "_folder", "__version__"},
    "__main__": {"cli"},
}


def _imports(path: Path) -> set[str]:
    """Second parts of the linkcal names that a file imports: ``linkcal.data.graph`` gives ``data``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("linkcal"):
            parts = str(node.module).replace("linkcal_lab", "linkcal.linkcal_lab").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("linkcal.")}
    return found


def _unit(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_imports_run_one_way():
    files = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
    assert {_unit(path) for path in files} == set(ALLOWED)
    forbidden = {path: _imports(path) - {_unit(path)} - ALLOWED[_unit(path)] for path in files}
    assert not {path: names for path, names in forbidden.items() if names}


def test_a_forbidden_import_would_be_seen(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from linkcal.models import GCN\n    import linkcal.data.graph\n")
    assert _imports(bad) == {"models", "data"}
