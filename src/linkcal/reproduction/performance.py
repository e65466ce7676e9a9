"""The table of uncalibrated predictors: how well they rank and classify."""

from __future__ import annotations

import numpy as np
import pandas as pd

from linkcal.reproduction._entries import entry, few_negatives_note, row_at
from linkcal.reproduction.aggregate import base_model, row_order
from linkcal.reproduction.formats import MISSING, Cell, Table, sentences
from linkcal.reproduction.published import published_origin, published_values

__all__ = ["performance_table"]


def performance_table(records: pd.DataFrame, *, scope: str = "") -> Table:
    """AUC, Hits@20 and accuracy of the uncalibrated predictors beside the paper's.

    Parameters
    ----------
    records : DataFrame
        Checked records of one scope.
    scope : str
        Words for the caption.

    Returns
    -------
    Table
        The uncalibrated predictor does not depend on calibration seed or calibration links, so its values
        are averaged over them inside each training seed. The caption counts the training seeds inside which
        they differ all the same: records of trainings that were made anew, by another machine.
    """
    sheet = published_values("table8_gnn_performance").set_index(["dataset", "model", "metric"])
    paper = sheet[["mean", "std"]] / 100
    metrics = list(dict.fromkeys(sheet.index.get_level_values("metric")))
    plain = records[(records["calibrator"] == "uncalibrated") & (records["part"] == "test")]
    plain = plain[plain["metric"].isin(metrics)].dropna(subset="value")
    runs = plain.groupby(["dataset", "model", "metric", "train_seed"])["value"]
    by_run = runs.mean()
    again = by_run[runs.nunique() > 1].reset_index()[["dataset", "model", "train_seed"]].drop_duplicates()
    groups = by_run.groupby(["dataset", "model", "metric"])
    ours = pd.DataFrame({"mean": groups.mean(), "std": groups.std(ddof=1), "n": groups.count()})
    full = int(ours["n"].max()) if len(ours) else 0
    lines: list[tuple[Cell, ...]] = []
    data: list[dict[str, object]] = []
    for row in row_order(records, sheet.index.to_frame(index=False)):
        line = [Cell(row[0]), Cell(row[1])]
        for metric in metrics:
            found, printed = row_at(ours, (*row, metric)), row_at(paper, (row[0], base_model(row[1]), metric))
            line += [Cell(entry(found, None, True, full)), Cell(entry(printed, None, True, None))]
            data.append(
                {
                    "dataset": row[0],
                    "model": row[1],
                    "metric": metric,
                    **{key: np.nan if found is None else found[key] for key in ("mean", "std")},
                    "n_train_seeds": 0 if found is None else int(found["n"]),
                    **{f"published_{k}": np.nan if printed is None else printed[k] for k in ("mean", "std")},
                }
            )
        lines.append(tuple(line))
    header = ["data set", "model"]
    for metric in metrics:
        header += [f"{metric}", f"{metric}, paper"]
    caption = sentences(
        scope,
        f"Percent. Mean \N{PLUS-MINUS SIGN} standard deviation over {full} training seeds unless an entry "
        f"gives another n. {MISSING}: no value.",
        "One training seed has no standard deviation." if full == 1 else "",
        "Trainings whose values differ between the calibration links, since they were made anew: "
        f"{len(again)}; their mean counts once."
        if len(again)
        else "",
        "The paper's accuracy of VGAE on Twitch PT is, rounded, its ECE there; it stands as printed.",
        few_negatives_note(records),
    )
    title = f"{published_origin('table8_gnn_performance')}: uncalibrated predictors"
    return Table("gnn-performance", title, caption, tuple(header), tuple(lines), pd.DataFrame(data), 2)
