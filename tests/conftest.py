"""Small graphs and models that several tests share. Nothing here takes more than a second."""

import os
from collections.abc import Iterator
from zlib import crc32

import pytest
import torch
from hypothesis import settings

from linkcal.data import Graph, LinkSplit, simulate_graph, split_links
from linkcal.models import LinkPredictor, TrainingConfig, make_model, train_link_predictor

# Imports and compilation fall into the first example of a property; times say nothing about correctness.
settings.register_profile("default", deadline=None, max_examples=50)
# What decides about a change tries the same examples each time; `make test` tries others.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Parameters that are drawn while tests are collected.
torch.manual_seed(0)


@pytest.fixture(autouse=True)
def own_random_numbers(request: pytest.FixtureRequest) -> None:
    """A test draws the same numbers whatever ran before it, in whichever process."""
    torch.manual_seed(crc32(request.node.nodeid.encode()))


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory) -> Iterator[None]:
    """Nothing is read from or left in the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def small_graph() -> Graph:
    """A simulated graph with 300 nodes, about 1,500 edges and known edge probabilities."""
    return simulate_graph(300, num_edges=1500, num_features=24, seed=3)


@pytest.fixture(scope="session")
def small_split(small_graph: Graph) -> LinkSplit:
    return split_links(small_graph, val_fraction=0.2, test_fraction=0.2, seed=3)


@pytest.fixture(scope="session")
def trained_gcn(small_split: LinkSplit) -> LinkPredictor:
    model = make_model("gcn", 24, hidden_channels=8, out_channels=6, seed=3)
    train_link_predictor(model, small_split, TrainingConfig(epochs=40), seed=3)
    return model
