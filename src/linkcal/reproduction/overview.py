"""One line for each calibrator: every headline metric, averaged over data sets and models."""

from __future__ import annotations

import numpy as np
import pandas as pd

from linkcal.calibrators import CALIBRATORS
from linkcal.reproduction._entries import few_negatives_note, number
from linkcal.reproduction.aggregate import fit_on_order, in_order, seed_values
from linkcal.reproduction.formats import MISSING, Cell, Table, sentences

__all__ = ["OVERVIEW_METRICS", "overview_table"]

#: Columns: the metric in the records, its heading, and whether a larger value is better (None: neither is).
OVERVIEW_METRICS: dict[str, tuple[str, bool | None]] = {
    "ece": ("ECE", False),
    "ece_floor": ("noise floor of ECE", None),
    "ece_top_label": ("ECE, top label", False),
    "nll": ("NLL", False),
    "brier": ("Brier", False),
    "auc": ("AUC", True),
    "hits@20": ("Hits@20", True),
}


def overview_table(records: pd.DataFrame, *, scope: str = "") -> Table:
    """Mean of each headline metric over the rows (data set and model), a line for each calibrator.

    Parameters
    ----------
    records : DataFrame
        Checked records of one scope.
    scope : str
        Words for the caption.

    Returns
    -------
    Table
        A block of lines for each of what calibrators were fitted on. Every row counts the same, however many
        seeds it has; seeds and rows that some calibrator lacks are left out for all.
    """
    lines: list[tuple[Cell, ...]] = []
    data: list[dict[str, object]] = []
    notes = []
    for fit_on in fit_on_order(records):
        means, n_rows, n_values = _means(records, fit_on)
        notes.append(f"{fit_on} {n_rows} rows, {n_values} cells")
        best = {
            metric: means[metric].min() if higher is False else means[metric].max()
            for metric, (_, higher) in OVERVIEW_METRICS.items()
            if higher is not None
        }
        for calibrator in in_order(means.index, CALIBRATORS):
            cells = [Cell(fit_on), Cell(calibrator)]
            for metric in OVERVIEW_METRICS:
                value = float(means[metric][calibrator])
                text = MISSING if np.isnan(value) else number(value, metric != "nll")
                cells.append(Cell(text, strong=value == best.get(metric)))
                data.append(
                    {"fit_on": fit_on, "calibrator": calibrator, "metric": metric, "mean": value,
                     "n_rows": n_rows, "n_cells": n_values}
                )  # fmt: skip
            lines.append(tuple(cells))
    caption = sentences(
        scope,
        "Percent; NLL in nats. Mean over the seeds of each data set and model, then over these rows. Cells "
        f"that every calibrator has: {'; '.join(notes)}. Bold: best of the block.",
        "The noise floor is the ECE that a perfectly calibrated predictor with the same probabilities would "
        "have on as many links.",
        few_negatives_note(records),
    )
    header = ("fitted on", "calibrator", *(heading for heading, _ in OVERVIEW_METRICS.values()))
    return Table(
        "overview", "All calibrators, all rows", caption, header, tuple(lines), pd.DataFrame(data), 2
    )


def _means(records: pd.DataFrame, fit_on: str) -> tuple[pd.DataFrame, int, int]:
    """Means (calibrators by metrics), the number of rows and the number of cells that they rest on."""
    values = {metric: seed_values(records, metric, fit_on=fit_on) for metric in OVERVIEW_METRICS}
    # A metric that no cell has stays missing; of one that some have, every calibrator must have it to count.
    known = [frame.notna().all(axis=1) for frame in values.values() if frame.notna().any(axis=None)]
    whole = np.logical_and.reduce(known) if known else np.zeros(len(values["ece"]), dtype=np.bool_)
    by_row = {
        metric: frame[whole].groupby(level=["dataset", "model"]).mean() for metric, frame in values.items()
    }
    means = pd.DataFrame({metric: frame.mean() for metric, frame in by_row.items()})
    return means, len(by_row["ece"]), int(whole.sum())
