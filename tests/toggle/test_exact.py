"""Fast methods equal one forward pass per pair, on a family of graphs and models."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn import LayerNorm

from linkcal.models import GCN
from linkcal.toggle import toggle_edges

from .cases import (
    MODELS,
    assert_equals_naive,
    build_case,
    features,
    linkcal_models,
    pyg_models,
    seeded,
    toggle_cases,
)

DTYPES = st.sampled_from([torch.float32, torch.float64])


@settings(max_examples=100)
@given(st.data(), toggle_cases(), DTYPES)
def test_linkcal_models(data, case, dtype):
    width = data.draw(st.integers(1, 4))
    model = data.draw(linkcal_models(width)).to(dtype)
    assert_equals_naive(model, features(case.num_nodes, width, dtype, case.seed), case, "fast", "delta")


@settings(max_examples=100)
@given(st.data(), toggle_cases(), DTYPES)
def test_pyg_autoencoders(data, case, dtype):
    width = data.draw(st.integers(1, 4))
    model = data.draw(pyg_models(width))
    if any(isinstance(module, LayerNorm) for module in model.modules()):
        dtype = torch.float64  # the norm divides by a row's spread: where that is near 0, float32 says little
    model = model.to(dtype)
    assert_equals_naive(model, features(case.num_nodes, width, dtype, case.seed), case, "fast", "delta")


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("depth", [1, 2, 3, 6])
@pytest.mark.parametrize("undirected", [True, False])
def test_each_model_and_depth(name, depth, undirected):
    """The grid that the random family only samples, on one graph with every kind of piece."""
    case = build_case(
        40, ["random", "star", "clique", "path", "twins"], 7, undirected=undirected, loops=True, repeats=True
    )
    options = {"hidden_channels": 4, "out_channels": 3, "num_layers": depth}
    model = seeded(lambda: MODELS[name](3, **options), depth).double()
    assert_equals_naive(model, features(40, 3, torch.float64), case, "fast", "delta")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_learned_node_embedding(name):
    case = build_case(12, ["random", "triangle"], 3, undirected=True, loops=False, repeats=False)
    model = seeded(lambda: MODELS[name](5, hidden_channels=4, out_channels=3, num_nodes=12), 1)
    assert_equals_naive(model, torch.arange(12), case, "auto", "delta")


def test_complete_graph_without_neighbours_outside():
    """Every pair shares all other nodes."""
    arcs = torch.tensor([(i, j) for i in range(6) for j in range(6) if i != j]).T
    model = seeded(lambda: GCN(3, 4, 2), 0)
    pairs = torch.tensor([[0, 1, 4], [1, 5, 2]])
    x = features(6, 3, torch.float32)
    fast, naive = (toggle_edges(model, x, arcs, pairs, method=m) for m in ("fast", "naive"))
    assert fast.method == "kernel"
    assert bool(fast.in_graph.all())
    torch.testing.assert_close(fast.absent, naive.absent, atol=1e-6, rtol=0)


@pytest.mark.parametrize("num_nodes", [0, 1, 2])
def test_graphs_without_edges(num_nodes):
    empty = torch.empty(2, 0, dtype=torch.int64)
    pairs = torch.tensor([[0], [1]]) if num_nodes == 2 else empty
    model = seeded(lambda: GCN(3, 4, 2), 0)
    x = features(num_nodes, 3, torch.float32)
    fast, naive = (toggle_edges(model, x, empty, pairs, method=m) for m in ("fast", "naive"))
    assert fast.present.shape == (pairs.size(1), 2)
    assert not fast.in_graph.any()
    torch.testing.assert_close(fast.present, naive.present)
