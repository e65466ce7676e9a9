"""Second stage of a sweep: fit and measure the calibrators of all calibration seeds of a training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from linkcal._threads import blas_threads, torch_threads
from linkcal._validation import check_device
from linkcal.calibrators import Calibrator, fit_together
from linkcal.data import Graph, LinkPairs, LinkSplit
from linkcal.experiments.calibration_links import draw_calibration_negatives
from linkcal.experiments.cell_metrics import METRICS_FILE, measure, write_metrics
from linkcal.experiments.cells import Cell, TrainingJob
from linkcal.experiments.fitting_links import fitting_links
from linkcal.experiments.measure import Usage, measured
from linkcal.experiments.outputs import environment, to_json
from linkcal.experiments.predictions import (
    MEASURED_PARTS,
    PREDICTIONS_FILE,
    Predictions,
    write_predictions,
)
from linkcal.experiments.score_files import join_scores, with_own_edge
from linkcal.experiments.steps import configured_calibrator, split_for_run
from linkcal.experiments.store import CONFIG_FILE, Store
from linkcal.experiments.training_stage import StoredTraining, message_texts
from linkcal.features import LinkScores, calibration_part, score_links

__all__ = ["Calibration", "calibrate_and_store"]


FloatArray = NDArray[np.float64]


@dataclass(eq=False)
class Calibration:
    """Link scores for any calibration seed of one stored training.

    Parameters
    ----------
    job : TrainingJob
    stored : StoredTraining
    load : callable
        Gives the graph or official split; called only if non-links have to be drawn anew.
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
        whose scores are stored, and scores its own non-links.
        """
        part = calibration_part(fit_on)
        scores = self.stored.scores[part]
        if calibration_seed > 0:
            positives = torch.nonzero(scores.label == 1).flatten()  # type: ignore[arg-type]
            scores = join_scores(scores.take(positives), self._drawn(part, calibration_seed))
        return with_own_edge(scores, "as-given" if fit_on == "train" else "absent")

    def _drawn(self, part: str, calibration_seed: int) -> LinkScores:
        # The same for train and train-loo, whose non-links are no edges of the message graph.
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
        """The trained model and the split, with the message graph as the model reads it."""
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
    return LinkScores(replace(toggled, **moved), scores.own_edge, *near)
