"""No held-out edge and no test label reaches training or calibration: what models and maps are handed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from linkcal import CalibratedLinkPredictor, Platt, StructuralCalibrator
from linkcal.data import LinkPairs, pair_keys, simulate_graph, split_links
from linkcal.models import TrainingConfig, train_link_predictor
from linkcal.workflow import RunConfig, run_experiment

NODES = 40


class Spy(nn.Module):
    """Mean of neighbours; column 0 of x is the node's number, so that subgraphs can be told apart."""

    decode_returns = "logits"

    def __init__(self):
        super().__init__()
        self.weight = nn.Linear(4, 4)
        self.edges, self.calls = torch.empty(2, 0, dtype=torch.int64), []

    def encode(self, x, edge_index):
        node = x[:, :1]
        self.edges = node.flatten().long()[edge_index]
        z = self.weight(x[:, 1:])
        return torch.cat([node, z + torch.zeros_like(z).index_add(0, edge_index[1], z[edge_index[0]])], dim=1)

    def decode(self, z, edge_label_index):
        ends = z[edge_label_index]
        self.calls.append((key_set(self.edges), key_set(ends[..., 0].detach().long())))
        return (ends[0, :, 1:] * ends[1, :, 1:]).sum(-1)


def key_set(pairs):
    return set(pair_keys(pairs.reshape(2, -1), NODES, directed=False).tolist())


@pytest.fixture(scope="module")
def split():
    graph = simulate_graph(NODES, num_edges=120, num_features=4, seed=0)
    number = torch.arange(NODES, dtype=torch.float32)[:, None]
    return split_links(replace(graph, x=torch.cat([number, graph.x], dim=1)), val_fraction=0.2, seed=0)


def test_training_sees_message_passing_edges_alone(split):
    spy = Spy()
    train_link_predictor(spy, split, TrainingConfig(epochs=3, batch_size=32, eval_every=1))
    message = key_set(split.graph.edge_index)
    validation = key_set(split.val.edge_label_index)
    assert len(spy.calls) > 6
    assert all(edges == message for edges, _ in spy.calls)
    # Pairs of a step: training links and fresh negatives; those of a validation pass stand by themselves.
    steps = [pairs for _, pairs in spy.calls if pairs != validation]
    assert set().union(*steps) >= key_set(split.train.edge_label_index[:, split.train.edge_label == 1])
    assert len(steps) == len(spy.calls) - 3


@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
@pytest.mark.parametrize("fit_on", ["val", "stacked", "train-loo", "train"])
@pytest.mark.parametrize("calibrator", [Platt(), StructuralCalibrator()])
def test_calibration_sees_one_pair_beyond_the_message_passing_edges(split, fit_on, calibrator):
    spy = Spy()
    CalibratedLinkPredictor(spy, calibrator).fit(split, fit_on=fit_on, num_null=5)
    message, test = key_set(split.graph.edge_index), key_set(split.test.edge_label_index)
    allowed = key_set(torch.cat([split.train.edge_label_index, split.val.edge_label_index], dim=1))
    asked = set()
    for edges, pairs in spy.calls:
        # Whatever else is in the input is the target link of a pair that is scored with it.
        assert edges - message <= pairs & allowed
        asked |= pairs
    assert asked <= allowed
    assert not asked & test


def turned(split):
    """The split with the labels of its test pairs exchanged."""
    test = split.test
    return replace(split, test=LinkPairs(test.edge_label_index, 1.0 - test.edge_label))


# Few links, few negatives, separated classes.
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")
@pytest.mark.parametrize("fit_on", ["val", "stacked", "train-loo"])
def test_test_labels_change_nothing_but_the_measurements(split, fit_on):
    names = ("uncalibrated", "platt", "isotonic", "in-n-out-plus")
    config = RunConfig("spy", "gcn", epochs=4, fit_on=fit_on, calibrators=names)
    one, other = (run_experiment(config, each) for each in (split, turned(split)))
    for name, weight in one.artifact.model.state_dict().items():
        assert torch.equal(weight, other.artifact.model.state_dict()[name])
    for name in names:
        states = (each.artifact.calibrators[name].get_state() for each in (one, other))
        assert str(next(states)) == str(next(states))
        assert np.array_equal(one.test_probability[name], other.test_probability[name])
    assert one.metrics["selected"] == other.metrics["selected"]
    assert one.metrics["results"] != other.metrics["results"]
