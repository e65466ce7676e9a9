"""Significance of differences between calibrators: paired tests over seeds, rank tests over rows."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from linkcal._validation import check_choice, check_fraction, check_positive_int, check_scores
from linkcal.exceptions import InputError

__all__ = [
    "Alternative",
    "PairedTest",
    "RankTest",
    "friedman_nemenyi",
    "nemenyi_critical_difference",
    "paired_t_test",
    "wilcoxon_signed_rank",
]

FloatArray = NDArray[np.float64]
Alternative = Literal["two-sided", "greater", "less"]
_ALTERNATIVES = ("two-sided", "greater", "less")


class PairedTest(NamedTuple):
    """Outcome of a paired test; `alternative` says what the differences are under it.

    `n` counts the independent differences that the test saw. `p_value` is NaN if there are too few.

    Parameters
    ----------
    p_value : float in [0, 1] or NaN
    n : int
    alternative : str
    test : str
        Name of the test.
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

    Raises
    ------
    InputError
        If an argument has the wrong shape or content.

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

    Raises
    ------
    InputError
        If an argument has the wrong shape or content.

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

    Raises
    ------
    InputError
        If an argument is out of range.

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
