"""The fallback on subgraphs: exact for deterministic message passing, refused where it cannot be."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric import nn as pyg

from linkcal.exceptions import UnsupportedModelError
from linkcal.models import GCN
from linkcal.toggle import _engine as toggle_engine_module
from linkcal.toggle import toggle_edges
from linkcal.toggle._graph import ToggleGraph
from linkcal.toggle._subgraphs import SubgraphExtractor

from .cases import MODELS, assert_equals_naive, assert_same, build_case, features, seeded, toggle_cases


class Stack(nn.Module):
    """A user's encoder: any layers, a skip connection, dot-product decoder."""

    decode_returns = "logits"

    def __init__(self, *convs: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def encode(self, x, edge_index):
        for conv in self.convs:
            out = conv(x, edge_index)
            x = torch.tanh(out + x if out.shape == x.shape else out)
        return x

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def gat():
    return Stack(pyg.GATConv(3, 2, heads=2), pyg.GATConv(4, 4, heads=1))


def sage_max():
    return Stack(pyg.SAGEConv(3, 4, aggr="max"), pyg.SAGEConv(4, 4, aggr="max"))


def graph_conv():
    return Stack(pyg.GraphConv(3, 4), pyg.GraphConv(4, 4, aggr="max"))


def transformer():
    return Stack(pyg.TransformerConv(3, 2, heads=2, beta=True), pyg.TransformerConv(4, 4))


def gcn_with_skip():
    return Stack(pyg.GCNConv(3, 3), pyg.GCNConv(3, 3), pyg.GCNConv(3, 2))


def jumping_knowledge():
    return pyg.GAE(pyg.GCN(3, 4, 2, 3, jk="cat"))


def jumping_lstm():
    return pyg.GAE(pyg.GraphSAGE(3, 4, 3, 3, jk="lstm"))


def two_hops_in_one_layer():
    return Stack(pyg.TAGConv(3, 4, K=2), pyg.SGConv(4, 3, K=2))


def both_directions():
    return Stack(pyg.DirGNNConv(pyg.GCNConv(3, 3)), pyg.DirGNNConv(pyg.SAGEConv(3, 3)))


BUILDERS = [
    gat,
    sage_max,
    graph_conv,
    transformer,
    gcn_with_skip,
    jumping_knowledge,
    jumping_lstm,
    two_hops_in_one_layer,
    both_directions,
]


@settings(max_examples=100)
@given(st.sampled_from(BUILDERS), toggle_cases(), st.sampled_from([1, 40, 10_000]))
def test_any_layers(build, case, max_batch_nodes):
    model = seeded(build, case.seed).double()
    x = features(case.num_nodes, 3, torch.float64, case.seed)
    assert_equals_naive(model, x, case, "khop", max_batch_nodes=max_batch_nodes)


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_kind_of_layer(build, undirected, dtype):
    case = build_case(
        40, ["random", "star", "clique", "path", "twins"], 5, undirected=undirected, loops=True, repeats=True
    )
    model = seeded(build, 1).to(dtype)
    assert_equals_naive(model, features(40, 3, dtype), case, "khop", "auto")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models_that_have_a_kernel_too(name):
    case = build_case(20, ["random", "clique"], 2, undirected=True, loops=False, repeats=False)
    model = seeded(lambda: MODELS[name](3, 4, 3), 0)
    assert_equals_naive(model, features(20, 3, torch.float32), case, "khop", "fast")


@pytest.mark.parametrize("build", [gat, sage_max, transformer])
def test_auto_takes_the_fallback_and_says_so(build):
    case = build_case(12, ["random"], 2, undirected=True, loops=False, repeats=False)
    toggled = toggle_edges(seeded(build, 0), features(12, 3, torch.float32), case.edge_index, case.pairs)
    assert toggled.method == "khop"


def test_node_ids_as_input():
    class Embedded(Stack):
        def __init__(self):
            super().__init__(pyg.GATConv(3, 3))
            self.table = nn.Embedding(15, 3)

        def encode(self, x, edge_index):
            return super().encode(self.table(x), edge_index)

    case = build_case(15, ["random", "star"], 2, undirected=True, loops=False, repeats=False)
    assert_equals_naive(seeded(Embedded, 0), torch.arange(15), case, "khop", "auto")
    gcn = seeded(lambda: GCN(3, 4, 2, num_nodes=15), 0)
    assert_equals_naive(gcn, torch.arange(15), case, "khop")


# --- the subgraphs ----------------------------------------------------------------------------------------


def test_subgraph_of_a_path_by_hand():
    """0-1-2-3-4-5-6, pair (2, 3), one hop: nodes 2, 3, 1, 4; 1 and 4 keep degree 2 through one dummy."""
    line = torch.arange(6)
    arcs = torch.cat([torch.stack([line, line + 1]), torch.stack([line + 1, line])], dim=1)
    graph = ToggleGraph.from_edge_index(arcs, 7, undirected=True)
    pair = torch.tensor([[2], [3]])
    (batch,) = SubgraphExtractor(graph, 1, 100).batches(pair, torch.tensor([False]), toggle=False)
    assert batch.nodes[1:].tolist() == [2, 3, 1, 4]
    found = sorted(map(tuple, batch.edge_index.T.tolist()))
    assert found == sorted([(1, 2), (2, 1), (1, 3), (3, 1), (2, 4), (4, 2), (0, 3), (3, 0), (0, 4), (4, 0)])
    (without,) = SubgraphExtractor(graph, 1, 100).batches(pair, torch.tensor([False]))
    assert set(found) - set(map(tuple, without.edge_index.T.tolist())) == {(1, 2), (2, 1)}


def test_no_arc_of_a_node_is_doubled():
    """A layer that merges repeated arcs must see the same degrees, so outside neighbours stay distinct."""
    case = build_case(40, ["random", "clique", "star"], 9, undirected=True, loops=False, repeats=False)
    graph = ToggleGraph.from_edge_index(case.edge_index, 40, undirected=True)
    insert = ~graph.contains(case.pairs)
    for batch in SubgraphExtractor(graph, 1, 100).batches(case.pairs, insert):
        assert torch.unique(batch.edge_index, dim=1).shape == batch.edge_index.shape


def test_batches_keep_to_their_budget():
    case = build_case(40, ["random", "clique", "star"], 9, undirected=True, loops=False, repeats=False)
    graph = ToggleGraph.from_edge_index(case.edge_index, 40, undirected=True)
    pairs, insert = case.pairs.repeat(1, 20), (~graph.contains(case.pairs)).repeat(20)
    batches = list(SubgraphExtractor(graph, 1, 100).batches(pairs, insert))
    most = int(torch.bincount(case.edge_index[1]).max())
    assert len(batches) > 1
    assert all(batch.nodes.numel() <= 100 + most for batch in batches if batch.source.numel() > 1)
    assert sum(batch.source.numel() for batch in batches) == pairs.size(1)


def test_arcs_are_counted_exactly():
    """Repeated and one-way arcs, toggled: every column of a batch is an arc of it."""
    case = build_case(20, ["random", "star"], 5, undirected=False, loops=True, repeats=True)
    graph = ToggleGraph.from_edge_index(case.edge_index, 20, undirected=False)
    insert = ~graph.contains(case.pairs)
    assert insert.any()
    assert not insert.all()
    for pair in range(case.pairs.size(1)):
        one, state = case.pairs[:, pair : pair + 1], insert[pair : pair + 1]
        ((before,), (after,)) = (
            tuple(SubgraphExtractor(graph, 2, 100).batches(one, state, toggle=toggle))
            for toggle in (False, True)
        )
        own = (case.edge_index == one).all(dim=0).sum()
        assert after.edge_index.size(1) - before.edge_index.size(1) == (1 if state else -own)
        for batch in (before, after):
            assert batch.edge_index.min() >= 0
            assert batch.edge_index.max() < batch.nodes.numel()


def test_pairs_that_say_most_are_found():
    """A star, a path and nodes alone: of the pairs that fit, those that see most; none that hears nothing."""
    star, line = torch.arange(1, 30), torch.arange(30, 39)
    joined = torch.cat([torch.stack([torch.zeros_like(star), star]), torch.stack([line, line + 1])], dim=1)
    graph = ToggleGraph.from_edge_index(torch.cat([joined, joined.flip(0)], dim=1), 42, undirected=True)
    pairs = torch.tensor([[1, 34, 3, 30, 40], [2, 36, 4, 31, 41]])
    assert SubgraphExtractor(graph, 2, 12).telling(pairs).tolist() == [[34, 30], [36, 31]]
    assert SubgraphExtractor(graph, 2, 35).telling(pairs).tolist() == [[1], [2]]
    assert SubgraphExtractor(graph, 2, 1).telling(pairs).tolist() == [[30], [31]]
    assert SubgraphExtractor(graph, 2, 12).telling(pairs[:, 4:]).size(1) == 0


def test_a_pair_without_neighbours_does_not_vouch_for_a_model(monkeypatch):
    """Layers that pass messages otherwise than their type says; the check must see a pair that hears some."""
    monkeypatch.setattr(toggle_engine_module, "LARGE_MESSAGES", 0)
    case = build_case(40, ["random", "clique", "twins"], 3, undirected=True, loops=False, repeats=False)
    model = seeded(lambda: pyg.GAE(pyg.GraphSAGE(3, 4, 2, 3)), 0).double().eval()
    for conv in model.encoder.convs:
        conv.aggr_module = pyg.MaxAggregation()
    alone, x = torch.tensor([[40], [41]]), features(42, 3, torch.float64)
    for pairs in (torch.cat([case.pairs, alone], dim=1), torch.cat([alone, case.pairs], dim=1), alone):
        toggled, naive = (
            toggle_edges(model, x, case.edge_index, pairs, method=method) for method in ("auto", "naive")
        )
        assert toggled.method == "khop"
        assert_same(toggled, naive)


# --- what it must not be used for -------------------------------------------------------------------------

CASE = build_case(30, ["path", "path", "random"], 4, undirected=True, loops=False, repeats=False)
X = features(30, 3, torch.float32)


def khop(model, **options):
    return toggle_edges(model, X, CASE.edge_index, CASE.pairs, method="khop", **options)


@pytest.mark.parametrize("norm", ["GraphNorm", "PairNorm", "InstanceNorm", "LayerNorm"])
def test_refuses_norms_over_all_nodes(norm):
    model = seeded(lambda: pyg.GAE(pyg.GAT(3, 4, 2, 3, norm=norm)), 0)
    with pytest.raises(UnsupportedModelError, match=rf"got {norm} at .*; use method='naive'"):
        khop(model)
    auto = toggle_edges(model, X, CASE.edge_index, CASE.pairs)
    assert auto.method == "naive"


def test_refuses_too_few_hops():
    with pytest.raises(UnsupportedModelError, match="must depend on 1 hops alone"):
        khop(seeded(gcn_with_skip, 0), num_hops=1)


def test_more_hops_than_needed_change_nothing():
    assert_same(khop(seeded(gat, 0), num_hops=4), khop(seeded(gat, 0)))


def test_refuses_random_models():
    class Noisy(Stack):
        def encode(self, x, edge_index):
            return super().encode(x, edge_index) + torch.rand(x.size(0), 1)

    with pytest.raises(UnsupportedModelError, match="deterministic"):
        khop(seeded(lambda: Noisy(pyg.GATConv(3, 3)), 0))


def test_refuses_an_encoder_tied_to_its_nodes():
    class Tied(Stack):
        def __init__(self):
            super().__init__(pyg.GATConv(3, 3))
            self.table = nn.Parameter(torch.ones(30, 3))

        def encode(self, x, edge_index):
            return super().encode(x + self.table, edge_index)

    with pytest.raises(UnsupportedModelError, match="must run on subgraphs"):
        khop(seeded(Tied, 0))
    assert toggle_edges(seeded(Tied, 0), X, CASE.edge_index, CASE.pairs).method == "naive"


@pytest.mark.parametrize("error", [AssertionError, AttributeError, KeyError, TypeError, ZeroDivisionError])
def test_an_encoder_that_refuses_subgraphs_goes_pair_by_pair(error):
    class Counting(Stack):
        def encode(self, x, edge_index):
            if x.size(0) != 30:
                raise error
            return super().encode(x, edge_index)

    model = seeded(lambda: Counting(pyg.GATConv(3, 3)), 0)
    with pytest.raises(UnsupportedModelError, match=f"must run on subgraphs .* got {error.__name__}"):
        khop(model)
    assert toggle_edges(model, X, CASE.edge_index, CASE.pairs).method == "naive"


def test_own_message_passing_needs_num_hops():
    class Dense(Stack):
        def encode(self, x, edge_index):
            out = torch.zeros_like(x)
            return x + out.index_add_(0, edge_index[1], x[edge_index[0]])

    with pytest.raises(UnsupportedModelError, match="num_hops must be given"):
        khop(Dense())
    assert khop(Dense(), num_hops=1).method == "khop"
    assert_equals_naive(Dense(), X, CASE, "khop", num_hops=1)
