"""The two stages of a sweep: train and score once, then fit and measure every calibration seed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linkcal._core.random import numpy_stream
from linkcal._core.threads import blas_threads, torch_threads
from linkcal._core.validation import check_device
from linkcal.calibrators import Calibrator, fit_together
from linkcal.data import Graph, LinkPairs, LinkSplit, sample_negatives
from linkcal.features import COLUMN_NAMES, LinkScores, calibration_part, score_links
from linkcal.models import GraphModel, load_model, save_model
from linkcal.workflow.outputs import environment, to_json
from linkcal.workflow.steps import (
    configured_calibrator,
    fitting_links,
    split_for_run,
    train_for_run,
    true_probability,
    warn_of_limits,
)
from linkcal_lab.cells import Cell, TrainingJob
from linkcal_lab.records import METRICS_FILE, measure, write_metrics
from linkcal_lab.store import (
    CONFIG_FILE,
    MEASURED_PARTS,
    PREDICTIONS_FILE,
    Predictions,
    Store,
    join_scores,
    load_scores,
    read_arrays,
    read_record,
    save_scores,
    with_target_link,
    write_predictions,
)

__all__ = [
    "PARTS",
    "Calibration",
    "StoredTraining",
    "Usage",
    "calibrate_and_store",
    "draw_calibration_negatives",
    "load_training",
    "measured",
    "message_texts",
    "train_and_store",
]


# The links that each calibration seed is fitted on: the positives stay, the negatives are drawn anew.


def draw_calibration_negatives(split: LinkSplit, part: str, seed: int, calibration_seed: int) -> Tensor:
    """Draw as many negatives as a part of the split has, for calibration seed 1, 2, ...

    Calibration seed 0 keeps the split's own negatives, as ``linkcal run`` does.

    Parameters
    ----------
    split : LinkSplit
    part : {"train", "val"}
    seed : int
        The training seed.
    calibration_seed : int > 0

    Returns
    -------
    Tensor [2, L], int64
        Of the split's kind (``LinkSplit.negatives``; uniform for an official split), without repeats. Never
        a link of any part, and never a negative of another part: the test pairs stay unseen. From the stream
        ``"calibration-negatives-<part>-<calibration seed>"``.
    """
    links = [split.part(name) for name in ("train", "val", "test")]
    positives = [pairs.edge_label_index[:, pairs.edge_label == 1] for pairs in links]
    others = [split.part(name) for name in ("train", "val", "test") if name != part]
    negatives = [pairs.edge_label_index[:, pairs.edge_label == 0] for pairs in others]
    # Degrees and common neighbours are those of the full graph, as in the split itself.
    full = Graph.from_edges(torch.cat(positives, dim=1), split.graph.num_nodes, directed=split.graph.directed)
    stream = numpy_stream(seed, f"calibration-negatives-{part}-{calibration_seed}")
    return sample_negatives(
        full,
        split.part(part).num_negatives,
        stream,
        kind=split.negatives or "uniform",  # type: ignore[arg-type]
        exclude=torch.cat([split.graph.pairs, *negatives], dim=1),
    )


# Seconds and peak memory of a stage of work.

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass
class Usage:
    """What a stage took.

    Parameters
    ----------
    seconds : dict of str to float
        Wall-clock time by step, and ``total``.
    processor_seconds : dict of str to float
        Processor time of all threads, by the same names. Less than the wall-clock time of one thread where
        other programs kept it waiting.
    peak_memory_mib : float or None
        Largest resident memory of the process while the stage ran (the process holds libraries and cached
        data sets beside the stage's own arrays); None where the system does not tell.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    processor_seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_mib: float | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time of a block to a step."""
        start = _clocks()
        try:
            yield
        finally:
            for seconds, begun, now in zip(self._both, start, _clocks(), strict=True):
                seconds[name] = seconds.get(name, 0.0) + now - begun

    def share(self, count: int) -> None:
        """Leave one of `count` equal parts: of cells that were made together, each took its share."""
        for seconds in self._both:
            seconds.update({name: value / count for name, value in seconds.items()})

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    @property
    def _both(self) -> tuple[dict[str, float], dict[str, float]]:
        return self.seconds, self.processor_seconds


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


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


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


# First stage of a sweep: train once, toggle once, and keep the link scores that all calibrations share.

PARTS = ("train", "val", "test")
_TRUTH = "true_probability.npz"


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
    truth: NDArray[np.float64] | None
    config: dict[str, Any]

    def model(self) -> GraphModel:
        """The trained model, on the CPU."""
        return load_model(self.folder)


def train_and_store(
    store: Store,
    job: TrainingJob,
    load: Callable[[], Graph | LinkSplit],
    *,
    device: str = "cpu",
    resources: dict[str, Any],
) -> None:
    """Train, score all links of the split, and write the folder ``training``.

    Parameters
    ----------
    store : Store
        The caller holds the job's lock.
    job : TrainingJob
    load : callable
        Gives the graph or official split.
    device : str
        Where the model is trained and the links are scored.
    resources : dict
        Engine, jobs and threads, for ``config.json``.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Torch cuts sums such as those of batch normalisation over its threads, so that their last bits hang
        # on them: one thread gives equal numbers for any number of jobs. More jobs use more cores.
        with measured() as usage, torch_threads(1):
            made = _train_and_score(job, load, device, usage)
    record = {
        **made.record,
        **usage.to_dict(),
        "warnings": message_texts(caught),
        "resources": resources,
        "environment": environment(),
    }
    with store.new_folder(store.training_folder(job)) as folder:
        save_model(made.model.cpu(), folder)
        for name, scores in made.scores.items():
            save_scores(scores, made.split.part(name).edge_label_index, folder / f"scores-{name}.npz")
        if made.truth is not None:
            np.savez(folder / _TRUTH, test=made.truth)
        (folder / CONFIG_FILE).write_text(to_json(record) + "\n", encoding="utf-8")


def load_training(folder: Path) -> StoredTraining:
    """Read what :func:`train_and_store` wrote.

    Raises
    ------
    InputError
        If a file of scores is damaged.
    """
    scores = {name: load_scores(folder / f"scores-{name}.npz")[0] for name in PARTS}
    truth = None
    if (folder / _TRUTH).exists():
        truth = read_arrays(folder / _TRUTH, ["test"])["test"]
    return StoredTraining(folder, scores, truth, read_record(folder))


def message_texts(caught: list[warnings.WarningMessage]) -> list[str]:
    """Different warnings as ``Category: text``, in the order of their first appearance."""
    texts = [f"{one.category.__name__}: {one.message}" for one in caught]
    return list(dict.fromkeys(texts))


@dataclass(frozen=True, eq=False)
class _Trained:
    model: GraphModel
    split: LinkSplit
    scores: dict[str, LinkScores]
    truth: NDArray[np.float64] | None
    record: dict[str, Any]


def _train_and_score(
    job: TrainingJob, load: Callable[[], Graph | LinkSplit], device: str, usage: Usage
) -> _Trained:
    config, place = job.config, check_device(device)
    with usage.step("load"):
        graph = load()
    with usage.step("split"):
        split = split_for_run(config, graph).to(place)
        # Leave-one-out is the protocol with the most limits: what holds for it is recorded for all.
        warn_of_limits(replace(config, fit_on="train-loo"), split)
    with usage.step("train"):
        model, split, training_config, training = train_for_run(config, split, place, _ignore)
    with usage.step("toggle"):
        scores = {name: score_links(model, split.graph, split.part(name)) for name in PARTS}
    outcome = asdict(training)
    outcome["val_auc"] = [list(point) for point in training.val_auc]
    record = {
        "config": config.to_dict(),
        "model": getattr(model, "config", {}),
        "training": asdict(training_config),
        "outcome": {
            "training": outcome,
            "device": str(place),
            "toggle_method": scores["test"].toggled.method,
        },
        "counts": split.counts(),
    }
    return _Trained(model, split.to(torch.device("cpu")), scores, true_probability(split), record)


def _ignore(_step: object) -> None:
    """Progress inside a training is not shown: several run at once."""


# Second stage of a sweep: fit and measure the calibrators of all calibration seeds of a training.

FloatArray = NDArray[np.float64]


@dataclass(eq=False)
class Calibration:
    """Link scores for any calibration seed of one stored training.

    Parameters
    ----------
    job : TrainingJob
    stored : StoredTraining
    load : callable
        Gives the graph or official split; called only if negatives have to be drawn anew.
    device : str
        Where they are scored.
    """

    job: TrainingJob
    stored: StoredTraining
    load: Callable[[], Graph | LinkSplit]
    device: str = "cpu"
    _negatives: dict[tuple[str, int], LinkScores] = field(default_factory=dict)

    def links(self, fit_on: str, calibration_seed: int) -> LinkScores:
        """Labelled scores that a cell's calibrators are fitted on.

        With calibration seed 0 these are the links of ``linkcal run``. Another seed keeps the positives,
        whose scores are stored, and scores its own negatives.
        """
        part = calibration_part(fit_on)
        scores = self.stored.scores[part]
        if calibration_seed > 0:
            positives = torch.nonzero(scores.label == 1).flatten()  # type: ignore[arg-type]
            scores = join_scores(scores.take(positives), self._drawn(part, calibration_seed))
        return with_target_link(scores, "as-given" if fit_on == "train" else "absent")

    def _drawn(self, part: str, calibration_seed: int) -> LinkScores:
        # The same for train and train-loo, whose negatives are no edges of the message-passing graph.
        key = (part, calibration_seed)
        if key not in self._negatives:
            model, split = self._scorer
            pairs = draw_calibration_negatives(split, part, self.job.config.seed, calibration_seed)
            label = torch.zeros(pairs.size(1), device=pairs.device)
            with torch_threads(1):  # as the stored scores
                scores = score_links(model, split.graph, LinkPairs(pairs, label))
            self._negatives[key] = _on_cpu(scores)
        return self._negatives[key]

    @cached_property
    def _scorer(self) -> tuple[Any, LinkSplit]:
        """The trained model and the split, with the message-passing graph as the model reads it."""
        place = check_device(self.device)
        model = self.stored.model().to(place)
        split = split_for_run(self.job.config, self.load()).to(place)
        return model, replace(split, graph=model.prepare(split.graph))


def calibrate_and_store(
    store: Store,
    calibration: Calibration,
    wanted: Mapping[Cell, Sequence[str]],
    *,
    resources: dict[str, Any],
) -> None:
    """Fit, measure and write cells of one training that are fitted on the same part.

    The calibration seeds of each calibrator are fitted together. Numbers of one seed must not hang on which
    others were finished before, so the caller asks for all seeds of the sweep, and cells that are there are
    left as they are.

    Parameters
    ----------
    store : Store
        The caller holds the job's lock.
    calibration : Calibration
    wanted : mapping of Cell to sequence of str
        Calibrators to write; a cell with none is fitted with the others and not written.
    resources : dict
        For ``config.json``.
    """
    cells = list(wanted)
    names = [name for name in calibration.job.config.calibrators if any(name in w for w in wanted.values())]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # One thread, as in a run: equal numbers for any number of jobs.
        with measured() as usage, blas_threads(1):
            results = _fit_and_measure(calibration, cells, names, usage)
    usage.share(len(cells))
    common = {
        "fitted_with_seeds": [cell.calibration_seed for cell in cells],
        **usage.to_dict(),
        "warnings": message_texts(caught),
        "resources": resources,
        "environment": environment(),
    }
    for cell in cells:
        chosen = [name for name in names if name in wanted[cell]]
        if chosen:
            _write_cell(store, calibration, cell, [results[cell, name] for name in chosen], common)


@dataclass(frozen=True, eq=False)
class _Result:
    """A fitted calibrator's answers."""

    calibrator: str
    parameters: dict[str, Any]
    answers: dict[str, tuple[FloatArray, FloatArray]]
    metrics: dict[str, dict[str, float]]


def _fit_and_measure(
    calibration: Calibration, cells: list[Cell], names: list[str], usage: Usage
) -> dict[tuple[Cell, str], _Result]:
    stored, fit_on = calibration.stored, cells[0].fit_on
    config = calibration.job.config_for(fit_on)
    with usage.step("score"):
        links = [calibration.links(fit_on, cell.calibration_seed) for cell in cells]
    validation = None if calibration_part(fit_on) == "val" else stored.scores["val"]
    base = stored.scores["train"] if fit_on == "stacked" else None
    results = {}
    for name in names:
        blank = [configured_calibrator(config, name, cell.calibration_seed) for cell in cells]
        kind = blank[0].link_features
        blank = [calibrator.clone_for(COLUMN_NAMES.get(kind)) for calibrator in blank]
        with usage.step(f"fit {name}"):
            sample = partial(
                fitting_links, name, max_network_links=config.max_network_links, seed=config.seed
            )
            X, y = zip(*(sample(scores).to_arrays(kind) for scores in links), strict=True)
            held_out = None if validation is None else sample(validation).to_arrays(kind)
            below = None if base is None else sample(base).to_arrays(kind)
            fitted = fit_together(blank, X, y, [held_out] * len(cells), below)
        with usage.step("evaluate"):
            for cell, calibrator in zip(cells, fitted, strict=True):
                results[cell, name] = _result(name, calibrator, stored)
    return results


def _result(name: str, calibrator: Calibrator, stored: StoredTraining) -> _Result:
    answers, metrics = {}, {}
    for part in MEASURED_PARTS:
        X, y = stored.scores[part].to_arrays(calibrator.link_features)
        logit, probability = calibrator.decision_function(X), calibrator.predict_proba(X)[:, 1]
        answers[part] = logit, probability
        metrics[part] = measure(
            y.astype(np.float64), probability, logit, stored.truth if part == "test" else None
        )
    return _Result(name, calibrator.get_params(), answers, metrics)


def _write_cell(
    store: Store, calibration: Calibration, cell: Cell, results: list[_Result], common: dict[str, Any]
) -> None:
    job = calibration.job
    links = calibration.links(cell.fit_on, cell.calibration_seed).to_arrays()[1]
    record = {
        "config": job.config_for(cell.fit_on).to_dict(),
        "calibration_seed": cell.calibration_seed,
        "calibrators": {result.calibrator: result.parameters for result in results},
        "fitting_links": {"positives": int(links.sum()), "negatives": int(len(links) - links.sum())},
        **common,
    }
    with store.new_folder(store.new_cell_folder(job, cell)) as folder:
        write_metrics({r.calibrator: r.metrics for r in results}, folder / METRICS_FILE)
        write_predictions(_predictions(results, calibration.stored), folder / PREDICTIONS_FILE)
        (folder / CONFIG_FILE).write_text(to_json(record) + "\n", encoding="utf-8")
        # Before the cell is there: of a cell that is there, nobody would look for a failure again.
        store.clear_failure(job, cell.name)


def _predictions(results: list[_Result], stored: StoredTraining) -> Predictions:
    answers = {part: [result.answers[part] for result in results] for part in MEASURED_PARTS}
    return Predictions(
        calibrators=tuple(result.calibrator for result in results),
        label={part: stored.scores[part].to_arrays()[1].astype(np.int8) for part in MEASURED_PARTS},
        logit={part: np.stack([logit for logit, _ in rows]) for part, rows in answers.items()},
        probability={part: np.stack([prob for _, prob in rows]) for part, rows in answers.items()},
        truth={} if stored.truth is None else {"test": stored.truth},
    )


def _on_cpu(scores: LinkScores) -> LinkScores:
    toggled = scores.toggled
    moved = {
        name: getattr(toggled, name).cpu()
        for name in ("absent", "present", "logit_absent", "logit_present", "in_graph")
    }
    rest = (scores.label, scores.structure, scores.attributes)
    near = (None if part is None else part.cpu() for part in rest)
    return LinkScores(replace(toggled, **moved), scores.target_link, *near)
