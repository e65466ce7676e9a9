"""Scored links of one trained predictor (a cell), kept on disk so that a benchmark can be resumed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from linkcal.calibrators import CALIBRATORS, Calibrator
from linkcal.data import load_dataset, split_links
from linkcal.features import FEATURE_KINDS, LinkScores, calibration_links, score_links
from linkcal.models import NODE_EMBEDDING_CHANNELS, make_model, make_training_config, train_link_predictor

FloatArray = NDArray[np.float64]

# Features of training links are large and only the structural ones are read.
_KINDS = {"train_loo": ("structural",), "val": tuple(FEATURE_KINDS), "test": tuple(FEATURE_KINDS)}


@dataclass(frozen=True)
class Cell:
    """Arrays of one data set, model and seed, by part (``train_loo``, ``val``, ``test``) and feature kind."""

    dataset: str
    model: str
    seed: int
    arrays: dict[str, NDArray[Any]]

    @property
    def name(self) -> str:
        return f"{self.dataset}-{self.model}-{self.seed}"

    def links(self, part: str, kind: str) -> tuple[FloatArray, NDArray[np.int64]]:
        """X (L, 1 + k) with the logit in column 0, and y (L,)."""
        columns = (self.arrays[f"{part}/logit"][:, None], self.arrays[f"{part}/{kind}"])
        return np.concatenate(columns, axis=1).astype(np.float64), self.arrays[f"{part}/label"]

    def links_for(self, calibrator: Calibrator | str, part: str) -> tuple[FloatArray, NDArray[np.int64]]:
        """X and y as a calibrator (or a registered name) wants them."""
        cls = CALIBRATORS[calibrator].cls if isinstance(calibrator, str) else type(calibrator)
        return self.links(part, cls.link_features)


def load_cell(dataset: str, model: str, seed: int, cache: Path) -> Cell:
    """Read a cell from `cache`, or train and score it first."""
    path = cache / f"{dataset}-{model}-{seed}.npz"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **_scored(dataset, model, seed))
        part.replace(path)
    with np.load(path) as stored:
        return Cell(dataset, model, seed, {key: stored[key] for key in stored.files})


def _scored(dataset: str, model_name: str, seed: int) -> dict[str, NDArray[Any]]:
    split = split_links(load_dataset(dataset), seed=seed)
    x = split.graph.x
    model = make_model(
        model_name,
        NODE_EMBEDDING_CHANNELS if x is None else x.size(1),
        num_nodes=split.graph.num_nodes if x is None else None,
        seed=seed,
    )
    train_link_predictor(model, split, make_training_config(model_name), seed=seed)
    parts = {
        "train_loo": calibration_links(model, split, "train-loo"),
        "val": calibration_links(model, split, "val"),
        "test": score_links(model, split.graph, split.test),
    }
    return {key: value for name, scores in parts.items() for key, value in _arrays(name, scores)}


def _arrays(part: str, scores: LinkScores) -> list[tuple[str, NDArray[Any]]]:
    label = torch.zeros(len(scores)) if scores.label is None else scores.label
    out = [(f"{part}/logit", scores.logit.numpy()), (f"{part}/label", label.numpy().astype(np.int64))]
    return out + [(f"{part}/{kind}", scores.features(kind).numpy()) for kind in _KINDS[part]]
