"""A path of three nodes, x = (1, 2, 6), two layers, all weights 1: every number worked out on paper."""

import math

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from linkcal.toggle import toggle_edges

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
X = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64)
PAIRS = torch.tensor([[0, 0], [2, 1]])  # insert (0, 2), remove (0, 1)
METHODS = ["naive", "fast", "delta"]


def ones(encoder: nn.Module) -> nn.Module:
    model = pyg.GAE(encoder).double()  # draws its weights anew, so they are set afterwards
    for name, parameter in model.named_parameters():
        nn.init.constant_(parameter, 0.0 if "bias" in name else 1.0)
    return model


@pytest.mark.parametrize("method", METHODS)
def test_gcn(method):
    """Degrees with self-loop are (2, 3, 2); with (0, 2) all are 3, so that every layer averages.

    Path: h = (1/2 + 2/r, 2/3 + 7/r, 3 + 2/r) with r = sqrt 6, z = (17/12 + s, 8/9 + 35/(6 r), 8/3 + s) with
    s = 5/(3 r). With (0, 2): h = z = (3, 3, 3). Without (0, 1): node 0 keeps z = 1, the others average to 4.
    """
    root = math.sqrt(6.0)
    s = 5 / (3 * root)
    toggled = toggle_edges(ones(pyg.GCN(1, 1, 2, 1)), X, PATH, PAIRS, method=method)
    path = [(17 / 12 + s) * (8 / 3 + s), (17 / 12 + s) * (8 / 9 + 35 / (6 * root))]
    assert toggled.logit_absent.tolist() == pytest.approx([path[0], 4.0], rel=1e-12)
    assert toggled.logit_present.tolist() == pytest.approx([9.0, path[1]], rel=1e-12)
    assert toggled.in_graph.tolist() == [False, True]
    assert toggled.absent.shape == (2, 1)


@pytest.mark.parametrize("method", METHODS)
def test_sage_mean(method):
    """Each layer adds a node to the mean of its neighbours; z of the path is (8.5, 11, 13.5)."""
    toggled = toggle_edges(ones(pyg.GraphSAGE(1, 1, 2, 1)), X, PATH, PAIRS, method=method)
    assert toggled.absent.flatten().tolist() == pytest.approx([8.5 * 13.5, 1.0 * 16.0], rel=1e-12)
    assert toggled.present.flatten().tolist() == pytest.approx([11.5 * 12.75, 8.5 * 11.0], rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_gin(method):
    """Each layer adds a node to the sum of its neighbours; z of the path is (12, 20, 17)."""
    toggled = toggle_edges(ones(pyg.GIN(1, 1, 2, 1)), X, PATH, PAIRS, method=method)
    assert toggled.absent.flatten().tolist() == pytest.approx([12.0 * 17.0, 1.0 * 16.0], rel=1e-12)
    assert toggled.present.flatten().tolist() == pytest.approx([27.0 * 27.0, 12.0 * 20.0], rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_directed_gin(method):
    """0 -> 1 -> 2: z = (1, 4, 11); with 0 -> 2 as well z_2 = 13. 2 -> 0 is another pair."""
    arcs = torch.tensor([[0, 1], [1, 2]])
    pairs = torch.tensor([[0, 2], [2, 0]])
    toggled = toggle_edges(ones(pyg.GIN(1, 1, 2, 1)), X, arcs, pairs, undirected=False, method=method)
    assert toggled.logit_absent.tolist() == pytest.approx([11.0, 11.0], rel=1e-12)
    # With 2 -> 0 the graph is a cycle: h = (7, 3, 8), z_0 = h_0 + h_2 = 15, z_2 = h_2 + h_1 = 11.
    assert toggled.logit_present.tolist() == pytest.approx([13.0, 15.0 * 11.0], rel=1e-12)
