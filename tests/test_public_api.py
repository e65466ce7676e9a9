"""What is public: names that exist, are sorted and documented, each with an example where users begin."""

import ast
import doctest
import inspect
import re
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import linkcal

ROOT = Path(linkcal.__file__).parent

#: Packages whose public names all have an example.
WITH_EXAMPLES = [
    "linkcal",
    "linkcal.calibrators",
    "linkcal.data",
    "linkcal.decisions",
    "linkcal.metrics",
    "linkcal.models",
    "linkcal.toggle",
]


def _is_private(path: Path) -> bool:
    return any(part.startswith("_") and part != "__init__.py" for part in path.relative_to(ROOT).parts)


def _module_name(path: Path) -> str:
    parts = ["linkcal", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PUBLIC = [path for path in sorted(ROOT.rglob("*.py")) if not _is_private(path)]
#: Modules whose pieces are passed on to their neighbours and meant for nobody else.
PIECES = ("linkcal.toggle.", "linkcal_lab.figures")
#: Public names whose parameters their one-line summary already says.
SAID_IN_SUMMARY = {"linkcal.workflow": {"Step"}}
#: The entrances: packages, and modules that stand in none.
ENTRANCES = [path for path in PUBLIC if path.name == "__init__.py" or path.parent == ROOT]


def _order(name: str) -> tuple[int, str]:
    """Ruff's order of ``__all__``: constants, classes, the rest."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


def _defined(path: Path) -> set[str]:
    """Public functions and classes of a module; of a package what it imports from linkcal."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom) and path.name == "__init__.py":
            own = node.module is not None and node.module.startswith("linkcal")
            names |= {alias.asname or alias.name for alias in node.names} if own else set()
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("path", PUBLIC, ids=_module_name)
def test_all_is_what_the_module_defines(path):
    module = import_module(_module_name(path))
    names = module.__all__
    assert names == sorted(set(names), key=_order)
    assert [name for name in names if not hasattr(module, name)] == []
    if not module.__name__.startswith(PIECES):
        assert _defined(path) <= set(names)


def _named_objects(module: ModuleType) -> list[tuple[str, object]]:
    found = ((name, getattr(module, name)) for name in module.__all__)
    return [(name, value) for name, value in found if inspect.isfunction(value) or inspect.isclass(value)]


def _sections(value: object) -> set[str]:
    return set(re.findall(r"^(\w[\w ]*)\n-{3,}$", inspect.getdoc(value) or "", re.MULTILINE))


def _has_own_arguments(cls: type) -> bool:
    """Whether a class is made by arguments of its own: no enumeration, no protocol, no bare exception."""
    bare = issubclass(cls, BaseException) and "__init__" not in vars(cls)
    return not (bare or issubclass(cls, Enum) or getattr(cls, "_is_protocol", False))


def _lacking(value: object) -> set[str]:
    """Sections that a public function or class must have and has not."""
    if inspect.isclass(value) and not _has_own_arguments(value):
        return set()
    signature = inspect.signature(value)
    needed = {"Parameters"} if signature.parameters else set()
    if inspect.isfunction(value) and signature.return_annotation not in (None, "None"):
        needed.add("Yields" if "Iterator" in str(signature.return_annotation) else "Returns")
    return needed - _sections(value)


@pytest.mark.parametrize("path", ENTRANCES, ids=_module_name)
def test_public_names_are_documented(path):
    module = import_module(_module_name(path))
    documented = _named_objects(module)
    assert [name for name, value in documented if not value.__doc__] == []
    lacking = {name: sections for name, value in documented if (sections := _lacking(value))}
    assert set(lacking) == SAID_IN_SUMMARY.get(module.__name__, set())


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_public_names_have_an_example_that_runs(name):
    """That the examples give what they say, pytest's doctests check."""
    parser = doctest.DocTestParser()
    without = []
    for public, value in _named_objects(import_module(name)):
        examples = parser.get_examples(inspect.getdoc(value) or "")
        skipped = [example for example in examples if doctest.SKIP in example.options]
        if "Examples" not in _sections(value) or not examples or skipped:
            without.append(public)
    assert without == []
