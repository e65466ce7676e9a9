"""Messages that no asked embedding depends on: which are left out, and that nothing changes by it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import degree, softmax

from linkcal.toggle import toggle_edges
from linkcal.toggle._khop import MessageTrimmer, arc_arguments
from linkcal.toggle._recognise import watching_messages
from linkcal.toggle.api import toggle_engine

from .cases import Case, assert_equals_naive, assert_same, build_case, features, seeded
from .test_khop import BUILDERS, Stack

PATH = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])


class Listening(pyg.MessagePassing):
    """Sums with a weight per arc that the layer works out itself; remembers how many messages it passed."""

    def __init__(self, flow="source_to_target"):
        super().__init__(aggr="sum", flow=flow)
        self.passed = []

    def forward(self, x, edge_index):
        receiver = edge_index[1 if self.flow == "source_to_target" else 0]
        weight = 1.0 / degree(receiver, x.size(0), dtype=x.dtype)[receiver]
        return x + self.propagate(edge_index, x=x, weight=weight, attention=softmax(weight, receiver))

    def message(self, x_j, weight, attention):
        self.passed.append(x_j.size(0))
        return (weight + attention).unsqueeze(1) * x_j


def test_messages_of_a_path_by_hand():
    """0-1-2-3-4, asked for node 2: the last round passes two messages, the one before six of eight."""
    first, second = Listening(), Listening()
    model = Stack(first, second).double()
    x = features(5, 3, torch.float64)
    with watching_messages(model, x.size(0)) as watched:
        whole = model.encode(x, PATH)
    trimmer = MessageTrimmer(model, watched.rounds)
    with trimmer.trimming(torch.tensor([2, 1, 0, 1, 2], dtype=torch.int8)):
        trimmed = model.encode(x, PATH)
    assert (first.passed, second.passed) == ([8, 6], [8, 2])
    assert torch.equal(trimmed[2], whole[2])
    assert not torch.equal(trimmed[0], whole[0])
    assert torch.equal(model.encode(x, PATH), whole)  # the hooks are gone


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("undirected", [True, False])
def test_arguments_per_arc_go_with_their_arcs(flow, undirected):
    case = build_case(40, ["random", "star", "clique"], 5, undirected=undirected, loops=True, repeats=True)
    model = Stack(Listening(flow), Listening(flow), Listening(flow)).double()
    assert_equals_naive(model, features(40, 3, torch.float64), case, "khop")


@pytest.mark.parametrize("build", BUILDERS)
def test_trimmed_layers_pass_fewer_messages(build, monkeypatch):
    """Of a long path with one pair asked, whatever the layer: else trimming would be off unseen."""
    passed = {}
    original = MessageTrimmer.__call__

    def counting(self, module, arguments):
        result = original(self, module, arguments)
        before, after = passed.get(id(self), (0, 0))
        left = arguments[0] if result is None else result[0]
        passed[id(self)] = before + arguments[0].size(1), after + left.size(1)
        return result

    monkeypatch.setattr(MessageTrimmer, "__call__", counting)
    line = torch.arange(39)
    edges = torch.cat([torch.stack([line, line + 1]), torch.stack([line + 1, line])], dim=1)
    model, x = seeded(build, 1).double(), features(40, 3, torch.float64)
    toggled, naive = (
        toggle_edges(model, x, edges, torch.tensor([[20], [23]]), method=method)
        for method in ("khop", "naive")
    )
    assert_same(toggled, naive)
    ((before, after),) = passed.values()
    assert after < before


def test_as_many_arcs_as_nodes():
    """A ring in one direction: rows per arc and per node cannot be told apart, so no message is left out."""
    ring = torch.stack([torch.arange(12), torch.arange(12).roll(-1)])
    layers = Listening(), Listening()
    model, x = Stack(*layers).double(), features(12, 3, torch.float64)
    with watching_messages(model, x.size(0)) as watched:
        model.encode(x, ring)
    assert watched.rounds == [(layer, None) for layer in layers]
    pairs = torch.tensor([[0, 3], [1, 9]])
    toggled, naive = (
        toggle_edges(model, x, ring, pairs, undirected=False, method=method) for method in ("khop", "naive")
    )
    assert toggled.method == "khop"
    assert_same(toggled, naive)


def test_arguments_of_every_kind():
    arcs = torch.tensor([[0, 1, 2], [1, 2, 0]])
    per_node, per_arc = torch.ones(4, 2), torch.ones(3)
    assert arc_arguments(arcs, {"x": (per_node, per_node), "size": None, "w": per_arc}, 4) == {"w"}
    assert arc_arguments(arcs, {"x": per_node, "scale": torch.tensor(2.0)}, 4) == frozenset()
    assert arc_arguments(arcs, {"x": per_node, "pair": (per_arc, None)}, 4) is None
    assert arc_arguments(arcs, {"x": per_node, "named": {"w": per_arc}}, 4) is None
    assert arc_arguments(torch.ones(3, 3), {"x": per_node}, 4) is None
    assert arc_arguments(nn.Parameter(torch.ones(2, 3)), {"x": per_node}, 4) is None
    assert arc_arguments(arcs, {"query": torch.ones(3, 2), "w": per_arc}, 3) is None


class Greatest(pyg.MessagePassing):
    """Sums, in a way that needs some message: what it sizes its result by."""

    def __init__(self):
        super().__init__(aggr=None)
        self.lin = nn.Linear(3, 3)

    def forward(self, x, edge_index):
        return x + self.propagate(edge_index, x=self.lin(x))

    def message(self, x_j):
        return x_j

    def aggregate(self, inputs, index, dim_size):
        heard = inputs.new_zeros(int(index.max()) + 1, inputs.size(1)).index_add_(0, index, inputs)
        return torch.cat([heard, heard.new_zeros(dim_size - heard.size(0), inputs.size(1))])


def test_a_round_is_never_left_without_messages():
    """0 -> 1 -> 2: without 0 -> 1 no endpoint hears anything, but the layer runs as on the whole graph."""
    line = torch.stack([torch.arange(6), torch.arange(1, 7)])
    model = seeded(lambda: Stack(Greatest(), Greatest()), 0).double()
    case = Case(line, 7, False, torch.tensor([[0, 2], [1, 5]]), 0)
    x = features(7, 3, torch.float64)
    with watching_messages(model, 7) as watched:
        whole = model.encode(x, line[:, 1:])
    trimmer = MessageTrimmer(model, watched.rounds)
    distance = torch.tensor([0, 0, 1, 2, 3, 4, 5], dtype=torch.int8)
    with trimmer.trimming(distance):
        trimmed = model.encode(x, line[:, 1:])
    assert trimmer.fits
    assert torch.equal(trimmed[:2], whole[:2])
    assert_equals_naive(model, x, case, "khop")


class ByKind(nn.Module):
    """A layer per kind of arc, left out where there is no such arc; new kinds come first."""

    decode_returns = "logits"

    def __init__(self):
        super().__init__()
        plain = {"root_weight": False, "bias": False}
        self.rounds = nn.ModuleList(
            nn.ModuleList([pyg.SAGEConv(3, 3, **plain), Listening()]) for _ in range(2)
        )

    def encode(self, x, edge_index):
        kind = (x[edge_index, 0] > 50).int().diff(dim=0)[0].abs()
        h = x / x.abs().amax(dim=1, keepdim=True)
        for across, along in self.rounds:
            within, between = edge_index[:, kind == 0], edge_index[:, kind == 1]
            h = torch.tanh(along(h, within) + (across(h, between) if between.size(1) else 0.0))
        return h

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def test_rounds_that_a_toggle_adds_are_not_mistaken_for_others():
    """The whole graph has no arc between the two kinds of nodes, so its second layer comes in round two."""
    x = features(12, 3, torch.float64)
    x[10:, 0] += 100.0
    edges = torch.cat([PATH, PATH + 5], dim=1)
    model = seeded(ByKind, 0).double()
    with watching_messages(model, 12) as watched:
        model.encode(x, edges)
    trimmer = MessageTrimmer(model, watched.rounds)
    distance = torch.tensor([2, 1, 0, 1, 2] + [9] * 5 + [0, 9], dtype=torch.int8)
    joined = torch.cat([edges, torch.tensor([[2, 10], [10, 2]])], dim=1)
    with trimmer.trimming(distance):
        model.encode(x, edges)
    assert trimmer.fits
    with trimmer.trimming(distance):
        model.encode(x, joined)
    assert not trimmer.fits
    # Two batches of pairs within one kind vouch for the model, and a pair across comes later.
    engine, naive = (
        toggle_engine(model, x, edges, sample=torch.tensor([[2], [3]]), method=method, num_hops=2)
        for method in ("khop", "naive")
    )
    for pairs in (torch.tensor([[1], [4]]), torch.tensor([[2, 1], [10, 3]])):
        assert_same(engine.toggle(pairs), naive.toggle(pairs))


def test_more_rounds_than_distances_can_tell():
    """Distances are 8 bits wide; 300 rounds keep what is nearer than all that they can say."""
    layer = pyg.APPNP(K=300, alpha=0.001)
    line = torch.arange(399)
    edges = torch.cat([torch.stack([line, line + 1]), torch.stack([line + 1, line])], dim=1)
    model, x = Stack(layer).double(), features(400, 3, torch.float64)
    with watching_messages(model, 400) as watched:
        whole = model.encode(x, edges)
    trimmer = MessageTrimmer(model, watched.rounds)
    with trimmer.trimming((torch.arange(400) - 200).abs().clamp(max=127).to(torch.int8)):
        trimmed = model.encode(x, edges)
    assert torch.equal(trimmed[200], whole[200])
