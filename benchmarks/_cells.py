"""Graphs by name, and trained models from the store of a sweep."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from _harness import SMALL, Case, Point

from linkcal.calibrators import Calibrator
from linkcal.data import (
    Graph,
    LinkSplit,
    NegativeKind,
    load_dataset,
    load_official_split,
    read_edges,
    simulate_graph,
)
from linkcal.exceptions import LinkcalWarning
from linkcal.features import COLUMN_NAMES, LinkScorer, LinkScores
from linkcal.models import GraphModel, load_model
from linkcal.workflow import split_graph
from linkcal_lab.cells import SweepPlan, TrainingJob
from linkcal_lab.stages import train_and_store
from linkcal_lab.store import Store

C = TypeVar("C", bound=Calibrator)

#: Edge lists below LINKCAL_DATA_ROOT/unseen on which nothing was tuned: docs/registration.md.
UNSEEN = ("netscience", "power", "astro-ph", "email-Enron")

#: Nodes, edges drawn (repeats collapse) and features of the simulated graphs.
SIMULATED: Mapping[str, tuple[int, int, int]] = {
    SMALL: (300, 1500, 24),
    "simulated-1m": (236_000, 1_240_000, 128),
    "simulated-10m": (1_967_000, 10_330_000, 128),
}


def load_graph(name: str, seed: int = 0) -> Graph:
    """A graph with node features, by the name of a data set or of a simulated graph."""
    if name in SIMULATED:
        nodes, edges, features = SIMULATED[name]
        graph = simulate_graph(nodes, num_edges=edges, num_features=features, seed=seed)
        return replace(graph, edge_time=graph.edge_index.sum(dim=0).double())
    if name == "ogbl-ddi":
        graph = load_official_split(name).graph
        x = torch.randn(graph.num_nodes, 64, generator=torch.Generator().manual_seed(0))
        return replace(graph, x=x)
    if name in UNSEEN:
        return replace(
            read_edges(Path(os.environ["LINKCAL_DATA_ROOT"], "unseen", f"{name}.csv")).graph, name=name
        )
    if name == "movielens-100k":  # viewers and films, of PyPI's package recbole
        table = pd.read_csv(_shipped("recbole", "dataset_example/ml-100k/ml-100k.inter"), sep="\t")
        (viewer, viewers), (film, films) = (pd.factorize(table[c]) for c in table.columns[:2])
        index, number = np.stack([viewer, film + len(viewers)]), len(viewers) + len(films)
        kind, time = torch.arange(number) >= len(viewers), table["timestamp:float"].to_numpy()
        return Graph.from_edges(index, number, name=name, node_type=kind, edge_time=time)
    if name == "umls":  # medical concepts joined by any relation, of PyPI's package pykeen
        files = [_shipped("pykeen", f"datasets/umls/{part}.txt") for part in ("train", "valid", "test")]
        table = pd.concat([pd.read_csv(path, sep="\t", header=None) for path in files])
        ends, names = pd.factorize(np.concatenate([table[0], table[2]]))
        return Graph.from_edges(ends.reshape(2, -1), len(names), name=name)
    return load_dataset(name, seed=seed) if name == "simulated" else load_dataset(name)


def _shipped(package: str, path: str) -> Path:
    """A file of an installed package, which is not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"install the package {package}, which ships {path}")
    return Path(spec.origin).parent / path


@dataclass(frozen=True, eq=False)
class Trained:
    """One trained model with the graph that its links were split from."""

    job: TrainingJob
    graph: Graph
    model: GraphModel
    _splits: dict[str, LinkSplit] = field(default_factory=dict)
    _scores: dict[tuple[str, str], LinkScores] = field(default_factory=dict)

    @cached_property
    def scorer(self) -> LinkScorer:
        """Scores pairs on the message-passing graph, target links absent."""
        return LinkScorer(self.model, self.model.prepare(self.split().graph))

    def split(self, negatives: NegativeKind = "uniform") -> LinkSplit:
        """The division of links that the model was trained on, with negatives of one kind in every part."""
        if negatives not in self._splits:  # HeaRT negatives take a minute
            config = replace(self.job.config, negatives=negatives)
            self._splits[negatives] = split_graph(config, self.graph)
        return self._splits[negatives]

    def scores(self, part: str, negatives: NegativeKind = "uniform") -> LinkScores:
        """Scores of the links of ``train``, ``val`` or ``test``."""
        if (part, negatives) not in self._scores:
            self._scores[part, negatives] = self.scorer.score(self.split(negatives).part(part))
        return self._scores[part, negatives]


def trained(point: Point, folder: Path) -> Trained:
    """The model of a point's data set, model and seed: from `point.store`, or trained and put there.

    `folder` is the store where the point names none (``--quick``).
    """
    store = Store(folder if point.store is None else point.store)
    settings: dict[str, Any] = {"epochs": 20} if point.quick else {}
    settings |= {"by_time": True} if getattr(point, "by_time", 0) else {}
    dataset = "simulated" if point.dataset == SMALL else point.dataset
    job = SweepPlan([dataset], [point.model], [point.seed], [0], ["val"], settings).jobs()[0]
    graph = load_graph(point.dataset)
    if not store.has_training(job):
        with store.locked(job, wait=True):
            if not store.has_training(job):  # nor has another process made it meanwhile
                train_and_store(
                    store, job, lambda: graph, resources={"engine": "local", "jobs": 1, "threads": 1}
                )
    return Trained(job, graph, load_model(store.training_folder(job)))


class TrainedCase(Case):
    """A case whose points are trained models of a sweep's store."""

    needs = ("data", "store")

    def setup(self, point: Point, folder: Path) -> Any:
        return trained(point, folder)


def named(calibrator: C) -> C:
    """An unfitted copy that knows the names of its columns."""
    return calibrator.clone_for(COLUMN_NAMES.get(calibrator.link_features))


def fitted(calibrator: C, scores: LinkScores, **base: Any) -> C:
    """A copy of the calibrator, fitted to scored links; its warnings are for users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkcalWarning)
        return named(calibrator).fit(*scores.to_arrays(calibrator.link_features), **base)
