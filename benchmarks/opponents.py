"""What a model adds: structure without a model, the columns with and without paths, and groups of links."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from _cells import Trained, TrainedCase, fitted
from _harness import DATASETS, Point, Row, interval, table
from quality import DIVISION, FloatArray
from scipy.special import expit

from linkcal.calibrators import StructuralCalibrator, StructureOnly
from linkcal.features import COLUMN_GROUPS, STRUCTURAL_COLUMNS, LinkScores, link_segments
from linkcal.metrics import group_calibration, model_value, negative_log_likelihood, roc_auc

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
    products deviates more than calibrated probabilities would.
    """

    name, title = "opponents", "What a model adds to structure"
    axes = {"dataset": DATASETS, "model": ("gcn", "sage"), "seed": (0,)}
    quick = {"model": ("gcn",)}

    def measure(self, point: Point, made: Trained) -> list[Row]:
        val, test = made.scores("val"), made.scores("test")
        y = test.to_arrays()[1]
        logit = {ALONE: fitted(StructureOnly(), val).decision_function(test.to_matrix("structure"))}
        logit[OLD] = self._of_fewer(val, test)
        for name, features in FITS.items():
            calibrator = fitted(StructuralCalibrator(features=features), val)
            logit[name] = calibrator.decision_function(test.to_matrix("structural"))
        segments = link_segments(test)
        rows = []
        for name, z in logit.items():
            p, value = expit(z), model_value(y, expit(z), expit(logit[ALONE]))
            found = group_calibration(y, p, segments)
            row = {"fit": name, "nll": negative_log_likelihood(y, p), "auc": 100.0 * roc_auc(y, z)}
            row |= {"gain": value.gain, "half": value.half_width, "links": value.num_links}
            row |= {"z": abs(found.z[found.worst]), "bound": found.bound}
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
        return ["## Means over cells", table(head, lines), "## NLL by cell", wide]
