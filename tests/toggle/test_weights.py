"""Weighted edges: every method that takes them equals one forward pass per pair."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn.models.basic_gnn import BasicGNN

from linkcal.exceptions import InputError, UnsupportedModelError
from linkcal.models import GIN
from linkcal.toggle import toggle_edges
from users import DotProduct

from .cases import Case, assert_equals_naive, build_case, features, seeded, toggle_cases


class GraphConvs(BasicGNN):
    """PyG's BasicGNN with GraphConv, whose encode takes edge weights."""

    supports_edge_weight = True
    supports_edge_attr = False

    def init_conv(self, in_channels, out_channels, **options):
        return pyg.GraphConv(in_channels, out_channels, **options)


BUILDERS = {
    "gcn": lambda depth: pyg.GCN(3, 4, depth, 2),
    "gcn without self-loops": lambda depth: pyg.GCN(3, 4, depth, 2, add_self_loops=False),
    "improved gcn": lambda depth: pyg.GCN(3, 4, depth, 2, improved=True, norm="batch_norm"),
    "gcn sum": lambda depth: pyg.GCN(3, 4, depth, 2, normalize=False),
    "graph conv": lambda depth: GraphConvs(3, 4, depth, 2),
    "graph conv mean": lambda depth: GraphConvs(3, 4, depth, 2, aggr="mean"),
}
#: Wide, and with values that come twice.
WEIGHTS = st.sampled_from([0.0, 0.001, 0.3, 1.0, 1.0, 2.5, 300.0])


def model_of(name: str, depth: int = 2, seed: int = 0) -> nn.Module:
    return seeded(lambda: pyg.GAE(BUILDERS[name](depth)), seed)


def weights_of(case: Case, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """The two directions of an edge may weigh differently."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(case.edge_index.size(1), generator=generator, dtype=torch.float64).mul(3).to(dtype)


@settings(max_examples=60)
@given(
    toggle_cases(),
    st.sampled_from(sorted(BUILDERS)),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.7, 1.0]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_equals_one_pass_per_pair(case, name, depth, insert_weight, dtype):
    model = model_of(name, depth, case.seed % 1000).to(dtype)
    options = {"edge_weight": weights_of(case, dtype, case.seed), "insert_weight": insert_weight}
    x = features(case.num_nodes, 3, dtype, case.seed)
    assert_equals_naive(model, x, case, "auto", "delta", **options)


@settings(max_examples=30)
@given(st.data(), toggle_cases(), st.sampled_from(["gcn", "gcn without self-loops"]))
def test_weights_of_very_different_size(data, case, name):
    drawn = data.draw(st.lists(WEIGHTS, min_size=case.edge_index.size(1), max_size=case.edge_index.size(1)))
    weight = torch.tensor(drawn, dtype=torch.float64)
    x = features(case.num_nodes, 3, torch.float64, case.seed)
    assert_equals_naive(model_of(name).double(), x, case, "fast", "delta", edge_weight=weight)


# PyG's `improved` adds self-loops of weight 2 where there are weights, and of weight 1 where there are none.
@pytest.mark.parametrize("name", sorted(set(BUILDERS) - {"improved gcn"}))
@pytest.mark.parametrize("undirected", [True, False])
def test_ones_are_no_weights(name, undirected):
    case = build_case(25, ["random", "clique", "twins"], 2, undirected=undirected, loops=False, repeats=True)
    x = features(25, 3, torch.float64)
    weight = torch.ones(case.edge_index.size(1), dtype=torch.float64)
    plain, weighted = (
        toggle_edges(
            model_of(name).double(), x, case.edge_index, case.pairs, undirected=undirected, **options
        )
        for options in ({}, {"edge_weight": weight})
    )
    assert plain.method == weighted.method == "kernel"
    torch.testing.assert_close(weighted.absent, plain.absent, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(weighted.present, plain.present, atol=1e-12, rtol=1e-12)


def test_by_hand():
    """Two nodes, weight 3: one sum layer without root or bias gives each its partner's value times 3."""
    model = pyg.GAE(pyg.GCN(1, 1, 1, normalize=False)).double()
    nn.init.ones_(model.encoder.convs[0].lin.weight)
    x = torch.tensor([[2.0], [5.0], [7.0]], dtype=torch.float64)
    arcs, pairs = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 1], [1, 2]])
    weights = {"edge_weight": torch.tensor([3.0, 3.0]).double(), "insert_weight": 0.5}
    toggled = toggle_edges(model, x, arcs, pairs, **weights)
    # With (1, 2) of weight 0.5: z_1 = 3 * 2 + 0.5 * 7, z_2 = 0.5 * 5.
    assert toggled.present.flatten().tolist() == pytest.approx([15.0 * 6.0, 9.5 * 2.5])
    assert toggled.absent.flatten().tolist() == [0.0, 0.0]


class Weighted(DotProduct):
    """A user's model that takes weights, and changes them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(3, 2)

    def encode(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, None if edge_weight is None else edge_weight.sqrt()).tanh()


CASE = build_case(12, ["random", "star"], 4, undirected=True, loops=False, repeats=False)
X = features(12, 3, torch.float32)


def test_a_users_model_goes_pair_by_pair():
    weight = weights_of(CASE, torch.float32, 0)
    model = seeded(Weighted, 0)
    assert toggle_edges(model, X, CASE.edge_index, CASE.pairs, edge_weight=weight).method == "naive"
    with pytest.raises(UnsupportedModelError, match=r"its encode reads the edges itself \(sqrt\)"):
        toggle_edges(model, X, CASE.edge_index, CASE.pairs, edge_weight=weight, method="fast")
    with pytest.raises(UnsupportedModelError, match="edge_weight must be None for method 'khop'"):
        toggle_edges(model, X, CASE.edge_index, CASE.pairs, edge_weight=weight, method="khop")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edge_weight": torch.ones(3)}, r"edge_weight must be a tensor of shape \[\d+\], got \[3\]"),
        ({"edge_weight": torch.ones(CASE.edge_index.size(1), dtype=torch.int64)}, "must hold floats"),
        ({"edge_weight": -torch.ones(CASE.edge_index.size(1))}, r"must be finite and >= 0, got -1\.0"),
        (
            {"edge_weight": torch.ones(CASE.edge_index.size(1)), "insert_weight": -1.0},
            r"insert_weight must be a finite number >= 0, got -1\.0",
        ),
        ({"insert_weight": 2.0}, r"insert_weight must be 1\.0 without edge_weight, got 2\.0"),
    ],
)
def test_refuses_wrong_weights(options, message):
    with pytest.raises(InputError, match=message):
        toggle_edges(model_of("gcn"), X, CASE.edge_index, CASE.pairs, **options)


def test_refuses_models_that_take_no_weights():
    weight = torch.ones(CASE.edge_index.size(1))
    with pytest.raises(UnsupportedModelError, match="encode must take edge_weight to use it, GIN's does not"):
        toggle_edges(GIN(3, 4, 2), X, CASE.edge_index, CASE.pairs, edge_weight=weight)
    sage = seeded(lambda: pyg.GAE(pyg.GraphSAGE(3, 4, 2, 2)), 0)
    with pytest.raises(UnsupportedModelError, match="the layer SAGEConv does not read edge weights"):
        toggle_edges(sage, X, CASE.edge_index, CASE.pairs, edge_weight=weight, method="fast")
