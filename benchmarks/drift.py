"""What the passing of time and a growing graph do to calibration, and what repairs it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pandas as pd
import torch
from _cells import Trained, TrainedCase, fitted
from _harness import Point, Row
from quality import FAST, OURS, kept, means
from scipy.special import expit

from linkcal.calibrators import make_calibrator
from linkcal.features import LinkScorer
from linkcal.metrics import evaluate_links


class Drift(TrainedCase):
    """Calibration on later links, and on a graph that has grown; what repairs it.

    Links are split at random (by_time 0) or by time (1). Fitted on validation links, measured on test links
    without the first 250 and their negatives, all without their target link, on the training graph or that of
    all links (features of the Bitcoin graphs computed anew). There the validation links refit the offset or
    the calibrator (refit); 100 or 500 labels, of the first test links and as many negatives, the offset.
    """

    name, title = "drift", "Calibration over time, and on a graph that has grown"
    axes = {
        "dataset": ("bitcoin-alpha", "bitcoin-otc"), "model": ("gcn", "sage"), "seed": (0, 1),
        "by_time": (0, 1),
    }  # fmt: skip
    settings = {"calibrators": FAST, "labels": (100, 500)}
    quick = {"model": ("gcn",), "seed": (0,), "labels": (10, 20)}

    def measure(self, point: Point, made: Trained) -> list[Row]:
        split, whole, build = made.split(), made.graph, made.graph.feature_builder
        x = split.graph.x if build is None else build(whole.edge_index, whole.num_nodes)
        grown = LinkScorer(made.model, replace(split.graph, edge_index=whole.edge_index, x=x))
        on = {"training": made.scorer, "all links": grown}
        scores = {graph: (scorer.score(split.val), scorer.score(split.test)) for graph, scorer in on.items()}
        ends = [torch.nonzero(split.test.edge_label == label).flatten() for label in (1, 0)]
        rest, rows = torch.cat([each[max(point.labels) // 2 :] for each in ends]), []
        for name, (graph, (val, test)) in product(point.calibrators, scores.items()):
            moved = () if graph == "training" else ("offset", "refit")
            for repair in ("none", *moved, *point.labels):
                known = val if repair == "refit" else scores["training"][0]
                calibrator = fitted(make_calibrator(name), known)
                if repair not in ("none", "refit"):
                    first = [each[: 0 if repair == "offset" else repair // 2] for each in ends]
                    fresh = val if repair == "offset" else test.take(torch.cat(first))
                    calibrator.refresh(*fresh.to_arrays(calibrator.link_features))
                X, y = test.take(rest).to_arrays(calibrator.link_features)
                z = calibrator.decision_function(X)
                row = {"graph": graph, "repair": repair, "name": name}
                rows.append(row | kept(evaluate_links(y, expit(z), z)))
        return rows

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        by, few = ("by_time", "graph", "repair"), rows[rows["name"].isin(("platt", OURS))]
        both = rows["dataset"].isin(rows.loc[rows["by_time"] == 1, "dataset"])
        parts = ["## Means over data sets that are split both ways", means(rows[both], *by)]
        return [*parts, "## By data set", means(few, "dataset", "model", *by)]
