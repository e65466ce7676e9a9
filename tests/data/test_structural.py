import numpy as np
import pytest
import torch
from hypothesis import given

from linkcal.data import STRUCTURAL_FEATURES, structural_node_features
from linkcal.data.graph import neighbour_rows
from linkcal.data.node_features import _core_numbers, _neighbour_degrees, _oriented_csr, _pagerank, _triangles
from linkcal.exceptions import InputError

from .strategies import graphs

# Triangle 0-1-2, tail 2-3, isolated 4.
PAW = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]])


def _raw(edge_index, num_nodes):
    """Unstandardised values by name."""
    indptr, indices = neighbour_rows(edge_index, num_nodes)
    degree = np.diff(indptr)
    mean, low, high = _neighbour_degrees(indptr, indices, degree)
    return {
        "degree": degree,
        "mean": mean,
        "min": low,
        "max": high,
        "triangles": _triangles(*_oriented_csr(indices, degree)),
        "core": _core_numbers(indptr, indices, degree),
        "pagerank": _pagerank(indptr, indices),
    }


def test_paw_graph_by_hand():
    raw = _raw(PAW, 5)
    assert raw["degree"].tolist() == [2, 2, 3, 1, 0]
    assert raw["mean"].tolist() == pytest.approx([2.5, 2.5, 5 / 3, 3.0, 0.0])
    assert raw["min"].tolist() == [2, 2, 1, 3, 0]
    assert raw["max"].tolist() == [3, 3, 2, 3, 0]
    assert raw["triangles"].tolist() == [1, 1, 1, 0, 0]
    assert raw["core"].tolist() == [2, 2, 2, 1, 0]
    assert raw["pagerank"].sum() == pytest.approx(1.0, abs=1e-9)


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


@pytest.mark.reference
@given(graphs(min_nodes=2, max_nodes=12))
def test_values_agree_with_networkx(graph):
    nx = pytest.importorskip("networkx")
    other = nx.empty_graph(graph.num_nodes)
    other.add_edges_from(graph.edge_index.T.tolist())
    nodes = range(graph.num_nodes)
    raw = _raw(graph.edge_index, graph.num_nodes)
    assert raw["degree"].tolist() == [other.degree(v) for v in nodes]
    triangles, core = nx.triangles(other), nx.core_number(other)
    assert raw["triangles"].tolist() == [triangles[v] for v in nodes]
    assert raw["core"].tolist() == [core[v] for v in nodes]
    mean = nx.average_neighbor_degree(other)
    assert raw["mean"].tolist() == pytest.approx([mean[v] for v in nodes])
    pagerank = nx.pagerank(other, alpha=0.85, tol=1e-12, max_iter=1000)
    assert raw["pagerank"].tolist() == pytest.approx([pagerank[v] for v in nodes], abs=1e-8)


@pytest.mark.reference
def test_core_numbers_and_triangles_of_a_larger_graph_agree_with_networkx():
    nx = pytest.importorskip("networkx")
    other = nx.barabasi_albert_graph(400, 5, seed=1)
    edges = torch.tensor(list(other.edges)).T
    raw = _raw(edges, 400)
    core, triangles = nx.core_number(other), nx.triangles(other)
    assert raw["core"].tolist() == [core[v] for v in range(400)]
    assert raw["triangles"].tolist() == [triangles[v] for v in range(400)]
