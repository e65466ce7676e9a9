"""Every case runs on the small graph, its command lines parse, and the harness keeps what was measured."""

import ast
import importlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"

#: Code in a line of text; it may be broken over lines, though not over paragraphs.
_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)(?:(?!\n\s*\n)[^`])+\1(?!`)")
_COMMAND = re.compile(r"python3? ((?:benchmarks|examples)/\w+\.py)([^`\n]*)")
_MAKE = re.compile(r'make bench BENCH="([^"]*)"')


def commands_in(text: str) -> list[tuple[str, list[str]]]:
    r"""Scripts (``benchmarks/NAME.py``) and the words after them, those of ``make bench`` included."""
    text = re.sub(r"\\\n\s*", " ", text)
    text = _INLINE.sub(lambda code: code[0].replace("\n", " "), text)
    found = [(script, words) for script, words in _COMMAND.findall(text)]
    found += [("benchmarks/run.py", words) for words in _MAKE.findall(text)]
    return [(script, shlex.split(words, comments=True)) for script, words in found]


def documents() -> Iterator[tuple[str, str]]:
    """Path and text of everything that may hold commands."""
    pages = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
    for path in [*pages, *sorted((FOLDER / "results").glob("*.md"))]:
        yield _name(path), path.read_text(encoding="utf-8")
    for path in sorted((FOLDER / "results").glob("*.json")):
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        yield _name(path), "\n".join(run["command"] for run in runs)
    for folder in ("benchmarks", "examples"):
        for path in sorted((ROOT / folder).glob("*.py")):
            yield _name(path), ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


SLOW = {"scale", "negatives", "decisions"}
#: Cases that the small graph is no part of.
OTHERS = {"mutation"}


@pytest.fixture(scope="session")
def benchmarks() -> Iterator[dict[str, ModuleType]]:
    """Every module by name, its folder first on the path as in ``python benchmarks/run.py``."""
    threads = torch.get_num_threads()
    names = [path.stem for path in FOLDER.glob("*.py")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(FOLDER), *sys.path])
        for name in names:
            patch.delitem(sys.modules, name, raising=False)
        yield {name: importlib.import_module(name) for name in names}
        for name in names:
            sys.modules.pop(name, None)
    torch.set_num_threads(threads)


@pytest.fixture
def run(benchmarks, tmp_path):
    """Run a case; the stored results and the page."""

    def run(name, *words):
        out = tmp_path / "made" / name
        benchmarks["_harness"].main(benchmarks["run"].CASES, [name, *map(str, words), "--out", str(out)])
        page = out.with_suffix(".md").read_text(encoding="utf-8")
        path = out.with_suffix(".json")
        return (json.loads(path.read_text(encoding="utf-8")) if path.exists() else None), page

    return run


def rows_of(result):
    return [row for point in result["points"].values() for row in point["rows"]]


@pytest.fixture
def quick(run, tmp_path_factory, benchmarks):
    """Rows and page of a quick run; the page's command line parses. One store for all: a training once."""

    def quick(name, *words):
        (case,) = (case for case in benchmarks["run"].CASES if case.name == name)
        store = tmp_path_factory.getbasetemp() / "benchmark-store"
        words = [*words, *(["--store", store] if "store" in case.needs else [])]
        result, page = run(name, "--quick", "--threads", 1, *words)
        *_, (script, written) = commands_in(page)
        assert script == "benchmarks/run.py"
        benchmarks["_harness"].parser(benchmarks["run"].CASES).parse_args(written)
        return rows_of(result), page

    return quick


def test_rare_links(quick):
    rows, page = quick("rare-links")
    assert "0.69315, 0.05600, 0.00791" in page
    for row in rows:
        # Negatives count as many as links.
        assert sum(row["negatives"]) == pytest.approx(sum(row["links"]))
        expected = sum(row["expected links"]) + sum(row["expected negatives"])
        assert expected == pytest.approx(2 * sum(row["links"]))


def test_loss_where_links_are_rare(benchmarks):
    """Against the NLL of probabilities that are moved by Bayes' rule."""
    case = benchmarks["quality"].RareLinks()
    link, negative = np.array([2.0, -1.0]), np.array([-3.0, 0.5, 1.0])
    moved = [0.1 * p / (0.1 * p + 0.9 * (1 - p)) for p in 1 / (1 + np.exp(-np.r_[link, negative]))]
    expected = -0.1 * np.log(moved[:2]).mean() - 0.9 * np.log1p(-np.array(moved[2:])).mean()
    assert case.loss(link, negative, 0.1) == pytest.approx(expected)


def test_opponents(quick):
    rows, page = quick("opponents")
    by_fit = {row["fit"]: row for row in rows}
    assert next(iter(by_fit)) == "structure-only"
    for row in rows:
        assert row["gain"] == pytest.approx(by_fit["structure-only"]["nll"] - row["nll"], abs=1e-9)
    assert "## NLL by cell" in page


def test_equal_columns(quick):
    rows, page = quick("equal-columns", "--learners", "logistic", "--sizes", "0", "40", "1000000")
    assert [(row["size"], row["name"]) for row in rows] == [  # no such number of links
        (size, name) for size in (0, 40) for name in ("in-n-out-plus", "logistic")
    ]
    assert rows[1]["gain"] == pytest.approx(rows[1]["nll"] - rows[0]["nll"], abs=1e-9)
    assert "| uniform | all | logistic |" in page


def test_drift(quick):
    rows, page = quick("drift", "--calibrators", "uncalibrated", "platt")
    nll = {(row["name"], row["graph"], row["repair"]): row["nll"] for row in rows}
    assert len(rows) == 2 * len(nll) == 2 * 2 * (3 + 5)  # random and by time, calibrators, states
    assert nll["uncalibrated", "all links", "refit"] == nll["uncalibrated", "all links", "none"]
    assert nll["platt", "all links", "refit"] != nll["platt", "all links", "offset"]
    assert "## By data set" in page


def test_top_order(quick, benchmarks):
    rows, _ = quick("top-order")
    graph = benchmarks["_cells"].load_graph("small")
    edges = graph.num_pairs
    assert [row["k"] for row in rows] == [20, 50]
    for row in rows:
        # All pairs but the message-passing edges, four fifths of all, and the validation links, a tenth.
        assert row["links"] == pytest.approx(0.1 * edges, abs=1.0)
        assert row["missing"] == graph.num_nodes * (graph.num_nodes - 1) // 2 - edges + row["links"]
        assert 0 < row["top"] <= row["k"]
        assert 0 < row["expected"] <= row["k"]


def test_ranking(quick):
    (row,), page = quick("ranking")
    # At worst a link comes behind 20 candidates.
    assert all(100 / 21 <= row[name] <= 100 for name in row)
    assert row["score"] != row["in-n-out-plus, heart"] != row["in-n-out-plus, uniform"]
    assert "| kept |" in page


def test_calibrator_speed(quick):
    rows, _ = quick("calibrator-speed", "--sizes", "0", "700")
    assert [row["what"] for row in rows] == ["fit", "predict"] * 6  # three calibrators, two sizes
    assert [row["links"] for row in rows[-6:]] == [700, 3000] * 3
    assert rows[0]["links"] < 700


@pytest.mark.slow
def test_negatives(quick):
    rows, page = quick("negatives")
    frame = pd.DataFrame(rows)
    kinds = {"uniform", "degree", "two-hop", "heart"}
    by_ours = frame[frame["name"] == "in-n-out-plus"]
    assert set(zip(by_ours["kind"], by_ours["test_kind"], strict=True)) == {
        (a, b) for a in kinds for b in kinds
    }
    others = frame[frame["name"] == "isotonic"]
    assert (others["kind"] == others["test_kind"]).all()
    # Fitted on pairs of one kind, the mean probability is that of another kind only by chance.
    wrong = by_ours["kind"] != by_ours["test_kind"]
    assert by_ours["bias"].abs()[wrong].max() > by_ours["bias"].abs()[~wrong].max()
    assert "## Transfer" in page


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SLOW - {"negatives", "scale"}))
def test_quick(name, quick):
    rows, _ = quick(name)
    assert rows


@pytest.mark.slow
def test_scale(quick, benchmarks, monkeypatch):
    rows, page = quick("scale", "--parts", "read-csv-strings")
    assert rows
    assert "Each in a process of its own" in page
    # One process is enough: the rest is measured in this one.
    monkeypatch.setattr(benchmarks["_harness"], "_in_own_process", benchmarks["_harness"].measure)
    assert "top 100 of all pairs" in {row["stage"] for row in quick("scale", "--parts", "collab-vgae")[0]}


def test_every_case_is_tested(benchmarks):
    quick = {"toggle", "rare-links", "top-order", "calibrator-speed", "opponents", "equal-columns", "drift"}
    quick |= {"ranking"}
    assert {case.name for case in benchmarks["run"].CASES} == quick | SLOW | OTHERS


def test_toggle_and_finished_points_are_kept(run, benchmarks, monkeypatch):
    words = ("--quick", "--threads", 1, "--models", "gcn")
    first, page = run("toggle", *words, "--depths", 2)
    seconds = {row["method"]: row["all, s"] for row in rows_of(first)}
    assert set(seconds) == {"forward pass", "kernel", "delta", "khop", "k_hop_subgraph", "naive"}
    assert 0 < seconds["kernel"] < seconds["naive"]
    assert "| small | gcn | 2 | naive | 2530 | 30 |" in page

    def fail(*_):
        raise AssertionError("measured again")

    with monkeypatch.context() as patch:
        patch.setattr(benchmarks["toggle"].Toggle, "measure", fail)
        second, page = run("toggle", *words, "--depths", 2)
        assert second["points"] == first["points"]
        assert page.count("| kernel |") == 1
        with pytest.raises(AssertionError, match="measured again"):
            run("toggle", *words, "--depths", 2, "--again")
    with pytest.raises(SystemExit, match="choose another --out"):
        run("toggle", *words, "--repeats", 7)
    monkeypatch.setattr(
        benchmarks["toggle"].Toggle, "measure", lambda *_: first["points"]["small/gcn/2"]["rows"]
    )
    third, page = run("toggle", *words, "--depths", 3)
    assert list(third["points"]) == ["small/gcn/2", "small/gcn/3"]
    assert len(third["runs"]) == 3
    # Points say which run measured them; the page names the runs that did.
    assert [point["run"] for point in third["points"].values()] == [0, 2]
    assert len(commands_in(page)) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [((), "name a case"), (("negatives",), "needs --store"), (("toggle",), "set LINKCAL_DATA_ROOT")],
)
def test_what_is_missing(words, message, benchmarks, monkeypatch):
    monkeypatch.delenv("LINKCAL_DATA_ROOT", raising=False)
    with pytest.raises(SystemExit, match=message):
        benchmarks["_harness"].main(benchmarks["run"].CASES, words)


def test_interval(benchmarks):
    """Three divisions with means 1, 2 and 6: the t interval of a mean of three."""
    values, division = pd.Series([0.0, 2.0, 2.0, 6.0]), [pd.Series(["a", "a", "b", "c"])]
    half = t.ppf(0.975, 2) * np.std([1.0, 2.0, 6.0], ddof=1) / np.sqrt(3)
    assert benchmarks["_harness"].interval(values, division) == f"{3:.4f} +- {half:.4f}"


def test_taking_turns(benchmarks):
    """Each work is called once more than it is timed; memory is that of the work, not of what came before."""
    calls = []
    works = {
        "large": lambda: calls.append(torch.ones(16 << 20).numel()),  # 64 MiB of float32
        "small": lambda: calls.append(0),
    }
    measured = benchmarks["_harness"].taking_turns(works, 2)
    assert calls == [16 << 20, 0] + [16 << 20, 0] * 2
    assert measured["large"][0] > measured["small"][0] > 0
    assert 60 < measured["large"][1] < 100
    assert measured["small"][1] < 20


TOY = """\
def is_adult(age: int = 18) -> bool:
    if not age >= 18:
        raise ValueError(f"{age + 1}")
    return True


def half(x):
    return x / 2
"""
TOY_TEST = """\
import pytest, toy


def test_is_adult():
    assert toy.is_adult(18)
    with pytest.raises(ValueError):
        toy.is_adult(17)
"""


def test_mutants(benchmarks):
    """Every mutant, by hand: none in annotations or in the error's message."""
    source = TOY.encode()
    made = [
        source[:a] + text.encode() + source[b:] for a, b, text in benchmarks["mutation"].mutants_of(source)
    ]
    lines = TOY.splitlines()
    changed = [
        new.strip()
        for text in made
        for old, new in zip(lines, text.decode().splitlines(), strict=True)
        if old != new
    ]
    assert sorted(changed) == [
        "def is_adult(age: int = (19)) -> bool:", "if (age >= 18):", "if not (age > 18):",
        "if not age >= (19):", "return (False)", "return (None)", "return (None)", "return (x * 2)",
        "return x / (3)",
    ]  # fmt: skip


@pytest.mark.slow
def test_mutation(run, benchmarks, tmp_path, monkeypatch):
    for name, text in (("src/toy/__init__.py", TOY), ("tests/test_toy.py", TOY_TEST)):
        path = tmp_path / "toy" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    monkeypatch.setattr(benchmarks["mutation"], "ROOT", tmp_path / "toy")
    words = ("--targets", "src/toy=tests/test_toy.py", "--store", tmp_path / "store")
    result, page = run("mutation", *words)
    outcomes = sorted(row["outcome"] for row in rows_of(result))
    # The default argument is never used by a test, and nothing tests half.
    assert outcomes == ["killed"] * 5 + ["survived"] * 4
    assert "| all | 9 | 5 | 0 | 4 | 56 % |" in page
    assert "+    return (x * 2)" in page
    monkeypatch.setattr(benchmarks["mutation"].Copy, "judge", None)  # nothing is run again
    again, _ = run("mutation", *words, "--again")
    assert rows_of(again) == rows_of(result)


def test_documented_commands_parse(benchmarks):
    parsers = {
        "benchmarks/run.py": benchmarks["_harness"].parser(benchmarks["run"].CASES),
        "benchmarks/same_numbers.py": benchmarks["same_numbers"].parser(),
    }
    held = set()
    for where, text in documents():
        for script, words in commands_in(text):
            held.add(where)
            assert (ROOT / script).is_file(), f"{where} names {script}"
            if script in parsers:
                parsers[script].parse_args(words)
            else:
                assert not words, f"{where}: {script} has no options"
    assert {"docs/toggling.md", "README.md", "benchmarks/run.py"} <= held


def test_commands_are_found():
    text = """
    python benchmarks/a.py --store S \\
      --out b.md  # a comment

Words (`python benchmarks/b.py --graphs cora
pubmed`), more `words`. `python examples/c.py`, `make bench BENCH="toggle --datasets cora"`.

```
python benchmarks/d.py --name "two words"
```
"""
    assert commands_in(text) == [
        ("benchmarks/a.py", ["--store", "S", "--out", "b.md"]),
        ("benchmarks/b.py", ["--graphs", "cora", "pubmed"]),
        ("examples/c.py", []),
        ("benchmarks/d.py", ["--name", "two words"]),
        ("benchmarks/run.py", ["toggle", "--datasets", "cora"]),
    ]
