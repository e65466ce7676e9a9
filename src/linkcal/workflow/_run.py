"""One run: every step, the choice of a calibrator, and the folder that is written."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold

from linkcal._core.files import require_writable, written_whole
from linkcal._core.maths import bernoulli_nll, sigmoid
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
from linkcal.workflow._settings import RunConfig
from linkcal.workflow._steps import (
    FloatArray,
    Progress,
    Step,
    TargetRate,
    TrainedModel,
    distinct_warnings,
    fit_calibrators,
    fit_links,
    fit_parts,
    measure_links,
    negatives_per_positive,
    split_graph,
    train_model,
    true_probability,
    warn_of_limits,
)

#: Calibrators that compete to be the default; the two with networks are slow to fit and seldom win.
CANDIDATES = ("uncalibrated", "temperature", "platt", "beta", "isotonic", "histogram", "bbq", "in-n-out-plus")

_FOLDS = 5


def select_calibrator(
    fitted: Mapping[str, Calibrator],
    scores: LinkScores,
    validation: LinkScores | None,
    *,
    seed: int,
) -> str:
    """Name of the calibrator with the smallest held-out negative log-likelihood; ties go to the first.

    Measured on `validation`, links that nothing was fitted on, or else by stratified 5-fold cross-validation
    on the calibration links `scores`. Without any of ``CANDIDATES``, the first calibrator.
    """
    candidates = [name for name in fitted if name in CANDIDATES] or list(fitted)[:1]
    rarest = int(scores.label.sum().item()) if scores.label is not None else 0
    rarest = min(rarest, len(scores) - rarest)
    if validation is None and rarest < 2:
        warnings.warn(
            f"calibration links must hold at least 2 of each class to choose a calibrator by, got {rarest}: "
            f"{candidates[0]} is taken",
            RareClassWarning,
            stacklevel=2,
        )
        return candidates[0]
    if validation is not None:
        losses = {name: _loss(fitted[name], validation) for name in candidates}
    else:
        losses = {name: _cross_validated_loss(fitted[name], scores, seed) for name in candidates}
    return min(candidates, key=losses.__getitem__)


def _loss(calibrator: Calibrator, scores: LinkScores) -> float:
    X, y = scores.to_arrays(calibrator.link_features)
    return float(bernoulli_nll(calibrator.decision_function(X), y.astype(np.float64)).mean())


def _cross_validated_loss(calibrator: Calibrator, scores: LinkScores, seed: int) -> float:
    _, y = scores.to_arrays()
    folds = min(_FOLDS, int(np.bincount(y, minlength=2).min()))
    state = int(numpy_stream(seed, "selection").integers(2**31))
    total = 0.0
    for train, held_out in StratifiedKFold(folds, shuffle=True, random_state=state).split(y, y):
        with warnings.catch_warnings():
            # The fit on all links gave the same warnings.
            warnings.simplefilter("ignore", LinkcalWarning)
            part = calibrator.refitted(*scores.take(train).to_arrays(calibrator.link_features))
        total += _loss(part, scores.take(held_out)) * len(held_out)
    return total / len(y)


@dataclass(frozen=True)
class RunOutcome:
    """Everything a run produced.

    Parameters
    ----------
    config : RunConfig
    metrics : dict
        The content of ``metrics.json``.
    artifact : Artifact
    trained : TrainedModel
    toggle_method : str
        How the test links were toggled.
    test_label : ndarray (L,)
    test_probability : dict of str to ndarray (L,)
        By calibrator.
    seconds : dict of str to float
        Wall-clock time by stage.
    device : str
    test_weight : ndarray (L,) or None
        Of the test links, where results are for another base rate.
    """

    config: RunConfig
    metrics: dict[str, Any]
    artifact: Artifact
    trained: TrainedModel
    toggle_method: str
    test_label: FloatArray
    test_probability: dict[str, FloatArray]
    seconds: dict[str, float]
    device: str
    test_weight: FloatArray | None = None


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
    place = check_device(device)
    notify = progress or (lambda _step: None)
    clock = _Clock()
    split = split_graph(config, graph).to(place)
    warn_of_limits(config, split)
    # Looked up before the model adds positions of its own.
    features_from_edges = split.graph.features_from_edges
    clock.lap("split")
    trained = train_model(config, split, place, progress)
    clock.lap("train")
    links = fit_links({part: trained.score(part) for part in fit_parts(config.fit_on)}, config.fit_on)
    clock.lap("toggle")
    fitted, seconds_fit = {}, {}
    for number, name in enumerate(config.calibrators):
        notify(Step(f"fit {name}", number, len(config.calibrators)))
        start = time.perf_counter()
        (fitted[name],) = fit_calibrators(config, name, [links])
        seconds_fit[name] = time.perf_counter() - start
    selected = select_calibrator(fitted, links.scores, links.validation, seed=config.seed)
    clock.lap("calibrate")
    test = trained.score("test")
    label = test.to_arrays()[1].astype(np.float64)
    rate, truth = TargetRate.of(config, trained.split), true_probability(split)
    probability, results = {}, {}
    with distinct_warnings(), blas_threads(1):
        for number, (name, calibrator) in enumerate(fitted.items()):
            notify(Step("evaluate", number + 1, len(fitted)))
            probability[name], logit = _calibrated(calibrator, test, rate)
            measured = measure_links(label, probability[name], logit, truth, rate=rate)
            results[name] = {**measured, "seconds_fit": seconds_fit[name]}
        metrics = _metrics(config, trained.split, results, selected, rate)
        if truth is not None and rate is None:
            metrics["oracle"] = evaluate_links(label, truth)
    clock.lap("evaluate")
    artifact = _artifact(config, trained, fitted, metrics, node_ids, features_from_edges)
    weight = None if rate is None else rate.weight(label)
    return RunOutcome(
        config, metrics, artifact, trained, test.toggled.method, label, probability, clock.seconds,
        str(place), weight,
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


def _metrics(
    config: RunConfig,
    split: LinkSplit,
    results: dict[str, dict[str, float]],
    selected: str,
    rate: TargetRate | None,
) -> dict[str, Any]:
    """Content of ``metrics.json``."""
    common = {"dataset": config.dataset, "model": config.model, "seed": config.seed, "fit_on": config.fit_on}
    for_rate = {} if rate is None else {"base_rate": rate.rate, "base_rate_origin": rate.origin}
    return {
        **common,
        "negatives_per_positive": negatives_per_positive(config, split),
        "negatives": split.negatives,
        **for_rate,
        "counts": split.counts(),
        "selected": selected,
        "results": results,
    }


_INFO = (
    "fit_on", "selected", "model", "dataset", "negatives_per_positive", "negatives", "base_rate",
    "base_rate_origin",
)  # fmt: skip


def _artifact(
    config: RunConfig,
    trained: TrainedModel,
    fitted: dict[str, Calibrator],
    metrics: dict[str, Any],
    node_ids: NodeIds | None,
    features_from_edges: bool,
) -> Artifact:
    info = {name: metrics[name] for name in _INFO if name in metrics}
    info |= {"decode_returns": "logits", "features_from_edges": features_from_edges}
    split = trained.split
    evidence = gather_evidence(split, config.fit_on, seed=config.seed, spare_test=True)
    return Artifact(
        trained.model.cpu(), split.graph.to("cpu"), fitted, info, node_ids, split.held_out_edges(), evidence
    )


class _Clock:
    """Seconds between laps, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now


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
        JSON values on where the graph came from, for ``config.json``.

    Returns
    -------
    dict of str to Path
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
    """Versions, git commit, platform and thread counts of this process, as JSON values.

    Returns
    -------
    dict
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
    """JSON text; NaN and infinity, which JSON does not have, become null.

    Parameters
    ----------
    values : JSON values

    Returns
    -------
    str
    """
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
