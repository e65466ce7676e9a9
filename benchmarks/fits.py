"""Speed of fitting calibrators and of predicting with them."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from _cells import Trained, TrainedCase, named
from _harness import Point, Row, taking_turns

from linkcal.calibrators import CALIBRATORS, make_calibrator
from linkcal_lab.learners import LEARNERS


class CalibratorSpeed(TrainedCase):
    """Seconds of a fit and of a million predictions, for calibrators and learners on the same columns.

    Fitted to so many training links, leave-one-out, repeated if there are fewer; size 0: validation links.
    """

    name, title = "calibrator-speed", "Seconds of the calibrators"
    axes = {
        "dataset": ("pubmed",), "model": ("gcn",), "seed": (0,), "size": (0,),
        "calibrator": (*CALIBRATORS, "logistic", "spline-gam", "hist-gb"),
    }  # fmt: skip
    settings = {"predictions": 1_000_000, "repeats": 5}
    quick = {"calibrator": ("platt", "in-n-out-plus", "logistic"), "predictions": 3_000, "repeats": 1}

    def measure(self, point: Point, made: Trained) -> list[Row]:
        ours, rng = point.calibrator in CALIBRATORS, np.random.default_rng(0)
        model = named(make_calibrator(point.calibrator)) if ours else LEARNERS[point.calibrator]()
        kind = model.link_features if ours else "structural"
        X, y = made.scores("train" if point.size else "val").to_arrays(kind)
        rows = np.resize(rng.permutation(len(y)), point.size or len(y))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about few links, which are for users
            works: dict[str, Any] = {"fit": partial(model.fit, X[rows], y[rows])}
            works["predict"] = lambda: model.predict_proba(X[np.resize(rows, point.predictions)])
            measured = taking_turns(works, point.repeats)
        sizes = {"fit": len(rows), "predict": point.predictions}
        return [
            {"what": name, "links": sizes[name], "seconds": seconds, "peak MiB": peak}
            for name, (seconds, peak) in measured.items()
        ]
