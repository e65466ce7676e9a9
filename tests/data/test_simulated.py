import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from linkcal.data import BlockModelTruth, simulate_graph, split_links
from linkcal.data.simulated import _draw_edges
from linkcal.exceptions import InputError


def _truth(theta, block, omega):
    return BlockModelTruth(
        torch.tensor(theta, dtype=torch.float64),
        torch.tensor(block),
        torch.tensor(omega, dtype=torch.float64),
    )


def test_probability_formula_by_hand():
    truth = _truth([1.0, 2.0, 0.5], [0, 0, 1], [[0.3, 0.1], [0.1, 0.7]])
    pairs = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 2]])
    # 1 - exp(-0.6), the same reversed, 1 - exp(-0.05), and no self-pair.
    expected = [0.4511883639059736, 0.4511883639059736, 0.048770575499285984, 0.0]
    probability = truth.edge_probability(pairs)
    assert probability.dtype == torch.float64
    assert probability.tolist() == pytest.approx(expected, rel=1e-12)


def test_every_pair_has_its_exact_probability():
    # 9 nodes in blocks of 4, 3, 2 and one empty block; 3,000 draws; 36 pairs within 4 standard errors.
    rng = np.random.default_rng(0)
    theta = rng.uniform(0.3, 2.5, size=9)
    block = np.array([0, 1, 0, 3, 1, 0, 3, 0, 1])
    omega = np.array([[0.5, 0.05, 9, 0.2], [0.05, 0.9, 9, 0.1], [9, 9, 9, 9], [0.2, 0.1, 9, 0.6]])
    repeats = 3000
    seen = np.zeros((9, 9))
    for _ in range(repeats):
        u, v = _draw_edges(theta, block, omega, rng)
        assert (u < v).all()
        seen[u, v] += 1  # distinct pairs: no repeat is lost here
    row, col = np.triu_indices(9, k=1)
    pairs = torch.from_numpy(np.stack([row, col]))
    p = _truth(theta, block, omega).edge_probability(pairs).numpy()
    standard_error = np.sqrt(p * (1 - p) / repeats)
    assert (np.abs(seen[row, col] / repeats - p) < 4 * standard_error).all()


def test_probabilities_are_calibrated_in_one_large_graph():
    # In each tenth of the pairs of 600 nodes (by probability), edges match the sum of probabilities.
    graph = simulate_graph(600, num_edges=4000, num_features=0, seed=7)
    pairs = torch.combinations(torch.arange(600)).T
    p = graph.truth.edge_probability(pairs)
    edge = graph.has_pairs(pairs).double()
    for chunk in torch.argsort(p).tensor_split(10):
        expected, spread = p[chunk].sum(), (p[chunk] * (1 - p[chunk])).sum().sqrt()
        assert abs(edge[chunk].sum() - expected) < 4 * spread


def test_defaults_are_cora_like():
    graph = simulate_graph(seed=0)
    degree = torch.bincount(graph.edge_index[0], minlength=graph.num_nodes)
    assert graph.num_nodes == 2708
    assert 4800 < graph.num_pairs < 5500
    assert 80 < int(degree.max()) < 250  # Cora: 168
    assert graph.counts()["self_loops_removed"] == graph.counts()["duplicates_removed"] == 0
    words = graph.x.sum(dim=1)
    assert graph.x.shape == (2708, 1433)
    assert set(graph.x.unique().tolist()) == {0.0, 1.0}
    assert words.min() >= 1
    assert 15 < words.mean() < 20  # Cora: 18.2
    block = graph.truth.block
    inside = (block[graph.pairs[0]] == block[graph.pairs[1]]).double().mean()
    assert inside == pytest.approx(0.81, abs=0.03)


def test_true_probabilities_rank_the_test_links_well_but_not_perfectly():
    scores = []
    for seed in range(3):
        graph = simulate_graph(num_features=0, seed=seed)
        test = split_links(graph, seed=seed).test
        q = graph.truth.edge_probability(test.edge_label_index)
        scores.append(roc_auc_score(test.edge_label, q))
        # Label probabilities of the balanced test set are calibrated: mean p = share of positives.
        p = test.label_probability(q)
        spread = float((p * (1 - p)).sum().sqrt())
        assert abs(float(p.sum()) - test.num_positives) < 4 * spread
    assert 0.87 < np.mean(scores) < 0.93


def test_same_seed_same_graph_and_features_do_not_move_edges():
    first, second = simulate_graph(300, seed=5), simulate_graph(300, seed=5)
    assert torch.equal(first.edge_index, second.edge_index)
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.edge_index, simulate_graph(300, num_features=0, seed=5).edge_index)
    assert not torch.equal(first.edge_index, simulate_graph(300, seed=6).edge_index)


def test_size_is_a_parameter():
    graph = simulate_graph(200_000, num_features=0)
    assert graph.x is None
    # 1.949 edges a node before repeats collapse.
    assert 370_000 < graph.num_pairs < 392_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_nodes": 1}, "num_nodes must be a whole number >= 2, got 1"),
        ({"num_edges": 0}, "num_edges must be a whole number >= 1, got 0"),
        ({"num_blocks": 0}, "num_blocks must be a whole number >= 1, got 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        simulate_graph(**arguments)
