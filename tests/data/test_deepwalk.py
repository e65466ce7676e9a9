"""DeepWalk positions: what they separate, components, determinism, and the cache on disk."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from linkcal.data import Graph, deepwalk_positions, sample_negatives, simulate_graph
from linkcal.data import positions as deepwalk
from linkcal.exceptions import InputError


def ring(n: int) -> torch.Tensor:
    i = torch.arange(n)
    return torch.stack([i, (i + 1) % n])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "linkcal" / "positions"


def test_distance_on_a_ring_grows_with_the_steps():
    z = deepwalk_positions(ring(60), 60, 8, cache=False)
    mean = [float((z - z.roll(-steps, 0)).norm(dim=1).mean()) for steps in (1, 5, 20)]
    assert mean[0] < mean[1] < mean[2]


def test_dot_products_tell_links_from_negatives():
    """The objective itself: sigmoid(z_u . z_v) is high where walks meet."""
    graph = Graph.from_edges(
        torch.cat([ring(200), torch.stack([ring(200)[0], ring(200)[0].roll(-2)])], 1), 200
    )
    z = deepwalk_positions(graph.edge_index, 200, 8, cache=False)
    others = sample_negatives(graph, graph.num_pairs, np.random.default_rng(0))
    pairs = torch.cat([graph.pairs, others], dim=1)
    label = np.repeat([1, 0], graph.num_pairs)
    assert roc_auc_score(label, (z[pairs[0]] * z[pairs[1]]).sum(dim=1)) > 0.9


def test_components_are_told_apart_and_isolated_nodes_stand_at_the_origin():
    edges = torch.cat([ring(20), ring(20) + 20], dim=1)
    z = deepwalk_positions(edges, 42, 8, cache=False)
    assert z[40:].abs().sum() == 0
    distance = torch.cdist(z[:40], z[:40])
    inside = torch.cat([distance[:20, :20], distance[20:, 20:]])
    assert float(inside.mean()) < float(distance[:20, 20:].mean())


@pytest.mark.parametrize("edges", [torch.empty(2, 0, dtype=torch.int64), torch.tensor([[1], [1]])])
def test_no_edges(edges):
    assert torch.equal(deepwalk_positions(edges, 3, 2, cache=False), torch.zeros(3, 2))


def test_a_single_edge_and_one_dimension():
    z = deepwalk_positions(torch.tensor([[0], [2]]), 3, 1, cache=False)
    assert z[1].item() == 0.0
    assert float((z[[0, 2]] ** 2).mean()) == pytest.approx(1.0, rel=1e-5)


def test_same_seed_same_positions_whatever_the_order_of_edges():
    edges = simulate_graph(300, num_edges=900, num_features=0, seed=0).edge_index
    expected = deepwalk_positions(edges, 300, 5, cache=False)
    order = torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(0))
    mixed = torch.cat([edges[:, order], edges[:, :7].flip(0), torch.tensor([[3], [3]])], dim=1)
    assert torch.equal(deepwalk_positions(mixed, 300, 5, cache=False), expected)
    assert not torch.equal(deepwalk_positions(edges, 300, 5, seed=1, cache=False), expected)
    assert expected.dtype == torch.float32
    degree = torch.bincount(edges[0], minlength=300)
    assert float((expected[degree > 0] ** 2).mean()) == pytest.approx(1.0, rel=1e-5)


def test_second_call_reads_the_cache(cache, monkeypatch):
    first = deepwalk_positions(ring(9), 9, 3)
    assert len(list(cache.iterdir())) == 1

    def refuse(*args):
        raise AssertionError("computed again")

    monkeypatch.setattr(deepwalk, "_deepwalk", refuse)
    assert torch.equal(deepwalk_positions(ring(9), 9, 3), first)
    for other in [{"seed": 1}, {"walk_length": 5}, {"context_size": 3}, {"walks_per_node": 2}]:
        with pytest.raises(AssertionError, match="computed again"):
            deepwalk_positions(ring(9), 9, 3, **other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_dims": 0}, "num_dims must be a whole number >= 1, got 0"),
        ({"walk_length": 1}, "walk_length must be a whole number >= 2, got 1"),
        ({"context_size": 1}, "context_size must be a whole number >= 2, got 1"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"num_nodes": 3}, "edge_index must hold node indices < num_nodes = 3, got 3"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(InputError, match=message):
        deepwalk_positions(ring(4), **({"num_nodes": 4, "num_dims": 2, "cache": False} | options))
