"""Tables of one metric: every calibrator of every row, the published value under ours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from linkcal.calibrators import CALIBRATORS
from linkcal.metrics import METRICS
from linkcal.reproduction._entries import Found, entry, few_negatives_note, row_at
from linkcal.reproduction.aggregate import (
    base_model,
    in_order,
    row_order,
    seed_values,
    summarise,
    values_of_row,
)
from linkcal.reproduction.formats import MISSING, Cell, Table, sentences
from linkcal.reproduction.published import published_origin, published_values
from linkcal.reproduction.statistics import PairedTest, paired_t_test

__all__ = ["COMPARISONS", "Comparison", "comparison_table"]

_ALPHA = 0.05
_FLOOR_NOTE = (
    "In square brackets: the mean noise floor, the ECE of the same probabilities if they were right."
)
_BEST_NOTE = (
    "Bold: best mean on test links among calibrators with a value for every seed of the row. Last column: "
    "paired two-sided t test of best against second best over training seeds, calibration seeds averaged "
    "inside each; \N{ALMOST EQUAL TO}: not distinguishable at 5 %."
)
_MIXED_NOTE = (
    "The paper's rows mix two metrics: the code released with it measures In-n-Out by the top-label ECE and "
    "its baselines by the positive-class ECE. Its numbers stand here unchanged; ours have one metric in all "
    "columns."
)
_LINKS_NOTE = "Links: test links + non-links (least-most over seeds) that the entries rest on."
#: Published tables with a column for In-n-Out and columns for others.
_MIXED_SHEETS = ("table1_ece", "table3_ablation_ece")
_ONE_TRAINING_NOTE = (
    "With one training seed the spread is that of calibration seeds, and there is nothing to test: one seed."
)
_TWO_TABLES_NOTE = "The paper's Tables 2 and 9 disagree on the same rows; both stand as printed."
#: What does not fit together inside the paper.
_ODDITIES = {"table2_hits20": _TWO_TABLES_NOTE, "table9_hits20_all": _TWO_TABLES_NOTE}


@dataclass(frozen=True)
class Comparison:
    """What a table of one metric shows.

    Parameters
    ----------
    name : str
        Start of the file name; what was fitted on follows.
    title : str
    metric : str
        Name in ``linkcal.metrics.METRICS``.
    floor : str, optional
        Metric that holds the noise floor.
    published : str, optional
        Sheet of published values; its rows are shown whether they were measured or not.
    only_published : bool
        Show no rows and calibrators but those of the sheet.
    percent : bool
    """

    name: str
    title: str
    metric: str
    floor: str | None = None
    published: str | None = None
    only_published: bool = False
    percent: bool = True


#: The tables of one metric, in the order of the paper.
COMPARISONS = (
    Comparison("ece", "ECE, positive class", "ece", "ece_floor", "table1_ece"),
    Comparison("ece-top-label", "ECE, top label", "ece_top_label", "ece_top_label_floor", "table1_ece"),
    Comparison("hits20", "Hits@20", "hits@20", None, "table2_hits20", only_published=True),
    Comparison(
        "ablation", "ECE of the ablation", "ece", "ece_floor", "table3_ablation_ece", only_published=True
    ),
    Comparison("hits20-all", "Hits@20, all rows", "hits@20", None, "table9_hits20_all"),
    Comparison("nll", "Negative log-likelihood", "nll", percent=False),
    Comparison("brier", "Brier score", "brier", percent=False),
)


def comparison_table(records: pd.DataFrame, kind: Comparison, fit_on: str, *, scope: str = "") -> Table:
    """Compare all calibrators on one metric, row by row.

    Parameters
    ----------
    records : DataFrame
        Checked records of one scope.
    kind : Comparison
    fit_on : str
        What the calibrators were fitted on.
    scope : str
        Words for the caption.

    Returns
    -------
    Table
        Two lines for each data set and model: ours (mean, standard deviation over seeds, noise floor) and
        the paper's. The last column has the p-value of the best against the second best.
    """
    published = _published(kind)
    values = seed_values(records, kind.metric, fit_on=fit_on)
    rows, calibrators = _outline(records, values, published, kind)
    summary = summarise(values)
    floors = None if kind.floor is None else summarise(seed_values(records, kind.floor, fit_on=fit_on))
    full = int(summary["n"].max()) if len(summary) else 0
    links = _test_links(records, fit_on)
    lines: list[tuple[Cell, ...]] = []
    data: list[dict[str, object]] = []
    for dataset, model in rows:
        best, test = _best(values, (dataset, model), calibrators, METRICS[kind.metric].higher_is_better)
        ours = [Cell(dataset), Cell(model), Cell("ours"), Cell(links.get((dataset, model), MISSING))]
        theirs = [Cell(""), Cell(""), Cell("paper"), Cell("")]
        for calibrator in calibrators:
            key = (dataset, model, calibrator)
            found, floor = row_at(summary, key), row_at(floors, key)
            printed = row_at(published, (dataset, base_model(model), calibrator))
            ours.append(Cell(entry(found, floor, kind.percent, full), strong=calibrator in best))
            theirs.append(Cell(entry(printed, None, kind.percent, None)))
            data.append(_record(key, kind, fit_on, found, floor, printed, calibrator in best, test))
        lines.append((*ours, Cell(_verdict(test))))
        if any(cell.text != MISSING for cell in theirs[4:]):
            lines.append((*theirs, Cell("")))
    header = ("data set", "model", "source", "links", *calibrators, "p, best vs second")
    source = f"{published_origin(kind.published)}: " if kind.published else ""
    title = f"{source}{kind.title}, fitted on {fit_on}"
    caption = _caption(values, kind, full, scope)
    if kind.metric == "hits@20":
        caption = sentences("", caption, few_negatives_note(records))
    return Table(f"{kind.name}-{fit_on}", title, caption, header, tuple(lines), pd.DataFrame(data), 4)


def _test_links(records: pd.DataFrame, fit_on: str) -> dict[tuple[str, str], str]:
    """Test links + non-links of each row: an ECE says nothing without their number and ratio."""
    here = records[(records["part"] == "test") & (records["fit_on"] == fit_on)]
    texts: dict[tuple[str, str], str] = {}
    for metric in ("positives", "negatives"):
        numbers: dict[tuple[str, str], set[int]] = {}
        chosen = here.loc[here["metric"] == metric, ["dataset", "model", "value"]]
        for dataset, model, value in chosen.dropna().itertuples(index=False, name=None):
            numbers.setdefault((str(dataset), str(model)), set()).add(round(value))
        for row, counts in numbers.items():
            text = "-".join(map(str, sorted({min(counts), max(counts)})))
            texts[row] = f"{texts[row]} + {text}" if row in texts else text
    return texts


def _published(kind: Comparison) -> pd.DataFrame:
    """Published mean and std by dataset, model, calibrator; as fractions where ours are."""
    if kind.published is None:
        return pd.DataFrame({"mean": [], "std": []}, index=pd.MultiIndex.from_arrays([[], [], []]))
    sheet = published_values(kind.published).set_index(["dataset", "model", "calibrator"])
    return sheet[["mean", "std"]] / 100.0


def _outline(
    records: pd.DataFrame, values: pd.DataFrame, published: pd.DataFrame, kind: Comparison
) -> tuple[list[tuple[str, str]], list[str]]:
    """Rows and columns of a table. Rows measured with any other fit_on are kept, as missing."""
    named = published.index.to_frame(index=False)
    named.columns = pd.Index(["dataset", "model", "calibrator"])
    if kind.only_published:
        return row_order(named), in_order(named["calibrator"].unique(), CALIBRATORS)
    names = {*values.columns, *named["calibrator"]}
    return row_order(records, named), in_order(names, CALIBRATORS)


def _best(
    values: pd.DataFrame, row: tuple[str, str], calibrators: list[str], higher: bool
) -> tuple[frozenset[str], PairedTest | None]:
    """Calibrators with the best mean over all seeds of the row, and the test of first against second.

    A calibrator that lacks seeds is measured on other models than the rest, so it is no candidate.
    """
    here = values_of_row(values, row)
    here = here[[name for name in calibrators if name in here]].dropna(how="all").dropna(axis=1)
    if here.empty:
        return frozenset(), None
    means = here.mean().sort_values(ascending=not higher, kind="stable")
    best = frozenset(means.index[means == means.iloc[0]])
    if len(means) < 2:
        return best, None
    runs = here.index.get_level_values("train_seed")
    difference = (here[means.index[1]] - here[means.index[0]]).to_numpy()
    return best, paired_t_test(difference, runs=runs)


def _verdict(test: PairedTest | None) -> str:
    if test is None:
        return MISSING
    if np.isnan(test.p_value):
        return "one seed"
    mark = "" if test.is_significant(_ALPHA) else " \N{ALMOST EQUAL TO}"
    return f"{test.p_value:.3f}{mark}"


def _record(
    key: tuple[str, str, str],
    kind: Comparison,
    fit_on: str,
    found: Found,
    floor: Found,
    printed: Found,
    best: bool,
    test: PairedTest | None,
) -> dict[str, object]:
    """One line of the long form: fractions, not percent."""
    nan = float("nan")
    mean = nan if found is None else float(found["mean"])
    paper = nan if printed is None else float(printed["mean"])
    return {
        "dataset": key[0],
        "model": key[1],
        "calibrator": key[2],
        "fit_on": fit_on,
        "metric": kind.metric,
        "mean": mean,
        "std": nan if found is None else float(found["std"]),
        "n": 0 if found is None else int(found["n"]),
        "n_train_seeds": 0 if found is None else int(found["n_train"]),
        "floor": nan if floor is None else float(floor["mean"]),
        "published_mean": paper,
        "published_std": nan if printed is None else float(printed["std"]),
        "difference": mean - paper,
        "best": best,
        "p_best_vs_second": nan if test is None else test.p_value,
    }


def _caption(values: pd.DataFrame, kind: Comparison, full: int, scope: str) -> str:
    """Units, seeds, marks and the test, in plain sentences."""
    levels = [values.index.get_level_values(name).nunique() for name in ("train_seed", "calibration_seed")]
    unit = "Percent." if kind.percent else "Nats." if kind.metric == "nll" else "Fractions."
    return sentences(
        scope,
        unit,
        f"Mean \N{PLUS-MINUS SIGN} standard deviation over {full} values unless an entry gives another n "
        f"(at most {levels[0]} training seeds x {levels[1]} calibration seeds).",
        _ONE_TRAINING_NOTE if levels[0] == 1 else "",
        _LINKS_NOTE,
        _FLOOR_NOTE if kind.floor else "",
        _BEST_NOTE,
        f"{MISSING}: no value.",
        "The paper's values are for calibrators fitted on training links." if kind.published else "",
        _MIXED_NOTE if kind.published in _MIXED_SHEETS else "",
        _ODDITIES.get(kind.published or "", ""),
    )
