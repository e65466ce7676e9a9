"""Messages that no asked embedding depends on: which are left out, and that nothing changes by it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import degree, softmax

from linkcal.toggle import toggle_edges
from linkcal.toggle.trimming import MessageTrimmer, arc_arguments
from linkcal.toggle.watching import watching_messages

from .cases import assert_equals_naive, assert_same, build_case, features, seeded
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
    with watching_messages(model) as watched:
        whole = model.encode(x, PATH)
    trimmer = MessageTrimmer(model, watched.per_arc)
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
    with watching_messages(model) as watched:
        model.encode(x, ring)
    assert watched.per_arc == [None, None]
    pairs = torch.tensor([[0, 3], [1, 9]])
    toggled, naive = (
        toggle_edges(model, x, ring, pairs, undirected=False, method=method) for method in ("khop", "naive")
    )
    assert toggled.method == "khop"
    assert_same(toggled, naive)


def test_arguments_of_every_kind():
    arcs = torch.tensor([[0, 1, 2], [1, 2, 0]])
    per_node, per_arc = torch.ones(4, 2), torch.ones(3)
    assert arc_arguments(arcs, {"x": (per_node, per_node), "size": None, "w": per_arc}) == {"w"}
    assert arc_arguments(arcs, {"x": per_node, "scale": torch.tensor(2.0)}) == frozenset()
    assert arc_arguments(arcs, {"x": per_node, "pair": (per_arc, None)}) is None
    assert arc_arguments(arcs, {"x": per_node, "named": {"w": per_arc}}) is None
    assert arc_arguments(torch.ones(3, 3), {"x": per_node}) is None
    assert arc_arguments(nn.Parameter(torch.ones(2, 3)), {"x": per_node}) is None
