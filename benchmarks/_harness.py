"""The harness: what a case is, its command line, the loop over its parameters, and its results on disk."""

from __future__ import annotations

import argparse
import ctypes
import inspect
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from scipy.stats import t

from linkcal.workflow import environment

Row = dict[str, Any]
#: The values of one point by name: one of each axis, all settings, ``quick`` and ``store``.
Point = SimpleNamespace

DATASETS = ("cora", "citeseer", "chameleon", "bitcoin-alpha", "bitcoin-otc", "twitch-pt", "pubmed")
MODELS = ("vgae", "gcn", "sage", "gin", "peg")
#: The data set of ``--quick``: a simulated graph of 300 nodes.
SMALL = "small"

#: What the harness measures of each point: seconds, peak memory of the process, load of the last minute.
USAGE = ("wall_s", "processor_s", "peak_gib", "load")
_PATHS = {
    "store": "store of `linkcal-lab sweep`, which lacking trainings are added to; of `mutation`: any folder"
}


class Case:
    """One benchmark. A subclass gives its parameters and at least `measure`; its docstring opens its page.

    The harness calls `setup`, untimed and in a folder that is removed afterwards, and `measure` for every
    combination of the axes, and `page` for all of them. Seconds and peak memory of each `measure` are kept
    beside its rows.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    #: Parameters that are looped over. The option of the axis ``model`` is ``--models``.
    axes: ClassVar[Mapping[str, Sequence[Any]]] = {}
    #: Parameters with one value, or with a tuple of values that is no axis.
    settings: ClassVar[Mapping[str, Any]] = {}
    #: What ``--quick`` replaces, on the small simulated graph in place of every data set.
    quick: ClassVar[Mapping[str, Any]] = {}
    #: Keys of `_PATHS` that have to be given, and "data": the raw data sets under LINKCAL_DATA_ROOT.
    needs: ClassVar[Sequence[str]] = ()
    #: Whether each point is measured in a process of its own, whose seconds and memory the page shows.
    own_process: ClassVar[bool] = False
    #: Threads of torch, unless ``--threads`` says otherwise.
    threads: ClassVar[int] = 1

    def setup(self, point: Point, folder: Path) -> Any:
        """Make what `measure` needs; not measured."""

    def measure(self, point: Point, made: Any) -> list[Row]:
        """Rows of one point."""
        raise NotImplementedError

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        """Tables and text below the docstring; rows have the columns of the axes, too."""
        return [table(rows.columns.tolist(), rows.to_numpy(), len(self.axes))]


def main(cases: Sequence[Case], words: Sequence[str] | None = None) -> None:
    """Run the case that a command line names."""
    options = parser(cases).parse_args(words)
    if options.list:
        for case in cases:
            print(f"{case.name:18} {_summary(case)} Needs: {', '.join(case.needs) or 'nothing'}.")
    elif options.case is None:
        raise SystemExit("name a case, or use --list")
    else:
        run({case.name: case for case in cases}[options.case], options)


def parser(cases: Sequence[Case]) -> argparse.ArgumentParser:
    """One command per case, its options made from its axes and settings."""
    top = argparse.ArgumentParser(description="Benchmarks of linkcal.", allow_abbrev=False)
    top.add_argument("--list", action="store_true", help="list the cases and what they need")
    commands = top.add_subparsers(dest="case", metavar="CASE")
    for case in cases:
        command = commands.add_parser(
            case.name, help=_summary(case), description=case.__doc__, allow_abbrev=False
        )
        for name, default in {**case.axes, **case.settings}.items():
            kind, many = (type(default[0]), "+") if isinstance(default, tuple) else (type(default), None)
            text = f"default: {default}"
            command.add_argument(_option(case, name), dest=name, nargs=many, type=kind, help=text)
        for name in _paths(case):
            command.add_argument(f"--{name}", type=Path, help=_PATHS[name])
        command.add_argument("--threads", type=int, default=case.threads, help="threads of torch")
        command.add_argument("--out", type=Path, help="writes OUT.md and OUT.json; finished points are kept")
        command.add_argument("--again", action="store_true", help="measure finished points again")
        command.add_argument("--quick", action="store_true", help="a small simulated graph, seconds")
    return top


def run(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Measure every point that the results lack, and write the results after each of them."""
    values = _values(case, options)
    for name in () if options.quick else _paths(case):
        if getattr(options, name) is None:
            raise SystemExit(f"{case.name} needs --{name}: {_PATHS[name]}")
    if "data" in case.needs and not options.quick and "LINKCAL_DATA_ROOT" not in os.environ:
        raise SystemExit(f"{case.name} needs raw data sets: set LINKCAL_DATA_ROOT to their folder")
    settings = {name: values[name] for name in case.settings}
    result = _started(case, options, settings, command_of(case, options, values))
    for each in product(*(values[name] for name in case.axes)):
        axes, key = dict(zip(case.axes, each, strict=True)), "/".join(map(str, each))
        if key in result["points"] and not options.again:
            continue
        paths = {name: getattr(options, name, None) for name in _PATHS}
        point = Point(**settings, **axes, **paths, threads=options.threads, quick=options.quick)
        with TemporaryDirectory() as folder:
            made = case.setup(point, Path(folder))
            measured = _in_own_process(case, point, made) if case.own_process else measure(case, point, made)
        result["points"][key] = {"run": len(result["runs"]) - 1, "axes": axes, **measured}
        print(f"{case.name} {key}: {measured['wall_s']:.1f} s", file=sys.stderr, flush=True)
        _write(case, options.out, result)
    _write(case, options.out, result)
    print(render(case, result))
    return result


def render(case: Case, result: Mapping[str, Any]) -> str:
    """The Markdown page of stored results."""
    points = result["points"]
    rows = pd.DataFrame([point["axes"] | row for point in points.values() for row in point["rows"]])
    parts = case.page(rows, Point(**result["settings"]))
    if case.own_process:
        lines = [[key, *(float(point[name]) for name in USAGE)] for key, point in points.items()]
        parts += ["Each in a process of its own; load is that of the last minute."]
        parts += [table(["/".join(case.axes), *USAGE], lines)]
    parts.insert(0, inspect.cleandoc(case.__doc__ or ""))
    used = [result["runs"][i] for i in sorted({point["run"] for point in points.values()})]
    parts[:0] = dict.fromkeys(f"`{run['command']}`" for run in used)
    parts.append("\n".join(f"- {_place(run)}" for run in used))
    parts.insert(0, f"# {case.title}")
    return "\n\n".join(parts) + "\n"


def command_of(case: Case, options: argparse.Namespace, values: Mapping[str, Any]) -> str:
    """The command line that measures the same, axes written out, paths by their names."""
    words = ["python", "benchmarks/run.py", case.name]
    for name, value in values.items():
        if name in case.axes or value != case.settings[name]:
            words += [_option(case, name), *map(str, value if isinstance(value, tuple) else [value])]
    words += ["--threads", str(options.threads)] if options.threads != case.threads else []
    words += [word for name in _paths(case) for word in (f"--{name}", name.upper())]
    return shlex.join(words + (["--quick"] if options.quick else []))


def measure(case: Case, point: Point, made: Any) -> dict[str, Any]:
    """Rows of a point with its wall and processor seconds and this process's peak memory so far."""
    threads = torch.get_num_threads()
    torch.set_num_threads(point.threads)
    wall, processor = time.perf_counter(), time.process_time()
    try:
        rows = case.measure(point, made)
    finally:
        torch.set_num_threads(threads)
    return {
        "wall_s": time.perf_counter() - wall,
        "processor_s": time.process_time() - processor,
        "peak_gib": _memory("VmHWM") / 2**20,
        "load": os.getloadavg()[0],
        "rows": rows,
    }


def _in_own_process(case: Case, point: Point, made: Any) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, case, point, made).result()


def _values(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Value of every parameter: as given, else that of ``--quick``, else the default."""
    values = {**case.axes, **case.settings}
    quick = {"dataset": (SMALL,), **case.quick} if options.quick else {}
    given = {name: getattr(options, name) for name in values}
    values |= {name: value for name, value in quick.items() if name in values}
    values |= {name: value for name, value in given.items() if value is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _started(case: Case, options: argparse.Namespace, settings: Any, command: str) -> dict[str, Any]:
    """Results with this run among their runs; points of earlier runs with equal settings are kept."""
    settings = json.loads(json.dumps(settings))  # tuples read back as lists
    result: dict[str, Any] = {"case": case.name, "settings": settings, "runs": [], "points": {}}
    path = None if options.out is None else options.out.with_suffix(".json")
    if path is not None and path.exists():
        result = json.loads(path.read_text(encoding="utf-8"))
        if (result["case"], result["settings"]) != (case.name, settings):
            raise SystemExit(f"{path} holds {result['case']} with {result['settings']}: choose another --out")
    run = {"command": command, "threads": options.threads, "date": datetime.now(UTC).date().isoformat()}
    result["runs"].append({**run, **machine(), **environment()})
    return result


def _write(case: Case, out: Path | None, result: Mapping[str, Any]) -> None:
    if out is None:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    texts = {".md": render(case, result), ".json": json.dumps(result, indent=1) + "\n"}
    for suffix, text in texts.items():
        part = out.with_suffix(f"{suffix}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(out.with_suffix(suffix))


def machine() -> dict[str, Any]:
    """Processor, cores and memory."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else "unknown",
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
    }


def _place(run: Mapping[str, Any]) -> str:
    return (
        f"{run['date']}, commit {str(run['git_commit'])[:12]}, {run['cpu']}, {run['cores']} cores, "
        f"{run['memory_gib']} GiB, {run['threads']} threads, torch {run['versions']['torch']}"
    )


def _summary(case: Case) -> str:
    return (case.__doc__ or "").splitlines()[0]


def _option(case: Case, name: str) -> str:
    return f"--{name.replace('_', '-')}{'s' if name in case.axes else ''}"


def _paths(case: Case) -> list[str]:
    return [name for name in case.needs if name in _PATHS]


# What cases share: clocks, memory, means over divisions, and tables.


def timed(work: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def taking_turns(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, tuple[float, float]]:
    """Median seconds of each work and its peak memory in MiB above that before it.

    The first call of each, in which memory is measured, warms up. The others take turns, so that a change of
    the machine's pace meets all of them. With no repeats the first call is what is timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    first = {name: _timed_with_memory(work) for name, work in works.items()}
    for _ in range(repeats):
        for name, work in works.items():
            seconds[name].append(timed(work))
    return {name: (median(seconds[name] or [first[name][0]]), first[name][1]) for name in works}


def _timed_with_memory(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a call, and MiB of its peak above the start (Linux; NaN elsewhere)."""
    if not sys.platform.startswith("linux"):
        return timed(work), float("nan")
    # What was freed before is given back to the system: memory that is used again counts.
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    start = _memory("VmRSS")
    return timed(work), (_memory("VmHWM") - start) / 1024


def _memory(field: str) -> float:
    """A figure of /proc/self/status in KiB; NaN where there is none."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{field}:")), float("nan"))


def interval(values: pd.Series[float], division: Sequence[Any]) -> str:
    """Mean over divisions of links with half its 95 % t interval; `division`: columns that name them."""
    means = values.groupby(list(division)).mean()
    if len(means) < 2:
        return f"{means.mean():.4f}"
    half = t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means))
    return f"{means.mean():.4f} +- {half:.4f}"


def shown(name: str, value: float) -> str:
    """A metric's value as tables have it: NLL in nats, the others in percent."""
    return f"{value:.4f}" if name == "nll" else f"{100 * value:.2f}"


def table(head: Sequence[str], lines: Iterable[Sequence[Any]], text_columns: int = 1) -> str:
    """Markdown table; columns after the first `text_columns` are right-aligned."""
    rule = "|" + " --- |" * text_columns + " ---: |" * (len(head) - text_columns)
    cells = ([f"{v:,.4g}" if isinstance(v, float) else str(v) for v in line] for line in lines)
    rows = (f"| {' | '.join(line)} |" for line in cells)
    return "\n".join([f"| {' | '.join(head)} |", rule, *rows])
