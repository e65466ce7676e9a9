"""Entries of tables: mean, spread, noise floor, and how many values they rest on."""

from __future__ import annotations

import numpy as np
import pandas as pd

from linkcal.reproduction.formats import MISSING

__all__ = ["Found", "entry", "few_negatives_note", "number", "row_at"]

#: Mean, standard deviation and the like of one entry; None where there is no value.
Found = dict[str, float] | None


def row_at(frame: pd.DataFrame | None, key: tuple[str, str, str]) -> Found:
    """The row of a summary with an index of three levels, if it is there."""
    if frame is None or key not in frame.index:
        return None
    return dict(zip(frame.columns, frame.loc[[key]].to_numpy(dtype=np.float64)[0].tolist(), strict=True))


def number(value: float, percent: bool) -> str:
    """A fraction in percent, or a number as it is."""
    return f"{100 * value:.2f}" if percent else f"{value:.4f}"


def entry(found: Found, floor: Found, percent: bool, full: int | None) -> str:
    """Mean, standard deviation, floor in brackets, and the number of values if it is not the usual one."""
    if found is None:
        return MISSING
    text = number(found["mean"], percent)
    if not np.isnan(found["std"]):
        text += f" \N{PLUS-MINUS SIGN} {number(found['std'], percent)}"
    if floor is not None:
        text += f" [{number(floor['mean'], percent)}]"
    if full is not None and found["n"] != full:
        text += f" (n = {int(found['n'])})"
    return text


def few_negatives_note(records: pd.DataFrame, k: int = 20) -> str:
    """A sentence on rows whose Hits@k is 1 whatever the model is; empty if there are none."""
    counts = records[
        (records["part"] == "test") & (records["metric"] == "negatives") & (records["value"] < k)
    ]
    rows = sorted({f"{d} {m}" for d, m in zip(counts["dataset"], counts["model"], strict=True)})
    if not rows:
        return ""
    return f"Hits@{k} is 100 % by definition with fewer than {k} test non-links: {', '.join(rows)}."
