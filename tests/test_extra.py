"""What works without the extra ``gnn``, and the line that names it where it is missing."""

import os
import subprocess
import sys

import pytest

#: What the extra "gnn" brings.
GNN = {"torch", "torch_geometric", "numba", "pandas", "pyarrow", "networkx", "matplotlib"}
_BLOCK = """
import sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in GNN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import linkcal
from linkcal.cli import main
"""


@pytest.fixture
def without_gnn(tmp_path):
    """Run code in a fresh process that finds no package of the extra; what it prints."""

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", f"GNN = {GNN}\n{_BLOCK}\n{code}"],
            env=os.environ, cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout + done.stderr

    return run


def test_scores_are_calibrated_without_the_extra(without_gnn, tmp_path):
    rows = "".join(f"a{i},b{i},{i % 7 - 3},{i % 7 > i % 3 + 2:d}\n" for i in range(900))
    (tmp_path / "s.csv").write_text(f"source,target,logit,label\n{rows}")
    shown = without_gnn(
        "assert main(['calibrate', 's.csv', '--out', 'run']) == 0\n"
        "assert main(['apply', 'run', 's.csv', '--interval', '0.9', '--out', 'new.csv']) == 0\n"
        "assert main(['select', 'run', 's.csv']) == 0\n"
        "assert main(['list', 'calibrators']) == 0\n"
        "import linkcal.calibrators, linkcal.decisions, linkcal.metrics, linkcal.plots, linkcal.report\n"
        "print('loaded', GNN & set(sys.modules))"
    )
    assert "\n > " in shown
    assert "loaded set()" in shown
    header, *lines = (tmp_path / "new.csv").read_text().splitlines()
    assert header == "source,target,logit,probability,p_low,p_high"
    assert len(lines) == 900


#: Code that needs an extra, and what the line that names it begins with.
NEEDS = {
    "main(['run', '--dataset', 'cora'])": "linkcal: error: linkcal run needs ",
    "main(['score', 'a', 'b'])": "linkcal: error: linkcal score needs ",
    "main(['calibrate', 's.parquet'])": "linkcal: error: a Parquet file needs pyarrow: ",
    "from linkcal import plots; plots.plot_reliability(([0, 1], [0.2, 0.7]))": "a figure needs matplotlib: ",
    "linkcal.CalibratedLinkPredictor": "linkcal.CalibratedLinkPredictor needs ",
    "linkcal.InNOut().fit([[0.0, 1.0], [1.0, 0.0]] * 9, [0, 1] * 9)": "a calibrator with a network needs ",
}


def test_one_line_names_the_missing_extra(without_gnn, tmp_path):
    (tmp_path / "s.parquet").touch()
    tried = "\n".join(
        f"try:\n    {code}\nexcept ImportError as error:\n    print(error, file=sys.stderr)" for code in NEEDS
    )
    lines = without_gnn(tried).splitlines()
    assert len(lines) == len(NEEDS)
    for line, start in zip(lines, NEEDS.values(), strict=True):
        assert line.startswith(start)
        assert "pip install 'linkcal[" in line
