"""The compiled kernel for encoders of any depth: when it is taken, exactness, and what must not matter."""

from functools import partial

import pytest
import torch
from torch_geometric import nn as pyg

from linkcal.toggle import toggle_edges
from linkcal.toggle._deep import SummedToggle, compiled_toggle
from linkcal.toggle._recognise import recognise

from .cases import MODELS, assert_same, build_case, features, seeded

PIECES = ["random", "star", "clique", "path", "twins"]


def model_of(name: str, depth: int, *, width: int = 4, seed: int = 0) -> torch.nn.Module:
    return seeded(
        lambda: MODELS[name](3, hidden_channels=width, out_channels=3, num_layers=depth), seed
    ).double()


def kernel_of(model, x):
    """The kernel of a chain, or the one for sums of chains."""
    case = build_case(5, ["path"], 0, undirected=True, loops=False, repeats=False)
    known = recognise(model, x, case.edge_index)
    kernel = None if known.chain is None else compiled_toggle(known.chain.layers)
    return SummedToggle if kernel is None and SummedToggle.applies(known) else kernel


@pytest.mark.parametrize("name", sorted(MODELS))
def test_more_nodes_than_there_is_room_for_at_first(name):
    """A hub with 150 leaves and a chain: pairs at the hub list nearly all nodes, pairs on the chain few."""
    hub = torch.stack([torch.zeros(150, dtype=torch.int64), torch.arange(1, 151)])
    chain = torch.stack([torch.arange(150, 170), torch.arange(151, 171)])
    arcs = torch.cat([hub, chain], dim=1)
    arcs = torch.cat([arcs, arcs.flip(0)], dim=1)
    pairs = torch.tensor([[165, 0, 0, 3, 160, 0], [166, 1, 170, 4, 162, 150]])
    model, x = model_of(name, 3), features(171, 3, torch.float64)
    fast, naive = (toggle_edges(model, x, arcs, pairs, method=method) for method in ("fast", "naive"))
    assert fast.method == "kernel"
    assert_same(fast, naive)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_threads_blocks_order_and_repeats_change_no_bit(name, request):
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    case = build_case(30, PIECES, 21, undirected=True, loops=False, repeats=False)
    pairs = torch.combinations(torch.arange(30)).T
    pairs = pairs[:, torch.randperm(pairs.size(1), generator=torch.Generator().manual_seed(0))]
    model, x = model_of(name, 3, width=9).float(), features(30, 3, torch.float32)
    torch.set_num_threads(1)
    alone = toggle_edges(model, x, case.edge_index, pairs)
    torch.set_num_threads(3)
    together = toggle_edges(model, x, case.edge_index, pairs)
    parts = toggle_edges(model, x, case.edge_index, pairs, block_size=7)
    again = toggle_edges(model, x, case.edge_index, torch.cat([pairs.flip(1), pairs], dim=1))
    for other in (together, parts):
        assert torch.equal(other.absent, alone.absent)
        assert torch.equal(other.present, alone.present)
    count = pairs.size(1)
    assert torch.equal(again.absent[:count].flip(0), alone.absent)
    assert torch.equal(again.present[count:], alone.present)


def test_a_path_by_hand():
    """Three sum layers without weights to learn: h''' counts walks of three steps."""
    model = pyg.GAE(pyg.GCN(1, 1, 3, normalize=False)).double()
    for conv in model.encoder.convs:
        torch.nn.init.ones_(conv.lin.weight)
    x = torch.tensor([[1.0], [10.0], [100.0], [1000.0]], dtype=torch.float64)
    path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    toggled = toggle_edges(model, x, path, torch.tensor([[1, 0], [2, 3]]))
    # With 1 - 2 on the path 0 - 1 - 2 - 3: z_1 = 2 x_0 + 3 x_2, z_2 = 3 x_1 + 2 x_3; without it z_1 = x_0.
    assert toggled.present[0].item() == pytest.approx((2 * 1 + 3 * 100) * (3 * 10 + 2 * 1000))
    assert toggled.absent[0].item() == pytest.approx(1.0 * 1000.0)
    # With 0 - 3 it is a cycle of four: three steps end at either neighbour, in four ways each.
    assert toggled.present[1].item() == pytest.approx((4 * 10 + 4 * 1000) * (4 * 1 + 4 * 100))
