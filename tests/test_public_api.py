"""What is public: a written list of names, each documented, with an example where users begin.

After a deliberate change, write the list anew: ``python tests/test_public_api.py``.
"""

import doctest
import inspect
import re
import sys
from enum import Enum
from importlib import import_module
from pathlib import Path

import pytest

import linkcal

ROOT = Path(linkcal.__file__).parent
LIST = Path(__file__).with_name("public_names.txt")
#: The packages, and the modules that are in none. Modules inside a package are reached through it.
MODULES = sorted(
    f"linkcal.{path.stem}".removesuffix(".__init__")
    for path in (*ROOT.glob("*.py"), *(init.parent for init in ROOT.glob("*/__init__.py")))
    if path.name == "__init__.py" or not path.name.startswith("_")
)
#: Modules whose public names all have an example.
WITH_EXAMPLES = [
    "linkcal",
    *(f"linkcal.{name}" for name in ("calibrators", "data", "decisions", "metrics", "models", "toggle")),
]
#: Records that functions return: the examples are there.
RETURNED = {
    "AuditFinding", "BipartiteIds", "BlockModelTruth", "CalibrationAlarm", "CalibrationFloor", "DatasetInfo",
    "EpochReport", "GroupCalibration", "LinkThreshold", "MetricSpec", "ModelSpec", "ModelValue", "NamedGraph",
    "PairChunk", "PopulationTest", "Preset", "ReliabilityCurve", "SplitAudit", "TrainingResult",
}  # fmt: skip
#: Names whose one-line summary already describes the parameters.
DESCRIBED_IN_SUMMARY = {
    "Step", "calibration_part", "check_output_folder", "environment", "file_record", "load_graph",
    "preset_options", "split_graph", "to_json", "write_preset",
}  # fmt: skip


def public_names() -> list[str]:
    return [f"{module} {name}" for module in MODULES for name in sorted(import_module(module).__all__)]


def documented(module: str) -> dict[str, object]:
    """Public functions and classes."""
    found = {name: getattr(import_module(module), name) for name in import_module(module).__all__}
    return {name: each for name, each in found.items() if inspect.isroutine(each) or inspect.isclass(each)}


CLASSES = {name for module in MODULES for name, value in documented(module).items() if inspect.isclass(value)}


def sections(value: object) -> set[str]:
    return set(re.findall(r"^(\w[\w ]*)\n-{3,}$", inspect.getdoc(value) or "", re.MULTILINE))


def lacking(value: object) -> set[str]:
    """Sections that the docstring of a public function or class must have and has not."""
    if inspect.isclass(value):
        bare = issubclass(value, BaseException) and "__init__" not in vars(value)
        if bare or issubclass(value, Enum) or getattr(value, "_is_protocol", False):
            return set()
    signature = inspect.signature(value)
    # An inherited constructor is described by its class, four arguments of metrics by their package.
    inherited = inspect.isclass(value) and "__init__" not in vars(value) and value.__bases__[0] is not object
    described = inherited or {"y_true", "y_prob", "score", "sample_weight"} >= set(signature.parameters)
    needed = set() if described else {"Parameters"}
    # What a class of linkcal is stands in its own docstring.
    returned = getattr(signature.return_annotation, "__name__", str(signature.return_annotation))
    if inspect.isfunction(value) and returned not in {"None", "NoneType", *CLASSES}:
        needed.add("Yields" if "Iterator" in str(signature.return_annotation) else "Returns")
    return needed - sections(value)


def test_public_names_are_those_of_the_list():
    written = LIST.read_text(encoding="utf-8").splitlines()
    assert public_names() == written, f"after a deliberate change: python {Path(__file__).name}"


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_documented(module):
    values = documented(module)
    assert [name for name, value in values.items() if not value.__doc__] == []
    found = {name: missing for name, value in values.items() if (missing := lacking(value))}
    assert set(found) <= DESCRIBED_IN_SUMMARY, found


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_public_names_have_an_example(module):
    """The doctests of the suite check that the examples are right."""
    without = []
    for name, value in documented(module).items():
        examples = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
        if not examples or any(doctest.SKIP in example.options for example in examples):
            without.append(name)
    assert set(without) <= RETURNED, without


if __name__ == "__main__":
    LIST.write_text("\n".join(public_names()) + "\n", encoding="utf-8")
    sys.stdout.write(f"{LIST}: {len(public_names())} names\n")
