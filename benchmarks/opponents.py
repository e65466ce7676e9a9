"""What a model adds to structure, and the additive calibrator against other learners on equal columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import pandas as pd
from _cells import Trained, TrainedCase, fitted, named
from _harness import DATASETS, Point, Row, interval, table
from quality import DIVISION, OURS, FloatArray, kept, losses
from scipy.special import expit, logit

from linkcal.calibrators import StructuralCalibrator, StructureOnly
from linkcal.features import COLUMN_GROUPS, STRUCTURAL_COLUMNS, LinkScores, link_segments
from linkcal.metrics import evaluate_links, group_calibration, model_value, negative_log_likelihood, roc_auc
from linkcal_lab.learners import LEARNERS

#: Columns of `in-n-out-plus` until paths were added to them.
FEWER = tuple(name for name in STRUCTURAL_COLUMNS if name not in COLUMN_GROUPS["paths"][1:])
#: Fits of the same additive model by name: what they read.
FITS: Mapping[str, str | tuple[str, ...]] = {
    "logit": ("logit",),
    "no paths": ("logit", "toggle", "degrees", "attributes"),
    "no toggle": ("logit", "degrees", "paths", "attributes"),
    "all": "all",
}
ALONE, OLD = "structure-only", "common neighbours, no other paths"


class Opponents(TrainedCase):
    """What a model adds to degrees, paths and feature similarity, with equal columns for both.

    One additive calibrator, fitted on the validation links and measured on the test links, reads: no logit
    and no toggle (structure-only); the logit alone; all columns but paths; those with common neighbours as
    the only path; all but what toggling brings; all. NLL in nats, AUC in percent. +- is half the 95 % t
    interval of a mean over divisions of links (data set and seed); beside a cell it is that over its test
    links. Inside: cells in which no segment by degree, common neighbours, feature similarity and their
    products deviates more than calibrated probabilities would. Stacked: a fit to the training links
    beneath. Redrawn: with all labels drawn anew from the probabilities of "all", whose form is true then.
    """

    name, title = "opponents", "What a model adds to structure"
    axes = {"dataset": DATASETS, "model": ("gcn", "sage"), "seed": (0,)}
    settings = {"draws": 20}
    quick = {"model": ("gcn",), "draws": 2}

    def measure(self, point: Point, made: Trained) -> list[Row]:
        val, test = made.scores("val"), made.scores("test")
        y = test.to_arrays()[1]
        logits = {ALONE: fitted(StructureOnly(), val).decision_function(test.to_matrix("structure"))}
        logits[OLD] = self._of_fewer(val, test)
        for name, features in FITS.items():
            calibrator = fitted(StructuralCalibrator(features=features), val)
            logits[name] = calibrator.decision_function(test.to_matrix("structural"))
        base = made.scores("train").to_arrays("structural")
        stacked = fitted(StructuralCalibrator(), val, X_base=base[0], y_base=base[1])
        X = test.to_matrix("structural")
        logits["stacked"] = stacked.decision_function(X)
        segments, rows, drawn, rng = link_segments(test), [], [], np.random.default_rng(point.seed)
        X_val = val.to_matrix("structural")
        rates = [expit(calibrator.decision_function(part)) for part in (X_val, X)]
        for _ in range(point.draws):
            y_val, y_test = (rng.random(len(rate)) < rate for rate in rates)
            z = named(StructuralCalibrator()).fit(X_val, y_val.astype(float)).decision_function(X)
            groups = group_calibration(y_test.astype(float), expit(z), segments)
            drawn.append(abs(groups.z[groups.worst]) <= groups.bound)
        for name, z in logits.items():
            p, value = expit(z), model_value(y, expit(z), expit(logits[ALONE]))
            found = group_calibration(y, p, segments)
            row = {"fit": name, "nll": negative_log_likelihood(y, p), "auc": 100.0 * roc_auc(y, z)}
            row |= {"gain": value.gain, "half": value.half_width, "links": value.num_links}
            row |= {"z": abs(found.z[found.worst]), "bound": found.bound, "redrawn": float(np.mean(drawn))}
            rows.append(row | {"worst": found.segment[found.worst]})
        return rows

    def _of_fewer(self, val: LinkScores, test: LinkScores) -> FloatArray:
        kept = [0, *(1 + STRUCTURAL_COLUMNS.index(name) for name in FEWER)]
        X, y = val.to_arrays("structural")
        fit = StructuralCalibrator(feature_names=FEWER).fit(X[:, kept], y)
        return fit.decision_function(test.to_matrix("structural")[:, kept])

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        lines = []
        for name, part in rows.groupby("fit", sort=False):
            inside = f"{(part['z'] <= part['bound']).sum()} of {len(part)}"
            gain = interval(part["gain"], [part[column] for column in DIVISION])
            sure = [(sign * part["gain"] > part["half"]).sum() for sign in (1, -1)]
            means = (f"{part[column].mean():.{digits}f}" for column, digits in (("nll", 4), ("auc", 2)))
            lines.append([name, *means, gain, *sure, inside])
        head = ["reads", "NLL", "AUC", "NLL below structure-only by", "sure", "surely above", "inside"]
        cells = []
        for key, part in rows.groupby(["dataset", "model", "seed"], sort=False):
            of = part.set_index("fit")
            gain_of_all, half = of.loc[["all"], ["gain", "half"]].to_numpy(dtype=float)[0]
            value = f"{gain_of_all:.4f} +- {half:.4f}"
            nll = [f"{x:.4f}" for x in of["nll"].astype(float)]
            cells.append([*key[:2], *nll, value, of.loc["all", "worst"]])
        names = rows["fit"].unique().tolist()
        wide = table(["data set", "model", *names, "the model adds", "worst segment of all"], cells, 2)
        redrawn = f"Inside with labels redrawn: {100 * rows['redrawn'].mean():.0f} %."
        return ["## Means over cells", table(head, lines), redrawn, "## NLL by cell", wide]


class EqualColumns(TrainedCase):
    """The additive calibrator and learners by other people, all on the columns of `in-n-out-plus`.

    Fitted on the validation links, or that many of them drawn by class, half links and half negatives
    (`sizes`; 0: all), and measured on the test links. NLL in nats, the rest in percent, excess ECE in points.
    Behind: a division of links (data set and seed) in which the learner's NLL is lower, mean over models, by
    more than the standard error of the difference over test links. Inside: as in the case `opponents`.
    """

    name, title = "equal-columns", "Equal columns for all learners"
    axes = {"dataset": DATASETS, "model": ("gcn", "sage"), "seed": (0,)}
    settings = {
        "kinds": ("uniform", "degree", "two-hop"), "sizes": (0, 50, 100, 200, 500, 1000),
        "learners": ("logistic", "spline-gam", "hist-gb"),
    }  # fmt: skip
    quick = {"model": ("gcn",), "sizes": (0, 100), "kinds": ("uniform",)}

    def measure(self, point: Point, made: Trained) -> list[Row]:
        rows: list[Row] = []
        for kind in point.kinds:
            val, test = made.scores("val", kind), made.scores("test", kind)
            segments = link_segments(test)
            (_, known), (X, y) = val.to_arrays("structural"), test.to_arrays("structural")
            rng, ends = np.random.default_rng(point.seed), [np.flatnonzero(known == c) for c in (0, 1)]
            ends = [rng.permutation(each) for each in ends]
            for size in point.sizes:
                if size <= 2 * min(map(len, ends)):
                    some = val.take(np.concatenate([each[: size // 2 or None] for each in ends]))
                    fits = {OURS: fitted(StructuralCalibrator(), some).decision_function(X)}
                    fits |= {name: self._of(name, some, X) for name in point.learners}
                    of_ours = losses(fits[OURS], y)
                    for name, z in fits.items():
                        p, gain = expit(z), losses(z, y) - of_ours
                        groups = group_calibration(y, p, segments)
                        row = {"kind": kind, "size": size, "name": name, **kept(evaluate_links(y, p, z))}
                        row |= {"gain": gain.mean(), "error": gain.std(ddof=1) / len(gain) ** 0.5}
                        rows.append(row | {"inside": bool(abs(groups.z[groups.worst]) <= groups.bound)})
        return rows

    def _of(self, name: str, some: LinkScores, X: FloatArray) -> FloatArray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's learners, about few links
            fit = LEARNERS[name]().fit(*some.to_arrays("structural"))
        return np.asarray(logit(np.clip(fit.predict_proba(X)[:, 1], 1e-9, 1 - 1e-9)))

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        lines = []
        for key, part in rows.groupby(["kind", "size", "name"], sort=False):
            by_division = part.groupby(DIVISION)[["gain", "error"]].mean()
            ahead = int((by_division["gain"] < -by_division["error"]).sum())
            values = [f"{part['nll'].mean():.4f}", f"{100 * part['auc'].mean():.2f}"]
            values += [f"{part['excess'].mean():.2f}", interval(part["gain"], [part[c] for c in DIVISION])]
            inside = (f"{100 * part[column].mean():.0f} %" for column in ("in band", "inside"))
            lines.append(
                [key[0], key[1] or "all", key[2], *values, *inside, f"{ahead} of {len(by_division)}"]
            )
        head = ["negatives", "links", "learner", "NLL", "AUC", "excess", "NLL above ours by", "in band"]
        return [table([*head, "inside", "ours behind"], lines, 3)]
