"""One run: every step, the choice of a calibrator, and the folder that is written."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from linkcal._core.files import folder_written_whole, require_writable, written_whole
from linkcal._core.maths import FloatArray, bernoulli_nll, sigmoid
from linkcal._core.random import numpy_stream
from linkcal._core.threads import blas_threads
from linkcal._core.validation import check_device
from linkcal._scoring import gather_evidence
from linkcal.artifact import Artifact, check_artifact_folder, save_artifact
from linkcal.calibrators import Calibrator
from linkcal.data import Graph, LinkSplit, NodeIds
from linkcal.exceptions import InputError, LinkcalWarning, RareClassWarning
from linkcal.features import LinkScores
from linkcal.metrics import evaluate_links
from linkcal.plots import reliability_figure
from linkcal.report import write_report
from linkcal.workflow import _steps as steps
from linkcal.workflow._settings import RunConfig
from linkcal.workflow._steps import Progress, Step, TargetRate, TrainedModel

#: Calibrators that compete to be the default; the two with networks are slow to fit and seldom win.
CANDIDATES = ("uncalibrated", "temperature", "platt", "beta", "isotonic", "histogram", "bbq", "in-n-out-plus")


def select_calibrator(
    fitted: Mapping[str, Calibrator], scores: LinkScores, validation: LinkScores | None, *, seed: int
) -> str:
    """Name of the calibrator with the smallest held-out negative log-likelihood; ties go to the first.

    Measured on `validation`, links that nothing was fitted on, or else by stratified 5-fold cross-validation
    on the calibration links `scores`. Without any of ``CANDIDATES``, the first calibrator.
    """
    candidates = [name for name in fitted if name in CANDIDATES] or list(fitted)[:1]
    _, y = scores.to_arrays()
    rarest = int(np.bincount(y, minlength=2).min())
    if validation is None and rarest < 2:
        text = f"calibration links must hold at least 2 of each class to choose a calibrator by, got {rarest}"
        warnings.warn(f"{text}: {candidates[0]} is taken", RareClassWarning, stacklevel=2)
        return candidates[0]

    state = int(numpy_stream(seed, "selection").integers(2**31))
    folds = StratifiedKFold(min(5, max(rarest, 2)), shuffle=True, random_state=state)

    def loss(name: str) -> float:
        calibrator = fitted[name]
        if validation is not None:
            return _loss(calibrator, *validation.to_arrays(calibrator.link_features))
        X, total = scores.to_matrix(calibrator.link_features), 0.0
        for train, held_out in folds.split(y, y):
            with warnings.catch_warnings():
                # The fit on all links gave the same warnings.
                warnings.simplefilter("ignore", LinkcalWarning)
                part = calibrator.refitted(X[train], y[train])
            total += _loss(part, X[held_out], y[held_out]) * len(held_out)
        return total / len(y)

    return min(candidates, key=loss)


def _loss(calibrator: Calibrator, X: FloatArray, y: NDArray[np.int64]) -> float:
    return float(bernoulli_nll(calibrator.decision_function(X), y.astype(np.float64)).mean())


@dataclass(frozen=True)
class RunOutcome:
    """Everything a run produced.

    Parameters
    ----------
    config, metrics, artifact, trained, device
        Settings, the content of ``metrics.json``, what is saved, the trained model, where it was trained.
    toggle_method : str
        How the test links were toggled.
    test_label, test_weight : ndarray (L,)
        Weights are None unless results are for another base rate.
    test_probability, seconds : dict of str to ndarray (L,), dict of str to float
        By calibrator; wall-clock time by stage.
    """

    config: RunConfig
    metrics: dict[str, Any]
    artifact: Artifact
    trained: TrainedModel
    toggle_method: str
    test_label: FloatArray
    test_weight: FloatArray | None
    test_probability: dict[str, FloatArray]
    seconds: dict[str, float]
    device: str


def run_experiment(
    config: RunConfig,
    graph: Graph | LinkSplit,
    *,
    device: torch.device | str = "cpu",
    node_ids: NodeIds | None = None,
    progress: Progress | None = None,
) -> RunOutcome:
    """Split, train, toggle, fit all calibrators, and measure them on the test links, once.

    Warns of a directed graph (linkcal's decoders give both directions the same logit), of features computed
    from edges with leave-one-out scores, and of fewer than K test negatives.

    Parameters
    ----------
    config : RunConfig
    graph : Graph or LinkSplit
        A graph is split as `config` says; an official split is used as it is.
    device : torch.device or str
        ``"auto"`` chooses CUDA if there is one.
    node_ids : NodeIds, optional
        The user's names of the nodes, kept in the artifact.
    progress : callable, optional
        Called with a :class:`Step` as the work goes on.

    Returns
    -------
    RunOutcome
    """
    place, laps = check_device(device), [("", time.perf_counter())]

    def lap(stage: str) -> None:
        laps.append((stage, time.perf_counter()))

    notify = progress or (lambda _step: None)
    split = steps.split_graph(config, graph).to(place)
    steps.warn_of_limits(config, split)
    # Looked up before the model adds positions of its own.
    features_from_edges = split.graph.features_from_edges
    lap("split")
    trained = steps.train_model(config, split, place, progress)
    lap("train")
    parts = ("val",) if config.fit_on == "val" else ("train", "val")
    links = steps.fit_links({part: trained.score(part) for part in parts}, config.fit_on)
    lap("toggle")
    fitted, seconds_fit = {}, {}
    for number, name in enumerate(config.calibrators):
        notify(Step(f"fit {name}", number, len(config.calibrators)))
        start = time.perf_counter()
        (fitted[name],) = steps.fit_calibrators(config, name, [links])
        seconds_fit[name] = time.perf_counter() - start
    selected = select_calibrator(fitted, links.scores, links.validation, seed=config.seed)
    lap("calibrate")
    test = trained.score("test")
    label = test.to_arrays()[1].astype(np.float64)
    rate, truth = TargetRate.of(config, trained.split), steps.true_probability(split)
    probability, results = {}, {}
    with blas_threads(1):
        for number, (name, calibrator) in enumerate(fitted.items()):
            notify(Step("evaluate", number + 1, len(fitted)))
            probability[name], logit = _calibrated(calibrator, test, rate)
            measured = steps.measure_links(label, probability[name], logit, truth, rate=rate)
            results[name] = {**measured, "seconds_fit": seconds_fit[name]}
        info = _info(config, trained.split, selected, rate)
        metrics = {**info, "seed": config.seed, "counts": trained.split.counts(), "results": results}
        if truth is not None and rate is None:
            metrics["oracle"] = evaluate_links(label, truth)
    lap("evaluate")
    seconds = {stage: end - start for (_, start), (stage, end) in pairwise(laps)}
    info |= {"decode_returns": "logits", "features_from_edges": features_from_edges}
    model, split = trained.model.cpu(), trained.split
    evidence = gather_evidence(split, config.fit_on, seed=config.seed, spare_test=True)
    known = node_ids, split.held_out_edges(), evidence
    artifact = Artifact(model, split.graph.to("cpu"), fitted, info, *known)
    weight = None if rate is None else rate.weight(label)
    return RunOutcome(
        config, metrics, artifact, trained, test.toggled.method, label, weight, probability, seconds,
        str(place),
    )  # fmt: skip


def _calibrated(
    calibrator: Calibrator, scores: LinkScores, rate: TargetRate | None
) -> tuple[FloatArray, FloatArray]:
    """Probabilities and calibrated logits (L,), at the target rate if there is one."""
    X = scores.to_matrix(calibrator.link_features)
    logit = calibrator.decision_function(X)
    if rate is None:
        return calibrator.predict_proba(X)[:, 1], logit
    # A probability near 1 has lost the digits that the shift needs.
    logit = logit + rate.offset
    return sigmoid(logit), logit


def _info(config: RunConfig, split: LinkSplit, selected: str, rate: TargetRate | None) -> dict[str, Any]:
    """What metrics and artifact both record of a run."""
    for_rate = {} if rate is None else {"base_rate": rate.rate, "base_rate_origin": rate.origin}
    return {
        **{name: getattr(config, name) for name in ("dataset", "model", "fit_on")},
        "negatives_per_positive": steps.negatives_per_positive(config, split),
        "negatives": split.negatives,
        **for_rate,
        "selected": selected,
    }


#: Sub-folder of a run that holds the fitted artifact.
ARTIFACT_FOLDER = "artifact"
_METRICS = "metrics.json"

_PACKAGES = (
    "linkcal", "torch", "torch-geometric", "numpy", "scipy", "scikit-learn", "numba", "pandas", "pyarrow",
    "safetensors", "matplotlib",
)  # fmt: skip


def check_output_folder(folder: str | os.PathLike[str], *, new: bool = False) -> None:
    """Refuse a folder that :func:`write_outputs` could not write, before the work starts.

    With `new` also one that holds a run.
    """
    out = Path(folder)
    require_writable(out, "out")
    check_artifact_folder(out / ARTIFACT_FOLDER)
    if not _holds_run(out):
        return
    if new:
        raise InputError(
            f"out must be a folder without a run, got {out}: choose another, or replace the run by --force"
        )
    require_writable(out.resolve().parent, "out")  # the new run is built beside the old one
    if os.path.ismount(out) or Path.cwd().is_relative_to(out.resolve()):
        raise InputError(
            "out must not be a mount point or the current folder where it holds a run, which is replaced as "
            f"a whole, got {out}: choose a folder in it"
        )


def _holds_run(out: Path) -> bool:
    return (out / _METRICS).exists() or (out / ARTIFACT_FOLDER).exists()


def file_record(path: str | os.PathLike[str]) -> dict[str, str]:
    """Path and SHA-256 of an input file, so that a run can be repeated on the same bytes."""
    with Path(path).open("rb") as file:
        return {"path": str(Path(path).resolve()), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def write_outputs(
    outcome: RunOutcome, folder: str | os.PathLike[str], *, source: dict[str, Any] | None = None
) -> dict[str, Path]:
    """Write ``artifact/``, ``reliability.png``, ``config.json``, ``report.html`` and, last, ``metrics.json``.

    All are written whole or not at all; a folder with ``metrics.json`` is a finished run. An earlier run in
    the folder stays as it was until the new one takes its place in one step; other files stay.

    Parameters
    ----------
    outcome : RunOutcome
    folder : path
        Made if it is not there.
    source : dict, optional
        JSON values on where the graph came from, for ``config.json``.

    Returns
    -------
    dict of str to Path
    """
    check_output_folder(folder)
    out = Path(folder)
    names = {"artifact": ARTIFACT_FOLDER, "figure": "reliability.png", "config": "config.json"}
    names |= {"report": "report.html", "metrics": _METRICS}
    if _holds_run(out):
        with folder_written_whole(out) as staging:
            _write_run(outcome, {what: staging / name for what, name in names.items()}, source)
            _keep_others(out, staging, set(names.values()))
    else:
        out.mkdir(parents=True, exist_ok=True)
        _write_run(outcome, {what: out / name for what, name in names.items()}, source)
    return {what: out / name for what, name in names.items()}


def _write_run(outcome: RunOutcome, paths: Mapping[str, Path], source: dict[str, Any] | None) -> None:
    save_artifact(outcome.artifact, paths["artifact"])
    title = f"{outcome.config.model} on {outcome.config.dataset}"
    shown, weight = (outcome.test_label, outcome.test_probability), outcome.test_weight
    reliability_figure(*shown, paths["figure"], title=title, sample_weight=weight)
    config = {"input": source or {}, **_config_record(outcome)}
    _write_json(config, paths["config"])
    title, figure = f"Calibrated link probabilities: {title}", paths["figure"]
    write_report(paths["report"], title=title, metrics=outcome.metrics, config=config, figure_png=figure)
    _write_json(outcome.metrics, paths["metrics"])


def _keep_others(old: Path, new: Path, own: set[str]) -> None:
    """Take the user's own files of a run's folder along, as further names of the same files if possible."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:  # the disk knows no links
            shutil.copy2(source, target)

    for path in old.iterdir():
        if path.name in own:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new / path.name, symlinks=True, copy_function=link)
        elif path.is_symlink():
            (new / path.name).symlink_to(path.readlink())
        else:
            link(str(path), str(new / path.name))


def _config_record(outcome: RunOutcome) -> dict[str, Any]:
    """Settings as given, what they resolved to, and where the run happened."""
    return {
        "config": outcome.config.to_dict(),
        "model": getattr(outcome.artifact.model, "config", {}),
        "training": asdict(outcome.trained.config),
        "calibrators": {name: c.get_params() for name, c in outcome.artifact.calibrators.items()},
        "outcome": {
            "training": asdict(outcome.trained.result),
            "device": outcome.device,
            "toggle_method": outcome.toggle_method,
            "seconds": outcome.seconds,
        },
        "environment": environment(),
    }


def environment() -> dict[str, Any]:
    """Versions, git commit, platform and thread counts of this process, as JSON values."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: version(name) for name in _PACKAGES},
        "git_commit": _git_commit(),
        "torch_threads": torch.get_num_threads(),
        "numba_threads": numba.config.NUMBA_NUM_THREADS,
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _git_commit() -> str | None:
    """Commit of the source tree that linkcal runs from, "-dirty" if it was changed; None outside one."""
    here = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
        return done.stdout.strip()

    try:
        # Installed into an environment inside somebody's repository, this file is not tracked there.
        git("ls-files", "--error-unmatch", here.name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None


def to_json(values: Any) -> str:
    """JSON text of JSON values; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_without_nan(values), indent=2, allow_nan=False)


def _without_nan(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _without_nan(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_without_nan(value) for value in values]
    if isinstance(values, float) and not math.isfinite(values):
        return None
    return values


def _write_json(values: Any, path: Path) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(to_json(values) + "\n", encoding="utf-8")
