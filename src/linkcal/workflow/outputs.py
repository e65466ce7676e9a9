"""The folder that a run leaves: metrics, what is needed to repeat it, figure, page, fitted artifact."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import torch

from linkcal._core.files import require_writable, written_whole
from linkcal.artifact import check_artifact_folder, save_artifact
from linkcal.exceptions import InputError
from linkcal.plots import reliability_figure
from linkcal.report import write_report
from linkcal.workflow.run import RunOutcome

__all__ = ["ARTIFACT_FOLDER", "check_output_folder", "environment", "file_record", "to_json", "write_outputs"]


#: Sub-folder of a run that holds the fitted artifact.
ARTIFACT_FOLDER = "artifact"

_PACKAGES = (
    "linkcal", "torch", "torch-geometric", "numpy", "scipy", "scikit-learn", "numba", "pandas", "pyarrow",
    "safetensors", "matplotlib",
)  # fmt: skip


def check_output_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that :func:`write_outputs` could not write, before the work starts.

    Parameters
    ----------
    folder : path

    Raises
    ------
    InputError
        If it, or a folder above it, is a file or cannot be written to, or its ``artifact`` is not one of
        linkcal's.
    """
    out = Path(folder)
    for part in (out, *out.parents):
        if part.exists() and not part.is_dir():
            raise InputError(f"out must be a folder, got the file {part}")
    require_writable(out, "out")
    check_artifact_folder(out / ARTIFACT_FOLDER)


def file_record(path: str | os.PathLike[str]) -> dict[str, str]:
    """Path and SHA-256 of an input file, so that a run can be repeated on the same bytes.

    Parameters
    ----------
    path : path

    Returns
    -------
    dict of str
        ``path`` (absolute) and ``sha256``.
    """
    with Path(path).open("rb") as file:
        return {"path": str(Path(path).resolve()), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def write_outputs(
    outcome: RunOutcome, folder: str | os.PathLike[str], *, source: dict[str, Any] | None = None
) -> dict[str, Path]:
    """Write ``artifact/``, ``reliability.png``, ``config.json``, ``report.html`` and, last, ``metrics.json``.

    Each is written whole or not at all; a folder with ``metrics.json`` is a finished run.

    Parameters
    ----------
    outcome : RunOutcome
    folder : path
        Made if it is not there. An earlier run in it is replaced.
    source : dict, optional
        Where the graph came from, for ``config.json``: JSON values.

    Returns
    -------
    dict of str to Path
        What was written, by name.
    """
    check_output_folder(folder)
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    paths = {
        "artifact": out / ARTIFACT_FOLDER,
        "figure": out / "reliability.png",
        "config": out / "config.json",
        "report": out / "report.html",
        "metrics": out / "metrics.json",
    }
    # An unfinished folder must not look finished.
    paths["metrics"].unlink(missing_ok=True)
    save_artifact(outcome.artifact, paths["artifact"])
    title = f"{outcome.config.model} on {outcome.config.dataset}"
    reliability_figure(
        outcome.test_label,
        outcome.test_probability,
        paths["figure"],
        title=title,
        sample_weight=outcome.test_weight,
    )
    config = {"input": source or {}, **_config_record(outcome)}
    _write_json(config, paths["config"])
    write_report(
        paths["report"],
        title=f"Calibrated link probabilities: {title}",
        metrics=outcome.metrics,
        config=config,
        figure_png=paths["figure"],
    )
    _write_json(outcome.metrics, paths["metrics"])
    return paths


def to_json(values: Any) -> str:
    """JSON text; NaN, which JSON does not have, becomes null.

    Parameters
    ----------
    values : object
        Of dicts, lists, strings, numbers, bools and None.

    Returns
    -------
    str
    """
    return json.dumps(_without_nan(values), indent=2, allow_nan=False)


def environment() -> dict[str, Any]:
    """Versions, git commit, platform and thread counts of this process.

    Returns
    -------
    dict
        JSON values.
    """
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: version(name) for name in _PACKAGES},
        "git_commit": _git_commit(),
        "torch_threads": torch.get_num_threads(),
        "numba_threads": numba.config.NUMBA_NUM_THREADS,
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _config_record(outcome: RunOutcome) -> dict[str, Any]:
    """Settings as given, what they resolved to, and where the run happened."""
    training = asdict(outcome.training)
    training["val_auc"] = [list(point) for point in outcome.training.val_auc]
    return {
        "config": outcome.config.to_dict(),
        "model": getattr(outcome.artifact.model, "config", {}),
        "training": asdict(outcome.training_config),
        "calibrators": {name: c.get_params() for name, c in outcome.artifact.calibrators.items()},
        "outcome": {
            "training": training,
            "device": outcome.device,
            "toggle_method": outcome.toggle_method,
            "seconds": outcome.seconds,
        },
        "environment": environment(),
    }


def _git_commit() -> str | None:
    """Commit of the source tree that linkcal runs from, "-dirty" if it was changed; None outside one."""
    here = Path(__file__).resolve().parent
    # Installed into an environment inside somebody's repository, this file is not tracked there.
    if not _git(here, "ls-files", "--error-unmatch", Path(__file__).name):
        return None
    dirty = "-dirty" if _git(here, "status", "--porcelain", "--untracked-files=no") else ""
    return f"{_git(here, 'rev-parse', 'HEAD')}{dirty}"


def _git(folder: Path, *arguments: str) -> str:
    """Output of a git command; empty if it failed or there is no git."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _write_json(values: Any, path: Path) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(to_json(values) + "\n", encoding="utf-8")


def _without_nan(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _without_nan(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_without_nan(value) for value in values]
    if isinstance(values, float) and not math.isfinite(values):
        return None
    return values
