"""Conformal selection: p-values by hand, Benjamini-Hochberg by its definition, and the realised rate."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linkcal.data import sample_negatives
from linkcal.decisions import conformal_p_values, select_links
from linkcal.features import score_links
from refusals import refuses

scores = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=15)


def step_up(p, level):
    """Benjamini-Hochberg as written: the largest k with p_(k) <= k level / n."""
    ordered = np.sort(p)
    passed = np.flatnonzero(ordered <= np.arange(1, len(p) + 1) * level / len(p) + 1e-12)
    return p <= ordered[passed[-1]] if len(passed) else np.zeros(len(p), bool)


def test_p_values_by_hand():
    assert conformal_p_values([3.0, 2.9, -1.0, 99.0], [1.0, 3.0, 2.0, 3.0]).tolist() == [0.6, 0.6, 1.0, 0.2]


@given(score=scores, null=scores, level=st.sampled_from([0.05, 0.2, 0.5]))
def test_selection_is_benjamini_hochberg(score, null, level):
    p = conformal_p_values(score, null)
    expected = [(1 + sum(t >= s for t in null)) / (len(null) + 1) for s in score]
    assert p.tolist() == pytest.approx(expected)
    chosen = select_links(score, null, fdr=level)
    assert chosen.tolist() == step_up(p, level).tolist()
    if chosen.any() and not chosen.all():
        assert min(np.array(score)[chosen]) > max(np.array(score)[~chosen])


@pytest.mark.parametrize("fdr", [0.05, 0.2])
@pytest.mark.parametrize("links", [0, 30])
def test_realised_rate_with_exchangeable_scores(fdr, links):
    rng = np.random.default_rng(0)
    shares, found = [], []
    for _ in range(200):
        null = rng.normal(size=100 + 2000)  # rounded below, so that there are ties
        score = np.round(np.r_[rng.normal(4.0, 1.0, links), null[:100]], 1)
        chosen = select_links(score, np.round(null[100:], 1), fdr=fdr)
        shares.append(chosen[links:].sum() / max(chosen.sum(), 1))
        found.append(chosen[:links].sum())
    error = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) <= fdr * 100 / (100 + links) + 2 * error
    assert links == 0 or np.mean(found) > 0.2 * links


def test_realised_rate_on_the_simulated_graph(trained_gcn, small_graph, small_split):
    """200 draws of null and asked negatives, which the predictor has not been trained or tuned on."""
    parts = (small_split.train, small_split.val, small_split.test)
    seen = torch.cat([part.edge_label_index for part in parts], dim=1)
    rng = np.random.default_rng(0)
    null_pairs = sample_negatives(small_graph, 4000, rng, exclude=seen)
    null = score_links(trained_gcn, small_split.graph, null_pairs).logit.numpy()
    test = small_split.test
    links = score_links(trained_gcn, small_split.graph, test.edge_label_index[:, test.edge_label == 1])
    shares = []
    for _ in range(200):
        drawn = rng.permutation(null)
        asked = np.r_[links.logit.numpy(), drawn[: len(links)]]
        chosen = select_links(asked, drawn[len(links) :], fdr=0.2)
        shares.append(chosen[len(links) :].sum() / max(chosen.sum(), 1))
    assert np.mean(shares) <= 0.2 + 2 * np.std(shares) / np.sqrt(200)


def test_no_pairs_and_bad_input():
    assert select_links([], [1.0]).shape == (0,)
    refuses("null_score must hold at least one score of a negative, got none", conformal_p_values, [1.0], [])
    refuses("score must be finite, got 1 NaN or infinite value", select_links, [np.nan], [1.0])
    refuses(r"fdr must be in \(0, 1\), got 1\.5", select_links, [1.0], [1.0], fdr=1.5)
