"""Which way the fallback takes: what must not be shared or left out, which pairs may vouch for a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from linkcal.toggle import _engine as toggle_engine_module
from linkcal.toggle._shared_rim import SharedRimExtractor
from linkcal.toggle._subgraphs import SubgraphExtractor
from linkcal.toggle.api import toggle_engine

from .cases import Case, assert_equals_naive, assert_same, build_case, features, seeded
from .test_khop import BUILDERS, Stack, both_directions, gat
from .test_shared_rim import path


class Hopping(nn.Module):
    """Any function of x and the arcs, dot-product decoder."""

    decode_returns = "logits"

    def __init__(self, *steps):
        super().__init__()
        self.steps = nn.ModuleList(step for step in steps if isinstance(step, nn.Module))
        self.order = steps

    def encode(self, x, edge_index):
        for step in self.order:
            x = step(x, edge_index)
        return x

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def by_out_degree(x, edge_index):
    """Each node's features over the number of arcs that leave it; passes nothing."""
    return x / (1.0 + edge_index[0].bincount(minlength=x.size(0)).to(x).unsqueeze(1))


def plain_sum(x, edge_index):
    """A round that no hook sees."""
    return x + torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])


@pytest.fixture
def ways(monkeypatch):
    """What each toggle ran on: type of the extractor, and whether messages were left out."""
    found = []
    original = toggle_engine_module.khop_endpoints

    def recording(model, x, extractor, pairs, insert, **options):
        found.append((type(extractor), options.get("trimmer") is not None))
        return original(model, x, extractor, pairs, insert, **options)

    monkeypatch.setattr(toggle_engine_module, "khop_endpoints", recording)
    return found


def case_of(undirected):
    pieces = ["random", "star", "clique", "path", "twins"]
    return build_case(40, pieces, 5, undirected=undirected, loops=True, repeats=True)


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("undirected", [True, False])
def test_each_kind_of_layer_takes_the_cheapest_way(build, undirected, ways):
    case = case_of(undirected)
    assert_equals_naive(seeded(build, 1).double(), features(40, 3, torch.float64), case, "khop")
    # Its four rounds reach two hops far, so on an undirected graph it never reads the rim at four.
    backwards = build is both_directions and not undirected
    extractor = SubgraphExtractor if backwards else SharedRimExtractor
    assert set(ways) == {(extractor, True)}


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize(
    ("build", "num_hops", "way"),
    [
        # What a node sends depends on the arcs that leave it: the rim must not be shared.
        (lambda: Hopping(by_out_degree, pyg.GATConv(3, 3)), None, (SubgraphExtractor, True)),
        (
            lambda: Hopping(pyg.SAGEConv(3, 3), by_out_degree, pyg.SAGEConv(3, 3)),
            None,
            (SubgraphExtractor, True),
        ),
        # A round behind the one that hooks see: all its messages count.
        (lambda: Hopping(pyg.GATConv(3, 3), plain_sum), 2, (SharedRimExtractor, False)),
        (lambda: Hopping(plain_sum, pyg.GATConv(3, 3)), 2, (SharedRimExtractor, True)),
        (lambda: Hopping(by_out_degree, pyg.GATConv(3, 3), plain_sum), 2, (SubgraphExtractor, False)),
        (lambda: Stack(pyg.SAGEConv(3, 3, flow="target_to_source")), None, (SubgraphExtractor, True)),
    ],
)
def test_a_model_that_minds_takes_whole_subgraphs(build, num_hops, way, undirected, ways):
    case = case_of(undirected)
    model = seeded(build, 1).double()
    assert_equals_naive(model, features(40, 3, torch.float64), case, "khop", num_hops=num_hops)
    assert set(ways) == {way}


def test_pairs_without_a_rim_do_not_vouch_for_a_model(ways):
    """Checked on pairs that see whole components, then asked for others: nothing was shown about rims."""
    edges = torch.cat([path(9), path(2) + 9], dim=1)
    model, x = (
        seeded(lambda: Hopping(by_out_degree, pyg.SAGEConv(3, 3)), 0).double(),
        features(11, 3, torch.float64),
    )
    without, with_rim = torch.tensor([[9], [10]]), torch.tensor([[3, 1], [4, 6]])
    engine = toggle_engine(model, x, edges, sample=without, method="khop")
    naive = toggle_engine(model, x, edges, sample=with_rim, method="naive")
    assert_same(engine.toggle(with_rim), naive.toggle(with_rim))
    assert set(ways) == {(SubgraphExtractor, False)}
    # One such pair among many is found, wherever it stands.
    among = torch.cat([without.repeat(1, 40), with_rim, without.repeat(1, 20)], dim=1)
    assert_same(
        toggle_engine(model, x, edges, sample=among, method="khop").toggle(among), naive.toggle(among)
    )


def test_pairs_without_a_rim_do_not_vouch_for_leaving_out(ways):
    """Nothing is left out around two nodes alone, so that they say nothing of a round that no hook sees."""
    model = seeded(lambda: Hopping(pyg.GATConv(3, 3), plain_sum), 0).double()
    pairs = torch.tensor([[20], [21]]).repeat(1, 200)
    pairs[:, 7] = torch.tensor([5, 9])
    case = Case(path(20), 22, True, pairs, 0)
    assert_equals_naive(model, features(22, 3, torch.float64), case, "khop", num_hops=2)
    assert set(ways) == {(SubgraphExtractor, False)}


class Walk(pyg.MessagePassing):
    """Each node hears its neighbours' shares: what they send over how many they send to."""

    def __init__(self):
        super().__init__(aggr="sum")

    def forward(self, x, edge_index):
        leaving = edge_index[0].bincount(minlength=x.size(0)).clamp(min=1).to(x)
        return self.propagate(edge_index, x=x, share=(1.0 / leaving)[edge_index[0]])

    def message(self, x_j, share):
        return share.unsqueeze(1) * x_j


@pytest.mark.parametrize("max_batch_nodes", [1, None])
@pytest.mark.parametrize("pairs", [[[3], [7]], [[3, 3], [7, 7]], [[0, 14], [3, 18]], [[3, 0, 9], [7, 3, 14]]])
def test_a_rim_that_happens_to_send_as_much_does_not_vouch(pairs, max_batch_nodes, ways):
    """Nodes of degree 2 in the rim of a pair that is there twice: by chance they send two messages."""
    edges = torch.cat([path(12), path(9) + 12], dim=1)
    case = Case(edges, 21, True, torch.tensor(pairs), 0)
    x = features(21, 3, torch.float64)
    assert_equals_naive(Hopping(Walk()), x, case, "khop", max_batch_nodes=max_batch_nodes)
    assert set(ways) == {(SubgraphExtractor, True)}


@pytest.mark.parametrize("backwards", [True, False])
def test_pairs_that_send_nothing_away_do_not_vouch_on_directed_graphs(backwards, ways):
    """0..9 each to two of 10..20: pairs of the latter have a rim, and nothing that reads arcs backwards."""
    senders = torch.arange(10)
    edges = torch.cat([torch.stack([senders, senders + 10]), torch.stack([senders, senders + 11])], dim=1)
    pairs = torch.tensor([[12], [15]]).repeat(1, 200)
    pairs[:, 7] = torch.tensor([2, 5])
    flow = "target_to_source" if backwards else "source_to_target"
    model = seeded(lambda: Hopping(pyg.SAGEConv(3, 3, flow=flow)), 0).double()
    x = features(21, 3, torch.float64)
    assert_equals_naive(model, x, Case(edges, 21, False, pairs, 0), "khop")
    assert set(ways) == {(SubgraphExtractor, False)}
    # A pair that hears one node and sends to others, among those that are looked at, shows both.
    ways.clear()
    both = torch.cat([edges, torch.tensor([[20, 2], [2, 7]])], dim=1)
    pairs[:, 0] = torch.tensor([2, 8])
    assert_equals_naive(model, x, Case(both, 21, False, pairs, 0), "khop")
    assert set(ways) == {(SubgraphExtractor if backwards else SharedRimExtractor, True)}


def test_bounds_do_not_change_the_embeddings():
    case = case_of(True)
    model, x = seeded(gat, 0).double(), features(40, 3, torch.float64)
    small, large = (
        toggle_engine(
            model, x, case.edge_index, sample=case.pairs, method="khop", max_batch_nodes=bound
        ).toggle(case.pairs)
        for bound in (1, None)
    )
    assert_same(small, large)
