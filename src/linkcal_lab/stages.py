"""The two stages of a sweep: train and score once, then fit and measure every calibration seed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.files import read_arrays
from linkcal._core.random import numpy_stream
from linkcal._core.threads import blas_threads
from linkcal._core.validation import check_device
from linkcal._scoring import FitLinks
from linkcal.calibrators import Calibrator
from linkcal.data import Graph, LinkPairs, LinkSplit, sample_negatives
from linkcal.features import LinkScores, calibration_part, score_links
from linkcal.models import load_model, save_model
from linkcal.workflow import split_graph, to_json
from linkcal.workflow._run import environment
from linkcal.workflow._steps import fit_calibrators, fit_links, train_model, true_probability, warn_of_limits
from linkcal_lab.cells import Cell, TrainingJob
from linkcal_lab.patterns import measure_completely
from linkcal_lab.records import METRICS_FILE, write_metrics
from linkcal_lab.store import (
    CONFIG_FILE,
    MEASURED_PARTS,
    PREDICTIONS_FILE,
    Predictions,
    Store,
    is_disk_full,
    join_scores,
    load_scores,
    read_record,
    save_scores,
    write_predictions,
)

PARTS = ("train", "val", "test")
_TRUTH = "true_probability.npz"
_TRUTHS = {"test": ("f", 1)}

FloatArray = NDArray[np.float64]
LoadGraph = Callable[[], Graph | LinkSplit]


# Seconds and peak memory of a stage of work.

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass
class Usage:
    """What a stage needed.

    Parameters
    ----------
    seconds : dict of str to float
        Wall-clock time by step, and ``total``.
    processor_seconds : dict of str to float
        Processor time of all threads, by the same names. Less than the wall-clock time of one thread where
        other programs kept it waiting.
    peak_memory_mib : float or None
        Largest resident memory of the process while the stage ran (the process holds libraries and cached
        data sets beside the stage's own arrays); None where the system does not report it.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    processor_seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_mib: float | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time of a block to a step."""
        wall, processor = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - wall
            before = self.processor_seconds.get(name, 0.0)
            self.processor_seconds[name] = before + time.process_time() - processor

    def shared(self, count: int) -> Usage:
        """One of `count` equal parts, for cells that were made together."""
        seconds, processor = (
            {name: value / count for name, value in clock.items()}
            for clock in (self.seconds, self.processor_seconds)
        )
        return Usage(seconds, processor, self.peak_memory_mib)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run torch with `count` threads for a block, faster for tiny tensors, and put its setting back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def measured() -> Iterator[Usage]:
    """Measure a block; peak memory is read at its end.

    Examples
    --------
    >>> with measured() as usage, usage.step("sum"):
    ...     _ = sum(range(10))
    >>> sorted(usage.seconds)
    ['sum', 'total']
    """
    usage = Usage()
    resettable = _reset_peak()
    try:
        with usage.step("total"):
            yield usage
    finally:
        usage.peak_memory_mib = _peak() if resettable else None


def _reset_peak() -> bool:
    """Let the kernel forget the peak so far; False where it cannot."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def _peak() -> float | None:
    for line in _STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None


def message_texts(caught: list[warnings.WarningMessage]) -> list[str]:
    """Different warnings as ``Category: text``, in the order of their first appearance."""
    return list(dict.fromkeys(f"{one.category.__name__}: {one.message}" for one in caught))


# First stage: train once, toggle once, and keep the link scores that all calibrations share.


@dataclass(frozen=True, eq=False)
class StoredTraining:
    """What the second stage needs of a training.

    Parameters
    ----------
    folder : Path
    scores : dict of str to LinkScores
        Of ``train``, ``val`` and ``test``, each with its target link absent; positives first.
    truth : ndarray (L,), optional
        Probability that each test pair is positive, where it is known.
    config : dict
        The training's ``config.json``.
    """

    folder: Path
    scores: dict[str, LinkScores]
    truth: FloatArray | None
    config: dict[str, Any]


def train_and_store(
    store: Store, job: TrainingJob, load: LoadGraph, *, device: str = "cpu", resources: dict[str, Any]
) -> None:
    """Train, score all links of the split, and write the folder ``training``; the caller holds the lock.

    `load` gives the graph or official split, `resources` (engine, jobs, threads) is for ``config.json``.
    """
    config, place = job.config, check_device(device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Torch cuts sums such as those of batch normalisation over its threads, so that their last bits
        # depend on them: one thread gives equal numbers for any number of jobs. More jobs use more cores.
        with measured() as usage, torch_threads(1):
            with usage.step("load"):
                graph = load()
            with usage.step("split"):
                split = split_graph(config, graph).to(place)
                # Leave-one-out has the most limits: what holds for it is recorded for all.
                warn_of_limits(replace(config, fit_on="train-loo"), split)
            with usage.step("train"):
                trained = train_model(config, split, place)
            with usage.step("toggle"):
                scores = {name: trained.score(name) for name in PARTS}
    record = {
        "protocol": job.protocol,
        "config": config.to_dict(),
        "model": getattr(trained.model, "config", {}),
        "training": asdict(trained.config),
        "outcome": {
            "training": asdict(trained.result),
            "device": str(place),
            "toggle_method": scores["test"].toggled.method,
        },
        "counts": trained.split.counts(),
        **asdict(usage),
        "warnings": message_texts(caught),
        "resources": resources,
        "environment": environment(),
    }
    truth = true_probability(split)
    with store.new_folder(store.training_folder(job)) as folder:
        save_model(trained.model.cpu(), folder)
        for name, part in scores.items():
            save_scores(part, split.part(name).edge_label_index, folder / f"scores-{name}.npz")
        if truth is not None:
            np.savez(folder / _TRUTH, test=truth)
        (folder / CONFIG_FILE).write_text(to_json(record) + "\n", encoding="utf-8")


def load_training(folder: Path) -> StoredTraining:
    """Read what :func:`train_and_store` wrote; a damaged file is an error."""
    scores = {name: load_scores(folder / f"scores-{name}.npz")[0] for name in PARTS}
    has_truth = (folder / _TRUTH).exists()
    truth = read_arrays(folder / _TRUTH, "true probabilities", _TRUTHS)["test"] if has_truth else None
    return StoredTraining(folder, scores, truth, read_record(folder))


# The links that each calibration seed is fitted on: the positives stay, the negatives are drawn anew.


def draw_calibration_negatives(split: LinkSplit, part: str, seed: int, calibration_seed: int) -> Tensor:
    """Draw as many negatives [2, L] as a part of the split has, for calibration seed 1, 2, ...

    They are of the split's kind (``LinkSplit.negatives``; uniform for an official split), without repeats.
    Never a link of any part, and never a negative of another part: the test pairs stay unseen. From the
    stream ``"calibration-negatives-<part>-<calibration seed>"`` of the training seed. Calibration seed 0
    keeps the split's own negatives, as a run does.
    """
    links = [split.part(name) for name in PARTS]
    positives = [pairs.edge_label_index[:, pairs.edge_label == 1] for pairs in links]
    others = [split.part(name) for name in PARTS if name != part]
    negatives = [pairs.edge_label_index[:, pairs.edge_label == 0] for pairs in others]
    # Degrees and common neighbours are those of the full graph, as in the split itself.
    kind: Any = split.negatives or "uniform"
    full = split.graph if kind == "heart" else split.graph.with_edges(torch.cat(positives, dim=1))
    stream = numpy_stream(seed, f"calibration-negatives-{part}-{calibration_seed}")
    return sample_negatives(
        full,
        split.part(part).num_negatives,
        stream,
        kind=kind,
        exclude=torch.cat([split.graph.pairs, *positives, *negatives], dim=1),
        links=positives[PARTS.index(part)],
    )


@dataclass(eq=False)
class Calibration:
    """Links of any calibration seed of one stored training.

    `load` gives the graph or official split; it is called only if negatives have to be drawn anew, which are
    scored on `device`.
    """

    job: TrainingJob
    stored: StoredTraining
    load: LoadGraph
    device: str = "cpu"
    _joined: dict[tuple[str, int], LinkScores] = field(default_factory=dict)

    def links(self, cell: Cell) -> FitLinks:
        """Links that a cell's calibrators are fitted on; with calibration seed 0 those of a run.

        Another seed keeps the positives, whose scores are stored, and scores its own negatives.
        """
        part = calibration_part(cell.fit_on)
        scores = {**self.stored.scores, part: self._part(part, cell.calibration_seed)}
        return fit_links(scores, cell.fit_on)

    def _part(self, part: str, calibration_seed: int) -> LinkScores:
        # The same for train and train-loo, whose negatives are no edges of the message-passing graph.
        key = (part, calibration_seed)
        stored = self.stored.scores[part]
        if calibration_seed == 0:
            return stored
        if key not in self._joined:
            model, split = self._scorer
            pairs = draw_calibration_negatives(split, part, self.job.config.seed, calibration_seed)
            label = torch.zeros(pairs.size(1), device=pairs.device)
            with torch_threads(1):  # as the stored scores
                drawn = score_links(model, split.graph, LinkPairs(pairs, label))
            positives = torch.nonzero(stored.label == 1).flatten()  # type: ignore[arg-type]
            self._joined[key] = join_scores(stored.take(positives), drawn)
        return self._joined[key]

    @cached_property
    def _scorer(self) -> tuple[Any, LinkSplit]:
        """The trained model and the split, with the message-passing graph as the model reads it."""
        place = check_device(self.device)
        model = load_model(self.stored.folder).to(place)
        split = split_graph(self.job.config, self.load()).to(place)
        return model, replace(split, graph=model.prepare(split.graph))


# Second stage: fit and measure the calibrators of all calibration seeds.


@dataclass(frozen=True, eq=False)
class _Result:
    """A fitted calibrator's calibrated logits and probabilities, and its metrics, by part."""

    parameters: dict[str, Any]
    calibrated: dict[str, tuple[FloatArray, FloatArray]]
    metrics: dict[str, dict[str, float]]


def calibrate_and_store(
    store: Store, calibration: Calibration, wanted: Mapping[Cell, Sequence[str]], *, resources: dict[str, Any]
) -> dict[tuple[Cell, str], Exception]:
    """Fit, measure and write the calibrators of cells that are fitted on the same part.

    The calibration seeds of a calibrator are fitted together, which gives each the numbers of a fit of its
    own. The caller holds the job's lock.

    Returns
    -------
    dict of (Cell, str) to Exception
        Calibrators that failed, by their name, or ``""`` for a cell whose links could not be made. The
        others are written all the same.
    """
    failed: dict[tuple[Cell, str], Exception] = {}
    results: dict[Cell, dict[str, _Result]] = {cell: {} for cell in wanted}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # One thread, as in a run: equal numbers for any number of jobs.
        with measured() as usage, blas_threads(1):
            links: dict[Cell, FitLinks] = {}
            with usage.step("score"):
                for cell in wanted:
                    try:
                        links[cell] = calibration.links(cell)
                    except Exception as error:
                        failed[cell, ""] = error
            for name in dict.fromkeys(name for names in wanted.values() for name in names):
                chosen = {cell: links[cell] for cell in links if name in wanted[cell]}
                for cell, result in _fit_and_measure(calibration, name, chosen, usage).items():
                    if isinstance(result, Exception):
                        failed[cell, name] = result
                    else:
                        results[cell][name] = result
    common = {
        **asdict(usage.shared(len(wanted))),
        "warnings": message_texts(caught),
        "resources": resources,
        "environment": environment(),
    }
    for cell, found in results.items():
        try:
            if found:
                _write_cell(store, calibration, cell, links[cell], found, common)
        except Exception as error:
            if is_disk_full(error):
                raise
            failed[cell, ""] = error
    return failed


def _fit_and_measure(
    calibration: Calibration, name: str, links: Mapping[Cell, FitLinks], usage: Usage
) -> dict[Cell, _Result | Exception]:
    """Results of one calibrator in several cells, or why there is none; after a failure each cell alone."""
    if not links:
        return {}
    seeds = [cell.calibration_seed for cell in links]
    try:
        with usage.step(f"fit {name}"):
            fitted = fit_calibrators(calibration.job.config, name, list(links.values()), seeds)
        with usage.step("evaluate"):
            return {
                cell: _measure(calibrator, calibration.stored)
                for cell, calibrator in zip(links, fitted, strict=True)
            }
    except Exception as error:
        if len(links) == 1:
            return dict.fromkeys(links, error)
    found: dict[Cell, _Result | Exception] = {}
    for cell, own in links.items():
        found |= _fit_and_measure(calibration, name, {cell: own}, usage)
    return found


def _measure(calibrator: Calibrator, stored: StoredTraining) -> _Result:
    calibrated, metrics = {}, {}
    for part in MEASURED_PARTS:
        X, y = stored.scores[part].to_arrays(calibrator.link_features)
        logit, probability = calibrator.decision_function(X), calibrator.predict_proba(X)[:, 1]
        calibrated[part] = logit, probability
        truth = stored.truth if part == "test" else None
        metrics[part] = measure_completely(y.astype(np.float64), probability, logit, truth)
    return _Result(calibrator.get_params(), calibrated, metrics)


def _write_cell(
    store: Store,
    calibration: Calibration,
    cell: Cell,
    links: FitLinks,
    results: dict[str, _Result],
    common: dict[str, Any],
) -> None:
    job, stored = calibration.job, calibration.stored
    label = links.scores.to_arrays()[1]
    record = {
        "protocol": job.protocol,
        "config": job.config_for(cell.fit_on).to_dict(),
        "calibration_seed": cell.calibration_seed,
        "calibrators": {name: result.parameters for name, result in results.items()},
        "fitting_links": {"positives": int(label.sum()), "negatives": int(len(label) - label.sum())},
        **common,
    }
    rows = {part: [result.calibrated[part] for result in results.values()] for part in MEASURED_PARTS}
    predictions = Predictions(
        calibrators=tuple(results),
        label={part: stored.scores[part].to_arrays()[1].astype(np.int8) for part in MEASURED_PARTS},
        logit={part: np.stack([logit for logit, _ in rows[part]]) for part in MEASURED_PARTS},
        probability={part: np.stack([prob for _, prob in rows[part]]) for part in MEASURED_PARTS},
        truth={} if stored.truth is None else {"test": stored.truth},
    )
    with store.new_folder(store.new_cell_folder(job, cell)) as folder:
        write_metrics({name: result.metrics for name, result in results.items()}, folder / METRICS_FILE)
        write_predictions(predictions, folder / PREDICTIONS_FILE)
        (folder / CONFIG_FILE).write_text(to_json(record) + "\n", encoding="utf-8")
        # Before the cell is there: of a cell that is there, nobody would look for a failure again.
        for name in (cell.name, *(f"{cell.name}/{each}" for each in results)):
            store.clear_failure(job, name)
