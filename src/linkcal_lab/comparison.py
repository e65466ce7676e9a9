"""Measured values beside the published ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from linkcal.calibrators import CALIBRATORS
from linkcal.metrics.registry import COLUMNS
from linkcal_lab.aggregate import base_model, fit_on_order, in_order, row_order, seed_values, summarise
from linkcal_lab.formats import (
    MISSING,
    Entry,
    Table,
    TableBuilder,
    by_key,
    few_negatives_note,
    mean_text,
    sentences,
    shown,
)
from linkcal_lab.published import published_origin, published_values
from linkcal_lab.significance import ALPHA, PairedTest, paired_t_test

# Tables of one metric: every calibrator of every row, the published value under ours.

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
_LINKS_NOTE = "Links: test links + negatives (least-most over seeds) that the entries rest on."
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
    """

    name: str
    title: str
    metric: str
    floor: str | None = None
    published: str | None = None
    only_published: bool = False

    @property
    def percent(self) -> bool:
        """Whether values are shown in percent."""
        return COLUMNS[self.metric].unit == "%"


#: The tables of one metric, in the order of the paper.
COMPARISONS = (
    Comparison("ece", "ECE, positive class", "ece", "ece_floor", "table1_ece"),
    Comparison("ece-top-label", "ECE, top label", "ece_top_label", "ece_top_label_floor", "table1_ece"),
    Comparison("hits20", "Hits@20", "hits@20", None, "table2_hits20", only_published=True),
    Comparison(
        "ablation", "ECE of the ablation", "ece", "ece_floor", "table3_ablation_ece", only_published=True
    ),
    Comparison("hits20-all", "Hits@20, all rows", "hits@20", None, "table9_hits20_all"),
    Comparison("nll", "Negative log-likelihood", "nll"),
    Comparison("brier", "Brier score", "brier"),
)


def comparison_table(records: pd.DataFrame, kind: Comparison, fit_on: str, *, scope: str = "") -> Table:
    """Compare all calibrators on one metric, row by row, in checked records of one scope.

    Two lines for each data set and model: ours (mean, standard deviation over seeds, noise floor) and the
    paper's. The last column has the p-value of the best against the second best.
    """
    published = _published(kind)
    values = seed_values(records, kind.metric, fit_on=fit_on)
    rows, calibrators = _outline(records, values, published, kind)
    summary = summarise(values)
    floors = {}
    if kind.floor is not None:
        floors = by_key(summarise(seed_values(records, kind.floor, fit_on=fit_on)))
    full = int(summary["n"].max()) if len(summary) else 0
    measured, printed_values = by_key(summary), by_key(published)
    links = _test_links(records, fit_on)
    higher = bool(COLUMNS[kind.metric].higher_is_better)
    builder = TableBuilder()
    seeds_of = dict(iter(values.groupby(level=["dataset", "model"])))
    for dataset, model in rows:
        best, test = _best(seeds_of.get((dataset, model)), calibrators, higher)
        ours: list[Entry] = []
        theirs: list[str] = []
        for calibrator in calibrators:
            key = (dataset, model, calibrator)
            found, floor = measured.get(key), floors.get(key)
            printed = printed_values.get((dataset, base_model(model), calibrator))
            ours.append(Entry(mean_text(found, floor, kind.percent, full), calibrator in best))
            theirs.append(mean_text(printed, None, kind.percent, None))
            mean = np.nan if found is None else found["mean"]
            paper = np.nan if printed is None else printed["mean"]
            builder.record(
                dataset=dataset, model=model, calibrator=calibrator, fit_on=fit_on, metric=kind.metric,
                mean=mean, std=np.nan if found is None else found["std"],
                n=0 if found is None else int(found["n"]),
                n_train_seeds=0 if found is None else int(found["n_train"]),
                floor=np.nan if floor is None else floor["mean"],
                published_mean=paper, published_std=np.nan if printed is None else printed["std"],
                difference=mean - paper, best=calibrator in best,
                p_best_vs_second=np.nan if test is None else test.p_value,
            )  # fmt: skip
        builder.row(dataset, model, "ours", links.get((dataset, model), MISSING), *ours, _verdict(test))
        if set(theirs) != {MISSING}:
            builder.row("", "", "paper", "", *theirs, "")
    source = f"{published_origin(kind.published)}: " if kind.published else ""
    caption = _caption(values, kind, full, scope)
    if kind.metric == "hits@20":
        caption = sentences("", caption, few_negatives_note(records))
    return builder.table(
        f"{kind.name}-{fit_on}", f"{source}{kind.title}, fitted on {fit_on}", caption,
        "data set", "model", "source", "links", *calibrators, "p, best vs second", n_labels=4,
    )  # fmt: skip


def _test_links(records: pd.DataFrame, fit_on: str) -> dict[tuple[str, str], str]:
    """Test links + negatives of each row: an ECE says nothing without their number and ratio."""
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
    here: pd.DataFrame | None, calibrators: list[str], higher: bool
) -> tuple[frozenset[str], PairedTest | None]:
    """Calibrators with the best mean over all seeds of a row, and the test of first against second.

    A calibrator that lacks seeds is measured on other models than the rest, so it is no candidate.
    """
    if here is None:
        return frozenset(), None
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
    mark = "" if test.is_significant(ALPHA) else " \N{ALMOST EQUAL TO}"
    return f"{test.p_value:.3f}{mark}"


def _caption(values: pd.DataFrame, kind: Comparison, full: int, scope: str) -> str:
    """Units, seeds, marks and the test, in plain sentences."""
    levels = [values.index.get_level_values(name).nunique() for name in ("train_seed", "calibration_seed")]
    unit = {"%": "Percent.", "nats": "Nats."}.get(COLUMNS[kind.metric].unit, "Fractions.")
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


# How far our values are from the published ones: by calibrator over all rows, and row by row.

_SHEET = "table1_ece"
_MODELS_SHEET = "table8_gnn_performance"
_READINGS = ("ece", "ece_top_label")
#: Two values this close agree, in fractions: about the spread between trainings.
_NEAR = 0.03


def agreement_table(records: pd.DataFrame, *, scope: str = "") -> Table:
    """Differences between the means of our rows and the published ones, summed up over rows.

    A line for each of what calibrators were fitted on, reading of ECE and calibrator of the paper's table:
    rows that both have, median difference (ours less the paper's), its quartiles, and the share of rows
    within three points and of rows where ours is lower.
    """
    paper = published_values(_SHEET).set_index(["dataset", "model", "calibrator"])["mean"] / 100
    builder = TableBuilder()
    for fit_on in fit_on_order(records):
        for metric in _READINGS:
            means = _row_means(records, metric, fit_on)
            for name in dict.fromkeys(paper.index.get_level_values("calibrator")):
                # A calibrator that was not fitted has no row.
                ours = means[name] if name in means else means.iloc[:0].mean(axis=1)
                found = _differences(ours, paper.xs(name, level="calibrator"))
                builder.record(fit_on=fit_on, metric=metric, calibrator=name, **found)
                texts = [MISSING] * 4
                if found["n_rows"]:
                    quartiles = f"{100 * found['lower']:+.1f} to {100 * found['upper']:+.1f}"
                    shares = (f"{100 * found[key]:.0f} %" for key in ("near", "ours_lower"))
                    texts = [f"{100 * found['median']:+.1f}", quartiles, *shares]
                builder.row(fit_on, metric, name, f"{found['n_rows']:.0f}", *texts)
    caption = sentences(
        scope,
        f"ECE of our rows (mean over seeds) less that of {published_origin(_SHEET)}, in points, over the "
        "rows (data set and model) that both have. The paper fits on training links. Near: within "
        f"{100 * _NEAR:g} points.",
    )
    return builder.table(
        "agreement", "Our ECE against the published one", caption,
        "fitted on", "reading", "calibrator", "rows", "median", "quartiles", "near", "ours lower", n_labels=3,
    )  # fmt: skip


def _row_means(records: pd.DataFrame, metric: str, fit_on: str) -> pd.DataFrame:
    """Means over seeds by data set and model, a column for each calibrator."""
    return seed_values(records, metric, fit_on=fit_on).groupby(level=["dataset", "model"]).mean()


def _differences(ours: pd.Series, published: pd.Series) -> dict[str, float]:
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


def agreement_rows_table(records: pd.DataFrame, fit_on: str, *, scope: str = "") -> Table:
    """Differences to the published values in each row: first of the model itself, then of its calibrators.

    A line for each row (data set and model) that was measured: our AUC of the uncalibrated predictor and our
    ECE of every calibrator of the paper's table (mean over seeds) less the published ones, In-n-Out under
    both readings of ECE. A row or calibrator that the paper lacks is shown as missing.
    """
    columns = _row_columns()
    means = {metric: _row_means(records, metric, fit_on) for metric in ("auc", *_READINGS)}
    builder = TableBuilder()
    for dataset, model in row_order(records[records["fit_on"] == fit_on]):
        entries = []
        for metric, name, published in columns:
            frame = means[metric]
            ours = float(frame[name].get((dataset, model), np.nan)) if name in frame else np.nan
            paper = float(published.get((dataset, base_model(model)), np.nan))
            shift = ours - paper
            near = abs(shift) <= _NEAR
            entries.append(shown(100 * shift, "{:+.1f}", strong=near))
            builder.record(
                dataset=dataset, model=model, fit_on=fit_on, metric=metric, calibrator=name, mean=ours,
                published_mean=paper, difference=shift, near=near,
            )  # fmt: skip
        builder.row(dataset, model, *entries)
    caption = sentences(
        scope,
        f"Ours (mean over seeds) less {published_origin(_SHEET)} (ECE) and {published_origin(_MODELS_SHEET)} "
        f"(AUC), in points; bold: within {100 * _NEAR:g}. The paper fits on training links. Where the AUC is "
        "not near, the model is another one than the paper's, and so is what there is to calibrate.",
        f"{MISSING}: not measured, or not in the paper.",
    )
    return builder.table(
        f"agreement-rows-{fit_on}", f"Our rows against the published ones, fitted on {fit_on}", caption,
        "data set", "model", *(f"{metric} {name}" for metric, name, _ in columns),
    )  # fmt: skip


def _row_columns() -> list[tuple[str, str, pd.Series]]:
    """Metric, calibrator and published mean by data set and model, a fraction, of each column."""
    ece = published_values(_SHEET).set_index(["dataset", "model", "calibrator"])["mean"] / 100
    auc = published_values(_MODELS_SHEET).set_index(["dataset", "model", "metric"])["mean"] / 100
    columns = [("auc", "uncalibrated", auc.xs("auc", level="metric"))]
    names = dict.fromkeys(ece.index.get_level_values("calibrator"))
    columns += [("ece", name, ece.xs(name, level="calibrator")) for name in names]
    return [*columns, ("ece_top_label", "in-n-out", ece.xs("in-n-out", level="calibrator"))]
