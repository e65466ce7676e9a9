"""Commands of the README and the pages: each exists; those in blocks run, or are listed with a reason."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer

from linkcal.cli import main
from linkcal.cli._app import app
from linkcal_lab.cli import app as lab_app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
APPS = {"linkcal": typer.main.get_command(app), "linkcal-lab": typer.main.get_command(lab_app)}
#: Blocks that are not run: how they begin, and why.
NOT_RUN = {
    "linkcal run --dataset": "reads a published data set; test_run.py runs `linkcal run`",
    "linkcal score DIR PAIRS --out OUT": "folders of Parquet files; test_files.py scores some, also on Ray",
    "linkcal-lab": "trains for hours, or with a placeholder; tests/lab runs each command",
}


def blocks(path: Path) -> list[str]:
    text = re.sub(r"\\\n\s*", "", path.read_text(encoding="utf-8"))
    return re.findall(r"^    (linkcal(?:-lab)? .+)$", text, re.MULTILINE)


def lines(path: Path) -> list[str]:
    """Commands in blocks and within text; a bare name, or one whose options have no values, is a mention."""
    found = re.findall(r"`(linkcal(?:-lab)? [^`]+)`", path.read_text(encoding="utf-8").replace("\n", " "))
    return [*blocks(path), *found]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(path):
    for line in lines(path):
        program, name, *words = shlex.split(line, comments=True)
        command = APPS[program].commands[name]
        options = {
            each for parameter in command.params for each in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {word for word in words if re.match("--?[a-z]", word)} <= options, line


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    place, pairs = rng.normal(size=120), rng.integers(120, size=(2, 4000))
    pairs = pairs[:, pairs[0] < pairs[1]]
    near = rng.random(pairs.shape[1]) < np.exp(-np.abs(place[pairs[0]] - place[pairs[1]]) * 3)
    rows = [f"{u},{v}" for u, v in np.unique(pairs[:, near], axis=1).T]
    others = [f"{u},{v}" for u, v in np.unique(pairs[:, ~near], axis=1).T if f"{u},{v}" not in rows]
    features = [f"{i},{p:.3f}" for i, p in enumerate(place)]
    scored = [
        f"a{i},b{i},{s:.3f},{rng.random() < 1 / (1 + np.exp(-s)):d}"
        for i, s in enumerate(rng.normal(size=900))
    ]
    labelled = [f"{r},{i}" for pair in zip(others[:99], rows[:99], strict=True) for i, r in enumerate(pair)]
    unlabelled = [row.rpartition(",")[0] for row in scored]
    numbered = [f"{row},{i}" for i, row in enumerate(rows)]
    for name, header, body in (
        ("EDGES", "source,target", rows),
        ("F", "node,x", features),
        ("features", "node,x", features),
        ("PAIRS", "source,target", others[:30]),
        ("LABELLED", "source,target,label", labelled),
        ("SCORES", "source,target,logit,label", scored),
        ("scores", "source,target,logit,label", scored),
        ("new", "source,target,logit", unlabelled),
        ("ratings", "user,item", rows),
        ("users", "user,x", features),
        ("items", "item,y", features),
        ("edges", "source,target,COLUMN", numbered),
    ):
        Path(f"{name}.csv").write_text("\n".join([header, *body]) + "\n")


RUN = ("README.md", "docs/start.md", "docs/graphs.md", "docs/time.md")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of small data
@pytest.mark.parametrize("name", RUN)
def test_blocks_run(name, files):
    for line in blocks(ROOT / name):
        if not line.startswith(tuple(NOT_RUN)):
            words = shlex.split(line, comments=True)[1:]
            out = Path(words[words.index("--out") + 1]) if "--out" in words else None
            if out is not None and out.is_dir():
                shutil.rmtree(out)  # of an earlier line
            assert main(words) == 0, line
            assert out is None or out.exists()


def test_every_block_runs_or_says_why():
    rest = [line for path in PAGES if path.relative_to(ROOT).as_posix() not in RUN for line in blocks(path)]
    assert [line for line in rest if not line.startswith(tuple(NOT_RUN))] == []
