"""Threads: one engine or one model shared by many gives the sequential numbers, bit for bit."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch_geometric import nn as pyg

from linkcal.models import GCN
from linkcal.toggle import toggle_edges
from linkcal.toggle.api import toggle_engine

from .cases import MODELS, build_case, features, seeded

CASE = build_case(40, ["random", "star", "clique", "twins"], 3, undirected=True, loops=False, repeats=False)
X = features(40, 4, torch.float32)
PAIRS = torch.combinations(torch.arange(40)).T
FIELDS = ("absent", "present", "logit_absent", "logit_present", "in_graph")


def gat():
    return pyg.GAE(pyg.GAT(4, 6, 2, 3, heads=2, dropout=0.5))


def largest():
    return pyg.GAE(pyg.GraphSAGE(4, 6, 2, 3, aggr="max", dropout=0.5))


def many(work):
    """Results of eight parts of the pairs, each by a thread, three rounds."""
    parts = [PAIRS[:, start::8] for start in range(8)]
    with ThreadPoolExecutor(8) as pool:
        return parts, [list(pool.map(work, parts)) for _ in range(3)]


def assert_identical(found, expected):
    for name in FIELDS:
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


BUILDERS = {
    "gcn": lambda: GCN(4, 5, 3, dropout=0.5),
    "deep gcn": lambda: GCN(4, 5, 3, num_layers=3, dropout=0.5),
    "gin": lambda: MODELS["gin"](4, 5, 3, dropout=0.5),
    "elu, by delta": lambda: pyg.GAE(pyg.GCN(4, 5, 2, 3, act="elu", dropout=0.5)),
    "gat, by delta": gat,
    "largest, by khop": largest,
}


@pytest.mark.parametrize("shared", [True, False], ids=["one engine", "one model"])
@pytest.mark.parametrize("name", BUILDERS)
def test_eight_threads(name, shared):
    model = seeded(BUILDERS[name], 0).train()
    modes = [module.training for module in model.modules()]
    hooks = [len(vars(module)["_forward_hooks"]) for module in model.modules()]
    engine = toggle_engine(model, X, CASE.edge_index)

    def work(pairs):
        assert all(module.training for module in model.modules())
        return engine.toggle(pairs) if shared else toggle_edges(model, X, CASE.edge_index, pairs)

    parts, rounds = many(work)
    expected = [toggle_edges(model, X, CASE.edge_index, part) for part in parts]
    for found in rounds:
        for ours, theirs in zip(found, expected, strict=True):
            assert_identical(ours, theirs)
    assert [module.training for module in model.modules()] == modes
    assert [len(vars(module)["_forward_hooks"]) for module in model.modules()] == hooks
