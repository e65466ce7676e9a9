"""Thresholds: the expected ones by hand, the tested ones by how often they fail where the truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import beta, binomtest, norm

from linkcal.decisions import certified_threshold, expected_threshold
from linkcal.decisions._thresholds import weights_at_base_rate
from linkcal.exceptions import InputError
from refusals import refuses

logits = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12)


@given(z=logits, wanted=st.sampled_from([0.3, 0.5, 0.8]))
def test_expected_precision_is_the_smallest_threshold_that_reaches_it(z, wanted):
    z = np.array(z)
    reach = {t: expit(z[z >= t]).mean() for t in z}
    good = [t for t, value in reach.items() if value >= wanted]
    if not good:
        refuses(f"precision must be at most .*, got {wanted:g}", expected_threshold, z, precision=wanted)
        return
    found = expected_threshold(z, precision=wanted)
    assert found.logit == min(good)
    assert found.precision == pytest.approx(reach[found.logit])
    assert found.probability == pytest.approx(expit(found.logit))
    assert found.confidence is None


@given(z=logits, wanted=st.sampled_from([0.3, 0.8, 0.99]))
def test_expected_recall_is_the_largest_threshold_that_reaches_it(z, wanted):
    z = np.array(z)
    recall = {t: expit(z[z >= t]).sum() / expit(z).sum() for t in z}
    found = expected_threshold(z, recall=wanted)
    assert found.logit == max(t for t, value in recall.items() if value >= wanted)
    assert found.recall == pytest.approx(recall[found.logit])


def test_a_recall_that_is_reached_exactly_needs_no_further_pair():
    assert expected_threshold([np.log(3.0), -np.log(3.0)], recall=0.75).logit == np.log(3.0)


def test_the_tested_precision_is_that_of_both_exact_bounds():
    z, y = sample(np.random.default_rng(4), 300, 200)
    found = certified_threshold(z, y, precision=0.8, confidence=0.9)
    above = [(np.asarray(z)[np.asarray(y) == label] >= found.logit) for label in (1, 0)]
    share = 0.2  # of the error, for the links
    tpr = beta.ppf(share * 0.1, above[0].sum(), (~above[0]).sum() + 1)
    fpr = beta.isf((1.0 - share) * 0.1, above[1].sum() + 1, (~above[1]).sum())
    rate = np.mean(y)
    assert found.precision == pytest.approx(rate * tpr / (rate * tpr + (1.0 - rate) * fpr), rel=1e-9)


def test_weights_are_copies():
    z, weight = [2.0, 0.0, -1.0], [1, 3, 2]
    assert expected_threshold(z, precision=0.6, sample_weight=weight) == expected_threshold(
        np.repeat(z, weight), precision=0.6
    )


def sample(rng, links, others, slope=1.0, centre=1.2):
    """Normal scores of both classes; the calibrated logit is `centre` times 2 the score, times `slope`."""
    s = np.r_[rng.normal(centre, 1.0, links), rng.normal(-centre, 1.0, others)]
    return slope * 2 * centre * s, np.repeat([1, 0], [links, others])


def realised(found, rate, slope=1.0, centre=1.2, share=0.5):
    """True precision and recall of a threshold on the logit at base rate `rate`."""
    shift = np.log(rate / (1 - rate)) - np.log(share / (1 - share))
    s = (found.logit - shift) / (slope * 2 * centre)
    tpr, fpr = norm.sf(s, centre), norm.sf(s, -centre)
    return rate * tpr / (rate * tpr + (1 - rate) * fpr), tpr


@pytest.mark.parametrize("slope", [0.5, 1.0, 2.0], ids=["underconfident", "calibrated", "overconfident"])
@pytest.mark.parametrize(("wanted", "rate"), [(0.9, None), (0.8, 0.2)])
def test_tested_precision_fails_as_seldom_as_promised(slope, wanted, rate):
    """300 draws at 90 % confidence: too low a precision in at most 10 % + 2 standard errors of them."""
    rng = np.random.default_rng(0)
    failed, found_any, too_high = 0, 0, np.zeros(2)
    for _ in range(300):
        try:
            found = certified_threshold(
                *sample(rng, 300, 300, slope), precision=wanted, base_rate=rate, confidence=0.9
            )
        except InputError:
            continue
        found_any += 1
        assert found.precision >= wanted
        true = realised(found, rate or 0.5, slope)
        failed += true[0] < wanted
        too_high += np.less(true, (found.precision, found.recall))
    most = 0.1 + 2 * np.sqrt(0.1 * 0.9 / 300)
    assert failed / 300 <= most
    # The bounds that are given with the threshold, each by itself.
    assert (too_high / 300 <= most).all()
    if slope == 1.0:
        assert found_any > 200


def test_tested_precision_uses_the_labels_it_has():
    """More labelled links let a smaller threshold pass, up to the true one."""
    rng = np.random.default_rng(1)
    recall = [
        realised(certified_threshold(*sample(rng, n, n), precision=0.9), 0.5)[1] for n in (300, 3000, 30_000)
    ]
    assert recall == sorted(recall)
    grid = np.linspace(-3, 3, 6001)
    tpr, fpr = norm.sf(grid, 1.2), norm.sf(grid, -1.2)
    best = tpr[tpr / (tpr + fpr) >= 0.9].max()
    assert 0.97 * best < recall[-1] <= best


def test_tested_recall_fails_as_seldom_as_promised():
    rng = np.random.default_rng(0)
    reached = []
    for _ in range(500):
        found = certified_threshold(*sample(rng, 100, 50), recall=0.8, confidence=0.9)
        assert found.recall >= 0.8  # what was asked for is what is proved
        reached.append(realised(found, found.base_rate, share=100 / 150)[1])
    failed = np.mean(np.array(reached) < 0.8)
    # The bound is an order statistic: nearly exact, so the rate is not far below either.
    assert 0.02 <= failed <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / 500)


def test_the_proved_recall_is_the_exact_bound_of_a_share():
    z, y = sample(np.random.default_rng(3), 120, 40)
    found = certified_threshold(z, y, recall=0.8, confidence=0.9)
    links = np.asarray(z)[np.asarray(y) == 1]
    above = int((links >= found.logit).sum())
    exact = binomtest(above, links.size, alternative="greater").proportion_ci(0.9, method="exact")
    assert found.recall == pytest.approx(exact.low, abs=1e-9)
    fewer = binomtest(above - 1, links.size, alternative="greater").proportion_ci(0.9, method="exact")
    assert fewer.low < 0.8 <= exact.low  # no higher threshold would do


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_weights_give_labels_the_base_rate(rate):
    y = np.repeat([1.0, 0.0], [30, 170])
    weight = weights_at_base_rate(y, rate)
    assert weight.mean() == pytest.approx(1.0)
    assert np.average(y, weights=weight) == pytest.approx(rate)


def test_what_cannot_be_reached_is_said_in_one_line():
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"precision .* at best about 0\.\d+ with 10 links and 10 negatives"):
        certified_threshold(*sample(rng, 10, 10), precision=0.95)
    far_off = np.r_[np.full(100, 40.0), np.full(100, 30.0)], np.repeat([1, 0], 100)
    with pytest.raises(
        InputError,
        match=r"can show, 0\.4\d+ at logits of 2\.2 to 5\.2, where tests begin, "
        r"and elsewhere at best about 0\.9\d+ with 100 links",
    ):
        certified_threshold(*far_off, precision=0.9)
    with pytest.raises(InputError, match=r"recall = 0\.99 must be shown with at least 299 links, got 100"):
        certified_threshold(*sample(rng, 100, 10), recall=0.99)
    with pytest.raises(InputError, match="y must hold both classes, got 2 links among 2 labels"):
        certified_threshold([0.0, 1.0], [1, 1], precision=0.5)
    for wanted in ({}, {"precision": 0.5, "recall": 0.5}):
        refuses("precision or recall must be given, one of them", expected_threshold, [0.0], **wanted)
    refuses("decision must hold at least one pair, got none", expected_threshold, [], precision=0.5)


def test_a_recall_among_probabilities_that_round_to_zero():
    """Shares are those of exp(z): 1, 1/2, 1/4 and next to nothing of 1.75."""
    z = np.array([-800.0, -800.0 - np.log(2), -800.0 - np.log(4), -2000.0])
    found = expected_threshold(z, recall=0.8)
    assert (found.logit, found.probability, found.precision) == (z[1], 0.0, 0.0)
    assert found.recall == pytest.approx(1.5 / 1.75, abs=1e-12)
    weighted = expected_threshold(z, recall=0.8, sample_weight=[0, 1, 0, 1])
    assert (weighted.logit, weighted.recall) == (z[1], 1.0)
    refuses("precision must be at most 0, the highest expected one", expected_threshold, z, precision=0.5)
