"""Speed of fitting calibrators and of predicting with them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from _cells import Trained, TrainedCase, fitted
from _harness import Point, Row, taking_turns

from linkcal.calibrators import CALIBRATORS, StructuralCalibrator, make_calibrator


class CalibratorSpeed(TrainedCase):
    """Seconds of a fit to the validation links and of a million predictions, for every calibrator."""

    name, title = "calibrator-speed", "Seconds of the calibrators"
    axes = {"dataset": ("pubmed",), "model": ("gcn",), "seed": (0,), "calibrator": tuple(CALIBRATORS)}
    settings = {"predictions": 1_000_000, "repeats": 5}
    quick = {"calibrator": ("platt", "in-n-out-plus"), "predictions": 3_000, "repeats": 1}

    def measure(self, point: Point, made: Trained) -> list[Row]:
        val, calibrator = made.scores("val"), make_calibrator(point.calibrator)
        X, y = val.to_arrays(calibrator.link_features)
        many = X[np.resize(np.arange(len(X)), point.predictions)]
        works: dict[str, Any] = {"fit": partial(fitted, calibrator, val)}
        works["predict"] = partial(fitted(calibrator, val).predict_proba, many)
        if isinstance(calibrator, StructuralCalibrator):
            X_base, y_base = made.scores("train").to_arrays("structural")
            base = {"X_base": X_base, "y_base": y_base}
            works["stacked fit"] = partial(fitted, calibrator, val, **base)
            works["stacked predict"] = partial(fitted(calibrator, val, **base).predict_proba, many)
        measured = taking_turns(works, point.repeats)
        sizes = {name: point.predictions if "predict" in name else len(y) for name in works}
        return [
            {"what": name, "links": sizes[name], "seconds": seconds, "peak MiB": peak}
            for name, (seconds, peak) in measured.items()
        ]
