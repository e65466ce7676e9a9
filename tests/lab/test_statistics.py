"""Paired and rank tests: by hand, against scipy, and public failure cases."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from linkcal.exceptions import InputError
from linkcal_lab.significance import (
    friedman_nemenyi,
    nemenyi_critical_difference,
    paired_t_test,
    wilcoxon_signed_rank,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("differences", "alternative", "p_value"),
    [
        # Case 03: five runs cannot be significant two-sided, whatever they are; six can.
        ([0.011, 0.009, 0.013, 0.007, 0.012], "two-sided", 0.0625),
        ([0.011, 0.009, 0.013, 0.007, 0.012], "greater", 0.03125),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "two-sided", 0.03125),
        *(([0.0] * 5, alternative, 1.0) for alternative in ("two-sided", "greater", "less")),
    ],
)
def test_wilcoxon_of_few_runs(differences, alternative, p_value):
    test = wilcoxon_signed_rank(differences, alternative=alternative)
    assert (test.p_value, test.n, test.alternative) == (p_value, len(differences), alternative)
    assert test.is_significant() is (p_value < 0.05)


def test_calibrations_of_one_model_are_averaged_first():
    differences = RNG.normal(0.01, 0.001, 25)
    averaged = wilcoxon_signed_rank(differences, runs=np.repeat(np.arange(5), 5))
    assert averaged == wilcoxon_signed_rank(differences.reshape(5, 5).mean(axis=1))
    assert (averaged.n, averaged.p_value) == (5, 0.0625)
    nested = wilcoxon_signed_rank(differences)
    assert nested.n == 25
    assert nested.p_value < 1e-6
    unequal = wilcoxon_signed_rank([1.0, 5.0, 3.0, 2.0], runs=["b", "a", "b", "c"])
    assert unequal == wilcoxon_signed_rank([5.0, 2.0, 2.0])


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("n", [7, 60])
def test_wilcoxon_is_scipys(n, alternative):
    differences = RNG.normal(0.2, 1.0, n)
    expected = stats.wilcoxon(differences, alternative=alternative).pvalue
    assert wilcoxon_signed_rank(differences, alternative=alternative).p_value == expected


@pytest.mark.parametrize("differences", [[0, 1, 1, -2, 3, 4], [0, 0, -1, 2, 2, 3, 5], [1, 1, 1, 1, -1, 2]])
def test_wilcoxon_with_zeros_and_ties_counts_all_signs(differences):
    ranked = np.array([value for value in differences if value], dtype=float)
    ranks = stats.rankdata(np.abs(ranked))
    seen = ranks[ranked > 0].sum()
    sums = [ranks[list(signs)].sum() for signs in itertools.product([False, True], repeat=ranks.size)]
    greater, less = np.mean(np.array(sums) >= seen), np.mean(np.array(sums) <= seen)
    one = wilcoxon_signed_rank(differences, alternative="greater").p_value
    assert one == pytest.approx(greater, rel=1e-12)
    two = wilcoxon_signed_rank(differences).p_value
    assert two == pytest.approx(min(1.0, 2 * min(greater, less)), rel=1e-12)


def test_wrong_arguments():
    for differences, options in (
        ([1.0], {"alternative": "lower"}),
        ([1.0, np.nan], {}),
        ([1.0, 2.0], {"runs": [0]}),
    ):
        with pytest.raises(InputError):
            wilcoxon_signed_rank(differences, **options)


def test_t_test_by_hand():
    # mean 2, standard error 1 / sqrt(3): t = 3.4641 with 2 degrees of freedom.
    expected = 2 * stats.t.sf(2 * np.sqrt(3), 2)
    assert paired_t_test([1.0, 2.0, 3.0]).p_value == pytest.approx(expected, rel=1e-12)
    one_sided = paired_t_test([1.0, 2.0, 3.0], alternative="greater").p_value
    assert one_sided == pytest.approx(expected / 2, rel=1e-12)
    # Without spread, and of one run.
    assert paired_t_test([0.0, 0.0]).p_value == 1.0
    assert paired_t_test([0.1, 0.1, 0.1]).p_value == 0.0
    assert paired_t_test([0.1, 0.1], alternative="less").p_value == 1.0
    alone = paired_t_test([0.1])
    assert np.isnan(alone.p_value)
    assert not alone.is_significant()


def test_ranks_by_hand():
    table = pd.DataFrame({"a": [0.1, 0.2, 0.3], "b": [0.2, 0.2, 0.1], "c": [0.3, 0.3, np.nan]})
    test = friedman_nemenyi(table)
    assert test.n_rows == 2
    assert test.mean_rank.to_dict() == {"a": 1.25, "b": 1.75, "c": 3.0}
    assert test.share_won.to_dict() == {"a": 0.75, "b": 0.25, "c": 0.0}
    reversed_ = friedman_nemenyi(table, higher_is_better=True)
    assert reversed_.mean_rank.to_dict() == {"a": 2.75, "b": 2.25, "c": 1.0}


def test_friedman_is_scipys():
    table = pd.DataFrame(RNG.random((8, 4)), columns=list("abcd"))
    expected = stats.friedmanchisquare(*table.to_numpy().T)
    test = friedman_nemenyi(table)
    assert (test.statistic, test.p_value) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-12)


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_critical_difference_has_the_tabulated_constants(k, q):
    # Table of critical values in Demsar 2006, three decimals.
    assert nemenyi_critical_difference(k, 6) == pytest.approx(q * np.sqrt(k * (k + 1) / 36), abs=1.5e-3)


def test_too_little_for_rank_tests():
    one_row = friedman_nemenyi(pd.DataFrame({"a": [1.0], "b": [2.0], "c": [3.0]}))
    assert np.isnan(one_row.p_value)
    assert one_row.critical_difference > 0
    nothing = friedman_nemenyi(pd.DataFrame({"a": [np.nan], "b": [2.0]}))
    assert nothing.n_rows == 0
    assert np.isnan(nothing.critical_difference)
    tied = friedman_nemenyi(pd.DataFrame(1.0, index=range(3), columns=list("abc")))
    assert np.isnan(tied.p_value)
    assert tied.mean_rank.tolist() == [2.0, 2.0, 2.0]
