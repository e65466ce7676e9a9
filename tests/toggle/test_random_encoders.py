"""Encoders composed at random of pieces that toggling can and cannot follow: never a wrong number.

LINKCAL_ENCODERS is the number of models, LINKCAL_ENCODERS_SEED the first one's seed.
"""

import os
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric import nn as pyg
from torch_geometric.utils import add_self_loops, degree, dropout_edge, to_undirected

from linkcal.data import simulate_graph
from linkcal.exceptions import UnsupportedModelError
from linkcal.toggle import toggle_edges
from users import DotProduct

from .cases import PIECES, assert_same, build_case, features, seeded
from .test_recognise import ByOutDegree, OwnMessage

NUMBER, FIRST = (
    int(os.environ.get(f"LINKCAL_ENCODERS{end}", default)) for end, default in (("", 60), ("_SEED", 0))
)


def gin():
    return pyg.GINConv(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4)), eps=0.3)


class OnOtherEdges(nn.Module):
    """A convolution on edges made of the given ones."""

    def __init__(self, change):
        super().__init__()
        self.conv, self.change = pyg.GCNConv(4, 4), change

    def forward(self, h, edges):
        return self.conv(h, self.change(edges, h.size(0)))


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(4, 4)
        self.conv.register_message_forward_hook(lambda _module, _given, messages: messages.relu())

    def forward(self, h, edges):
        return self.conv(h, edges)


CONVS = {
    "gcn": lambda: pyg.GCNConv(4, 4),
    "gcn without loops": lambda: pyg.GCNConv(4, 4, add_self_loops=False),
    "gcn sum": lambda: pyg.GCNConv(4, 4, normalize=False, bias=False),
    "light": pyg.LGConv,
    "light sum": lambda: pyg.LGConv(normalize=False),
    "sage": lambda: pyg.SAGEConv(4, 4),
    "sage sum": lambda: pyg.SAGEConv(4, 4, aggr="sum", root_weight=False),
    "sage projected": lambda: pyg.SAGEConv(4, 4, project=True, normalize=True),
    "graph conv": lambda: pyg.GraphConv(4, 4, aggr="mean"),
    "gin": gin,
    "gin of identity": lambda: pyg.GINConv(nn.Identity(), train_eps=True),
    "gat": lambda: pyg.GATConv(4, 2, heads=2, residual=True),
    "gat averaged": lambda: pyg.GATConv(4, 4, heads=3, concat=False, add_self_loops=False),
    "gat 2": lambda: pyg.GATv2Conv(4, 4, share_weights=True),
    "transformer": lambda: pyg.TransformerConv(4, 2, heads=2, beta=True),
}
BAD_CONVS = {
    "max": lambda: pyg.SAGEConv(4, 4, aggr="max"),
    "own message": lambda: OwnMessage(4, 4),
    "out-degrees": ByOutDegree,
    "hooked": Hooked,
    "loops added": lambda: OnOtherEdges(lambda edges, number: add_self_loops(edges, num_nodes=number)[0]),
    "undirected": lambda: OnOtherEdges(lambda edges, number: to_undirected(edges, num_nodes=number)),
    "reversed": lambda: OnOtherEdges(lambda edges, _: edges.flip(0)),
    "half": lambda: OnOtherEdges(lambda edges, _: edges[:, : edges.size(1) // 2]),
    "not dropped": lambda: OnOtherEdges(lambda edges, _: dropout_edge(edges, training=False)[0]),
    "by number of edges": lambda: OnOtherEdges(
        lambda edges, _: edges if edges.size(1) % 4 else edges.flip(0)
    ),
}


def relu_in_place(h, *_):
    h = h * 2.0
    h.relu_()
    h += 1.0
    return h


def caught(h, *_):
    try:
        return h - h.mean(dim=0)
    except TypeError:
        return h


def branch(h, *_):
    return h.relu() if float(h.sum()) > 0 else h.tanh()


def seeded_noise(h, *_):
    return h + torch.randn(h.shape, generator=torch.Generator().manual_seed(3), dtype=h.dtype)


def by_heads(h, *_):
    return h.view(-1, 2, 2).softmax(dim=-1).flatten(1) * h.norm(dim=-1, keepdim=True)


def by_turned_heads(h, *_):
    heads = h.view(-1, 2, 2)
    return heads.mul(heads.transpose(1, 2)).permute(0, 2, 1).reshape(h.size(0), 4)


GOOD = {
    "relu": lambda h, *_: functional.relu(h), "elu": lambda h, *_: functional.elu(h, inplace=False),
    "leaky": lambda h, *_: functional.leaky_relu(h, 0.1), "tanh": lambda h, *_: torch.tanh(h),
    "scaled": lambda h, *_: 0.5 * h - 0.1,
    "dropout": lambda h, *_: functional.dropout(h, 0.5, training=False),
    "normalised": lambda h, *_: functional.normalize(h, dim=-1),
    "softmax": lambda h, *_: h.log_softmax(dim=1),
    "layer norm": lambda h, *_: functional.layer_norm(h, (4,)), "residual": lambda h, x, _: h + x,
    "gated": lambda h, x, _: torch.where(h > 0, h, x.sigmoid()),
    "halves": lambda h, *_: torch.cat([h[:, 2:], h[..., :2] * h.mean(dim=1, keepdim=True)], dim=-1),
    "stacked": lambda h, x, _: torch.stack([h, x], dim=-1).max(dim=-1)[0],
    "input's mean": lambda h, x, _: h + x.mean(dim=0),
    "input's order": lambda h, x, _: h * x.argsort(dim=0), "in place": relu_in_place,
    "by heads": by_heads, "noise": seeded_noise, "turned": by_turned_heads,
    "constant": lambda h, *_: h + torch.linspace(-1, 1, 4, dtype=h.dtype),
    "by number": lambda h, *_: h + torch.arange(h.size(0))[:, None] / 10,
}  # fmt: skip
BAD = {
    "mean": lambda h, *_: h - h.mean(dim=0),
    "virtual node": lambda h, *_: h + h.mean(dim=0, keepdim=True).tanh(),
    "total": lambda h, *_: h / h.norm(),
    "most": lambda h, *_: h / h.abs().max(dim=0).values.clamp(min=1.0),
    "sorted": lambda h, *_: h.sort(dim=0).values,
    "ranked": lambda h, *_: h.argsort(dim=0).to(h) / h.size(0), "rolled": lambda h, *_: h.roll(1, dims=0),
    "flipped": lambda h, *_: h.flip(0), "running": lambda h, *_: h.cumsum(dim=0) / 10,
    "softmax of nodes": lambda h, *_: h.softmax(dim=0),
    "attention": lambda h, *_: (h @ h.mT).softmax(dim=-1) @ h,
    "einsum": lambda h, *_: torch.einsum("nd,md->nd", h, h.tanh()) / 10,
    "by size": lambda h, *_: h / h.size(0), "by half": lambda h, *_: h.relu() if len(h) > 9 else h,
    "by last": lambda h, *_: h + h[-1:], "deviation": lambda h, *_: h / (1 + h.std()),
    "columns": lambda h, *_: functional.normalize(h, dim=0), "gram": lambda h, *_: h @ (h.T @ h).tanh(),
    "reshaped": lambda h, *_: h.reshape(4, -1).t().reshape(-1, 4),
    "some rows": lambda h, *_: h[torch.arange(h.size(0)) // 2],
    "batch statistics": lambda h, *_: functional.batch_norm(h, None, None, training=True),
    "degree": lambda h, _, edges: h * degree(edges[1], h.size(0), h.dtype)[:, None],
    "number of edges": lambda h, _, edges: h * (edges.size(1) / 10), "caught": caught, "branch": branch,
    "array": lambda h, *_: h + torch.from_numpy(np.tanh(h.numpy()).mean(axis=0)),
    "where it is positive": lambda h, *_: h + (h > 0).sum(dim=0),
}  # fmt: skip


class Random(DotProduct):
    """Convolutions and functions, one after the other, with a second way around some of them."""

    def __init__(self, rng, harm):
        super().__init__()
        depth, kinds = int(rng.integers(1, 4)), list(CONVS)
        names = [kinds[rng.integers(len(kinds))]] * depth
        if rng.random() < 0.6:
            names = [kinds[place] for place in rng.integers(len(kinds), size=depth)]
        self.convs = nn.ModuleList(CONVS[name]() for name in names)
        if rng.random() < 0.2:
            self.convs[-1] = self.convs[0]  # the same weights twice
        self.steps = [
            [list(GOOD)[place] for place in rng.integers(len(GOOD), size=rng.integers(0, 4))] for _ in names
        ]
        self.functions = dict(GOOD)
        if harm:
            place = int(rng.integers(depth))
            name = [*BAD, *BAD_CONVS][rng.integers(len(BAD) + len(BAD_CONVS))]
            if name in BAD:
                self.steps[place].insert(int(rng.integers(len(self.steps[place]) + 1)), name)
                self.functions[name] = BAD[name]
            else:
                self.convs[place] = BAD_CONVS[name]()
            names.append(name)
        self.first = nn.Linear(4, 4) if rng.random() < 0.5 else nn.Identity()
        self.norm = [None, pyg.BatchNorm(4), nn.LayerNorm(4)][rng.integers(3)]
        self.way = ("chain", "residual", "gate", "all", "most")[rng.integers(5)]
        self.last = nn.Linear(4 * (depth + 1), 3) if self.way == "all" else None
        self.description = f"{names} {self.steps} {self.way} {type(self.norm).__name__}"

    def encode(self, x, edge_index):
        h = x = self.first(x)
        kept = [h]
        for conv, steps in zip(self.convs, self.steps, strict=True):
            new = conv(h, edge_index)
            new = new if self.norm is None else self.norm(new)
            for name in steps:
                new = self.functions[name](new, x, edge_index)
            if self.way == "residual":
                new = new + h
            elif self.way == "gate":
                new = new * h.sigmoid() + 0.1 * x
            h = new
            kept.append(h)
        if self.last is not None:
            return self.last(torch.cat(kept, dim=-1))
        return torch.stack(kept, dim=-1).amax(dim=-1) if self.way == "most" else h


def outcome(seed: int) -> str:
    """The method that ``auto`` chose; an error that describes the model if its numbers are not naive ones."""
    rng = np.random.default_rng(seed)
    undirected, harm = bool(rng.random() < 0.7), bool(rng.random() < 0.5)
    pieces = [PIECES[place] for place in rng.integers(len(PIECES), size=3)]
    case = build_case(
        int(rng.integers(5, 25)), pieces, seed, undirected=undirected, loops=bool(rng.random() < 0.2),
        repeats=bool(rng.random() < 0.2),
    )  # fmt: skip
    model = seeded(lambda: Random(rng, harm), seed).double()
    for parameter in model.parameters():  # biases and attention differ from 0
        nn.init.uniform_(parameter, -0.8, 0.8, generator=torch.Generator().manual_seed(seed))
    x = features(case.num_nodes, 4, torch.float64, seed)
    given = (model, x, case.edge_index, case.pairs)
    try:
        naive = toggle_edges(*given, undirected=undirected, method="naive")
    except UnsupportedModelError:
        return "refused"
    found = toggle_edges(*given, undirected=undirected)
    try:
        assert_same(found, naive)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {found.method}: {model.description}") from error
    return found.method if harm else f"{found.method} of good pieces"


@pytest.mark.filterwarnings("ignore")
def test_random_encoders_have_naive_numbers():
    methods = Counter(outcome(FIRST + place) for place in range(NUMBER))
    assert methods["refused"] < NUMBER / 10
    assert min(methods[name] for name in ("khop", "naive")) >= NUMBER / 60, methods
    assert min(methods[f"{name} of good pieces"] for name in ("kernel", "delta")) >= NUMBER / 20, methods
    # Rounding alone may stop one: a layer norm divides by a spread that is nearly 0.
    assert sum(methods[f"{name} of good pieces"] for name in ("khop", "naive")) <= NUMBER / 60, methods


@pytest.mark.parametrize("last", ["normalised", "relu, normalised", "clamped"])
@pytest.mark.parametrize(
    "inside", [torch.relu, lambda h: 1.0 * h, functional.normalize], ids=["relu", "none", "unit"]
)
@pytest.mark.parametrize("conv", ["gcn sum", "sage sum", "sage mean", "graph"])
def test_a_vector_that_a_toggle_leaves_at_zero_is_not_normalised_rounding(conv, inside, last):
    """A leaf without its edge: kernels and delta subtract, which leaves 1e-8 of it, and a direction."""
    makes = {
        "gcn sum": lambda: pyg.GCNConv(6, 6, normalize=False, bias=False),
        "sage sum": lambda: pyg.SAGEConv(6, 6, aggr="sum", root_weight=False, bias=False),
        "sage mean": lambda: pyg.SAGEConv(6, 6, root_weight=False, bias=False),
        "graph": lambda: pyg.GraphConv(6, 6, bias=False),
    }
    ends = {
        "normalised": lambda h: functional.normalize(h, dim=-1),
        "relu, normalised": lambda h: functional.normalize(h.relu(), dim=-1),
        "clamped": lambda h: h / h.norm(dim=-1, keepdim=True).clamp(min=1e-9),
    }
    for seed in range(4):
        graph = simulate_graph(60, num_edges=70, num_features=6, seed=seed)
        model = seeded(lambda: Chain([makes[conv]() for _ in range(3)], inside, ends[last]), seed)
        given = (model, graph.x, graph.edge_index, graph.pairs)
        found, naive = toggle_edges(*given), toggle_edges(*given, method="naive")
        assert found.method in ("kernel", "delta")
        assert (found.logit_absent - naive.logit_absent).abs().max() < 1e-5


class Chain(DotProduct):
    def __init__(self, convs, inside, last):
        super().__init__()
        self.convs, self.inside, self.last = nn.ModuleList(convs), inside, last

    def encode(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = self.inside(conv(x, edge_index))
        return self.last(self.convs[-1](x, edge_index))
