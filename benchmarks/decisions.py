"""Whether the guarantees of selections, thresholds and intervals hold where the truth is known."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from _cells import named
from _harness import Case, Point, Row, table
from numpy.typing import NDArray

from linkcal import CalibratedLinkPredictor
from linkcal.calibrators import Calibrator, make_calibrator
from linkcal.data import LinkPairs, simulate_graph, split_links
from linkcal.decisions import IntervalCalibrator
from linkcal.exceptions import InputError
from linkcal.features import LinkScorer
from linkcal.models import TrainingConfig, make_model, train_link_predictor

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]


class Drawn(LinkPairs):
    """Pairs drawn with replacement, which a split does not check for repeats."""


class World:
    """All pairs outside the message-passing graph: features, and the probability that each is a link."""

    def __init__(self, num_nodes: int, seed: int) -> None:
        graph = simulate_graph(num_nodes, num_features=200, seed=seed)
        self.split = split_links(graph, val_fraction=0.2, test_fraction=0.2, seed=seed)
        self.model = make_model("gcn", 200, seed=seed)
        train_link_predictor(self.model, self.split, TrainingConfig(epochs=100), seed=seed)
        pairs = torch.combinations(torch.arange(num_nodes)).T.contiguous()
        self.pairs = pairs[:, ~self.split.graph.has_pairs(pairs)]
        assert graph.truth is not None  # simulated
        edge = graph.truth.edge_probability(self.pairs).numpy()
        # An edge is in the message-passing graph with chance 0.6; this pair is not.
        self.p = 0.4 * edge / (1.0 - 0.6 * edge)
        scores = LinkScorer(self.model, self.split.graph).score(self.pairs)
        self.X = {kind: scores.to_matrix(kind) for kind in ("none", "structural")}
        # Mass of each pair, and its probability of being a link, where links and negatives are as many.
        negative = (1.0 - self.p) * self.p.sum() / (1.0 - self.p).sum()
        self.mass, self.true = self.p + negative, self.p / (self.p + negative)
        self.mass /= self.mass.sum()

    def draw(self, rng: np.random.Generator, links: int, negatives: int) -> tuple[Rows, FloatArray]:
        """Rows of `links` links and as many negatives as given, of one draw, and their labels."""
        drawn = rng.random(self.p.size) < self.p
        found = rng.choice(np.flatnonzero(drawn), links, replace=False)
        rest = rng.choice(np.flatnonzero(~drawn), negatives, replace=False)
        return np.concatenate((found, rest)), np.repeat([1.0, 0.0], [links, negatives])

    def population(self, rng: np.random.Generator, size: int) -> Rows:
        return rng.choice(self.p.size, size, p=self.mass)

    def pairs_of(self, rows: Rows, y: FloatArray) -> LinkPairs:
        return Drawn(self.pairs[:, rows], torch.from_numpy(y).float())

    def predictor(
        self, calibrator: Calibrator, rng: np.random.Generator, size: int
    ) -> CalibratedLinkPredictor:
        """A predictor calibrated on a fresh draw of links, with fresh null pairs."""
        links = self.pairs_of(*self.draw(rng, size // 2, size // 2))
        split = replace(self.split, val=links, seed=int(rng.integers(2**31)))
        return CalibratedLinkPredictor(self.model, calibrator).fit(split)


world_of = lru_cache(maxsize=1)(World)


class Decisions(Case):
    """Whether guarantees of intervals, selections and thresholds hold where the truth is known.

    One simulated graph and one trained GCN; the links outside the message-passing graph are drawn anew, from
    their true probabilities, for every draw of calibration links, labelled links and query pairs. So
    everything random that a guarantee speaks about is random here. Shares and rates in percent.
    """

    name, title = "decisions", "Decisions where the truth is known"
    axes = {
        "seed": (0,), "part": ("intervals", "selection", "thresholds"),
        "calibrator": ("platt", "in-n-out-plus"),
    }  # fmt: skip
    settings = {"nodes": 2708, "size": 1000, "draws": 200}
    quick = {"nodes": 300, "size": 200, "draws": 1}

    def setup(self, point: Point, folder: Any) -> World:
        return world_of(point.nodes, point.seed)

    def measure(self, point: Point, made: World) -> list[Row]:
        part = getattr(self, f"_{point.part}")
        return list(part(point, made, named(make_calibrator(point.calibrator))))

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        text = []
        for part, here in rows.groupby("part", sort=False):
            columns = here.drop(columns="part").dropna(axis="columns", how="all")
            text += [f"## {str(part).capitalize()}", table(columns.columns.tolist(), columns.to_numpy(), 2)]
        return text

    def _intervals(self, point: Point, world: World, calibrator: Calibrator) -> list[Row]:
        """Coverage of the share of links at a score by ``predict_interval``, which promises 90 %."""
        X, rng = world.X[calibrator.link_features], np.random.default_rng(1)
        hit, own, width, tenth = [], [], [], []
        for _ in range(point.draws):
            rows, y = world.draw(rng, point.size // 2, point.size // 2)
            many, query = world.population(rng, 40_000), world.population(rng, 200)
            fitted = IntervalCalibrator(calibrator).fit(X[rows], y)
            by_logit, score = calibrator.link_features == "none", fitted.calibrator_.decision_function
            around, at = (X[pairs, 0] if by_logit else score(X[pairs]) for pairs in (many, query))
            # Share of links at a score: means over 200 narrow windows of a large population.
            windows = np.array_split(np.argsort(around), 200)
            centre = [around[part].mean() for part in windows]
            truth = np.interp(at, centre, [world.true[many][part].mean() for part in windows])
            low, high = fitted.predict_interval(X[query], level=0.9).T
            hit.append((low <= truth) & (truth <= high))
            own.append(((low <= world.true[query]) & (world.true[query] <= high)).mean())
            width.append((high - low).mean())
            tenth.append(np.argsort(np.argsort(at)) * 10 // len(at))
        covered, group = np.concatenate(hit), np.concatenate(tenth)
        worst = 100 * min(covered[group == g].mean() for g in range(10))
        row = {"coverage": 100 * covered.mean(), "in the worst tenth of scores": worst}
        row |= {"coverage of the pair's own probability": 100 * np.mean(own), "mean width": np.mean(width)}
        return [row]

    def _selection(self, point: Point, world: World, calibrator: Calibrator) -> list[Row]:
        """False discovery rate of ``select``."""
        found = []
        for (links, negatives), fdr in product(((200, 800), (50, 2000)), (0.1, 0.2)):
            rng, seen = np.random.default_rng(2), []
            links = min(links, point.size // 4)
            for _ in range(point.draws):
                predictor = world.predictor(calibrator, rng, point.size)
                rows, y = world.draw(rng, links, negatives)
                chosen = predictor.select(world.pairs[:, rows], fdr=fdr).selected.numpy()
                seen.append(((1 - y)[chosen].sum() / max(chosen.sum(), 1), y[chosen].sum() / links))
            rate, recall = np.array(seen).T
            row = {"links": links, "negatives": negatives, "promised": 100 * fdr, "rate": 100 * rate.mean()}
            error = 100 * rate.std() / len(rate) ** 0.5
            found.append(row | {"standard error": error, "links found": 100 * recall.mean()})
        return found

    def _thresholds(self, point: Point, world: World, calibrator: Calibrator) -> list[Row]:
        """Precision and recall beyond ``threshold_for``, expected and tested with 95 % confidence."""
        found = []
        wanted = (("precision", 0.7), ("precision", 0.8), ("recall", 0.8))
        for (what, least), tested in product(wanted, (False, True)):
            rng, real, none = np.random.default_rng(3), [], 0
            for _ in range(point.draws):
                predictor, half = world.predictor(calibrator, rng, point.size), point.size // 2
                labelled = world.pairs_of(*world.draw(rng, half, half)) if tested else None
                try:
                    threshold = predictor.threshold_for(labelled, **{what: least})
                except InputError:
                    none += 1
                    continue
                many = world.population(rng, 40_000)
                z = predictor.calibrator_.decision_function(world.X[calibrator.link_features][many])
                above, true = z >= threshold.logit, world.true[many]
                precision, recall = true[above].mean(), true[above].sum() / true.sum()
                real.append(precision if what == "precision" else recall)
            row: Row = {"rule": "tested" if tested else "expected", "wanted": f"{what} {least}"}
            row |= {"mean": 100 * np.mean(real) if real else None, "none found": none}
            missed = 100 * np.mean(np.array(real) < least) if real else None
            found.append(row | {"below the wanted in": missed})
        return found
