"""Scored links of one trained predictor (a cell), from the store of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkcal.calibrators import CALIBRATORS, Calibrator
from linkcal.features import LinkScores
from linkcal.workflow import load_graph
from linkcal_lab.cells import SweepPlan, TrainingJob
from linkcal_lab.stages import load_training, train_and_store
from linkcal_lab.store import Store

__all__ = ["Cell", "job_for", "load_cell", "training_of"]

Arrays = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True)
class Cell:
    """Scores of one data set, model and seed by part (``train``, ``val``, ``test``), target links absent."""

    dataset: str
    model: str
    seed: int
    scores: dict[str, LinkScores]

    @property
    def name(self) -> str:
        return f"{self.dataset}-{self.model}-{self.seed}"

    def links_for(self, calibrator: Calibrator | str, part: str) -> Arrays:
        """X and y as a calibrator (or a registered name) wants them."""
        cls = CALIBRATORS[calibrator].cls if isinstance(calibrator, str) else type(calibrator)
        return self.scores[part].to_arrays(cls.link_features)


def job_for(dataset: str, model: str, seed: int) -> TrainingJob:
    """Training of a model on its default preset, as a sweep makes it."""
    return SweepPlan([dataset], [model], [seed], [0], ["val"]).jobs()[0]


def training_of(job: TrainingJob, store: Path) -> Path:
    """Folder of a training in the store of a sweep, which is trained there if it is missing."""
    place = Store(store)
    if not place.has_training(job):
        with place.locked(job, wait=True):
            resources: dict[str, Any] = {"engine": "local", "jobs": 1, "threads": 1}
            train_and_store(place, job, partial(load_graph, job.config), resources=resources)
    return place.training_folder(job)


def load_cell(dataset: str, model: str, seed: int, store: Path) -> Cell:
    """The cell from the store of a sweep."""
    folder = training_of(job_for(dataset, model, seed), store)
    return Cell(dataset, model, seed, load_training(folder).scores)
