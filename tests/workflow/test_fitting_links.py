"""The bound on the links of network calibrators: who is sampled, how, and that a run uses it."""

import numpy as np
import pytest
import torch

from linkcal.calibrators import CALIBRATORS
from linkcal.features import LinkScores
from linkcal.toggle import ToggledEmbeddings
from linkcal.workflow import RunConfig, run_experiment
from linkcal.workflow import steps as fitting_links


def scores(num_links, num_others):
    n = num_links + num_others
    label = torch.zeros(n)
    label[torch.from_numpy(np.random.default_rng(0).permutation(n)[:num_links])] = 1.0
    position = torch.arange(n, dtype=torch.float32)
    toggled = ToggledEmbeddings(
        position[:, None], position[:, None], position, position, torch.zeros(n, dtype=torch.bool), "naive"
    )
    return LinkScores(toggled, label=label)


def test_only_calibrators_with_a_network_are_sampled():
    links = scores(30, 70)
    sampled = [
        name for name in CALIBRATORS if fitting_links(name, links, max_network_links=10, seed=0) is not links
    ]
    assert sampled == ["embedding-mlp", "in-n-out"]


@pytest.mark.parametrize("bound", [None, 100, 1000])
def test_within_the_bound_all_links_are_taken(bound):
    links = scores(30, 70)
    assert fitting_links("in-n-out", links, max_network_links=bound, seed=0) is links


def test_sample_keeps_the_share_of_links_and_their_order():
    sample = fitting_links("in-n-out", scores(300, 700), max_network_links=100, seed=3)
    assert int(sample.label.sum()) == 30
    assert len(sample) == 100
    assert bool((sample.logit.diff() > 0).all())


def test_both_calibrators_get_one_sample_that_follows_the_seed():
    links = scores(300, 700)

    def rows(name, seed):
        return fitting_links(name, links, max_network_links=50, seed=seed).logit.tolist()

    assert rows("in-n-out", 0) == rows("embedding-mlp", 0)
    assert rows("in-n-out", 0) != rows("in-n-out", 1)


@pytest.mark.parametrize(("num_links", "num_others"), [(1, 99), (99, 1)])
def test_a_rare_class_stays(num_links, num_others):
    sample = fitting_links("in-n-out", scores(num_links, num_others), max_network_links=10, seed=0)
    assert sorted(sample.label.unique().tolist()) == [0.0, 1.0]
    assert len(sample) == 10


def test_a_run_fits_on_the_sample(small_graph):
    settings = {"dataset": "small", "model": "gcn", "epochs": 3, "calibrators": ("platt", "in-n-out")}
    whole = run_experiment(RunConfig(**settings), small_graph)
    bounded = run_experiment(RunConfig(**settings, max_network_links=40), small_graph)
    assert np.array_equal(whole.test_probability["platt"], bounded.test_probability["platt"])
    assert not np.array_equal(whole.test_probability["in-n-out"], bounded.test_probability["in-n-out"])
