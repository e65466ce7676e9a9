"""What works without the extra ``gnn``, and the line that names it where it is missing."""

import os
import subprocess
import sys

import pytest

#: What the extra "gnn" brings.
GNN = {"torch", "torch_geometric", "numba", "pandas", "pyarrow", "networkx"}
_BLOCK = """
import sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in GNN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def without_gnn(code: str) -> str:
    """What a fresh process prints that finds no package of the extra."""
    done = subprocess.run(
        [sys.executable, "-c", f"GNN = {GNN}\n{_BLOCK}\n{code}"],
        env=os.environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["calibrators", "decisions", "metrics", "plots", "report", "scores", "cli"])
def test_array_side_needs_no_extra(name):
    assert without_gnn(f"import linkcal.{name}; print(GNN & set(sys.modules))") == "set()\n"


def test_scores_are_calibrated_without_the_extra(tmp_path):
    rows = "".join(f"a{i},b{i},{i % 7 - 3},{i % 7 > i % 3 + 2:d}\n" for i in range(900))
    (tmp_path / "s.csv").write_text(f"source,target,logit,label\n{rows}")
    out, scores, new = (str(tmp_path / name) for name in ("run", "s.csv", "new.csv"))
    shown = without_gnn(
        "from linkcal.cli import main\n"
        f"assert main(['calibrate', {scores!r}, '--out', {out!r}]) == 0\n"
        f"assert main(['apply', {out!r}, {scores!r}, '--interval', '0.9', '--out', {new!r}]) == 0\n"
        f"assert main(['select', {out!r}, {scores!r}]) == 0\n"
        "print(GNN & set(sys.modules))"
    )
    assert "(selected)" in shown
    assert "set()" in shown
    header, *lines = (tmp_path / "new.csv").read_text().splitlines()
    assert header == "source,target,logit,probability,p_low,p_high"
    assert len(lines) == 900


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("main(['run', '--dataset', 'cora'])", "linkcal: error: linkcal run needs "),
        ("main(['score', 'a', 'b'])", "linkcal: error: linkcal score needs "),
        ("main(['calibrate', 's.parquet'])", "linkcal: error: a Parquet file needs pyarrow: pip install"),
        ("linkcal.CalibratedLinkPredictor", "linkcal.CalibratedLinkPredictor needs "),
        ("linkcal.InNOut().fit([[0.0, 1.0], [1.0, 0.0]] * 9, [0, 1] * 9)", "with a network needs numba"),
    ],
)
def test_one_line_names_the_missing_extra(code, line, tmp_path):
    (tmp_path / "s.parquet").touch()
    shown = without_gnn(
        "import os, linkcal\nfrom linkcal.cli import main\n"
        f"os.chdir({str(tmp_path)!r})\n"
        f"try:\n    {code}\nexcept ImportError as error:\n    print(error)"
    )
    (text,) = shown.strip().splitlines()
    assert line in text
    assert "pip install 'linkcal[" in text
