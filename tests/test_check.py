import numpy as np
import pytest
import torch

from linkcal import CalibratedLinkPredictor, StructuralCalibrator
from linkcal.data import sample_negatives, simulate_graph, split_links
from linkcal.exceptions import InputError
from linkcal.features import link_segments
from linkcal.models import TrainingConfig, make_model, train_link_predictor
from refusals import refuses


@pytest.fixture(scope="module")
def fitted():
    graph = simulate_graph(800, num_edges=3200, num_features=30, seed=0)
    split = split_links(graph, val_fraction=0.2, test_fraction=0.3, seed=0)
    model = make_model("gcn", 30, seed=0)
    train_link_predictor(model, split, TrainingConfig(epochs=40), seed=0)
    return CalibratedLinkPredictor(model, StructuralCalibrator()).fit(split), split, graph


def drawn(split, links, negatives, seed):
    rng, test = np.random.default_rng(seed), split.test
    rows = [
        rng.choice(np.flatnonzero(test.edge_label.numpy() == label), number, replace=False)
        for label, number in ((1, links), (0, negatives))
    ]
    order = torch.from_numpy(rng.permutation(np.concatenate(rows)))
    return test.edge_label_index[:, order], test.edge_label[order]


def test_labels_of_the_same_kind_raise_no_alarm_and_moved_ones_do(fitted):
    clp, split, _ = fitted
    found = [clp.check(*drawn(split, 150, 150, seed)).alarm for seed in range(20)]
    assert sum(found) <= 4  # 1 is expected at most; 5 or more have probability 0.003
    # One link in ten where the probabilities are for one in two.
    rare = [clp.check(*drawn(split, 30, 270, seed)) for seed in range(10)]
    assert all(each.alarm for each in rare)
    told = [clp.check(*drawn(split, 30, 270, seed), base_rate=0.1).alarm for seed in range(10)]
    assert sum(told) <= 3
    assert not clp.check(split.test).alarm  # links first in the part, shuffled by the check
    refuses("links must be new", clp.check, split.val)
    refuses("labels must be left out with LinkPairs", clp.check, split.test, split.test.edge_label)


def test_the_segment_of_a_link_does_not_depend_on_the_others(fitted):
    clp, split, _ = fitted
    reference = clp.score(split.val.edge_label_index)
    both = [clp.score(split.test.edge_label_index[:, :count]) for count in (40, 300)]
    few, many = (link_segments(scores, like=reference) for scores in both)
    assert few.keys() == many.keys()
    assert all((few[name] == many[name][:40]).all() for name in few)


def test_training_links_are_no_reference_for_new_pairs(fitted):
    clp, split, _ = fitted
    trained = CalibratedLinkPredictor(clp.model, StructuralCalibrator()).fit(split, fit_on="train-loo")
    with pytest.raises(InputError, match="labels must be given for a predictor fitted on 'train-loo'"):
        trained.check(split.test.edge_label_index)


def test_the_wrong_kind_of_negatives_is_found_without_labels(fitted):
    clp, split, graph = fitted
    assert sum(clp.check(drawn(split, 100, 100, seed)[0]).alarm for seed in range(20)) <= 4
    two_hop = sample_negatives(graph, 1000, np.random.default_rng(0), kind="two-hop")
    for seed in range(10):
        links = drawn(split, 100, 1, seed)[0]
        rows = np.random.default_rng(seed).choice(1000, 100, replace=False)
        assert clp.check(torch.cat([links, two_hop[:, rows]], dim=1)).alarm
    few = drawn(split, 20, 180, 0)[0]
    assert clp.check(few).alarm
    assert not clp.check(few, base_rate=0.1).alarm
