"""One run: every step, the choice of a calibrator, and the folder that is written."""

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from linkcal._core.files import require_writable
from linkcal._core.maths import FloatArray, sigmoid
from linkcal._core.threads import blas_threads
from linkcal._core.validation import check_device
from linkcal._scoring import gather_evidence
from linkcal.artifact import Artifact, check_artifact_folder, save_artifact
from linkcal.calibrators import Calibrator, registry
from linkcal.calibrators.base import collected_warnings, warn_caller
from linkcal.data import BipartiteIds, Graph, LinkSplit, NodeIds
from linkcal.exceptions import InputError
from linkcal.features import LinkScores, link_segments
from linkcal.metrics import evaluate_links, group_calibration
from linkcal.metrics.intervals import intervals_record
from linkcal.metrics.value import value_record
from linkcal.report._page import ARTIFACT_FOLDER, holds_run, write_results
from linkcal.workflow import _steps as steps
from linkcal.workflow._settings import RunConfig
from linkcal.workflow._steps import Progress, Step, TargetRate, TrainedModel

# Label vectors drawn for the bound of each calibrator's largest deviation by group.
_GROUP_RESAMPLES = 200


def select_calibrator(
    fitted: Mapping[str, Calibrator], scores: LinkScores, validation: LinkScores | None, *, seed: int
) -> str:
    """As :func:`linkcal.calibrators.registry.select_calibrator`, on scored links."""

    def links_of(part: LinkScores) -> registry.LinksFor:
        return lambda calibrator: part.to_arrays(calibrator.link_features)

    held_out = None if validation is None else links_of(validation)
    return registry.select_calibrator(fitted, links_of(scores), held_out, seed=seed)


@dataclass(frozen=True)
class RunOutcome:
    """Everything a run produced.

    Parameters
    ----------
    config, metrics, artifact, trained, device
        Settings, the content of ``metrics.json``, what is saved, the trained model, where it was trained.
    test_label, test_weight : ndarray (L,)
        Weights are None unless results are for another base rate.
    test_probability, seconds : dict of str to ndarray (L,), dict of str to float
        By calibrator; wall-clock time by stage.
    """

    config: RunConfig
    metrics: dict[str, Any]
    artifact: Artifact
    trained: TrainedModel
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
    node_ids: NodeIds | BipartiteIds | None = None,
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
    node_ids : NodeIds or BipartiteIds, optional
        The user's names of the nodes, kept in the artifact.
    progress : callable, optional
        Called with a :class:`Step` as the work goes on.
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
    fitted, seconds_fit, notes = {}, {}, {}
    for number, name in enumerate(config.calibrators):
        notify(Step(f"fit {name}", number, len(config.calibrators)))
        start = time.perf_counter()
        with collected_warnings() as notes[name]:
            (fitted[name],) = steps.fit_calibrators(config, name, [links])
        seconds_fit[name] = time.perf_counter() - start
    selected = select_calibrator(fitted, links.scores, links.validation, seed=config.seed)
    for note in notes[selected]:  # those of the others are in metrics.json
        warn_caller(str(note), type(note))
    lap("calibrate")
    test = trained.score("test")
    label = test.to_arrays()[1].astype(np.float64)
    rate, truth = TargetRate.of(config, trained.split), steps.true_probability(split)
    probability, logit, results = {}, {}, {}
    with blas_threads(1):
        for number, (name, calibrator) in enumerate(fitted.items()):
            notify(Step("evaluate", number + 1, len(fitted)))
            probability[name], logit[name] = _calibrated(calibrator, test, rate)
            measured = steps.measure_links(label, probability[name], logit[name], truth, rate=rate)
            results[name] = {**measured, "seconds_fit": seconds_fit[name]}
        weight = None if rate is None else rate.weight(label)
        more = value_record(label, probability, weight) | intervals_record(label, probability, logit, weight)
        if rate is None:
            more["worst_segment"] = _add_groups(results, label, probability, test)
        info = _info(config, trained.split, selected, rate)
        metrics = {**info, "seed": config.seed, "counts": trained.split.counts(), "results": results}
        metrics["toggle_method"] = test.toggled.method
        metrics |= {**more, "warnings": {name: [str(note) for note in each] for name, each in notes.items()}}
        if truth is not None and rate is None:
            metrics["oracle"] = evaluate_links(label, truth)
    lap("evaluate")
    seconds = {stage: end - start for (_, start), (stage, end) in pairwise(laps)}
    info |= {"decode_returns": "logits", "features_from_edges": features_from_edges}
    model, split = trained.model.cpu(), trained.split
    evidence = gather_evidence(split, config.fit_on, seed=config.seed, spare_test=True)
    known = node_ids, split.held_out_edges(), evidence
    artifact = Artifact(model, split.graph.to("cpu"), fitted, info, *known)
    return RunOutcome(
        config, metrics, artifact, trained, label, weight, probability, seconds, str(place)
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


def _add_groups(
    results: dict[str, dict[str, Any]],
    label: FloatArray,
    probability: Mapping[str, FloatArray],
    scores: LinkScores,
) -> dict[str, str]:
    """Add the largest deviation by group and its bound to each calibrator's results; its segment's name."""
    segments, worst = link_segments(scores), {}
    for name, p in probability.items():
        found = group_calibration(label, p, segments, n_resamples=_GROUP_RESAMPLES)
        results[name] |= {"group_z": float(abs(found.z[found.worst])), "group_bound": found.bound}
        worst[name] = found.segment[found.worst]
    return worst


def _info(config: RunConfig, split: LinkSplit, selected: str, rate: TargetRate | None) -> dict[str, Any]:
    """What metrics and artifact both record of a run."""
    for_rate = {} if rate is None else {"base_rate": rate.rate, "base_rate_origin": rate.origin}
    return {
        **{name: getattr(config, name) for name in ("dataset", "model", "fit_on")},
        "negatives_per_positive": steps.negatives_per_positive(config, split),
        "negatives": split.negatives, **for_rate, "selected": selected,
    }  # fmt: skip


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
    if not holds_run(out):
        return
    if new:
        raise InputError(f"out must be a folder without a run, got {out}: choose another, or pass --force")
    require_writable(out.resolve().parent, "out")  # the new run is built beside the old one
    if os.path.ismount(out) or Path.cwd().is_relative_to(out.resolve()):
        raise InputError(
            "out must not be a mount point or the current folder where it holds a run, which is replaced as "
            f"a whole, got {out}: choose a folder in it"
        )


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
    title = f"{outcome.config.model} on {outcome.config.dataset}"
    return write_results(
        folder, lambda path: save_artifact(outcome.artifact, path),
        (outcome.test_label, outcome.test_probability, outcome.test_weight), figure_title=title,
        heading=f"Calibrated link probabilities: {title}", metrics=outcome.metrics,
        config={"input": source or {}, **_config_record(outcome)},
    )  # fmt: skip


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
            "seconds": outcome.seconds,
        },
        "environment": environment(),
    }


def environment() -> dict[str, Any]:
    """Versions, git commit, platform and thread counts of this process, as JSON values."""
    return {
        "python": platform.python_version(), "platform": platform.platform(),
        "versions": {name: version(name) for name in _PACKAGES}, "git_commit": _git_commit(),
        "torch_threads": torch.get_num_threads(), "numba_threads": numba.config.NUMBA_NUM_THREADS,
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }  # fmt: skip


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
