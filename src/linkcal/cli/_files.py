"""Files of query pairs scored whole: one, or a folder of them, here or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkcal.cli._console import files_progress, log
from linkcal.cli._output import csv_rows

if TYPE_CHECKING:
    from linkcal.batches import ScoringFunction

#: In a folder of results: how they were scored. Readers of Parquet folders skip names that begin so.
_SIDE = "_meta.json"
#: What a job needs: the pairs of one file, and where the results go.
_Job = tuple[Path, Path]


def score_file(
    function: ScoringFunction,
    pairs: Path,
    out: Path | None,
    *,
    chunk_size: int,
    watch: Callable[[Iterator[Any]], Iterator[Any]] = iter,
    **table: Any,
) -> int:
    """Score the pairs of a file, `chunk_size` at a time, and return how many they are."""
    from linkcal.data import read_pairs

    total = 0
    chunks = read_pairs(pairs, function.load().node_ids, chunk_size=chunk_size, **table)
    with csv_rows(out, "source", "target", *function.columns, raw_ids=table["raw_ids"]) as writer:
        for chunk in watch(chunks):
            found = [column.tolist() for column in function.score_pairs(chunk.edge_label_index)]
            writer.writerows(zip(chunk.source.to_pylist(), chunk.target.to_pylist(), *found, strict=True))
            total += len(chunk)
    return total


def score_files(
    function: ScoringFunction,
    pairs: Path,
    out: Path | None,
    options: dict[str, Any],
    note: dict[str, Any],
    engine: str,
) -> None:
    """Score each Parquet file of a folder that has no results yet; `note` says how, for readers."""
    from linkcal.exceptions import InputError

    files = sorted(path for path in pairs.iterdir() if _is_table(path))
    if not files:
        raise InputError(f"pairs must be a folder with .parquet files, got none in {pairs}")
    out = _claimed(pairs, out, {**note, **options, "digest": function.digest})
    jobs = [(path.resolve(), out / path.name) for path in files]
    jobs = [(path, target) for path, target in jobs if not _is_finished(path, target)]
    run, before = (_by_ray if engine == "ray" else _here), len(files) - len(jobs)
    total, failures = 0, []
    with files_progress(len(files), before) as advance:
        for result in run(function, jobs, options):
            failures += [result] if isinstance(result, str) else []
            total += 0 if isinstance(result, str) else result
            advance(total)
    if failures:
        raise InputError(
            f"pairs must be files that can be scored, got {len(failures)} of {len(files)} that cannot (the "
            f"others are in {out}), the first {min(failures)}"
        )
    log(f"{total:,} pairs of {len(jobs)} files ({before} were finished before): {out}")
    log(note["statement"])


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq") and path.name[0] not in "._" and path.is_file()


def _is_finished(pairs: Path, out: Path) -> bool:
    return out.exists() and out.stat().st_mtime >= pairs.stat().st_mtime


def _claimed(pairs: Path, out: Path | None, how: dict[str, Any]) -> Path:
    """The folder of results, which holds none that were made in another way."""
    from linkcal._core.files import require_writable, to_json, write_json
    from linkcal.exceptions import InputError

    if out is None or out.is_file() or out.resolve() == pairs.resolve():
        raise InputError(f"out must be another folder for the results of a folder of pairs, got {out}")
    require_writable(out, "out")
    out = out.resolve()
    out.mkdir(exist_ok=True)
    side = out / _SIDE
    if not side.exists() and any(map(_is_table, out.iterdir())):
        raise InputError(f"out must be new, empty or hold {_SIDE}, got {out} with other files")
    if side.exists() and side.read_text(encoding="utf-8").strip() != to_json(how):
        raise InputError(f"out must hold results of the same folder and options, got others in {out}")
    write_json(how, side)
    return out


def _attempt(function: ScoringFunction, job: _Job, options: dict[str, Any]) -> int | str:
    """Number of pairs of a file, or why there is none; a file that fails does not stop the others."""
    from linkcal.exceptions import LinkcalError

    try:
        return score_file(function, *job, **options)
    except (LinkcalError, OSError) as error:
        return f"{job[0].name}: {error}"


def _here(function: ScoringFunction, jobs: list[_Job], options: dict[str, Any]) -> Iterator[int | str]:
    return (_attempt(function, job, options) for job in jobs)


def _by_ray(function: ScoringFunction, jobs: list[_Job], options: dict[str, Any]) -> Iterator[int | str]:
    """One task a file. Workers keep the predictor, and have as many threads as this process.

    Sums are cut over threads: with another number of them the last digits would differ.
    """
    import os

    import torch

    from linkcal._core.cluster import ray_cluster

    threads = torch.get_num_threads()
    with ray_cluster(max(threads, os.cpu_count() or 1)) as ray:
        most = max(node["Resources"].get("CPU", 1) for node in ray.nodes() if node["Alive"])
        environment = {"env_vars": {"OMP_NUM_THREADS": str(threads)}}
        task = ray.remote(num_cpus=min(threads, most), runtime_env=environment)(_attempt)
        waiting = [task.remote(function, job, options) for job in jobs]
        while waiting:
            done, waiting = ray.wait(waiting)
            yield ray.get(done[0])
