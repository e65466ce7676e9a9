"""How far our values are from the published ones: by calibrator over all rows, and row by row."""

from __future__ import annotations

import numpy as np
import pandas as pd

from linkcal.metrics import METRICS
from linkcal.reproduction.aggregate import base_model, fit_on_order, row_order, seed_values
from linkcal.reproduction.formats import MISSING, Cell, Table, sentences
from linkcal.reproduction.published import published_origin, published_values

__all__ = ["agreement_rows_table", "agreement_table"]

_SHEET = "table1_ece"
_MODELS_SHEET = "table8_gnn_performance"
_READINGS = ("ece", "ece_top_label")
#: Two values this close agree, in fractions: about the spread between trainings.
_NEAR = 0.03


def agreement_table(records: pd.DataFrame, *, scope: str = "") -> Table:
    """Differences between the means of our rows and the published ones, summed up over rows.

    Parameters
    ----------
    records : DataFrame
        Checked records of one scope.
    scope : str
        Words for the caption.

    Returns
    -------
    Table
        A line for each of what calibrators were fitted on, reading of ECE and calibrator of the paper's
        table: rows that both have, median difference (ours less the paper's), its quartiles, and the share of
        rows within three points and of rows where ours is lower.
    """
    paper = published_values(_SHEET).set_index(["dataset", "model", "calibrator"])["mean"] / 100
    names = list(dict.fromkeys(paper.index.get_level_values("calibrator")))
    lines: list[tuple[Cell, ...]] = []
    data: list[dict[str, object]] = []
    for fit_on in fit_on_order(records):
        for metric in _READINGS:
            means = seed_values(records, metric, fit_on=fit_on).groupby(level=["dataset", "model"]).mean()
            for name in names:
                # A calibrator that was not fitted has no row.
                ours = means[name] if name in means else means.iloc[:0].mean(axis=1)
                entry = _differences(ours, paper, name)
                data.append({"fit_on": fit_on, "metric": metric, "calibrator": name, **entry})
                lines.append((Cell(fit_on), Cell(METRICS[metric].name), Cell(name), *_shown(entry)))
    caption = sentences(
        scope,
        f"ECE of our rows (mean over seeds) less that of {published_origin(_SHEET)}, in points, over the "
        "rows (data set and model) that both have. The paper fits on training links. Near: within "
        f"{100 * _NEAR:g} points.",
    )
    header = ("fitted on", "reading", "calibrator", "rows", "median", "quartiles", "near", "ours lower")
    title = "Our ECE against the published one"
    return Table("agreement", title, caption, header, tuple(lines), pd.DataFrame(data), 3)


def agreement_rows_table(records: pd.DataFrame, fit_on: str, *, scope: str = "") -> Table:
    """Differences to the published values in each row: first of the model itself, then of its calibrators.

    Parameters
    ----------
    records : DataFrame
        Checked records of one scope.
    fit_on : str
        What our calibrators were fitted on.
    scope : str
        Words for the caption.

    Returns
    -------
    Table
        A line for each row (data set and model) that was measured: our AUC of the uncalibrated predictor and
        our ECE of every calibrator of the paper's table (mean over seeds) less the published ones, In-n-Out
        under both readings of ECE. A row or calibrator that the paper lacks is shown as missing.
    """
    columns = _row_columns()
    means = {
        metric: seed_values(records, metric, fit_on=fit_on).groupby(level=["dataset", "model"]).mean()
        for metric in ("auc", *_READINGS)
    }
    lines: list[tuple[Cell, ...]] = []
    data: list[dict[str, object]] = []
    for dataset, model in row_order(records[records["fit_on"] == fit_on]):
        line = [Cell(dataset), Cell(model)]
        for metric, name, paper_values in columns:
            frame = means[metric]
            ours = float(frame[name].get((dataset, model), np.nan)) if name in frame else np.nan
            paper = float(paper_values.get((dataset, base_model(model)), np.nan))
            shift = ours - paper
            near = abs(shift) <= _NEAR
            line.append(Cell(MISSING) if np.isnan(shift) else Cell(f"{100 * shift:+.1f}", strong=near))
            data.append(
                {"dataset": dataset, "model": model, "fit_on": fit_on, "metric": metric, "calibrator": name,
                 "mean": ours, "published_mean": paper, "difference": shift, "near": near}
            )  # fmt: skip
        lines.append(tuple(line))
    header = ["data set", "model"]
    header += [f"{METRICS[metric].name} {name}" for metric, name, *_ in columns]
    caption = sentences(
        scope,
        f"Ours (mean over seeds) less {published_origin(_SHEET)} (ECE) and {published_origin(_MODELS_SHEET)} "
        f"(AUC), in points; bold: within {100 * _NEAR:g}. The paper fits on training links. Where the AUC is "
        "not near, the model is another one than the paper's, and so is what there is to calibrate.",
        f"{MISSING}: not measured, or not in the paper.",
    )
    title = f"Our rows against the published ones, fitted on {fit_on}"
    name = f"agreement-rows-{fit_on}"
    return Table(name, title, caption, tuple(header), tuple(lines), pd.DataFrame(data), 2)


def _row_columns() -> list[tuple[str, str, pd.Series]]:
    """Metric, calibrator and published mean by data set and model, a fraction, of each column."""
    ece = published_values(_SHEET).set_index(["dataset", "model", "calibrator"])["mean"] / 100
    auc = published_values(_MODELS_SHEET).set_index(["dataset", "model", "metric"])["mean"] / 100
    columns = [("auc", "uncalibrated", auc.xs("auc", level="metric"))]
    names = dict.fromkeys(ece.index.get_level_values("calibrator"))
    columns += [("ece", name, ece.xs(name, level="calibrator")) for name in names]
    return [*columns, ("ece_top_label", "in-n-out", ece.xs("in-n-out", level="calibrator"))]


def _differences(ours: pd.Series, paper: pd.Series, calibrator: str) -> dict[str, float]:
    published = paper.xs(calibrator, level="calibrator")
    difference = (ours - published.reindex(ours.index)).dropna().to_numpy(dtype=np.float64)
    if not difference.size:
        return {"n_rows": 0, **dict.fromkeys(("median", "lower", "upper", "near", "ours_lower"), np.nan)}
    lower, median, upper = np.quantile(difference, (0.25, 0.5, 0.75)).tolist()
    return {
        "n_rows": difference.size,
        "median": median,
        "lower": lower,
        "upper": upper,
        "near": float((np.abs(difference) <= _NEAR).mean()),
        "ours_lower": float((difference < 0).mean()),
    }


def _shown(entry: dict[str, float]) -> tuple[Cell, ...]:
    if not entry["n_rows"]:
        return (Cell("0"), *(Cell(MISSING),) * 4)
    quartiles = f"{100 * entry['lower']:+.1f} to {100 * entry['upper']:+.1f}"
    shares = (f"{100 * entry[name]:.0f} %" for name in ("near", "ours_lower"))
    texts = (f"{entry['n_rows']:.0f}", f"{100 * entry['median']:+.1f}", quartiles, *shares)
    return tuple(Cell(text) for text in texts)
