"""Quality of calibrators: kinds of negatives, rare links, the order of missing pairs, whole runs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import torch
from _cells import Trained, TrainedCase, fitted
from _harness import DATASETS, MODELS, Point, Row, shown, table
from numpy.typing import NDArray
from scipy.special import expit

from linkcal._scoring import known_pair_keys
from linkcal.all_pairs import most_probable_pairs, top_paths
from linkcal.calibrators import CALIBRATORS as SPECS
from linkcal.calibrators import Platt, StructuralCalibrator, StructureOnly, base_rate_offset, make_calibrator
from linkcal.data import NEGATIVE_KINDS, NegativeSampler, pair_keys
from linkcal.data._heart import candidate_keys
from linkcal.exceptions import LinkcalWarning
from linkcal.metrics import evaluate_links, mean_reciprocal_rank
from linkcal.predictor import CalibratedLinkPredictor

FloatArray = NDArray[np.float64]

OURS = "in-n-out-plus"
METRICS = ("ece", "ece_floor", "nll", "brier", "auc", "hits@20")
CELL, DIVISION = ["dataset", "model", "seed"], ["dataset", "seed"]
FAST = tuple(name for name, spec in SPECS.items() if not spec.trains_network)
CELLS: Mapping[str, Any] = {"dataset": DATASETS, "model": MODELS, "seed": (0, 1, 2)}
ONE_CELL: Mapping[str, Any] = {"model": ("gcn",), "seed": (0,)}


def losses(logit: FloatArray, y: Any) -> FloatArray:
    """NLL of each link in nats."""
    return np.asarray(np.logaddexp(0.0, logit) - np.asarray(y) * logit)


def kept(values: Mapping[str, Any]) -> Row:
    """The metrics that pages have, with the excess of the ECE over its noise floor in points."""
    excess = 100.0 * (values["ece"] - values["ece_floor"])
    row = {name: values[name] for name in METRICS}
    return row | {"excess": excess, "in band": bool(values["ece"] <= values["ece_floor_q95"])}


class Negatives(TrainedCase):
    """Calibrators under kinds of negatives, and transfer between kinds.

    Each model is trained as usual (uniform negatives). Calibrators are fitted on the validation links and
    measured once on the test links, with negatives of each kind, one for each link; the links are the same.
    Metrics in percent, NLL in nats, excess ECE (ECE less its noise floor) in points. Bias: mean
    probability less share of links.
    """

    name, title = "negatives", "in-n-out-plus against the other calibrators, by kind of negatives"
    axes = CELLS
    settings = {"kinds": NEGATIVE_KINDS, "calibrators": FAST}
    quick = ONE_CELL

    def measure(self, point: Point, made: Trained) -> list[Row]:
        rows = []
        for kind, test_kind, name in product(point.kinds, point.kinds, point.calibrators):
            if kind == test_kind or name in (OURS, "platt"):
                calibrator = fitted(make_calibrator(name), made.scores("val", kind))
                X, y = made.scores("test", test_kind).to_arrays(calibrator.link_features)
                z = calibrator.decision_function(X)
                row = {"kind": kind, "test_kind": test_kind, "name": name, "bias": expit(z).mean() - y.mean()}
                rows.append(row | kept(evaluate_links(y, expit(z), z)))
        return rows

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        main = rows[rows["kind"] == rows["test_kind"]]
        parts = []
        for kind, part in main.groupby("kind", sort=False):
            parts += [f"## Calibrators, {kind} negatives", means(part)]
        transfer = rows[rows["name"].isin((OURS, "platt"))]
        columns, lines = ["ece", "bias", "nll", "auc"], []
        for key, part in transfer.groupby(["name", "test_kind", "kind"], sort=False):
            lines.append([*key, *(shown(c, part[c].mean()) for c in columns)])
        head = ["calibrator", "measured with", "fitted with", *columns]
        return [*parts, "## Transfer", table(head, lines, 3)]


def means(rows: pd.DataFrame, *by: str) -> str:
    """Means over cells of each calibrator or feature set."""
    lines = []
    for key, part in rows.groupby([*by, "name"], sort=False):
        values = [shown(column, part[column].mean()) for column in METRICS]
        inside = f"{100 * part['in band'].mean():.0f} %"
        lines.append([*key, *values, f"{part['excess'].mean():.2f}", inside, len(part)])
    return table([*by, "fit", *METRICS, "excess", "in band", "cells"], lines, len(by) + 1)


class RareLinks(TrainedCase):
    """Whether probabilities hold where links are rare: test links against very many fresh negatives.

    Calibrators are fitted on the validation links, one negative for each link. No test set of a base rate of
    1 in 1,000 is large enough to check odds of 1,000 to 1, so each test link is weighed against hundreds of
    fresh uniform negatives that are no link of the graph and no pair of the split.
    """

    name, title = "rare-links", "Probabilities where links are rare"
    axes = CELLS
    settings = {"calibrators": ("platt", "isotonic", "bbq", OURS), "negatives": 400_000}
    quick = {**ONE_CELL, "negatives": 2_000}

    #: Bounds of calibrated logits at one to one, and the base rates that probabilities are moved to.
    BOUNDS = (-np.inf, -6.0, -5.0, -4.0, -3.0, -2.0, 0.0, 2.0, 3.0, 4.0, 5.0, 6.0, np.inf)
    RATES = (0.5, 0.01, 0.001)

    def measure(self, point: Point, made: Trained) -> list[Row]:
        split = made.split()
        known = torch.cat([split.part(part).edge_label_index for part in ("train", "val", "test")], dim=1)
        sampler = NegativeSampler(made.graph, exclude=known)
        number = min(point.negatives, sampler.num_available)
        fresh = made.scorer.score(sampler.sample(number, np.random.default_rng(point.seed)))
        val, test = made.scores("val"), made.scores("test")
        rows = []
        for name in point.calibrators:
            calibrator = fitted(make_calibrator(name), val)
            X, y = test.to_arrays(calibrator.link_features)
            link = calibrator.decision_function(X[y == 1])
            negative = calibrator.decision_function(fresh.to_matrix(calibrator.link_features))
            row = {"calibrator": name} | {f"nll {r:g}": self.loss(link, negative, r) for r in self.RATES}
            rows.append(row | self._binned(link, negative))
        return rows

    def loss(self, link: FloatArray, negative: FloatArray, rate: float) -> float:
        """NLL in nats at a base rate, of probabilities that were moved there from one to one."""
        shift = base_rate_offset(0.5, rate)
        of_links, of_negatives = losses(link + shift, 1.0).mean(), losses(negative + shift, 0.0).mean()
        return float(rate * of_links + (1.0 - rate) * of_negatives)

    def _binned(self, link: FloatArray, negative: FloatArray) -> Row:
        """Links, negatives (scaled to one to one), and expected numbers of both, by calibrated logit."""
        share = len(link) / len(negative)
        counts = {"links": np.histogram(link, self.BOUNDS)[0].astype(float)}
        counts["negatives"] = share * np.histogram(negative, self.BOUNDS)[0]
        z, weight = np.concatenate([link, negative]), np.repeat([1.0, share], [len(link), len(negative)])
        for name, sign in (("expected links", 1.0), ("expected negatives", -1.0)):
            counts[name] = np.histogram(z, self.BOUNDS, weights=weight * expit(sign * z))[0]
        return {name: values.tolist() for name, values in counts.items()}

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        names = [f"nll {rate:g}" for rate in self.RATES]
        best = rows.groupby(CELL)[names].transform("min")
        entropy = (-(r * np.log(r) + (1 - r) * np.log1p(-r)) for r in self.RATES)
        lines = []
        for name, part in rows.groupby("calibrator", sort=False):
            lowest = (part[names] == best.loc[part.index]).mean()
            lines.append([name, *(f"{part[n].mean():.5f} ({100 * lowest[n]:.0f} %)" for n in names)])
        text = [
            "## NLL at three base rates",
            "Mean over cells in nats, probabilities moved to the rate; in brackets the share of cells where "
            "it is the lowest. Predicting the base rate for every pair has "
            f"{', '.join(f'{value:.5f}' for value in entropy)}.",
            table(["calibrator", *(f"base rate {rate:g}" for rate in self.RATES)], lines),
        ]
        for name, part in rows.groupby("calibrator", sort=False):
            text += [f"## Odds: {name}", self._odds(part)]
        return text

    def _odds(self, rows: pd.DataFrame) -> str:
        names = ("links", "negatives", "expected links", "expected negatives")
        links, negatives, expected, denied = (np.sum(rows[name].tolist(), axis=0) for name in names)
        with np.errstate(divide="ignore", invalid="ignore"):  # isotonic regression may be certain
            odds = np.log(expected) - np.log(denied), np.log(links) - np.log(negatives)
        lines = [
            [f"{low:g} to {high:g}", f"{a:,.0f}", f"{b:,.1f}", f"{predicted:.2f}", f"{found:.2f}"]
            for (low, high), a, b, predicted, found in zip(
                pairwise(self.BOUNDS), links, negatives, *odds, strict=True
            )
            if a + b > 0
        ]
        head = ["logit", "links", "negatives at one to one", "log odds, predicted", "log odds, found"]
        return table(head, lines)


class Ranking(TrainedCase):
    """Mean reciprocal rank of test links among HeaRT's candidates: the model's order and calibrated ones.

    Each is ranked among up to 250 hard pairs that keep its source and 250 that keep its target (notes of
    `sample_negatives`). Calibrators are fitted on validation links with uniform or HeaRT negatives. MRR in
    percent, ties by the mean of best and worst rank. Kept: cells not below the score's.
    """

    name, title = "ranking", "Test links among HeaRT's candidates"
    axes = {"dataset": DATASETS, "model": ("gcn", "sage"), "seed": (0,)}
    settings = {"links": 200, "half": 250}
    quick = {"model": ("gcn",), "links": 20, "half": 10}

    def measure(self, point: Point, made: Trained) -> list[Row]:
        split, rng = made.split("heart"), np.random.default_rng(point.seed)
        links = split.test.edge_label_index[:, split.test.edge_label == 1].numpy()
        links = links[:, rng.permutation(links.shape[1])[: point.links]]
        number, graph = links.shape[1], split.graph
        known = pair_keys(made.graph.pairs, graph.num_nodes, directed=graph.directed).unique().numpy()
        each = (np.tile(links, 2), np.repeat([0, 1], number), point.half, rng.permutation(graph.num_nodes))
        keys = list(candidate_keys(graph, *each, known))
        pairs = np.stack(np.divmod(np.concatenate(keys), graph.num_nodes))
        group = np.concatenate([np.arange(number), np.tile(np.arange(number), 2).repeat([*map(len, keys)])])
        label = np.arange(len(group)) < number
        both = torch.from_numpy(np.concatenate([links, pairs], axis=1))
        scores = made.scorer.score(graph.source_first(both))
        orders = {"score": scores.to_matrix("none")[:, 0]}
        for kind in ("uniform", "heart"):
            for calibrator in (StructuralCalibrator(), StructureOnly()):
                fit = fitted(calibrator, made.scores("val", kind))
                columns = scores.to_matrix(calibrator.link_features)
                orders[f"{calibrator.name}, {kind}"] = fit.decision_function(columns)
        return [{name: 100 * mean_reciprocal_rank(label, z, group) for name, z in orders.items()}]

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        names = ["score", *(str(name) for name in rows if ", " in str(name))]
        lines = [
            [str(row["dataset"]), str(row["model"]), *(f"{row[name]:.1f}" for name in names)]
            for row in rows.to_dict("records")
        ]
        counts = [f"{int((rows[name] >= rows['score']).sum())} of {len(rows)}" for name in names]
        last = [["mean", "", *(f"{rows[name].mean():.1f}" for name in names)], ["kept", "", *counts]]
        return [table(["data set", "model", *names], [*lines, *last], 2)]


class TopOrder(TrainedCase):
    """How many test links are among the most probable missing pairs: `linkcal top`, the score, formulas.

    All missing pairs of the graph compete, validation links excepted, which `linkcal top` is fitted to.
    top: its defaults with `in-n-out-plus`; expected, where measured: the sum of its first k probabilities at
    the base rate of the test links. score: the model's order. Formulas on the message-passing graph:
    Adamic-Adar, resource allocation, degree-normalised paths of length three. As many: trainings of which top
    finds at least as many as the best of the four others. Seconds: of both searches, without the fit of the
    calibrator.
    """

    name, title = "top-order", "Test links among the most probable missing pairs"
    axes = {**CELLS, "model": MODELS[:4]}
    settings = {"kept": (100, 1_000)}
    quick = {**ONE_CELL, "kept": (20, 50)}
    OTHERS = ("score", "Adamic-Adar", "resource allocation", "paths of length three")

    def measure(self, point: Point, made: Trained) -> list[Row]:
        split = made.split()
        graph, most = split.graph, max(point.kept)
        val, test = (part.edge_label_index[:, part.edge_label == 1] for part in (split.val, split.test))
        known = known_pair_keys(graph, val)
        wanted = pair_keys(test, graph.num_nodes, directed=graph.directed)
        row: Row = {"links": test.size(1), "missing": graph.num_possible_pairs - known.size}
        orders: dict[str, Any] = {}
        for name, calibrator in (("score", Platt()), ("top", StructuralCalibrator())):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LinkcalWarning)
                predictor = CalibratedLinkPredictor(made.model, calibrator).fit(split)
                start = time.perf_counter()
                ranked = most_probable_pairs(predictor, most, base_rate=row["links"] / row["missing"])
            row[f"{name}, s"] = time.perf_counter() - start
            orders[name] = pair_keys(ranked.edge_label_index, graph.num_nodes, directed=graph.directed)
        orders["Adamic-Adar"] = top_paths(graph, most, 2, known=known, weight=lambda paths: 1 / np.log(paths))
        for length, name in enumerate(self.OTHERS[2:], start=2):
            orders[name] = top_paths(graph, most, length, known=known)
        rows = []
        for k in point.kept:
            hits = {name: int(np.isin(keys[:k], wanted).sum()) for name, keys in orders.items()}
            rows.append({"k": k, **row, "expected": float(ranked.probability[:k].sum()), **hits})
        return rows

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        text, names = (
            [],
            [name for name in ("top", "expected", *self.OTHERS, "top, s", "score, s") if name in rows],
        )
        for k, level in product(settings.kept, (["dataset"], ["dataset", "model"])):
            lines = []
            for key, part in rows[rows["k"] == k].groupby(level, sort=False):
                as_many = (part["top"] >= part[list(self.OTHERS)].max(axis=1)).sum()
                values = [f"{part[name].mean():.1f}" for name in names]
                lines.append([*key, *values, f"{as_many} of {len(part)}"])
            text += [f"## k = {k:,}, by {level[-1]}", table([*level, *names, "as many"], lines, len(level))]
        return text
