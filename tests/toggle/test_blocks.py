"""Blocks of pairs, put together or one by one."""

import pytest
import torch

from linkcal.models import GCN
from linkcal.toggle import _kernel as fused
from linkcal.toggle import toggle_edges
from refusals import refuses

from .cases import MODELS, build_case, features, seeded

CASE = build_case(30, ["random", "star", "clique", "twins"], 21, undirected=True, loops=False, repeats=False)
X = features(30, 4, torch.float32)
FIELDS = ("absent", "present", "logit_absent", "logit_present", "in_graph")


def many_pairs() -> torch.Tensor:
    every = torch.combinations(torch.arange(30)).T
    return every[:, torch.randperm(every.size(1), generator=torch.Generator().manual_seed(0))]


def model_of(name: str) -> torch.nn.Module:
    return seeded(lambda: MODELS[name](4, 33, 7), 0)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("block_size", [1, 7, 100])
def test_block_size_changes_nothing(name, block_size):
    """Bit for bit in the link embeddings; logits are the model's own head on blocks of another length."""
    pairs = many_pairs()
    whole = toggle_edges(model_of(name), X, CASE.edge_index, pairs)
    parts = toggle_edges(model_of(name), X, CASE.edge_index, pairs, block_size=block_size)
    for field in FIELDS:
        ours, theirs = getattr(parts, field), getattr(whole, field)
        if not field.startswith("logit"):
            assert torch.equal(ours, theirs), field
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("places", [1, 2, 8])
def test_nodes_that_share_a_mark_change_nothing(places, weighted, monkeypatch):
    """Common neighbours are found, bit for bit the same, where nearly all nodes share their mark."""
    model, pairs = model_of("gcn"), many_pairs()
    edges = torch.cat([CASE.edge_index, CASE.edge_index[:, :1]], dim=1) if weighted else CASE.edge_index
    options = {"undirected": not weighted}
    alone = toggle_edges(model, X, edges, pairs, **options)
    monkeypatch.setattr(fused, "MARKS", places)
    shared = toggle_edges(model, X, edges, pairs, **options)
    assert shared.method == "kernel"
    for field in FIELDS:
        assert torch.equal(getattr(shared, field), getattr(alone, field)), field


def test_wrong_blocks_and_pairs():
    given = (model_of("gcn"), X, CASE.edge_index)
    refuses("block_size must be a whole number >= 1, got 0", toggle_edges, *given, CASE.pairs, block_size=0)
    refuses("two different nodes", toggle_edges, *given, torch.tensor([[1], [1]]))


def test_no_pairs():
    empty = torch.empty(2, 0, dtype=torch.int64)
    model = seeded(lambda: GCN(4, 5, 3), 0)
    assert toggle_edges(model, X, CASE.edge_index, empty).absent.shape == (0, 3)
