"""The model on subgraphs: exact for deterministic message passing, refused where it cannot be."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric import nn as pyg

from linkcal.models import GCN
from linkcal.toggle import toggle_edges
from linkcal.toggle._khop import KHop
from linkcal.toggle.api import toggle_engine
from refusals import unsupported
from users import DotProduct

from .cases import (
    MODELS,
    Case,
    assert_equals_naive,
    assert_same,
    build_case,
    features,
    path,
    seeded,
    toggle_cases,
)


class Stack(DotProduct):
    """A user's encoder: any layers, a skip connection, dot-product decoder."""

    def __init__(self, *convs: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def encode(self, x, edge_index):
        for conv in self.convs:
            out = conv(x, edge_index)
            x = torch.tanh(out + x if out.shape == x.shape else out)
        return x


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
    gat, sage_max, graph_conv, transformer, gcn_with_skip, jumping_knowledge, jumping_lstm,
    two_hops_in_one_layer, both_directions,
]  # fmt: skip


def with_an_edge_far_away(case):
    """And as many nodes again: else subgraphs may be most of the graph, which shows little and is refused."""
    first, both = case.num_nodes, [[0, 1], [1, 0]]
    edge_index = torch.cat([case.edge_index, first + torch.tensor(both)], dim=1)
    return replace(case, edge_index=edge_index, num_nodes=2 * first + 2)


@settings(max_examples=100)
@given(st.sampled_from(BUILDERS), toggle_cases(), st.sampled_from([1, 40, 10_000]))
def test_any_layers(build, case, max_batch_nodes):
    case = with_an_edge_far_away(case)
    model = seeded(build, case.seed).double()
    x = features(case.num_nodes, 3, torch.float64, case.seed)
    assert_equals_naive(model, x, case, "khop", max_batch_nodes=max_batch_nodes)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models_that_have_a_kernel_too(name):
    case = build_case(20, ["random", "clique"], 2, undirected=True, loops=False, repeats=False)
    model = seeded(lambda: MODELS[name](3, 4, 3), 0)
    assert_equals_naive(model, features(20, 3, torch.float32), case, "khop", "fast")


@pytest.mark.parametrize("build", [sage_max, graph_conv])
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


# --- what it must not be used for -------------------------------------------------------------------------

CASE = build_case(30, ["path", "path", "random"], 4, undirected=True, loops=False, repeats=False)
X = features(30, 3, torch.float32)


def khop(model, **options):
    return toggle_edges(model, X, CASE.edge_index, CASE.pairs, method="khop", **options)


@pytest.mark.parametrize("norm", ["GraphNorm", "PairNorm", "InstanceNorm", "LayerNorm"])
def test_refuses_norms_over_all_nodes(norm):
    model = seeded(lambda: pyg.GAE(pyg.GAT(3, 4, 2, 3, norm=norm)), 0)
    unsupported(rf"got {norm} at .*; use method='naive'", khop, model)
    auto = toggle_edges(model, X, CASE.edge_index, CASE.pairs)
    assert auto.method == "naive"


def test_refuses_too_few_hops():
    unsupported("must depend on 1 hops alone", khop, seeded(gcn_with_skip, 0), num_hops=1)


def test_more_hops_than_needed_change_nothing():
    assert_same(khop(seeded(gat, 0), num_hops=4), khop(seeded(gat, 0)))


def test_refuses_random_models():
    class Noisy(Stack):
        def encode(self, x, edge_index):
            return super().encode(x, edge_index) + torch.rand(x.size(0), 1)

    unsupported("gives nodes values by their number", khop, seeded(lambda: Noisy(pyg.GATConv(3, 3)), 0))


def test_refuses_an_encoder_tied_to_its_nodes():
    class Tied(Stack):
        def __init__(self):
            super().__init__(pyg.SAGEConv(3, 3, aggr="max"))
            self.table = nn.Parameter(torch.ones(30, 3))

        def encode(self, x, edge_index):
            return super().encode(x + self.table, edge_index)

    unsupported("must run on subgraphs", khop, seeded(Tied, 0))
    assert toggle_edges(seeded(Tied, 0), X, CASE.edge_index, CASE.pairs).method == "naive"


@pytest.mark.parametrize("error", [AssertionError, KeyError])
def test_an_encoder_that_refuses_subgraphs_goes_pair_by_pair(error):
    class Counting(pyg.SAGEConv):
        def forward(self, x, edge_index):
            if x.size(0) not in (2, 30):
                raise error
            return super().forward(x, edge_index)

    model = seeded(lambda: Stack(Counting(3, 3, aggr="max")), 0)
    unsupported(f"must run on subgraphs .* got {error.__name__}", khop, model)
    assert toggle_edges(model, X, CASE.edge_index, CASE.pairs).method == "naive"


MEETINGS = {
    "mean of the input": lambda h, x, _: h + x.mean(dim=0),
    "largest": lambda h, *_: h / h.abs().amax(dim=0),
    "attention": lambda h, *_: (h @ h.mT).softmax(dim=-1) @ h,
    "einsum": lambda h, *_: torch.einsum("nd,md->nd", h, h),
    "caught": lambda h, *_: caught(h),
    "by number": lambda h, *_: h + torch.arange(len(h)).view(-1, 1),
    "noise by number": lambda h, *_: h + torch.rand(h.shape, generator=torch.Generator().manual_seed(3)),
    "number of nodes": lambda h, *_: h / h.size(0),
    "more nodes": lambda h, *_: h if h.shape[0] < 4 else h.tanh(),
}


def caught(h):
    try:
        return h.cumsum(dim=0)
    except TypeError:
        return h


@pytest.mark.parametrize("name", MEETINGS)
def test_nodes_that_meet_behind_a_layer_that_is_not_known(name):
    """On graphs that subgraphs nearly cover, numbers alone would not show it."""

    class Meeting(Stack):
        def encode(self, x, edge_index):
            return MEETINGS[name](super().encode(x, edge_index), x, edge_index)

    model, edges = seeded(lambda: Meeting(pyg.SAGEConv(3, 3, aggr="max")), 0), path(6)
    case = Case(torch.cat([edges, edges + 6], dim=1), 12, True, torch.tensor([[0, 1], [1, 4]]), 0)
    given = (model, features(12, 3, torch.float32), case.edge_index, case.pairs)
    unsupported("must not mix nodes|must depend on 1 hops|at most 6", toggle_edges, *given, method="khop")
    assert_equals_naive(*given[:2], case, "auto")


def test_own_message_passing_needs_num_hops():
    class Dense(Stack):
        def encode(self, x, edge_index):
            out = torch.zeros_like(x)
            return x + out.index_add_(0, edge_index[1], x[edge_index[0]])

    unsupported("num_hops must be given", khop, Dense())
    assert khop(Dense(), num_hops=1).method == "khop"
    assert_equals_naive(Dense(), X, CASE, "khop", num_hops=1)


# --- what pairs share -----------------------------------------------------------------


class Hopping(DotProduct):
    """Any function of x and the arcs, dot-product decoder."""

    def __init__(self, *steps):
        super().__init__()
        self.steps = nn.ModuleList(step for step in steps if isinstance(step, nn.Module))
        self.order = steps

    def encode(self, x, edge_index):
        for step in self.order:
            x = step(x, edge_index)
        return x


def by_out_degree(x, edge_index):
    """Each node's features over the number of arcs that leave it; passes nothing."""
    return x / (1.0 + edge_index[0].bincount(minlength=x.size(0)).to(x).unsqueeze(1))


def plain_sum(x, edge_index):
    """A round that no hook sees."""
    return x + torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])


def savings_of(model, x, case, **options) -> bool:
    """Whether pairs share their rim and messages are left out; after comparison with naive."""
    assert_equals_naive(model, x, case, "khop", **options)
    engine = toggle_engine(model, x, case.edge_index, undirected=case.undirected, method="khop", **options)
    khop = engine._endpoints.__self__
    assert isinstance(khop, KHop)
    return khop.subgraphs.shared


def case_of(undirected):
    pieces = ["random", "star", "clique", "path", "twins"]
    return with_an_edge_far_away(build_case(40, pieces, 5, undirected=undirected, loops=True, repeats=True))


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("undirected", [True, False])
def test_each_kind_of_layer_has_all_savings(build, undirected):
    # Four rounds of both directions reach two hops far: on an undirected graph the rim at four is never read.
    backwards = build is both_directions and not undirected
    model, x = seeded(build, 1).double(), features(82, 3, torch.float64)
    assert savings_of(model, x, case_of(undirected)) is not backwards
    assert_equals_naive(model.float(), x.float(), case_of(undirected), "auto")


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize(
    ("build", "num_hops", "expected"),
    [
        # What a node sends depends on the arcs that leave it: the rim must not be shared.
        (lambda: Hopping(by_out_degree, pyg.GATConv(3, 3)), None, False),
        (lambda: Hopping(pyg.SAGEConv(3, 3), by_out_degree, pyg.SAGEConv(3, 3)), None, False),
        # A round that no hook sees.
        (lambda: Hopping(pyg.GATConv(3, 3), plain_sum), 2, True),
        (lambda: Hopping(plain_sum, pyg.GATConv(3, 3)), 2, True),
        (lambda: Stack(pyg.SAGEConv(3, 3, flow="target_to_source")), None, False),
    ],
)
def test_a_model_for_which_savings_are_wrong_has_none(build, num_hops, expected, undirected):
    model, x = seeded(build, 1).double(), features(82, 3, torch.float64)
    assert savings_of(model, x, case_of(undirected), num_hops=num_hops) is expected


class Walk(pyg.MessagePassing):
    """Each node receives its neighbours' shares: what they send over how many they send to."""

    def __init__(self):
        super().__init__(aggr="sum")

    def forward(self, x, edge_index):
        leaving = edge_index[0].bincount(minlength=x.size(0)).clamp(min=1).to(x)
        return self.propagate(edge_index, x=x, share=(1.0 / leaving)[edge_index[0]])

    def message(self, x_j, share):
        return share.unsqueeze(1) * x_j


@pytest.mark.parametrize("max_batch_nodes", [1, None])
@pytest.mark.parametrize("pairs", [[[3], [7]], [[3, 3], [7, 7]], [[3, 0, 9], [7, 3, 14]]])
def test_a_rim_that_happens_to_send_as_much_is_not_shared(pairs, max_batch_nodes):
    """Nodes of degree 2 in the rim of a pair that is there twice: by chance they send two messages."""
    edges = torch.cat([path(12), path(9) + 12], dim=1)
    case = Case(edges, 21, True, torch.tensor(pairs), 0)
    x = features(21, 3, torch.float64)
    assert savings_of(Hopping(Walk()), x, case, max_batch_nodes=max_batch_nodes) is False


def test_without_a_rim_nothing_is_shown_and_nothing_shared():
    """A clique: one hop from any pair is all of it at distance 1, two hops have no rim."""
    arcs = torch.tensor([(i, j) for i in range(6) for j in range(6) if i != j]).T
    clique = Case(arcs, 6, True, torch.tensor([[0, 1], [2, 5]]), 0)
    model, x = seeded(lambda: Hopping(pyg.GATConv(3, 3)), 0).double(), features(14, 3, torch.float64)
    case = with_an_edge_far_away(clique)
    assert savings_of(model, x, case) is True
    assert savings_of(model, x, case, num_hops=2) is False
    given = (model, x[:6], clique.edge_index, clique.pairs)
    unsupported("subgraphs must have at most 5 of the graph", toggle_edges, *given, method="khop", num_hops=2)


@pytest.mark.parametrize("backwards", [True, False])
def test_a_model_that_reads_arcs_backwards_does_not_share_on_directed_graphs(backwards):
    """0..9 each to two of 10..20."""
    senders = torch.arange(10)
    edges = torch.cat([torch.stack([senders, senders + 10]), torch.stack([senders, senders + 11])], dim=1)
    case = Case(edges, 21, False, torch.tensor([[12, 2, 2], [15, 5, 12]]), 0)
    flow = "target_to_source" if backwards else "source_to_target"
    model = seeded(lambda: Hopping(pyg.SAGEConv(3, 3, flow=flow)), 0).double()
    assert savings_of(model, features(21, 3, torch.float64), case) is not backwards


class ByKind(DotProduct):
    """A layer per kind of arc, left out where there is no such arc; new kinds come first."""

    def __init__(self):
        super().__init__()
        plain = {"root_weight": False, "bias": False}
        self.rounds = nn.ModuleList(
            nn.ModuleList([pyg.SAGEConv(3, 3, **plain), pyg.SAGEConv(3, 3)]) for _ in range(2)
        )

    def encode(self, x, edge_index):
        kind = (x[edge_index, 0] > 50).int().diff(dim=0)[0].abs()
        h = x / x.abs().amax(dim=1, keepdim=True)
        for across, along in self.rounds:
            within, between = edge_index[:, kind == 0], edge_index[:, kind == 1]
            h = torch.tanh(along(h, within) + (across(h, between) if between.size(1) else 0.0))
        return h


def test_rounds_that_a_toggle_adds_are_not_mistaken_for_others():
    """The whole graph has no arc between the two kinds of nodes, so a layer more runs once there is one."""
    x = features(12, 3, torch.float64)
    x[10:, 0] += 100.0
    edges = torch.cat([path(5), path(5) + 5], dim=1)
    pairs = torch.tensor([[1, 2, 1], [4, 10, 3]])
    model = seeded(ByKind, 0).double()
    assert_equals_naive(model, x, Case(edges, 12, True, pairs, 0), "khop", num_hops=2)
    unsupported("pass messages 2 times, as on the whole graph, got 4", toggle_edges, model, x, edges, pairs)
