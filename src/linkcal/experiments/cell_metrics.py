"""The metrics of a cell as a table in long form: measured, written, and measured anew."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from linkcal._files import written_whole
from linkcal.experiments.predictions import MEASURED_PARTS, PREDICTIONS_FILE, read_predictions
from linkcal.metrics import METRICS, evaluate_links

__all__ = ["METRICS_FILE", "METRIC_COLUMNS", "measure", "remeasure_cell", "write_metrics"]

METRICS_FILE = "metrics.csv"
METRIC_COLUMNS = ("calibrator", "part", "metric", "value")

FloatArray = NDArray[np.float64]


def measure(
    label: FloatArray, probability: FloatArray, logit: FloatArray, truth: FloatArray | None = None
) -> dict[str, float]:
    """Every metric that linkcal has, and what it was measured on.

    Parameters
    ----------
    label : ndarray (L,), values 0 and 1
    probability : ndarray (L,), in [0, 1]
    logit : ndarray (L,)
        For the ranking metrics.
    truth : ndarray (L,), optional
        Known probabilities: adds ``true_error``, the mean absolute distance.

    Returns
    -------
    dict of str to float
        Those of :func:`linkcal.metrics.evaluate_links` (extended), then the rest of ``METRICS``, then
        ``positives`` and ``negatives``: an ECE says nothing without the number of links and their ratio, and
        Hits@K is 1 whenever there are fewer than K non-links.

    Examples
    --------
    >>> y = np.repeat([1.0, 0.0], 60)
    >>> result = measure(y, np.full(120, 0.5), np.zeros(120))
    >>> result["ece"], result["positives"], result["negatives"]
    (0.0, 60.0, 60.0)
    """
    result = evaluate_links(label, probability, logit, extended=True)
    for name, spec in METRICS.items():
        if name not in result:
            one_class = spec.input == "score" and label.min() == label.max()
            values = logit if spec.input == "score" else probability
            result[name] = float("nan") if one_class else float(spec.function(label, values))
    result["positives"] = float(label.sum())
    result["negatives"] = float(len(label) - label.sum())
    if truth is not None:
        result["true_error"] = float(np.abs(probability - truth).mean())
    return result


def write_metrics(metrics: Mapping[str, Mapping[str, Mapping[str, float]]], path: Path) -> None:
    """Long form of values by calibrator, part and metric."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(METRIC_COLUMNS)
        for calibrator, parts in metrics.items():
            for part, row in parts.items():
                # repr gives the shortest text that reads back as the same float.
                writer.writerows((calibrator, part, metric, repr(value)) for metric, value in row.items())


def remeasure_cell(folder: Path) -> None:
    """Compute all metrics of a finished cell anew from its stored predictions: nothing is trained or fitted.

    For metrics that linkcal did not have when the cell was made. ``metrics.csv`` is replaced whole.

    Raises
    ------
    InputError
        If the predictions are not there or are damaged; the metrics stay as they were.
    """
    stored = read_predictions(folder / PREDICTIONS_FILE)
    metrics = {
        name: {
            part: measure(
                stored.label[part].astype(np.float64),
                stored.probability[part][number],
                stored.logit[part][number],
                stored.truth.get(part),
            )
            for part in MEASURED_PARTS
        }
        for number, name in enumerate(stored.calibrators)
    }
    with written_whole(folder / METRICS_FILE) as path:
        write_metrics(metrics, path)
