"""Small graphs and models that several tests share. Nothing here takes more than a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from linkcal.data import Graph, LinkSplit, simulate_graph, split_links
from linkcal.models import LinkPredictor, TrainingConfig, make_model, train_link_predictor


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
