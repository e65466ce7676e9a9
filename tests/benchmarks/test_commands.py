"""Every benchmark's command line parses, and so does every command that a document gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.benchmarks.documented import FOLDER, ROOT, commands_in, documents, errors_of

SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
DOCUMENTED = [(where, *command) for where, text in documents() for command in commands_in(text)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name, run, capsys):
    with pytest.raises(SystemExit) as end:
        run(name, "--help")
    assert end.value.code == 0
    assert "--out" in capsys.readouterr().out
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert text.endswith('if __name__ == "__main__":\n    main()\n')


@pytest.mark.parametrize(
    ("where", "script", "words"), DOCUMENTED, ids=[f"{w}: {s} {' '.join(o)}" for w, s, o in DOCUMENTED]
)
def test_documented_command(where, script, words, load):
    assert (ROOT / script).is_file(), f"{where} names {script}"
    if script.startswith("examples/"):
        assert not words, f"{where}: {script} takes no options"
        return
    assert errors_of(load(Path(script).stem).parser(), words) is None, f"{where}: {script} {' '.join(words)}"


@pytest.mark.parametrize("name", ["calibrators", "fallback", "toggle", "toggle_depth"])
def test_data_root_is_by_default_that_of_the_environment(name, load, monkeypatch):
    monkeypatch.setenv("LINKCAL_DATA_ROOT", "some/where")
    assert load(name).parser().parse_args([]).data_root == Path("some/where")
    assert load(name).parser().parse_args(["--data-root", "else"]).data_root == Path("else")


def test_commands_are_found():
    text = """
    python benchmarks/a.py --store S \\
      --out b.md  # a comment

Words (`python benchmarks/b.py --graphs cora
pubmed`), more `words`. `python examples/c.py`, `make bench-toggle BENCH_ARGS="--graphs cora"`,
`make bench-calibrators`, `make bench-none`.

```
python benchmarks/d.py --name "two words"
python benchmarks/e.py
```
"""
    assert commands_in(text) == [
        ("benchmarks/a.py", ["--store", "S", "--out", "b.md"]),
        ("benchmarks/b.py", ["--graphs", "cora", "pubmed"]),
        ("examples/c.py", []),
        ("benchmarks/d.py", ["--name", "two words"]),
        ("benchmarks/e.py", []),
        ("benchmarks/toggle.py", ["--graphs", "cora"]),
        ("benchmarks/calibrators.py", []),
        ("make bench-none", []),
    ]


def test_all_kinds_of_documents_are_read():
    held = {where for where, *_ in DOCUMENTED}
    assert {
        "docs/toggling.md", "docs/reproduction/README.md", "benchmarks/results/scale.md",
        "benchmarks/results/calibrators.json", "benchmarks/seal.py", "examples/gat_user_model.py",
    } <= held  # fmt: skip
    # Each script's own text says how to run it.
    assert {f"benchmarks/{name}.py" for name in SCRIPTS} <= held
