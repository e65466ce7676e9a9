"""Files of a user (edges with names, features, pairs to score) and a folder fitted on them once."""

import csv
import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from linkcal.cli import main
from linkcal.predictor import CalibratedLinkPredictor

NUM_NODES = 120


@pytest.fixture
def cli(capsys):
    """Run the command in this process: exit code, stdout (as text and CSV rows), stderr (also unwrapped)."""

    def call(*arguments: object) -> SimpleNamespace:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        rows = list(csv.DictReader(io.StringIO(out)))
        return SimpleNamespace(code=code, out=out, err=err, rows=rows, message=" ".join(err.split()))

    return call


@pytest.fixture
def fails(cli):
    """Run the command and check that it ends with one line that holds the given parts."""

    def call(*arguments: object, parts: tuple[str, ...]) -> None:
        answer = cli(*arguments)
        assert (answer.code, answer.out) == (1, "")
        (line,) = [line for line in answer.err.splitlines() if line.startswith("linkcal: error: ")]
        assert answer.err.strip().endswith(line)
        assert len(line) < 1200
        for part in parts:
            assert part in line

    return call


@pytest.fixture
def write_pairs(tmp_path):
    def write(name: str, pairs: object) -> Path:
        path = tmp_path / name
        path.write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in pairs))
        return path

    return write


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> SimpleNamespace:
    """Three communities of 40 named nodes."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    community = np.arange(NUM_NODES) % 3
    chance = np.where(community[:, None] == community[None], 0.25, 0.02)
    edges = np.argwhere(np.triu(rng.random((NUM_NODES, NUM_NODES)) < chance, 1))
    names = np.array([f"user-{i:03d}" for i in range(NUM_NODES)])
    lines = [f"{names[u]},{names[v]},{7 * u % 5}" for u, v in edges]
    (folder / "edges.csv").write_text("source,target,amount\n" + "\n".join(lines) + "\n")
    rows = [f"{name},{c == 0:d},{c == 1:d},{c == 2:d}" for name, c in zip(names, community, strict=True)]
    (folder / "features.csv").write_text("id,a,b,c\n" + "\n".join(rows) + "\n")
    return SimpleNamespace(folder=folder, names=names, edges=edges)


@pytest.fixture(scope="session")
def fitted(files) -> Path:
    """Folder of ``linkcal fit`` on the files; a few epochs, since only the plumbing is looked at."""
    out = files.folder / "fitted"
    code = main([
        "fit", str(files.folder / "edges.csv"), "--features", str(files.folder / "features.csv"),
        "--out", str(out), "--epochs", "20", "--seed", "1",
    ])  # fmt: skip
    assert code == 0
    return out


@pytest.fixture(scope="module")
def loaded(fitted) -> CalibratedLinkPredictor:
    return CalibratedLinkPredictor.load(fitted / "artifact")


@pytest.fixture(scope="session")
def two_hop(fitted, tmp_path_factory) -> Path:
    """The same folder, had it been made with two-hop negatives."""
    folder = tmp_path_factory.mktemp("kinds") / "two-hop"
    loaded = CalibratedLinkPredictor.load(fitted / "artifact")
    loaded.info_ = {**loaded.info_, "negatives": "two-hop"}
    loaded.save(folder)
    return folder
