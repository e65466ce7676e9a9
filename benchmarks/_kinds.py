"""Links of one trained predictor under the three kinds of negatives, kept on disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from _cells import job_for, training_of
from numpy.typing import NDArray

from linkcal.data import NEGATIVE_KINDS, LinkSplit
from linkcal.features import LinkScores, score_links
from linkcal.models import load_model
from linkcal.workflow import load_graph, split_graph
from linkcal_lab.cells import TrainingJob
from linkcal_lab.store import load_scores, save_scores

#: Parts that are scored: calibrators are fitted on ``val`` (and stacked on ``train``), measured on ``test``.
PARTS = ("train", "val", "test")

Arrays = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True)
class KindCell:
    """Scored links of one data set, model and seed, by kind of negatives and part."""

    dataset: str
    model: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.dataset}-{self.model}-{self.seed}"

    def scores(self, kind: str, part: str) -> LinkScores:
        """Scores of a part with negatives of a kind; each pair's target link is absent."""
        return load_scores(self.folder / f"{kind}-{part}.npz")[0]

    def links(self, kind: str, part: str, features: str = "structural") -> Arrays:
        """X with the logit in column 0, and y."""
        return self.scores(kind, part).to_arrays(features)


def load_kind_cell(dataset: str, model: str, seed: int, store: Path, trainings: Path) -> KindCell:
    """The cell in ``STORE/links``; trained and scored first where that has not been done.

    `trainings` is the store of a sweep: what it has is not trained again, what it lacks is added to it.
    """
    folder = store / "links" / f"{dataset}-{model}-{seed}"
    if not all((folder / f"{kind}-{part}.npz").is_file() for kind in NEGATIVE_KINDS for part in PARTS):
        job = job_for(dataset, model, seed)
        _score(job, training_of(job, trainings), folder)
    return KindCell(dataset, model, seed, folder)


def _score(job: TrainingJob, training: Path, folder: Path) -> None:
    """One model, trained beside uniform negatives, scores the links of all kinds; positives are the same."""
    model, graph = load_model(training), load_graph(job.config)
    if isinstance(graph, LinkSplit):
        raise SystemExit(f"{job.title}: an official split has its own negatives")
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    message = None
    for kind in NEGATIVE_KINDS:
        split = split_graph(replace(job.config, negatives=kind), graph)
        message = model.prepare(split.graph) if message is None else message
        for part in PARTS:
            pairs = split.part(part)
            scores = score_links(model, message, pairs)
            save_scores(scores, pairs.edge_label_index, unfinished / f"{kind}-{part}.npz")
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
