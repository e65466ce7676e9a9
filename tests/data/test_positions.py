"""Laplacian eigenmaps: known spectra, components, determinism."""

import numpy as np
import pytest
import torch

from linkcal.data import laplacian_eigenmaps, node_features, simulate_graph
from linkcal.exceptions import InputError


def ring(n: int) -> torch.Tensor:
    i = torch.arange(n)
    return torch.stack([i, (i + 1) % n])


@pytest.mark.parametrize("n", [12, 600])
def test_ring_in_two_dimensions_is_a_circle(n):
    """cos and sin of the angle, in some rotation: neighbours at distance 2 sqrt(2) sin(pi / n)."""
    z = laplacian_eigenmaps(ring(n), n, 2).double()
    np.testing.assert_allclose(z.norm(dim=1), np.sqrt(2), rtol=2e-3)
    step = (z - z.roll(-1, 0)).norm(dim=1)
    np.testing.assert_allclose(step, 2 * np.sqrt(2) * np.sin(np.pi / n), rtol=2e-3)


def test_sparse_solver_solves_the_generalised_problem():
    graph = simulate_graph(700, num_edges=2500, num_features=0, seed=1)
    adjacency = torch.zeros(700, 700, dtype=torch.float64)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1.0
    degree = adjacency.sum(1)
    z = laplacian_eigenmaps(graph.edge_index, 700, 6).double()
    smooth = (degree[:, None] * z - adjacency @ z) / degree.clamp(min=1)[:, None]
    value = (z * degree[:, None] * smooth).sum(0) / (z * degree[:, None] * z).sum(0)
    assert float((smooth - value * z)[degree > 0].norm()) < 1e-2
    assert (value.diff() > -1e-6).all()
    assert float(value[0]) > 0.01  # the constant function is left out


def test_components_are_placed_apart_and_isolated_nodes_at_the_origin():
    edges = torch.tensor([[0, 2, 3], [1, 3, 4]])
    z = laplacian_eigenmaps(edges, 6, 2)
    assert z[:2].abs().tolist() == [[1.0, 0.0], [1.0, 0.0]]  # two nodes have one dimension
    assert float(z[0, 0] * z[1, 0]) == -1.0
    np.testing.assert_allclose(z[2:5, 0].abs(), [1.5**0.5, 0.0, 1.5**0.5], atol=1e-6)
    assert z[5].tolist() == [0.0, 0.0]


@pytest.mark.skipif(not node_features._SEEDED, reason="SciPy before 1.17 restarts ARPACK at random")
def test_a_star_has_the_same_positions_each_time():
    """Its matrix has three eigenvalues, so that ARPACK must start anew to find 5 functions."""
    n = 600
    star = torch.stack([torch.zeros(n - 1, dtype=torch.int64), torch.arange(1, n)])
    z = laplacian_eigenmaps(star, n, 5)
    assert torch.equal(laplacian_eigenmaps(star, n, 5), z)
    # (D - A) y = D y: the hub at 0, the leaves orthogonal to a constant.
    assert float(z[0].abs().max()) < 1e-4
    assert float(z[1:].sum(0).abs().max()) < 1e-2
    assert float((z.T @ z / n - torch.eye(5)).abs().max()) < 1e-4


def test_no_edges():
    nothing = torch.empty(2, 0, dtype=torch.int64)
    assert torch.equal(laplacian_eigenmaps(nothing, 3, 2), torch.zeros(3, 2))


def test_direction_order_and_repeats_of_edges_do_not_matter():
    edges = simulate_graph(500, num_edges=1500, num_features=0, seed=0).edge_index
    expected = laplacian_eigenmaps(edges, 500, 5)
    order = torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(0))
    mixed = torch.cat([edges[:, order], edges[:, :7].flip(0), torch.tensor([[3], [3]])], dim=1)
    assert torch.equal(laplacian_eigenmaps(mixed, 500, 5), expected)
    assert expected.dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ring(4), 4, 0), "num_dims must be a whole number >= 1, got 0"),
        ((ring(4), 3, 1), "edge_index must hold node indices < num_nodes = 3, got 3"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        laplacian_eigenmaps(*arguments)
