"""Proper scores, accuracy and ranking metrics: by hand, clipping, case 16, ties, weights, scikit-learn."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, log_loss, roc_auc_score

from linkcal._core.maths import PROBABILITY_EPS
from linkcal.exceptions import FewNegativesWarning, InputError
from linkcal.metrics import (
    accuracy,
    average_precision,
    brier_score,
    hits_at_k,
    mean_reciprocal_rank,
    negative_log_likelihood,
    roc_auc,
)
from refusals import refuses

Y, P, W = [1, 0, 1, 0], [0.8, 0.4, 0.5, 0.9], [1.0, 2.0, 0.0, 1.0]


def test_values_by_hand():
    assert negative_log_likelihood(Y, P) == pytest.approx(
        -(math.log(0.8) + math.log(0.6) + math.log(0.5) + math.log(0.1)) / 4, rel=1e-12
    )
    assert brier_score(Y, P) == pytest.approx((0.04 + 0.16 + 0.25 + 0.81) / 4, rel=1e-12)
    assert accuracy(Y, P) == 0.5  # 0.5 predicts no link; 0.5 and 0.9 are wrong


def test_weighted_values_by_hand():
    assert negative_log_likelihood(Y, P, sample_weight=W) == pytest.approx(
        -(math.log(0.8) + 2 * math.log(0.6) + math.log(0.1)) / 4, rel=1e-12
    )
    assert brier_score(Y, P, sample_weight=W) == pytest.approx((0.04 + 2 * 0.16 + 0.81) / 4, rel=1e-12)
    assert accuracy(Y, P, sample_weight=W) == 0.75


def test_wrong_certainty_costs_the_documented_amount():
    assert negative_log_likelihood([1], [0.0]) == pytest.approx(-math.log(PROBABILITY_EPS), rel=1e-12)
    assert negative_log_likelihood([0], [1.0]) == pytest.approx(-math.log(PROBABILITY_EPS), rel=1e-12)
    assert 0.0 <= negative_log_likelihood([0, 1], [0.0, 1.0]) < 1e-15
    assert negative_log_likelihood([0, 1], torch.tensor([1.0, 0.0])) < 36.05


@pytest.mark.parametrize("seed", range(3))
def test_proper_scores_equal_scikit_learn(seed: int):
    rng = np.random.default_rng(seed)
    y, p, w = rng.integers(0, 2, 500), rng.random(500), rng.random(500)
    right = accuracy_score(y, p > 0.5, sample_weight=w)
    assert accuracy(y, p, sample_weight=w) == pytest.approx(right, rel=1e-12)
    for ours, theirs in ((negative_log_likelihood, log_loss), (brier_score, brier_score_loss)):
        assert ours(y, p, sample_weight=w) == pytest.approx(theirs(y, p, sample_weight=w), rel=1e-12)


CASE_16_SCORE = [0.8, 0.9, 0.4, 0.5, 0.3, 0.7, 0.45, 0.2, 0.1, 0.6]
CASE_16_Y = [1] * 5 + [0] * 5


def test_case_16_b_ties_count_against():
    assert hits_at_k([1] * 2 + [0] * 20, [0.5] * 22, 20) == 0.0


def test_case_16_c_fewer_negatives_than_k_is_not_silent():
    with pytest.warns(FewNegativesWarning, match=r"Hits@20 needs at least 20 negatives, got 19; "):
        assert hits_at_k([1, 1] + [0] * 19, [0.1, 0.2] + [0.9] * 19, 20) == 1.0


def test_case_16_a_hits_at_each_k_by_hand():
    # Negatives 0.7, 0.6, 0.45, 0.2, 0.1; positives above each: 2, 2, 3, 5, 5 of 5.
    assert [hits_at_k(CASE_16_Y, CASE_16_SCORE, k) for k in range(1, 6)] == [0.4, 0.4, 0.6, 1.0, 1.0]


def test_case_14_auc_is_the_same_at_every_ratio():
    rng = np.random.default_rng(0)
    y = np.repeat([1, 0], 200)
    score = rng.normal(size=400) + y
    weight = np.where(y == 1, 1.0, 100.0)
    assert roc_auc(y, score, sample_weight=weight) == pytest.approx(roc_auc(y, score), rel=1e-12)
    constant = np.full(400, 0.5)
    assert roc_auc(y, constant) == roc_auc(y, constant, sample_weight=weight) == 0.5


def test_weighted_hits_by_hand():
    # With copies: negatives 0.7, 0.7, 0.6, 0.45, 0.2, 0.1; positives 0.8, 0.9, 0.4, 0.5 and three at 0.3.
    weight = [1, 1, 1, 1, 3, 2, 1, 1, 1, 1]
    hits = [hits_at_k(CASE_16_Y, CASE_16_SCORE, k, sample_weight=weight) for k in range(1, 7)]
    assert hits == pytest.approx([2 / 7, 2 / 7, 2 / 7, 3 / 7, 1.0, 1.0])


@settings(deadline=None)
@given(
    positives=st.lists(st.integers(-5, 5), min_size=1, max_size=20),
    negatives=st.lists(st.integers(-5, 5), min_size=1, max_size=20),
    k=st.integers(1, 20),
)
def test_hits_equal_the_definition(positives: list[int], negatives: list[int], k: int):
    assume(k <= len(negatives))
    threshold = sorted(negatives, reverse=True)[k - 1]
    expected = sum(s > threshold for s in positives) / len(positives)
    y = [1] * len(positives) + [0] * len(negatives)
    assert hits_at_k(y, positives + negatives, k) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None)
@given(
    positives=st.lists(st.integers(-5, 5), min_size=1, max_size=20),
    negatives=st.lists(st.integers(-5, 5), min_size=1, max_size=20),
)
def test_auc_equals_the_share_of_ordered_pairs(positives: list[int], negatives: list[int]):
    pairs = [(s > t) + 0.5 * (s == t) for s in positives for t in negatives]
    y = [1] * len(positives) + [0] * len(negatives)
    assert roc_auc(y, positives + negatives) == pytest.approx(np.mean(pairs), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_ranking_equals_scikit_learn(seed: int):
    rng = np.random.default_rng(seed)
    y, score, w = rng.integers(0, 2, 300), rng.normal(size=300).round(1), rng.random(300)
    for ours, theirs in ((roc_auc, roc_auc_score), (average_precision, average_precision_score)):
        assert ours(y, score, sample_weight=w) == pytest.approx(theirs(y, score, sample_weight=w), rel=1e-12)


def test_logits_beyond_the_precision_of_probabilities_are_ranked():
    logit = np.array([60.0, 50.0, 40.0, 39.0])
    assert roc_auc([1, 1, 0, 0], logit) == 1.0
    assert roc_auc([1, 1, 0, 0], 1 / (1 + np.exp(-logit))) == 0.5


def test_mrr_by_hand():
    # Negatives 3, 2, 2; links: 4 above all, 2 below one and equal to two, 1 below all.
    y, score = [1, 0, 0, 1, 0, 1], [4.0, 2.0, 3.0, 2.0, 2.0, 1.0]
    assert mean_reciprocal_rank(y, score) == pytest.approx((1 + 1 / 3 + 1 / 4) / 3, rel=1e-12)
    # Group a: 4 against 2 and 3, 1 against both; group b: 2 against 2; a negative alone in c.
    groups = ["a", "a", "a", "b", "b", "a"]
    expected = (1 + 1 / 1.5 + 1 / 3) / 3
    assert mean_reciprocal_rank(y, score, groups) == pytest.approx(expected, rel=1e-12)
    alone = mean_reciprocal_rank([*y, 0], [*score, 9.0], [*groups, "c"])
    assert alone == pytest.approx(expected, rel=1e-12)


@settings(deadline=None)
@given(st.data())
def test_mrr_equals_the_definition_and_weights_are_copies(data):
    links = st.tuples(st.integers(0, 1), st.integers(-3, 3), st.integers(0, 2), st.integers(0, 3))
    # Every group has a link and a negative of weight 1.
    rows = [(y, 0, group, 1) for y in (0, 1) for group in range(3)] + data.draw(st.lists(links, max_size=15))
    rows = data.draw(st.permutations(rows))
    label, score, group, weight = zip(*rows, strict=True)
    copies = [row for row in rows for _ in range(row[3])]
    for groups, same in ((group, lambda a, b: a[2] == b[2]), (None, lambda a, b: True)):
        reciprocal = []
        for link in (row for row in copies if row[0] == 1):
            rivals = [row[1] for row in copies if row[0] == 0 and same(row, link)]
            optimistic = 1 + sum(s > link[1] for s in rivals)
            pessimistic = 1 + sum(s >= link[1] for s in rivals)
            reciprocal.append(2 / (optimistic + pessimistic))
        found = mean_reciprocal_rank(label, score, groups, sample_weight=weight)
        assert found == pytest.approx(np.mean(reciprocal), rel=1e-12)


def test_mrr_needs_a_group_of_each_link_and_a_negative_in_it():
    with pytest.raises(InputError, match=r"groups must have one value per link, 2, got shape \[3\]"):
        mean_reciprocal_rank([1, 0], [1.0, 2.0], [0, 0, 1])
    with pytest.raises(InputError, match="groups must have a negative in every group with a link"):
        mean_reciprocal_rank([1, 1, 0], [1.0, 2.0, 3.0], [0, 1, 1])


@pytest.mark.parametrize(
    "metric", [roc_auc, average_precision, mean_reciprocal_rank, lambda y, s: hits_at_k(y, s, 1)]
)
@pytest.mark.parametrize(("y", "counts"), [([1, 1], "2 of 2"), ([0, 0], "0 of 2")])
def test_one_class_is_an_error(metric, y: list[int], counts: str):
    refuses(f"y_true must hold both classes .* got {counts}$", metric, y, [0.1, 0.2])


@pytest.mark.parametrize("k", [0, -1, 2.0, True])
def test_bad_k_is_named(k: object):
    refuses(f"k must be a whole number >= 1, got {k}", hits_at_k, [1, 0], [0.1, 0.2], k)


def test_negatives_beyond_the_digits_of_a_float_leave_a_first_rank_at_one():
    assert mean_reciprocal_rank([1, 0, 0], [2.0, 1.0, 0.0], sample_weight=[1, 1e17, 1e300]) == 1.0
