"""How far our ECE is from the published one, calibrator by calibrator, under both readings of ECE."""

from __future__ import annotations

import numpy as np
import pandas as pd

from linkcal.metrics import METRICS
from linkcal.reproduction.aggregate import fit_on_order, seed_values
from linkcal.reproduction.formats import MISSING, Cell, Table, sentences
from linkcal.reproduction.published import published_origin, published_values

__all__ = ["agreement_table"]

_SHEET = "table1_ece"
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
