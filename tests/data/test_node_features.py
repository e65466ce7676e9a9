import numpy as np
import pytest
import torch
from hypothesis import given

from linkcal.data import STRUCTURAL_FEATURES, structural_node_features
from linkcal.data.graph import neighbour_rows
from linkcal.data.node_features import _neighbour_degrees, _networkx_columns
from linkcal.exceptions import InputError

from .strategies import graphs

# Triangle 0-1-2, tail 2-3, isolated 4.
PAW = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]])


def test_paw_graph_by_hand():
    starts, neighbours = neighbour_rows(PAW, 5)
    degree = np.diff(starts)
    mean, low, high = _neighbour_degrees(neighbours, degree)
    assert mean.tolist() == pytest.approx([2.5, 2.5, 5 / 3, 3.0, 0.0])
    assert low.tolist() == [2, 2, 1, 3, 0]
    assert high.tolist() == [3, 3, 2, 3, 0]
    triangles, clustering, core, pagerank = _networkx_columns(neighbours, degree)
    assert np.expm1(triangles).tolist() == pytest.approx([1, 1, 1, 0, 0])
    assert clustering.tolist() == pytest.approx([1, 1, 1 / 3, 0, 0])
    assert np.expm1(core).tolist() == pytest.approx([2, 2, 2, 1, 0])
    # rank = 0.85 step rank + 0.15 / 5; isolated node 4 hands its rank to all: solved as a linear system.
    step = np.zeros((5, 5))
    step[neighbours, np.repeat(np.arange(5), degree)] = np.repeat(1 / np.maximum(degree, 1), degree)
    step[:, 4] = 1 / 5
    rank = np.linalg.solve(np.eye(5) - 0.85 * step, np.full(5, 0.15 / 5))
    assert (np.exp(pagerank) / 5).tolist() == pytest.approx(rank.tolist(), abs=1e-9)


def test_columns_are_standardised_in_the_documented_order():
    x = structural_node_features(PAW, 5)
    assert x.shape == (5, len(STRUCTURAL_FEATURES))
    assert x.dtype == torch.float32
    log_degree = np.log1p([2, 2, 3, 1, 0])
    assert x[:, 0].tolist() == pytest.approx((log_degree - log_degree.mean()) / log_degree.std(), abs=1e-6)
    clustering = np.array([1, 1, 1 / 3, 0, 0])
    assert x[:, 5].tolist() == pytest.approx((clustering - clustering.mean()) / clustering.std(), abs=1e-6)
    assert x.mean(dim=0).tolist() == pytest.approx([0.0] * 8, abs=1e-6)
    assert x.std(dim=0, correction=0).tolist() == pytest.approx([1.0] * 8, abs=1e-6)


@given(graphs(max_nodes=8))
def test_direction_repeats_and_self_loops_do_not_matter(graph):
    pairs = graph.edge_index
    messy = torch.cat([pairs, pairs.flip(0), torch.zeros(2, 1, dtype=torch.int64)], dim=1)
    x = structural_node_features(pairs, graph.num_nodes)
    assert torch.equal(structural_node_features(messy, graph.num_nodes), x)
    assert torch.isfinite(x).all()


def test_constant_columns_are_zero():
    ring = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])
    assert structural_node_features(ring, 6).abs().max() == 0
    assert structural_node_features(torch.empty(2, 0, dtype=torch.int64), 3).abs().max() == 0


def test_index_beyond_node_count():
    with pytest.raises(InputError, match="edge_index must hold node indices < num_nodes = 3, got 3"):
        structural_node_features(PAW, 3)
