"""PEG: toggling moves messages and degrees, never positions; equal to one forward pass per pair."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linkcal.models import PEG
from linkcal.toggle import toggle_edges

from .cases import assert_equals_naive, build_case, features, seeded, toggle_cases

F, P = 3, 2


def build(seed: int, **options) -> PEG:
    return seeded(lambda: PEG(F, 4, 3, position_channels=P, **options), seed)


@settings(max_examples=30)
@given(toggle_cases(), st.integers(1, 3), st.sampled_from([torch.float32, torch.float64]))
def test_equals_one_pass_per_pair(case, depth, dtype):
    model = build(case.seed % 1000, num_layers=depth).to(dtype)
    x = features(case.num_nodes, F + P, dtype, case.seed)
    assert_equals_naive(model, x, case, "auto", "fast", "delta")


@pytest.mark.parametrize("undirected", [True, False])
def test_k_hop_subgraphs(undirected):
    case = build_case(
        30, ["random", "star", "path", "twins"], 5, undirected=undirected, loops=True, repeats=True
    )
    x = features(30, F + P, torch.float64)
    assert_equals_naive(build(1).double(), x, case, "khop")


def test_graph_without_features():
    case = build_case(12, ["random", "triangle"], 3, undirected=True, loops=False, repeats=False)
    model = build(3, num_nodes=12)
    model.positions = features(12, P, torch.float32)
    assert_equals_naive(model, torch.arange(12), case, "auto", "delta")
    assert toggle_edges(model, torch.arange(12), case.edge_index, case.pairs).method == "kernel"


def test_by_hand():
    """Nodes 0 and 1 at distance 1, node 2 apart: inserting (0, 1) makes both degrees 2."""
    model = PEG(1, out_channels=1, num_layers=1, position_channels=1)
    conv = model.convs[0]
    with torch.no_grad():
        conv.lin.weight.fill_(1.0)
        for layer in (conv.phi[0], conv.phi[2]):
            layer.weight.zero_()
            layer.bias.zero_()
        conv.phi[0].weight[0] = 1.0  # phi(distance) = sigmoid(2 distance)
        conv.phi[2].weight[0, 0] = 2.0
    x = torch.tensor([[3.0, 0.0], [5.0, 1.0], [7.0, 9.0]])
    nothing = torch.empty(2, 0, dtype=torch.int64)
    toggled = toggle_edges(model, x, nothing, torch.tensor([[0], [1]]))
    near, own = 1 / (1 + torch.exp(torch.tensor(-2.0))), 0.5
    z0, z1 = 0.5 * (own * 3 + near * 5), 0.5 * (own * 5 + near * 3)
    assert toggled.absent.item() == pytest.approx(own * 3 * own * 5, rel=1e-6)
    assert toggled.present.item() == pytest.approx(float(z0 * z1), rel=1e-6)
