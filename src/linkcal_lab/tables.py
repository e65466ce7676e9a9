"""The paper's tables from the records of a sweep."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from linkcal._core.files import written_whole
from linkcal._core.validation import check_choice
from linkcal.calibrators import CALIBRATORS
from linkcal.exceptions import InputError
from linkcal.metrics.registry import COLUMNS
from linkcal_lab.aggregate import (
    Scope,
    base_model,
    fit_on_order,
    in_order,
    in_scope,
    join_settings,
    row_order,
    scopes,
    seed_values,
)
from linkcal_lab.comparison import COMPARISONS, agreement_rows_table, agreement_table, comparison_table
from linkcal_lab.formats import (
    MISSING,
    SUFFIXES,
    Entry,
    Table,
    TableBuilder,
    by_key,
    few_negatives_note,
    mean_text,
    number,
    render,
    sentences,
)
from linkcal_lab.patterns import CalibrationPattern
from linkcal_lab.published import published_origin, published_patterns, published_values
from linkcal_lab.records import check_records
from linkcal_lab.significance import ranking_table, wilcoxon_table

# One line for each calibrator: every headline metric, averaged over data sets and models.

#: Columns of the overview.
OVERVIEW_METRICS = ("ece", "ece_floor", "ece_top_label", "nll", "brier", "auc", "hits@20")


def overview_table(records: pd.DataFrame, *, scope: str = "") -> Table:
    """Mean of each headline metric over the rows (data set and model), a line for each calibrator.

    A block of lines for each of what calibrators were fitted on. Every row counts the same, however many
    seeds it has; seeds and rows that some calibrator lacks are left out for all.
    """
    builder = TableBuilder()
    notes = []
    for fit_on in fit_on_order(records):
        means, n_rows, n_values = _means(records, fit_on)
        notes.append(f"{fit_on} {n_rows} rows, {n_values} cells")
        for calibrator in in_order(means.index, CALIBRATORS):
            entries = []
            for metric in OVERVIEW_METRICS:
                column = means[metric]
                value = float(column[calibrator])
                higher = COLUMNS[metric].higher_is_better
                best = None if higher is None else column.max() if higher else column.min()
                text = MISSING if np.isnan(value) else number(value, metric != "nll")
                entries.append(Entry(text, strong=value == best))
                builder.record(
                    fit_on=fit_on, calibrator=calibrator, metric=metric, mean=value, n_rows=n_rows,
                    n_cells=n_values,
                )  # fmt: skip
            builder.row(fit_on, calibrator, *entries)
    caption = sentences(
        scope,
        "Percent; NLL in nats. Mean over the seeds of each data set and model, then over these rows. Cells "
        f"that every calibrator has: {'; '.join(notes)}. Bold: best of the block.",
        "The noise floor is the ECE that a perfectly calibrated predictor with the same probabilities would "
        "have on as many links.",
        few_negatives_note(records),
    )
    labels = (COLUMNS[metric].label for metric in OVERVIEW_METRICS)
    return builder.table("overview", "All calibrators, all rows", caption, "fitted on", "calibrator", *labels)


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


# The table of uncalibrated predictors: how well they rank and classify.


def performance_table(records: pd.DataFrame, *, scope: str = "") -> Table:
    """AUC, Hits@20 and accuracy of the uncalibrated predictors beside the paper's.

    The uncalibrated predictor does not depend on calibration seed or calibration links, so its values are
    averaged over them inside each training seed. The caption counts the training seeds inside which they
    differ all the same: records of trainings that were made anew, by another machine.
    """
    sheet = published_values("table8_gnn_performance").set_index(["dataset", "model", "metric"])
    paper = sheet[["mean", "std"]] / 100
    metrics = list(dict.fromkeys(sheet.index.get_level_values("metric")))
    plain = _uncalibrated(records, metrics)
    runs = plain.groupby(["dataset", "model", "metric", "train_seed"])["value"]
    by_run = runs.mean()
    again = by_run[runs.nunique() > 1].reset_index()[["dataset", "model", "train_seed"]].drop_duplicates()
    groups = by_run.groupby(["dataset", "model", "metric"])
    ours = pd.DataFrame({"mean": groups.mean(), "std": groups.std(ddof=1), "n": groups.count()})
    full = int(ours["n"].max()) if len(ours) else 0
    measured, printed_values = by_key(ours), by_key(paper)
    builder = TableBuilder()
    for dataset, model in row_order(records, sheet.index.to_frame(index=False)):
        texts = []
        for metric in metrics:
            found = measured.get((dataset, model, metric))
            printed = printed_values.get((dataset, base_model(model), metric))
            texts += [mean_text(found, None, True, full), mean_text(printed, None, True, None)]
            mean, std, n = (np.nan, np.nan, 0) if found is None else (found["mean"], found["std"], found["n"])
            builder.record(
                dataset=dataset, model=model, metric=metric, mean=mean, std=std, n_train_seeds=int(n),
                published_mean=np.nan if printed is None else printed["mean"],
                published_std=np.nan if printed is None else printed["std"],
            )  # fmt: skip
        builder.row(dataset, model, *texts)
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
    columns = (name for metric in metrics for name in (metric, f"{metric}, paper"))
    return builder.table("gnn-performance", title, caption, "data set", "model", *columns)


def _uncalibrated(records: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Values of the uncalibrated predictors on the test links."""
    plain = records[(records["calibrator"] == "uncalibrated") & (records["part"] == "test")]
    return plain[plain["metric"].isin(metrics)].dropna(subset="value")


# Tables of calibration patterns: which shape the reliability curves have, and how often.

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

    Metric ``pattern`` holds the integer of a :class:`linkcal_lab.patterns.CalibrationPattern`; another value
    is an error. A line for each of what calibrators were fitted on and each pattern.
    """
    published = published_patterns()
    calibrators = in_order(records["calibrator"].unique(), CALIBRATORS)
    builder = TableBuilder()
    notes = []
    for fit_on in fit_on_order(records):
        values = seed_values(records, "pattern", fit_on=fit_on)
        counts = {name: _counts(values[name]) for name in calibrators if name in values}
        totals = sorted({sum(c.values()) for c in counts.values()})
        notes.append(f"{' or '.join(map(str, totals))} curves fitted on {fit_on}")
        for pattern in CalibrationPattern:
            paper = published.get(pattern.label)
            texts = []
            for name in calibrators:
                count, total = counts.get(name, {}).get(pattern, 0), sum(counts.get(name, {}).values())
                share = count / total if total else np.nan
                texts.append(f"{100 * share:.0f} %" if total else MISSING)
                builder.record(
                    fit_on=fit_on, pattern=pattern.label, calibrator=name, count=count, n=total, share=share,
                    published_share=np.nan if paper is None or name != "uncalibrated" else paper / 100,
                )  # fmt: skip
            builder.row(fit_on, pattern.label, *texts, MISSING if paper is None else f"{paper:.0f} %")
    counted = (
        f"One curve for each data set, model, training and calibration seed: {'; '.join(notes)}. That of the "
        "uncalibrated predictor is the same for all calibration seeds of a training."
    )
    caption = sentences(scope, counted, _DEFINITIONS, _PAPER_NOTE)
    header = ("fitted on", "pattern", *calibrators, "paper, uncalibrated")
    return builder.table("patterns", "Calibration patterns", caption, *header)


def _counts(codes: pd.Series) -> dict[CalibrationPattern, int]:
    found, counts = np.unique(codes.dropna().to_numpy(dtype=np.float64), return_counts=True)
    unknown = sorted(set(found.tolist()) - {float(pattern) for pattern in CalibrationPattern})
    if unknown:
        raise InputError(
            f"pattern must be a whole number from 0 to {max(CalibrationPattern)}, got {unknown[0]:g}"
        )
    return {CalibrationPattern(int(code)): int(n) for code, n in zip(found, counts, strict=True)}


def pattern_row_table(records: pd.DataFrame, *, scope: str = "") -> Table:
    """Patterns of the uncalibrated predictor by data set and model, with their numbers of training seeds.

    The uncalibrated predictor is the same for all calibration links and seeds, so each training seed counts
    once.
    """
    once = _uncalibrated(records, ["pattern"]).drop_duplicates(["dataset", "model", "train_seed"])
    builder = TableBuilder()
    for dataset, model in row_order(records):
        counts = _counts(once.loc[(once["dataset"] == dataset) & (once["model"] == model), "value"])
        total = sum(counts.values())
        ranked = sorted(counts, key=lambda pattern: (-counts[pattern], pattern))
        builder.row(dataset, model, ", ".join(f"{p.label} {counts[p]}/{total}" for p in ranked) or MISSING)
        for label, count in [(p.label, counts[p]) for p in ranked] or [("", 0)]:
            builder.record(dataset=dataset, model=model, n_train_seeds=total, pattern=label, count=count)
    return builder.table(
        "patterns-by-row", "Calibration patterns of the uncalibrated predictors",
        sentences(scope, "Number of training seeds.", _DEFINITIONS),
        "data set", "model", "patterns", n_labels=3,
    )  # fmt: skip


# All tables of a sweep, and the files they are written to.

# In-n-Out as published, and what improves on it.
_TESTED = ("in-n-out", "in-n-out-plus")


def build_tables(records: pd.DataFrame, *, join_other_settings: bool = False) -> dict[Scope, list[Table]]:
    """Make every table from the records of a sweep, for each combination of protocol, negatives and settings.

    Records are in long form, see :func:`linkcal_lab.records.check_records`; their order does not matter. With
    `join_other_settings` those that differ from their default are rows of the same tables
    (``vgae~preset=paper``) instead of tables of their own.
    """
    checked = check_records(records)
    if join_other_settings:
        checked = join_settings(checked)
    return {scope: tables_of_scope(in_scope(checked, scope), scope) for scope in scopes(checked)}


def tables_of_scope(records: pd.DataFrame, scope: Scope) -> list[Table]:
    """Tables of checked records of one scope, in the order in which a reader wants them."""
    words = scope.label
    fitted = fit_on_order(records)
    tables = [overview_table(records, scope=words), agreement_table(records, scope=words)]
    tables += [agreement_rows_table(records, on, scope=words) for on in fitted]
    tables += [comparison_table(records, kind, on, scope=words) for kind in COMPARISONS for on in fitted]
    tables.append(performance_table(records, scope=words))
    tables.append(ranking_table(records, scope=words))
    present = [name for name in _TESTED if name in set(records["calibrator"])]
    tables += [wilcoxon_table(records, on, method=m, scope=words) for m in present for on in fitted]
    tables.append(pattern_share_table(records, scope=words))
    tables.append(pattern_row_table(records, scope=words))
    return tables


def choose_tables(tables: dict[Scope, list[Table]], names: Sequence[str]) -> dict[Scope, list[Table]]:
    """Keep the named tables; all of them for no name. Scopes may be left without a table."""
    known = dict.fromkeys(table.name for found in tables.values() for table in found)
    for name in names:
        check_choice(name, "table", known)
    if not names:
        return tables
    return {scope: [t for t in found if t.name in names] for scope, found in tables.items()}


def write_tables(
    tables: dict[Scope, list[Table]],
    folder: str | os.PathLike[str],
    *,
    format: str = "markdown",  # noqa: A002
) -> list[Path]:
    """Write one file for each table, in a sub-folder for each scope if there are several.

    Files of the same names are replaced, each whole.
    """
    check_choice(format, "format", SUFFIXES)
    out = Path(folder)
    if out.exists() and not out.is_dir():
        raise InputError(f"out must be a folder, got the file {out}")
    if len({scope.slug for scope in tables}) < len(tables):
        raise InputError(f"scopes must differ in letters, got {', '.join(scope.label for scope in tables)}")
    paths = []
    for scope, found in tables.items():
        place = out / scope.slug if len(tables) > 1 else out
        place.mkdir(parents=True, exist_ok=True)
        for table in found:
            path = place / f"{table.name}{SUFFIXES[format]}"
            with written_whole(path) as temporary:
                # The same bytes on every system: no translation of line ends.
                temporary.write_bytes(render(table, format).encode("utf-8"))
            paths.append(path)
    return paths
