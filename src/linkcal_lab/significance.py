"""Tests of significance over data sets and models."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from linkcal._core.validation import check_choice, check_fraction, check_positive_int, check_scores
from linkcal.calibrators import CALIBRATORS
from linkcal.exceptions import InputError
from linkcal.metrics.registry import COLUMNS
from linkcal_lab.aggregate import base_model, fit_on_order, in_order, row_order, seed_values, values_of_row
from linkcal_lab.formats import MISSING, Table, TableBuilder, sentences, shown
from linkcal_lab.published import published_sheet, published_values

# Significance of differences between calibrators: paired tests over seeds, rank tests over rows.

FloatArray = NDArray[np.float64]
Alternative = Literal["two-sided", "greater", "less"]
_ALTERNATIVES = ("two-sided", "greater", "less")


class PairedTest(NamedTuple):
    """Outcome of a paired test with its name; `alternative` says what the differences are under it.

    `n` counts the independent differences that the test saw. `p_value` is NaN if there are too few.
    """

    p_value: float
    n: int
    alternative: Alternative
    test: str

    def is_significant(self, alpha: float = 0.05) -> bool:
        """Whether the null hypothesis is rejected: p < alpha; never with too few differences."""
        return bool(self.p_value < check_fraction(alpha, "alpha"))


def _averaged(differences: Any, runs: Any) -> FloatArray:
    """Check differences; average those of one run."""
    values = check_scores(differences, "differences")
    if runs is None:
        return values
    names = np.asarray(runs)
    if names.shape != values.shape:
        raise InputError(f"runs must have one name per difference, {values.size}, got shape {names.shape}")
    means = pd.Series(values).groupby(names, sort=True).mean()
    return np.asarray(means, dtype=np.float64)


def wilcoxon_signed_rank(
    differences: Any, *, runs: Any = None, alternative: Alternative = "two-sided"
) -> PairedTest:
    """Test paired differences by Wilcoxon's signed ranks.

    Parameters
    ----------
    differences : array-like (n,), finite
        Baseline minus method: positive where the method has the lower error.
    runs : array-like (n,), optional
        The trained model that each difference comes from. Calibrations of one model are no independent
        observations: with `runs` they are averaged first, and `n` of the result is the number of runs.
    alternative : {"two-sided", "greater", "less"}
        "greater": the differences lie above zero.

    Returns
    -------
    PairedTest
        p = 1 if all differences are zero: no evidence, not an error.

    Notes
    -----
    ``scipy.stats.wilcoxon`` with its defaults: zeros are dropped; the law of the statistic is exact up to 50
    differences, or up to 13 if some are zero or tie, and normal (corrected for ties) beyond. With n
    differences the smallest two-sided p is ``2 ** (1 - n)``: five runs cannot be significant at 5 %, six can.

    Examples
    --------
    >>> five = [0.011, 0.009, 0.013, 0.007, 0.012]
    >>> wilcoxon_signed_rank(five).p_value, wilcoxon_signed_rank(five, alternative="greater").p_value
    (0.0625, 0.03125)
    """
    check_choice(alternative, "alternative", _ALTERNATIVES)
    values = _averaged(differences, runs)
    if not values.size:
        p_value = float("nan")
    elif not values.any():
        p_value = 1.0
    else:
        p_value = float(stats.wilcoxon(values, alternative=alternative).pvalue)
    return PairedTest(p_value, int(values.size), alternative, "Wilcoxon signed-rank")


def paired_t_test(
    differences: Any, *, runs: Any = None, alternative: Alternative = "two-sided"
) -> PairedTest:
    """Test by Student's t whether paired differences average zero.

    Parameters
    ----------
    differences : array-like (n,), finite
    runs : array-like (n,), optional
        As in :func:`wilcoxon_signed_rank`.
    alternative : {"two-sided", "greater", "less"}

    Returns
    -------
    PairedTest
        NaN for fewer than two (averaged) differences; for equal ones p is 1 if they are zero, and 0 (or 1 in
        the wrong direction) if not.

    Examples
    --------
    >>> round(paired_t_test([1.0, 2.0, 3.0]).p_value, 4)
    0.0742
    """
    check_choice(alternative, "alternative", _ALTERNATIVES)
    values = _averaged(differences, runs)
    name = "paired t"
    if values.size < 2:
        return PairedTest(float("nan"), int(values.size), alternative, name)
    if np.ptp(values) <= 1e-12 * np.abs(values).max():
        sign = float(np.sign(values[0]))
        wrong = {"two-sided": sign == 0, "greater": sign <= 0, "less": sign >= 0}[alternative]
        return PairedTest(float(wrong), int(values.size), alternative, name)
    p_value = float(stats.ttest_1samp(values, 0.0, alternative=alternative).pvalue)
    return PairedTest(p_value, int(values.size), alternative, name)


class RankTest(NamedTuple):
    """Mean rank and share of rows won (ties shared) by method, with Friedman's and Nemenyi's tests.

    Parameters
    ----------
    mean_rank, share_won : Series
        By method.
    n_rows : int
        Rows that were ranked.
    statistic, p_value : float
        Friedman's.
    critical_difference : float
        Nemenyi's, of two mean ranks.
    """

    mean_rank: pd.Series
    share_won: pd.Series
    n_rows: int
    statistic: float
    p_value: float
    critical_difference: float


def nemenyi_critical_difference(n_methods: int, n_rows: int, alpha: float = 0.05) -> float:
    """Difference of mean ranks beyond which two methods differ (Nemenyi).

    Parameters
    ----------
    n_methods : int
        k, at least 2.
    n_rows : int
        N, at least 1.
    alpha : float in (0, 1)

    Returns
    -------
    float

    Notes
    -----
    ``q sqrt(k (k + 1) / (6 N))``, q the upper `alpha` quantile of the studentized range of k values with
    infinitely many degrees of freedom, over ``sqrt(2)``.

    References
    ----------
    Demsar: Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006.

    Examples
    --------
    >>> round(nemenyi_critical_difference(4, 14), 2)
    1.25
    """
    k = check_positive_int(n_methods, "n_methods", minimum=2)
    n = check_positive_int(n_rows, "n_rows")
    q = stats.studentized_range.ppf(1.0 - check_fraction(alpha, "alpha"), k, np.inf) / np.sqrt(2.0)
    return float(q * np.sqrt(k * (k + 1) / (6.0 * n)))


def friedman_nemenyi(
    values: pd.DataFrame, *, higher_is_better: bool = False, alpha: float = 0.05
) -> RankTest:
    """Rank methods within each row and test whether their mean ranks differ.

    Parameters
    ----------
    values : DataFrame (N, k)
        A row for each problem, a column for each method. Rows with a missing value are left out and not
        counted in ``n_rows``.
    higher_is_better : bool
    alpha : float in (0, 1)
        Level of the critical difference.

    Returns
    -------
    RankTest
        Rank 1 is best; ties share the mean of their ranks. Friedman's statistic and p are NaN with fewer than
        three methods or two rows, and the critical difference is NaN with fewer than two methods or no row.

    Examples
    --------
    >>> table = pd.DataFrame({"a": [1.0, 1.0], "b": [2.0, 1.0], "c": [3.0, 2.0]})
    >>> test = friedman_nemenyi(table)
    >>> test.mean_rank.tolist(), test.share_won.tolist()
    ([1.25, 1.75, 3.0], [0.75, 0.25, 0.0])
    """
    complete = values.dropna()
    n_rows, n_methods = complete.shape
    ranks = (-complete if higher_is_better else complete).rank(axis=1)
    best = ranks.eq(ranks.min(axis=1), axis=0)
    won = best.div(best.sum(axis=1), axis=0).mean()
    statistic = p_value = critical = float("nan")
    # Rows in which all methods tie leave Friedman's statistic undefined.
    if n_methods >= 3 and n_rows >= 2 and bool((ranks.nunique(axis=1) > 1).any()):
        outcome = stats.friedmanchisquare(*(ranks[name].to_numpy() for name in ranks))
        statistic, p_value = float(outcome.statistic), float(outcome.pvalue)
    if n_methods >= 2 and n_rows >= 1:
        critical = nemenyi_critical_difference(n_methods, n_rows, alpha)
    return RankTest(ranks.mean(), won, n_rows, statistic, p_value, critical)


# Tables of tests: In-n-Out against the best baseline by row, and ranks of all calibrators over rows.

#: Level of all tests.
ALPHA = 0.05
#: Metrics by which calibrators are ranked.
RANKED_METRICS = ("ece", "ece_top_label", "nll", "brier")
#: Baselines of the paper, the uncalibrated predictor among them.
_BASELINES = tuple(
    name for name in dict.fromkeys(published_values("table1_ece")["calibrator"]) if name != "in-n-out"
)
# Column, whether calibrations are averaged inside each training seed, and the alternative.
_TESTS: tuple[tuple[str, bool, Alternative], ...] = (
    ("averaged, two-sided", True, "two-sided"),
    ("averaged, one-sided (lower)", True, "greater"),
    ("nested, two-sided", False, "two-sided"),
    ("nested, one-sided (lower)", False, "greater"),
)
_PAPER = {"yes": "yes", "no": "no", "": "not tested"}


def wilcoxon_table(records: pd.DataFrame, fit_on: str, *, method: str = "in-n-out", scope: str = "") -> Table:
    """Test by Wilcoxon's signed ranks whether `method` has a lower ECE than the best baseline of its row.

    Each test twice (calibration seeds averaged inside each training seed; all values as if they were
    independent, which they are not) under each of two alternatives, and the paper's verdict.
    """
    values = seed_values(records, "ece", fit_on=fit_on)
    sheet = published_sheet("wilcoxon").set_index("model")
    named = pd.DataFrame([(d, m) for m in sheet.index for d in sheet.columns], columns=["dataset", "model"])
    builder = TableBuilder()
    for dataset, model in row_order(records, named):
        paired = _paired(values, (dataset, model), method)
        paper = MISSING
        base = base_model(model)
        if method == "in-n-out" and base in sheet.index and dataset in sheet.columns:
            paper = _PAPER[str(sheet.at[base, dataset])]
        texts, tested = _wilcoxon_row(paired, method)
        builder.row(dataset, model, *texts, paper)
        for values_of_test in tested:
            builder.record(dataset=dataset, model=model, **values_of_test, paper=paper)
    title = f"Wilcoxon tests: {method} against the best baseline, fitted on {fit_on}"
    return builder.table(
        f"wilcoxon-{method}-{fit_on}", title, _wilcoxon_caption(method, scope),
        "data set", "model", "best baseline", "its ECE", f"ECE of {method}", "n averaged", "n nested",
        *(name for name, *_ in _TESTS), "paper", n_labels=3,
    )  # fmt: skip


def _paired(values: pd.DataFrame, row: tuple[str, str], method: str) -> pd.DataFrame | None:
    """ECE of method and of the best baseline for the seeds that have both; None without any."""
    if method not in values:
        return None
    here = values_of_row(values, row).dropna(subset=[method])
    # As in the tables of one metric, a baseline that lacks seeds is no candidate.
    baselines = here[[name for name in _BASELINES if name in here and name != method]].dropna(axis=1)
    if baselines.empty or not len(here):
        return None
    best = str(baselines.mean().idxmin())
    return here[[best, method]]


def _wilcoxon_row(paired: pd.DataFrame | None, method: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Entries between the row's name and the paper's verdict, and the same in long form."""
    if paired is None:
        return [MISSING] * (5 + len(_TESTS)), [
            {"baseline": "", "baseline_ece": np.nan, "method": method, "method_ece": np.nan, "n": 0,
             "nested": not averaged, "alternative": alternative, "p_value": np.nan, "significant": ""}
            for _, averaged, alternative in _TESTS
        ]  # fmt: skip
    baseline = str(paired.columns[0])
    difference = (paired[baseline] - paired[method]).to_numpy()
    runs = paired.index.get_level_values("train_seed")
    means = paired.mean()
    texts = [baseline, *(f"{100 * means[name]:.2f}" for name in (baseline, method))]
    texts += [str(runs.nunique()), str(len(runs))]
    data: list[dict[str, Any]] = []
    for _, averaged, alternative in _TESTS:
        test = wilcoxon_signed_rank(difference, runs=runs if averaged else None, alternative=alternative)
        if averaged and test.n < 2:
            # A test needs differences between trainings; p = 1 would look like one that was made.
            test = test._replace(p_value=float("nan"))
        verdict = "yes" if test.is_significant(ALPHA) else "no"
        if verdict == "yes" and means[method] > means[baseline]:
            verdict = "yes (worse)"
        untested = np.isnan(test.p_value)
        texts.append("one seed" if untested else f"{test.p_value:.3g} {verdict}")
        data.append(
            {"baseline": baseline, "baseline_ece": means[baseline], "method": method,
             "method_ece": means[method], "n": test.n, "nested": not averaged, "alternative": alternative,
             "p_value": test.p_value, "significant": "" if untested else verdict}
        )  # fmt: skip
    return texts, data


def _wilcoxon_caption(method: str, scope: str) -> str:
    return sentences(
        scope,
        "ECE in percent, positive class. p-value, and whether it is below 5 %, of the differences 'best "
        f"baseline minus {method}', seed by seed. One-sided: the alternative is that {method} has the lower "
        "ECE.",
        "Averaged: calibration seeds are averaged inside each training seed, so that the differences are "
        "independent; n of them have a two-sided p of at least 2^(1 - n) and a one-sided p of at least 2^-n, "
        "0.0625 and 0.03125 for five; with one training seed there is nothing to test.",
        "Nested: all training x calibration seeds as if they were independent, which they are not. The "
        "alternative of the paper's test is not known.",
        "The best baseline is the one with the lowest mean ECE on test links among "
        f"{', '.join(_BASELINES)}. {MISSING}: no value, or not in the paper's table.",
    )


def ranking_table(records: pd.DataFrame, *, scope: str = "") -> Table:
    """Mean rank of every calibrator over rows, share of rows won, Friedman and critical difference.

    A block of lines for each of what calibrators were fitted on.
    """
    builder = TableBuilder()
    notes = []
    for fit_on in fit_on_order(records):
        counts = set()
        tests = []
        for metric in RANKED_METRICS:
            test, left_out = _ranks(records, metric, fit_on)
            tests.append(test)
            counts.add((test.n_rows, left_out))
            for name in test.mean_rank.index:
                builder.record(
                    fit_on=fit_on, metric=metric, calibrator=name, mean_rank=test.mean_rank[name],
                    share_won=test.share_won[name], n_rows=test.n_rows, n_rows_left_out=left_out,
                    friedman_statistic=test.statistic, friedman_p=test.p_value,
                    critical_difference=test.critical_difference,
                )  # fmt: skip
        notes.append(
            f"fitted on {fit_on}: " + ", ".join(f"{n} rows, {out} left out" for n, out in sorted(counts))
        )
        for calibrator in in_order(tests[0].mean_rank.index, CALIBRATORS):
            entries = []
            for test in tests:
                rank, won = float(test.mean_rank[calibrator]), float(test.share_won[calibrator])
                near = rank <= test.mean_rank.min() + test.critical_difference
                entries += [shown(rank, "{:.2f}", strong=bool(near)), shown(100 * won, "{:.0f} %")]
            builder.row(fit_on, calibrator, *entries)
        friedman = [(shown(test.p_value, "{:.2g}"), "") for test in tests]
        critical = [(shown(test.critical_difference, "{:.2f}"), "") for test in tests]
        for name, pairs in (("Friedman p", friedman), ("critical difference", critical)):
            builder.row(fit_on, name, *(each for pair in pairs for each in pair))
    caption = sentences(
        scope,
        "Ranks (1 is best) of the mean over the seeds that all calibrators have, a row being a data set and "
        "model; won: share of rows won, ties shared. A row without such a seed is left out: "
        f"{'; '.join(notes)}.",
        "Friedman: p-value of equal mean ranks. Critical difference: mean ranks closer than this cannot be "
        "told apart at 5 % (Nemenyi). Bold: best, and all within the critical difference of it. Rows of one "
        "data set share its graph, so that these p-values are too small.",
    )
    columns = (f"{metric} {what}" for metric in RANKED_METRICS for what in ("mean rank", "won"))
    return builder.table(
        "ranking", "Ranking of the calibrators", caption, "fitted on", "calibrator", *columns
    )


def _ranks(records: pd.DataFrame, metric: str, fit_on: str) -> tuple[RankTest, int]:
    """Ranks by one metric, and the number of rows left out."""
    values = seed_values(records, metric, fit_on=fit_on)
    rows = pd.MultiIndex.from_frame(values.index.to_frame()[["dataset", "model"]].drop_duplicates())
    # Means over different seeds are means over different models: only seeds that all calibrators have count.
    means = values.dropna().groupby(level=["dataset", "model"]).mean().reindex(rows)
    higher = bool(COLUMNS[metric].higher_is_better)
    test = friedman_nemenyi(means, higher_is_better=higher, alpha=ALPHA)
    return test, len(means) - test.n_rows
