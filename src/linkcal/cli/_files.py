"""Files of query pairs scored whole: one, or each of a folder, here or on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track

from linkcal.cli._console import log
from linkcal.cli._output import csv_rows

if TYPE_CHECKING:
    from linkcal.batches import ScoringFunction


def side_file(out: Path) -> Path:
    """What says how the pairs of a table were scored."""
    return out.with_name(out.name + ".meta.json")


def log_skipped(skipped: int) -> None:
    """One line where pairs were not scored."""
    if skipped:
        log(f"Left out: {skipped:,} rows of nodes that the graph does not have.")


def score_file(
    function: ScoringFunction, pairs: Path, out: Path | None, watch: Callable[..., Any] = iter, **table: Any
) -> tuple[int, int, str]:
    """Score the pairs of a file, `table` is for ``read_pairs``: how many, rows left out, SHA-256 of OUT."""
    from linkcal.data import read_pairs

    total, skipped, chunks = 0, 0, read_pairs(pairs, function.load()[1], **table)
    with csv_rows(out, "source", "target", *function.columns, raw_ids=table["raw_ids"]) as writer:
        for chunk in watch(chunks):
            found = [column.tolist() for column in function.score_pairs(chunk.edge_label_index)]
            writer.writerows(zip(chunk.source.to_pylist(), chunk.target.to_pylist(), *found, strict=True))
            total, skipped = total + len(chunk), skipped + chunk.skipped
        if out is not None:  # whatever comes between, no table has the side file of another
            side_file(out).unlink(missing_ok=True)
    return total, skipped, writer.sha256


def score_files(
    function: ScoringFunction, pairs: Path, out: Path | None, engine: str, note: dict[str, Any], **table: Any
) -> None:
    """Score each Parquet file of a folder that has no results yet; `note` says how, for readers."""
    from linkcal._core.files import require_writable, to_json, write_json
    from linkcal.exceptions import InputError

    # As readers of Parquet folders do, without names that begin with a dot or underscore.
    files = sorted(path.resolve() for path in pairs.glob("[!._]*.parquet"))
    if not files:
        raise InputError(f"pairs must be a file, or a folder with .parquet files, got none in {pairs}")
    if out is None or out.is_file() or out.resolve() == pairs.resolve():
        raise InputError(f"out must be another folder for the results of a folder of pairs, got {out}")
    require_writable(out, "out")
    out.mkdir(exist_ok=True)
    side, how = out / "_meta.json", {**note, **table, "artifact_sha256": function.digest}
    if not side.exists() and any(out.glob("*.parquet")):
        raise InputError(f"out must be new, empty or hold {side.name}, got {out} with other files")
    if side.exists() and side.read_text(encoding="utf-8").strip() != to_json(how):
        raise InputError(f"out must hold results of the same fit and options, got others in {out}")
    write_json(how, side)
    results = {path: out.resolve() / path.name for path in files}
    jobs = [(a, b) for a, b in results.items() if not b.exists() or b.stat().st_mtime < a.stat().st_mtime]
    found = (_by_ray if engine == "ray" else map)(partial(_attempt, function, table), jobs)
    shown = track(found, "files", len(jobs), console=Console(stderr=True), transient=True)
    counts = list(shown)
    failures = sorted(each for each in counts if isinstance(each, str))
    if failures:
        raise InputError(
            f"pairs must be files that can be scored, got {len(failures)} of {len(files)} that cannot, the "
            f"first {failures[0]} (results of the others are in {out})"
        )
    total, skipped = (sum(each[i] for each in counts) for i in range(2))
    before = f"({len(files) - len(jobs)} were finished before)"
    log(f"{total:,} pairs of {len(jobs)} files {before}: {out}")
    log_skipped(skipped)
    log(note["statement"])


def _attempt(
    function: ScoringFunction, table: dict[str, Any], job: tuple[Path, Path]
) -> tuple[int, int] | str:
    """Pairs of a file and rows left out, or why there are none: that does not stop the others."""
    from linkcal.exceptions import LinkcalError

    try:
        return score_file(function, *job, **table)[:2]
    except (LinkcalError, OSError) as error:
        return f"{job[0].name}: {error}"


def _by_ray(attempt: partial[Any], jobs: list[tuple[Path, Path]]) -> Iterator[Any]:
    """One task a job. Workers have as many threads as this process: sums are cut over them."""
    import ray
    import torch

    from linkcal.exceptions import WorkerDiedError

    threads, cluster = torch.get_num_threads(), {}
    if not os.environ.get("RAY_ADDRESS"):
        cluster = {"num_cpus": max(threads, os.cpu_count() or 1), "include_dashboard": False}
    with ray.init(log_to_driver=False, logging_level="ERROR", **cluster):
        # More than any machine has would wait for ever.
        cores = min(threads, max(node["Resources"].get("CPU", 0) for node in ray.nodes()))
        environment = {"env_vars": {"OMP_NUM_THREADS": str(threads)}}
        task = ray.remote(num_cpus=cores, runtime_env=environment)(attempt.func)
        waiting = [task.remote(*attempt.args, job) for job in jobs]
        while waiting:
            done, waiting = ray.wait(waiting)
            try:
                yield ray.get(done[0])
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                raise WorkerDiedError("a worker must live until its file is done, got one killed") from error
