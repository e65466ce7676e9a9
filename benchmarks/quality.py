"""Quality of calibrators: kinds of negatives, rare links, the order of missing pairs, whole runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from _cells import Trained, fitted, load_graph, trained
from _harness import DATASETS, MODELS, Case, Point, Row, interval, shown, table
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import wilcoxon

from linkcal.all_pairs import most_probable_pairs
from linkcal.calibrators import CALIBRATORS, StructuralCalibrator, base_rate_offset, make_calibrator
from linkcal.data import NEGATIVE_KINDS, NegativeSampler, pair_keys
from linkcal.exceptions import LinkcalWarning
from linkcal.features import LinkScores
from linkcal.metrics import evaluate_links, expected_calibration_error, negative_log_likelihood, roc_auc
from linkcal.models import MODELS as MODEL_SPECS
from linkcal.predictor import CalibratedLinkPredictor
from linkcal.workflow import RunConfig, run_experiment, write_outputs

FloatArray = NDArray[np.float64]

OURS, STACKED = "in-n-out-plus", "in-n-out-plus stacked"
METRICS = ("ece", "ece_floor", "nll", "brier", "auc", "hits@20")
CELL, DIVISION = ["dataset", "model", "seed"], ["dataset", "seed"]
#: Calibrators that train no network: the fast ones.
FAST = tuple(name for name, spec in CALIBRATORS.items() if not spec.trains_network)
CELLS: Mapping[str, Any] = {"dataset": DATASETS, "model": MODELS, "seed": (0, 1, 2)}
ONE_CELL: Mapping[str, Any] = {"model": ("gcn",), "seed": (0,)}


def losses(logit: FloatArray, y: Any) -> FloatArray:
    """NLL of each link in nats."""
    return np.asarray(np.logaddexp(0.0, logit) - np.asarray(y) * logit)


def metrics_of(y: Any, logit: FloatArray) -> Row:
    values = evaluate_links(y, expit(logit), logit)
    kept = {name: values[name] for name in METRICS}
    excess = 100.0 * (values["ece"] - values["ece_floor"])
    return kept | {"links": len(y), "excess": excess, "in band": values["ece"] <= values["ece_floor_q95"]}


def columns_of(scores: LinkScores) -> tuple[FloatArray, NDArray[np.int64]]:
    return scores.to_arrays("structural")


class Negatives(Case):
    """Calibrators under kinds of negatives: targets, which features help, transfer between kinds.

    Each model is trained as usual (uniform negatives). Calibrators are fitted on the validation links and
    measured once on the test links, with negatives of each kind, one for each link; the links are the same.
    """

    name = "negatives"
    title = "in-n-out-plus against the other calibrators, by kind of negatives"
    needs = ("data", "store")
    axes = CELLS
    settings = {"kinds": NEGATIVE_KINDS, "calibrators": FAST}
    quick = ONE_CELL

    FEATURES: tuple[str, ...] = (
        "logit", "toggle", "structure", "attributes", "toggle+structure", "structure+attributes", "all",
    )  # fmt: skip
    #: Feature sets whose difference of NLL is measured link by link.
    GAINS = (
        ("logit", "toggle"),
        ("logit", "structure"),
        ("logit", "attributes"),
        ("structure", "toggle+structure"),
        ("structure+attributes", "all"),
        ("toggle+structure", "all"),
    )
    #: Negatives per link of the transfer table, beside 1.
    RARE = 10
    #: Targets of the mean excess ECE in points.
    EXCESS: Mapping[str, float] = {"uniform": 0.2, "degree": 0.4, "two-hop": 0.4}

    def setup(self, point: Point, folder: Path) -> Trained:
        return trained(point, folder)

    def measure(self, point: Point, made: Trained) -> list[Row]:
        tests = {kind: made.scores("test", kind) for kind in point.kinds}
        return [row for kind in point.kinds for row in self._of_kind(point, made, kind, tests)]

    def _of_kind(self, point: Point, made: Trained, kind: Any, tests: Mapping[str, LinkScores]) -> list[Row]:
        val, (X, y) = made.scores("val", kind), columns_of(tests[kind])
        by_features = {
            name: fitted(StructuralCalibrator(features=name), val).decision_function(X)
            for name in self.FEATURES
        }
        X_base, y_base = columns_of(made.scores("train", kind))
        stacked = StructuralCalibrator().fit(*columns_of(val), X_base=X_base, y_base=y_base)
        logits = {OURS: by_features["all"], STACKED: stacked.decision_function(X)}
        platt = fitted(make_calibrator("platt"), val)
        for name in point.calibrators:
            if name != OURS:
                calibrator = fitted(make_calibrator(name), val)
                logits[name] = calibrator.decision_function(tests[kind].to_matrix(calibrator.link_features))
        rows = [
            {"table": place, "kind": kind, "name": name, **metrics_of(y, logit)}
            for place, part in (("calibrators", logits), ("features", by_features))
            for name, logit in part.items()
        ]
        for first, second in self.GAINS:
            fall = losses(by_features[first], y) - losses(by_features[second], y)
            error = fall.std(ddof=1) / len(fall) ** 0.5
            rows.append(
                {"table": "gains", "kind": kind, "name": f"{first} to {second}", "gain": fall.mean()}
                | {"error": error}
            )
        ours = fitted(StructuralCalibrator(), val)
        for test_kind, scores in tests.items():
            X_test, y_test = columns_of(scores)
            for name, logit in (
                (OURS, ours.decision_function(X_test)),
                ("platt", platt.decision_function(X_test[:, :1])),
            ):
                row = {"table": "transfer", "kind": kind, "name": name, "test_kind": test_kind}
                rows.append(row | self._transferred(y_test, logit))
        return rows

    def _transferred(self, y: Any, logit: FloatArray) -> Row:
        """As drawn, and with rarer links: probabilities as fitted, or moved to the true base rate."""
        weight = np.where(y == 1, 1.0, self.RARE)
        p, moved = expit(logit), expit(logit + base_rate_offset(1 / 2, 1 / (1 + self.RARE)))
        row = {"ece": expected_calibration_error(y, p), "nll": negative_log_likelihood(y, p)}
        row |= {"bias": float(p.mean() - y.mean()), "auc": roc_auc(y, logit)}
        for name, q in (("rare", p), ("moved", moved)):
            row[f"ece_{name}"] = expected_calibration_error(y, q, sample_weight=weight)
            row[f"nll_{name}"] = negative_log_likelihood(y, q, sample_weight=weight)
        return row

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        main = rows[rows["table"] == "calibrators"]
        by_features = rows[rows["table"] == "features"]
        cells = main[CELL].drop_duplicates()
        parts = [
            f"{len(cells)} trained models. Metrics in percent, NLL in nats, excess ECE (ECE less its noise "
            "floor) in points. +- is half the 95 % t interval of a mean over divisions of links (data set "
            "and seed); models of one division share its links and are averaged first.",
            "## Targets",
            "Best: lower than the lowest of all other calibrators, cell by cell. Kept: not below the "
            "uncalibrated model's.",
            self._targets(main),
        ]
        for kind, part in main.groupby("kind", sort=False):
            parts += [f"## Calibrators, {kind} negatives", means(part), f"## Features, {kind} negatives"]
            parts += [means(by_features[by_features["kind"] == kind]), self._gains(rows, str(kind))]
            parts += [self._by_cell(main, by_features, str(kind))]
        transfer = rows[rows["table"] == "transfer"].groupby(["name", "test_kind", "kind"], sort=False)
        columns = ["ece", "bias", "nll", "auc", "ece_rare", "ece_moved", "nll_rare", "nll_moved"]
        lines = [[*key, *(shown(c, part[c].mean()) for c in columns)] for key, part in transfer]
        note = (
            f"Bias: mean probability less share of links. Rare: negatives count {self.RARE}-fold, with "
            "probabilities as fitted; moved: moved to the new base rate."
        )
        head = ["calibrator", "measured with", "fitted with", *columns]
        return [*parts, "## Transfer", note, table(head, lines, 3)]

    def _targets(self, main: pd.DataFrame) -> str:
        lines = []
        for kind, here in main.groupby("kind", sort=False):
            wide = {m: here.pivot_table(index=CELL, columns="name", values=m) for m in METRICS}
            others = [name for name in wide["nll"] if name not in (OURS, STACKED)]
            for name in (OURS, STACKED):
                best = [wide[m][name] < wide[m][others].min(axis=1) for m in ("nll", "brier")]
                kept = [wide[m][name] >= wide[m]["uncalibrated"] for m in ("auc", "hits@20")]
                ours = here[here["name"] == name]
                excess = interval(ours["excess"], [ours[column] for column in DIVISION])
                shares = [f"{100 * part.mean():.0f} %" for part in (*best, *kept, ours["in band"])]
                lines.append([kind, name, *shares, excess, self.EXCESS[str(kind)]])
        head = ["negatives", "fit", "NLL best (95 %)", "Brier best (95 %)", "AUC kept (95 %)"]
        head += ["Hits@20 kept (95 %)", "ECE in noise band (85 %)", "excess ECE", "at most"]
        return table(head, lines, 2)

    def _gains(self, rows: pd.DataFrame, kind: str) -> str:
        lines = []
        gains = rows[(rows["table"] == "gains") & (rows["kind"] == kind)]
        for name, part in gains.groupby("name", sort=False):
            by_division = part.groupby(DIVISION)["gain"].mean()
            sure = [(sign * part["gain"] > 1.96 * part["error"]).sum() for sign in (1, -1)]
            p = wilcoxon(by_division).pvalue if len(by_division) > 1 else float("nan")
            mean = interval(part["gain"], [part[column] for column in DIVISION])
            lines.append([name, mean, f"{(part['gain'] > 0).sum()} of {len(part)}", *sure, f"{p:.1g}"])
        return table(["features", "NLL falls by", "cells", "sure", "surely worse", "Wilcoxon p"], lines)

    def _by_cell(self, main: pd.DataFrame, by_features: pd.DataFrame, kind: str) -> str:
        keys = ["dataset", "model"]
        others = main[(main["kind"] == kind) & ~main["name"].isin([OURS, STACKED])]
        best = others.groupby([*keys, "seed"])["nll"].min().groupby(keys).mean()
        here = by_features[by_features["kind"] == kind]
        nll = here.pivot_table(index=keys, columns="name", values="nll", sort=False)[list(self.FEATURES)]
        excess = here[here["name"] == "all"].groupby(keys)["excess"].mean()
        lines = [
            [*key, *(f"{v:.3f}" for v in (best[key], *nll.loc[key])), f"{excess[key]:.2f}"]
            for key in nll.index
        ]
        head = [*keys, "NLL, best other", *self.FEATURES, "excess ECE, all"]
        return table(head, lines, 2)


def means(rows: pd.DataFrame) -> str:
    """Means over cells of each calibrator or feature set."""
    lines = []
    for name, part in rows.groupby("name", sort=False):
        values = [shown(column, part[column].mean()) for column in METRICS]
        inside = f"{100 * part['in band'].mean():.0f} %"
        lines.append([name, *values, f"{part['excess'].mean():.2f}", inside, len(part)])
    return table(["fit", *METRICS, "excess", "in band", "cells"], lines)


class RareLinks(Case):
    """Whether probabilities hold where links are rare: test links against very many fresh negatives.

    Calibrators are fitted on the validation links, one negative for each link. No test set of a base rate of
    1 in 1,000 is large enough to check odds of 1,000 to 1, so each test link is weighed against hundreds of
    fresh uniform negatives that are no link of the graph and no pair of the split.
    """

    name = "rare-links"
    title = "Probabilities where links are rare"
    needs = ("data", "store")
    axes = CELLS
    settings = {"calibrators": ("platt", "isotonic", "bbq", OURS), "negatives": 400_000}
    quick = {**ONE_CELL, "negatives": 2_000}

    #: Bounds of calibrated logits at one to one, and the base rates that probabilities are moved to.
    BOUNDS = (-np.inf, -6.0, -5.0, -4.0, -3.0, -2.0, 0.0, 2.0, 3.0, 4.0, 5.0, 6.0, np.inf)
    RATES = (0.5, 0.01, 0.001)

    def setup(self, point: Point, folder: Path) -> Trained:
        return trained(point, folder)

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
            f"{len(rows[CELL].drop_duplicates())} cells, fitted on validation links at one to one; measured "
            f"on test links and up to {settings.negatives:,} fresh negatives a cell.",
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
        sums = zip(*(np.sum(rows[name].tolist(), axis=0) for name in names), strict=True)
        lines = []
        with np.errstate(divide="ignore"):  # isotonic regression may be certain
            for (low, high), (links, negatives, expected, denied) in zip(
                pairwise(self.BOUNDS), sums, strict=True
            ):
                if links + negatives > 0:
                    predicted = f"{np.log(expected) - np.log(denied):.2f}"
                    found = f"{np.log(links / negatives):.2f}" if min(links, negatives) > 0 else "-"
                    counts = [f"{links:,.0f}", f"{negatives:,.1f}"]
                    lines.append([f"{low:g} to {high:g}", *counts, predicted, found])
        return table(
            ["logit", "links", "negatives at one to one", "log odds, predicted", "log odds, found"], lines
        )


class TopOrder(Case):
    """How many test links the most probable missing pairs hold, by score and reranked by probability.

    All missing pairs of the graph compete, validation links excepted, which the calibrator was fitted on.
    Reranking orders the C pairs of the highest score by the probability of `in-n-out-plus`.
    """

    name = "top-order"
    title = "Order of the most probable missing pairs"
    needs = ("data", "store")
    axes = {**CELLS, "model": MODELS[:4]}
    settings = {"kept": (100, 1_000), "candidates": (1_000, 10_000, 100_000)}
    quick = {**ONE_CELL, "kept": (20, 50), "candidates": (50, 200, 400)}

    def setup(self, point: Point, folder: Path) -> Trained:
        return trained(point, folder)

    def measure(self, point: Point, made: Trained) -> list[Row]:
        split, graph = made.split(), made.graph
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinkcalWarning)
            predictor = CalibratedLinkPredictor(made.model, StructuralCalibrator()).fit(split)
        most = max(point.kept)
        orders = [most_probable_pairs(predictor, most, rerank=c) for c in (None, *point.candidates)]
        missing = graph.num_possible_pairs - split.graph.num_pairs - int(split.val.edge_label.sum())
        links = split.test.edge_label_index[:, split.test.edge_label == 1]
        wanted, *listed = (
            pair_keys(pairs, graph.num_nodes, directed=graph.directed)
            for pairs in (links, *(order.edge_label_index for order in orders))
        )
        hits = [torch.isin(keys, wanted) for keys in listed]
        names = ["by score", *(f"C = {c:,}" for c in point.candidates)]
        return [
            {"k": k, "links": links.size(1), "missing": missing}
            | {name: int(hit[:k].sum()) for name, hit in zip(names, hits, strict=True)}
            for k in point.kept
        ]

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        text = [
            "Mean number of test links among the first k of all missing pairs: in the order of the model's "
            "score, and of the probability of `in-n-out-plus` among the C of the highest score. In brackets "
            "the share of trainings that find more, and fewer, than by score."
        ]
        for level in ("dataset", "model"):
            for k, here in rows.groupby("k"):
                # The k of the highest score are the same k in any order.
                orders = [f"C = {c:,}" for c in settings.candidates if c > k]
                lines = []
                for name, part in here.groupby(level, sort=False):
                    counts = [f"{part[c].mean():,.0f}" for c in ("links", "missing")]
                    cells = [
                        f"{part[c].mean():.1f} ({100 * (part[c] > part['by score']).mean():.0f} %, "
                        f"{100 * (part[c] < part['by score']).mean():.0f} %)"
                        for c in orders
                    ]
                    lines.append([name, *counts, f"{part['by score'].mean():.1f}", *cells])
                text.append(f"## k = {k:,}, by {level}")
                text.append(table([level, "test links", "missing pairs", "by score", *orders], lines))
        return text


class Runs(Case):
    """Whole runs as `linkcal run` makes them, the folder written, read back and used.

    With ``--epochs`` below the preset's (0 stands for the preset's) it checks that everything runs.
    """

    name = "runs"
    title = "Whole runs"
    needs = ("data",)
    axes = {"dataset": DATASETS, "model": tuple(MODEL_SPECS), "seed": (0,)}
    settings = {"calibrators": ("uncalibrated", "temperature", "platt", "isotonic", OURS), "epochs": 0}
    quick = {**ONE_CELL, "model": ("gcn", "seal"), "epochs": 1}

    def setup(self, point: Point, folder: Path) -> Path:
        return folder / "run"

    def measure(self, point: Point, made: Path) -> list[Row]:
        config = RunConfig(
            point.dataset,
            point.model,
            seed=point.seed,
            epochs=point.epochs or None,
            calibrators=tuple(point.calibrators),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinkcalWarning)
            outcome = run_experiment(config, load_graph(point.dataset, point.seed))
            paths = write_outputs(outcome, made)
            predictor = CalibratedLinkPredictor.load(paths["artifact"])
            assert outcome.artifact.held_out is not None  # the artifact of a run knows its test links
            probability = predictor.predict_proba(outcome.artifact.held_out[:, :100])
        if not bool(((probability >= 0) & (probability <= 1)).all()):
            raise SystemExit("probabilities of the loaded predictor must be in [0, 1]")
        shared = {
            "toggled by": outcome.toggle_method,
            "validation AUC": outcome.trained.result.best_val_auc,
            "best epoch": outcome.trained.result.best_epoch,
        }
        results = outcome.metrics["results"]
        return [{"calibrator": n, **{m: r[m] for m in METRICS}, **shared} for n, r in results.items()]

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        keys = ["dataset", "model"]
        lines = []
        for key, part in rows.groupby(keys, sort=False):
            ece = part.groupby("calibrator", sort=False)["ece"].mean()
            raw = part[part["calibrator"] == "uncalibrated"]
            spread = [f"{100 * raw[m].mean():.1f} ({100 * raw[m].std(ddof=0):.1f})" for m in ("auc", "ece")]
            spread.append(f"{100 * raw['ece_floor'].mean():.1f}")
            lines.append(
                [*key, part["toggled by"].iloc[0], len(raw), f"{raw['best epoch'].mean():.0f}", *spread]
                + [f"{100 * ece[name]:.1f}" for name in settings.calibrators[1:]]
            )
        head = [*keys, "toggled by", "seeds", "best epoch", "AUC", "ECE", "ECE floor"]
        return [
            "On test links, in percent, means over seeds (standard deviation): AUC and ECE of the "
            "uncalibrated model, its noise floor, then the ECE after each calibrator, fitted on validation "
            f"links. Epochs: {settings.epochs or 'the preset'}.",
            table([*head, *settings.calibrators[1:]], lines, 3),
        ]
