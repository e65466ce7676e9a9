"""First stage of a sweep: train once, toggle once, and keep the link scores that all calibrations share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from linkcal._threads import torch_threads
from linkcal._validation import check_device
from linkcal.data import Graph, LinkSplit
from linkcal.experiments.cells import TrainingJob
from linkcal.experiments.measure import Usage, measured
from linkcal.experiments.npz import read_arrays
from linkcal.experiments.outputs import environment, to_json
from linkcal.experiments.score_files import load_scores, save_scores
from linkcal.experiments.steps import split_for_run, train_for_run, true_probability, warn_of_limits
from linkcal.experiments.store import CONFIG_FILE, Store, read_record
from linkcal.features import LinkScores, score_links
from linkcal.models import GraphModel, load_model, save_model

__all__ = ["PARTS", "StoredTraining", "load_training", "message_texts", "train_and_store"]

PARTS = ("train", "val", "test")
_TRUTH = "true_probability.npz"


@dataclass(frozen=True, eq=False)
class StoredTraining:
    """What the second stage needs of a training.

    Parameters
    ----------
    folder : Path
    scores : dict of str to LinkScores
        Of ``train``, ``val`` and ``test``, each with its own edge absent; positives first.
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
