"""Tables of calibration patterns: which shape the reliability curves have, and how often."""

from __future__ import annotations

import numpy as np
import pandas as pd

from linkcal.calibrators import CALIBRATORS
from linkcal.exceptions import InputError
from linkcal.metrics import CalibrationPattern
from linkcal.reproduction.aggregate import fit_on_order, in_order, row_order, seed_values
from linkcal.reproduction.formats import MISSING, Cell, Table, sentences
from linkcal.reproduction.published import published_patterns

__all__ = ["pattern_row_table", "pattern_share_table"]

_DEFINITIONS = (
    "Curves of the test links in 15 equal-width bins. calibrated: ECE within its 95 % noise floor. u-shaped: "
    "the share of links falls and rises again with the predicted probability, beyond noise. Otherwise by the "
    "two sides, p >= 0.5 (positive predictions) and p < 0.5 (negative), each outside its 95 % band or not. "
    "over-positive-under-negative: probabilities too high on both sides; under-positive-over-negative: too "
    "low on both; overconfident: too extreme on at least one side, too cautious on none; underconfident: the "
    "reverse; other: errors cancel within each side."
)
_PAPER_NOTE = (
    "The paper's shares are for uncalibrated predictors; its abstract names the reverse mixture "
    "(overconfident in negative predictions, underconfident in positive ones)."
)


def pattern_share_table(records: pd.DataFrame, *, scope: str = "") -> Table:
    """Share of reliability curves of each pattern, by calibrator, beside the paper's shares.

    Parameters
    ----------
    records : DataFrame
        Checked records of one scope; metric ``pattern`` holds the integer of a
        :class:`linkcal.metrics.CalibrationPattern`.
    scope : str
        Words for the caption.

    Returns
    -------
    Table
        A line for each of what calibrators were fitted on and each pattern.

    Raises
    ------
    InputError
        If a record's value is the integer of no pattern.
    """
    published = published_patterns()
    calibrators = in_order(records["calibrator"].unique(), CALIBRATORS)
    lines: list[tuple[Cell, ...]] = []
    data: list[dict[str, object]] = []
    notes = []
    for fit_on in fit_on_order(records):
        values = seed_values(records, "pattern", fit_on=fit_on)
        counts = {name: _counts(values[name]) for name in calibrators if name in values}
        totals = sorted({sum(c.values()) for c in counts.values()})
        notes.append(f"{' or '.join(map(str, totals))} curves fitted on {fit_on}")
        for pattern in CalibrationPattern:
            paper = published.get(pattern.label)
            cells = [Cell(fit_on), Cell(pattern.label)]
            for name in calibrators:
                count, total = counts.get(name, {}).get(pattern, 0), sum(counts.get(name, {}).values())
                cells.append(Cell(f"{100 * count / total:.0f} %" if total else MISSING))
                data.append(
                    {"fit_on": fit_on, "pattern": pattern.label, "calibrator": name, "count": count,
                     "n": total, "share": count / total if total else np.nan,
                     "published_share": np.nan if paper is None or name != "uncalibrated" else paper / 100}
                )  # fmt: skip
            cells.append(Cell(MISSING if paper is None else f"{paper:.0f} %"))
            lines.append(tuple(cells))
    counted = (
        f"One curve for each data set, model, training and calibration seed: {'; '.join(notes)}. That of the "
        "uncalibrated predictor is the same for all calibration seeds of a training."
    )
    caption = sentences(scope, counted, _DEFINITIONS, _PAPER_NOTE)
    header = ("fitted on", "pattern", *calibrators, "paper, uncalibrated")
    return Table("patterns", "Calibration patterns", caption, header, tuple(lines), pd.DataFrame(data), 2)


def _counts(codes: pd.Series) -> dict[CalibrationPattern, int]:
    found, counts = np.unique(codes.dropna().to_numpy(dtype=np.float64), return_counts=True)
    unknown = sorted(set(found.tolist()) - {float(pattern) for pattern in CalibrationPattern})
    if unknown:
        raise InputError(
            f"pattern must be a whole number from 0 to {max(CalibrationPattern)}, got {unknown[0]:g}"
        )
    return {CalibrationPattern(int(code)): int(n) for code, n in zip(found, counts, strict=True)}


def pattern_row_table(records: pd.DataFrame, *, scope: str = "") -> Table:
    """Patterns of the uncalibrated predictor by data set and model.

    Parameters
    ----------
    records : DataFrame
        Checked records of one scope.
    scope : str
        Words for the caption.

    Returns
    -------
    Table
        Each pattern that occurred in a row, with the share of training seeds. The uncalibrated
        predictor is the same for all calibration links and seeds, so each training seed counts once.
    """
    plain = records[
        (records["calibrator"] == "uncalibrated")
        & (records["part"] == "test")
        & (records["metric"] == "pattern")
    ].dropna(subset="value")
    once = plain.drop_duplicates(["dataset", "model", "train_seed"])
    lines: list[tuple[Cell, ...]] = []
    data: list[dict[str, object]] = []
    for dataset, model in row_order(records):
        here = once[(once["dataset"] == dataset) & (once["model"] == model)]
        counts = _counts(here["value"])
        total = sum(counts.values())
        ranked = sorted(counts, key=lambda pattern: (-counts[pattern], pattern))
        text = ", ".join(f"{p.label} {counts[p]}/{total}" for p in ranked)
        lines.append((Cell(dataset), Cell(model), Cell(text or MISSING)))
        named = {"dataset": dataset, "model": model, "n_train_seeds": total}
        data += [{**named, "pattern": p.label, "count": counts[p]} for p in ranked]
        data += [] if ranked else [{**named, "pattern": "", "count": 0}]
    caption = sentences(scope, "Number of training seeds.", _DEFINITIONS)
    title = "Calibration patterns of the uncalibrated predictors"
    header = ("data set", "model", "patterns")
    return Table("patterns-by-row", title, caption, header, tuple(lines), pd.DataFrame(data), 3)
